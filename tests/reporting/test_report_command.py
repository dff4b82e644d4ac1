"""fedldp report: pages, documents, and exports to other libraries."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from pages import Page

pytestmark = pytest.mark.usefixtures("folder_of_its_own")


def test_a_page_of_several_runs(fedldp_command: Any, runs: dict[str, Path]) -> None:
    outcome = fedldp_command("report", *runs.values())
    assert (outcome.status, outcome.err) == (0, "")
    assert outcome.out.split() == ["report", "report.html"]
    assert "2 runs compared" in Page(Path("report.html").read_text()).text()
    again = fedldp_command("report", runs["quickstart"])
    assert again.status == 0  # our own page is replaced
    assert "runs compared" not in Path("report.html").read_text()


def test_every_run_writes_its_page(runs: dict[str, Path]) -> None:
    for name, folder in runs.items():
        assert Page((folder / "report.html").read_text()).text("h1") == f"{name} on digits"


def test_a_file_that_is_not_a_report_is_kept(fedldp_command: Any, runs: dict[str, Path]) -> None:
    Path("report.html").write_text("<p>mine</p>")
    line = fedldp_command("report", runs["quickstart"]).assert_refused()
    assert "out = report.html" in line
    assert Path("report.html").read_text() == "<p>mine</p>"
    assert "not a run folder" in fedldp_command("report", ".").assert_refused()
    assert fedldp_command("report", runs["quickstart"], "--out", "no/x.html").assert_refused()


def test_a_missing_library_is_reported_in_one_line(
    fedldp_command: Any, runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    line = fedldp_command("report", runs["quickstart"], "--tensorboard", "there").assert_refused()
    assert "pip install 'fedldp[tensorboard]'" in line
    assert not Path("there").exists()


@pytest.mark.filterwarnings("ignore")
def test_tensorboard_reads_the_rounds(fedldp_command: Any, runs: dict[str, Path]) -> None:
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    place = runs["quickstart"]
    assert fedldp_command("report", place, "--tensorboard", "logs").status == 0
    found = reader.EventAccumulator("logs/1-quickstart")
    found.Reload()
    expected = [r["accuracy"] for r in json.loads((place / "summary.json").read_text())["rounds"]]
    events = found.Scalars("accuracy")
    assert [event.step for event in events] == [1, 2, 3]
    assert [event.value for event in events] == pytest.approx(expected)
    spent = [event.value for event in found.Scalars("epsilon_client_run_server")]
    assert spent == pytest.approx(spent_in(place))
    assert (
        "exists already"
        in fedldp_command("report", place, "--tensorboard", "logs").assert_refused()
    )


def spent_in(place: Path) -> list[float]:
    lines = map(json.loads, (place / "metrics.jsonl").read_text().splitlines())
    found = [
        one["epsilon"] for line in lines for one in line["spent"] if one["adversary"] == "server"
    ]
    assert len(found) == 3
    assert found == sorted(set(found))
    return found
