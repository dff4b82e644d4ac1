"""Commands exactly as newcomers typed them in a trial."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from documents import SHORT

from fedldp.cli import run as cli_run
from fedldp.core.errors import DataMissing, RunError
from fedldp.core.kinds import FEWER_THAN_PLANNED
from fedldp.data import folder
from fedldp.data.download import fetch
from fedldp.data.sources import SOURCES
from fedldp.reporting import words
from fedldp.simulation import engine

pytestmark = pytest.mark.usefixtures("folder_of_its_own")


DEEP = "[" * 100_000


def test_a_text_with_commas_is_a_text(fedldp_command: Any) -> None:
    given = ("--set", "dataset=a,b.csv", "--set", 'label_column="1,2"')
    assert fedldp_command("run", *given, "--print-config").status == 0


def test_deeply_nested_and_very_long_values_are_refused_in_one_line(fedldp_command: Any) -> None:
    for given, says in (
        (f"epsilon={DEEP}", "set epsilon: its value is nested too deeply"),
        (f"epsilon={'[' * 300}{']' * 300}", "give a number"),
        (f"seed={'9' * 5000}", "or has thousands of digits"),
        (f"seed=0x{'f' * 5000}", "seed = "),
    ):
        line = fedldp_command("run", "--set", given).assert_refused()
        assert says in line
        assert len(line) < 600
    for text in (f"x = {DEEP}", f"x = {'9' * 5000}"):
        Path("it.toml").write_text(text)
        assert "recipe it.toml: " in fedldp_command("run", "it.toml").assert_refused()
    Path("here").mkdir()
    Path("here/config.json").write_text(DEEP)
    assert "is damaged" in fedldp_command("run", "--resume", "here").assert_refused()


# Help


def test_shells_can_complete(fedldp_command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--install-completion" in fedldp_command("--help").out
    monkeypatch.setenv("_FEDLDP_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "fedldp acc")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert fedldp_command().out.split() == ["account"]
    monkeypatch.setenv("COMP_WORDS", "fedldp run quick")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert fedldp_command().out.split() == ["quickstart"]


# Before training


def test_no_more_workers_than_cores(fedldp_command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0}, raising=False)
    outcome = fedldp_command("run", *SHORT, "--workers", 100_000, "--json")
    assert outcome.status == 0
    assert outcome.err.startswith("workers    1 instead of 100,000: this machine has no more cores")
    assert "in place of" not in fedldp_command("run", *SHORT, "--workers", 1).err


def test_the_remedy_for_missing_data_names_the_folder(
    fedldp_command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = fedldp_command("run", "fedavg-mnist", "--data-dir", "my data").assert_refused()
    assert line.endswith("with: fedldp data fetch mnist --data-dir 'my data'")
    monkeypatch.setenv("FEDLDP_DATA", "my data")
    line = fedldp_command("run", "fedavg-mnist").assert_refused()
    assert line.endswith("with: fedldp data fetch mnist")


# What is left behind


def test_a_failed_fetch_leaves_no_folder_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    import httpx

    def offline(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("offline")

    client = httpx.Client(transport=httpx.MockTransport(offline))
    monkeypatch.setattr(httpx, "Client", lambda **how: client)
    with pytest.raises(DataMissing):
        fetch("mnist", Path("a/b"))
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("part", ["Population", "_pool", "Loop"])
def test_a_failed_run_leaves_no_folder_behind(
    fedldp_command: Any, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RunError("it was not to be")

    monkeypatch.setattr(engine, part, fail)
    assert fedldp_command("run", *SHORT).err.endswith("error: it was not to be\n")
    assert list(Path().iterdir()) == []
    Path("out").mkdir()
    assert fedldp_command("run", *SHORT, "--out", "out/a/b").status == 2
    assert list(Path().rglob("*")) == [Path("out")]


def test_verifying_an_incomplete_data_set_fails(
    fedldp_command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mnist = SOURCES["mnist"]
    where = tmp_path / mnist.folder
    where.mkdir()
    first, second, *others = (where / file.name for file in mnist.files)
    there = {first}
    monkeypatch.setattr(
        folder, "checksum_status", lambda path, _: "ok" if path in there else "missing"
    )
    outcome = fedldp_command("data", "verify", "--data-dir", tmp_path)
    assert outcome.status == 2
    assert f"{second} is missing: fetch it with `fedldp data fetch NAME`" in outcome.err
    there |= {second, *others}
    assert fedldp_command("data", "verify", "--data-dir", tmp_path).status == 0


# What is shown


@pytest.mark.parametrize("same_place", [True, False])
def test_a_statement_is_shown_once_unless_another_one_holds(
    fedldp_command: Any, monkeypatch: pytest.MonkeyPatch, same_place: bool
) -> None:
    monkeypatch.setattr(cli_run, "one_place", lambda: same_place)
    outcome = fedldp_command("run", *SHORT)
    assert "client-run" in outcome.err
    assert ("client-run" in outcome.out) != same_place
    assert ("privacy    as stated above\n" in outcome.out) == same_place
    assert outcome.out.count("\nsetting    epsilon 1 per weight against a server") == 1
    shown = engine.Displayed.of
    fewer = SimpleNamespace(of=lambda holds: shown(holds.warning(FEWER_THAN_PLANNED)))
    monkeypatch.setattr(engine, "Displayed", fewer)
    assert words.line(FEWER_THAN_PLANNED) in " ".join(fedldp_command("run", *SHORT).out.split())
