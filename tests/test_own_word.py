"""A figure that relies on what a user's code states says so, and is never called proven."""

from __future__ import annotations

import csv
import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from documents import SHORT

import fedldp
from fedldp.cli import run as cli_run
from fedldp.reporting.html import page
from fedldp.simulation.result import read_run

MECHANISM = """
from dataclasses import dataclass
from fedldp.mechanisms.two_point import TwoPoint

@dataclass(frozen=True)
class Bits(TwoPoint):
    name = "bits"
"""
SYSTEM = """
from typing import Literal
from fedldp.papers.ldp_fl.preset import ldp_fl
from fedldp.accounting.guarantees import EpsilonMeaning

class Mine(ldp_fl):
    system: Literal["own_word_system:Mine"] = "own_word_system:Mine"

    @property
    def epsilon_meaning(self):
        return EpsilonMeaning("weight", "proven")
"""
OWN = "own_word:Bits"
FREE_OF_IT = re.compile(
    r"nothing here proves|fedldp does not prove it|is not proven|"
    r"infinity where nothing is proven"
)
"""The only ways in which a text with such a figure may use the word: to deny it."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own_word.py").write_text(MECHANISM)
    (tmp_path / "own_word_system.py").write_text(SYSTEM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def assert_nothing_is_called_proven(text: str, by: str = OWN) -> None:
    plain = " ".join(unescape(text).split())
    assert by in plain
    assert not re.search(r"\bprove[ns]?\b", FREE_OF_IT.sub("", plain)), plain


def test_a_statement_says_on_whose_word_it_relies(fedldp_command: Any) -> None:
    shown = fedldp_command("account", "--set", f"mechanism={OWN}").out
    assert_nothing_is_called_proven(shown)
    assert "stated by" in shown
    assert f"If what {OWN} states is true, a server that can link" in " ".join(shown.split())
    assert "true epsilon is at least" not in shown
    statement = fedldp.account("quickstart", mechanism=OWN)
    assert_nothing_is_called_proven(statement._repr_html_())
    assert "<th>stated by</th>" in statement._repr_html_()
    ours = fedldp.account("quickstart")
    assert "stated by" not in ours._repr_html_() + repr(ours)


def test_the_last_line_of_a_run_marks_its_figure(
    fedldp_command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_run, "one_place", lambda: True)  # the statement was shown before
    for more, setting in (
        ((), "epsilon 1 per weight against a server (proven)"),
        (("--set", f"mechanism={OWN}"), "epsilon 1 per weight against a server (claimed)"),
    ):
        shown = fedldp_command("run", *SHORT, *more).out
        assert re.search("^privacy +as stated above$", shown, re.M)
        (line,) = [li for li in shown.splitlines() if li.startswith("setting ")]
        assert line.endswith(setting)
    shown = fedldp_command("run", "fedavg-quickstart", *SHORT).out
    assert "\nsetting " not in shown  # without an epsilon


def test_a_users_system_proves_nothing_about_its_setting(fedldp_command: Any) -> None:
    Path("mine.toml").write_text(
        fedldp_command("run", "quickstart", "--print-config").out.replace(
            'system = "ldp_fl"', 'system = "own_word_system:Mine"'
        )
    )
    shown = fedldp_command("account", "mine.toml").out
    assert "per weight against a server (claimed)" in shown
    assert_nothing_is_called_proven(shown, "own_word_system:Mine")


def test_a_page_says_on_whose_word_it_relies(fedldp_command: Any) -> None:
    for name, mechanism in (("own", OWN), ("ours", "two_point")):
        ran = fedldp_command("run", *SHORT, "--set", f"mechanism={mechanism}", "--out", name)
        assert ran.status == 0, ran.err
    alone = page([read_run(Path("own"))])
    assert_nothing_is_called_proven(re.sub(r"<style>.*?</style>", "", alone, flags=re.S))
    both = page([read_run(Path("own")), read_run(Path("ours"))])
    assert "the proven epsilon" in both
    assert f", stated by {OWN}</td>" in both
    ours = page([read_run(Path("ours"))])
    assert "stated by" not in ours
    assert "What can be proven." in ours


@pytest.mark.slow
def test_a_sweep_says_on_whose_word_each_figure_relies(fedldp_command: Any, folder: Path) -> None:
    command = ("sweep", *SHORT[:2], *SHORT[4:], "--seeds", "0", "--workers", "1", "--out", "swept")
    ran = fedldp_command(*command, "--grid", f"mechanism={OWN},two_point")
    assert ran.status == 0, ran.err
    head, _, rest = ran.out.partition("\n")[2].partition("\n")
    assert "stated by" in head
    assert "proven" not in head
    lines = [line for line in rest.splitlines() if line.startswith("│")]
    assert [line.count(OWN) for line in lines if OWN in line] == [2]
    assert f"what {OWN} states is an assumption that nothing here proves" in ran.out

    document = json.loads((folder / "swept" / "results.json").read_text())
    assert [run["stated_by"] for run in document["runs"]] == [OWN, "fedldp"]
    assert [row["stated_by"] for row in document["table"]] == [OWN, "fedldp"]
    rows = (folder / "swept" / "results.csv").read_text().splitlines()
    own, ours = csv.DictReader(row for row in rows if not row.startswith("#"))
    assert (own["stated_by"], own["proven_epsilon"], own["proven_delta"]) == (OWN, "inf", "0.0")
    assert own["stated_epsilon"] == ours["stated_epsilon"] == ours["proven_epsilon"]
    assert own["stated_delta"] == ours["stated_delta"] == ours["proven_delta"]
    assert ours["stated_by"] == "fedldp"
    chart = (folder / "swept" / "chart.svg").read_text()
    assert f"(stated by {OWN})" in chart
    assert "proven epsilon" not in chart
