"""The page of an audit is one file with all results, and all text is escaped."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_results import result

from fedldp.audit.attacks.intervals import curve, judged
from fedldp.audit.page import page
from fedldp.audit.results import AttackResult, Audit, Estimate, GameResult, Picture
from fedldp.reporting.html import BEGINS

OK = GameResult(
    subject="Mine(<b>)", attack="corners", lower=0.5, size=1, unit="client-round", claimed=1.0,
    proven=1.0, confidence=0.99, trials=2_000, verdict="ok", note="far",
)  # fmt: skip
BROKEN = replace(OK, claimed=0.25, verdict="claim-broken")
BUG = replace(OK, proven=0.25, verdict="bug")
UNREAD = replace(OK, lower=0.0, confidence=None, trials=0, verdict="fails its contract")


def audit(*rows: GameResult) -> Audit[GameResult]:
    return Audit(subject="<script>mine</script>", confidence=0.999, seed=7, rows=rows)


def found() -> list[AttackResult]:
    generator = np.random.default_rng(0)
    truth = generator.random(400) < 0.5
    roc = curve(generator.normal(size=400) + truth, truth, np.arange(400) // 10, seed=0)
    shared: dict[str, Any] = {"against": "a report", "setting": "small clients"}
    image = generator.random((1, 8, 8)).astype(np.float32)
    attacks = [
        judged("ldp_fl", "membership", "LiRA", "AUC", roc.auc, baseline=0.5, roc=roc, **shared),
        judged("ldp_fl", "inversion", "first layer", "error",
               Estimate(value=0.5, low=0.4, high=0.6), baseline=1.0,
               pictures=(Picture(original=image, recovered=image),), **shared),
        judged("ldp_fl", "property", "share", "AUC", None, baseline=0.5, note="cannot be made",
               **shared),
    ]  # fmt: skip
    return [*attacks, result("linkage"), result("poisoning")]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (OK, "No figure was refuted."),
        (BROKEN, "A published claim does not hold."),
        (BUG, "A figure that was said to be proven does not hold."),
        (UNREAD, "No figure was refuted, but a mechanism fails its contract."),
    ],
)
def test_the_worst_verdict_comes_first(row: GameResult, words: str) -> None:
    text = page(audit(OK, row))
    assert words in text.split("<h2>")[0]
    assert ('broken">' in text) is (row is not OK)


def test_rows_that_were_not_played_are_told_first() -> None:
    """An audit of which nothing was played must not look like one that found nothing."""
    left = replace(OK, lower=0.0, verdict=None, note="not played: too late")
    lead = page(audit(left, left)).split("<h2>")[0]
    assert "No figure was refuted. 2 of 2 rows were not played: too late." in lead
    assert 'broken">' not in page(audit(OK, left))
    assert "not played" not in page(audit(OK))


@pytest.mark.slow
def test_the_page_is_one_file_with_all_findings_and_escaped_text() -> None:
    text = page(audit(OK), found())
    assert text.count("<svg") == 1  # for the attack that decides the verdict
    assert text.count('src="data:image/png;base64,') == 2
    for words in ("0.500 [0.400, 0.600]", "cannot be made", "at confidence 0.99; ", "50.0", "10 %"):
        assert words in text
    assert text.startswith(BEGINS)
    assert "<script" not in text
    assert "&lt;script&gt;mine" in text
    assert "Mine(&lt;b&gt;)" in text
    sources = re.findall(r'(?:src|href)="([^"]*)"', text)
    assert sources
    assert all(each.startswith(("data:", "#")) for each in sources)


@pytest.mark.slow
def test_the_command_writes_the_page_and_replaces_no_other_file(
    fedldp_command: Any, tmp_path: Path
) -> None:
    arguments = ("audit", "--mechanism", "two_point", "--brief", "--trials", 20, "--workers", 1)
    other = tmp_path / "thesis.html"
    other.write_text("years of work")
    line = fedldp_command(*arguments, "--page", other).assert_refused()
    assert "thesis.html" in line
    assert other.read_text() == "years of work"
    place = tmp_path / "audit.html"
    done = fedldp_command(*arguments, "--page", place)
    assert done.status == 0
    assert "TwoPoint" in place.read_text()
