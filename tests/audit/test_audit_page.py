"""The page of an audit: one file, all text escaped, with what was found in it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedldp.audit.attacks import Attack, Estimate, Picture
from fedldp.audit.attacks.results import curve
from fedldp.audit.linkage import Link, Linkage
from fedldp.audit.mechanisms import Row
from fedldp.audit.page import Beside, page
from fedldp.audit.poisoning import Poisoned, Poisoning
from fedldp.audit.verdicts import Audit
from fedldp.reporting import charts
from fedldp.reporting.html import GENERATOR

OK = Row(
    mechanism="Mine(<b>)", size=1, unit="client-round", delta=0.0, claimed=1.0, proven=1.0,
    lower=0.5, confidence=0.99, trials=2_000, attack="corners", verdict="ok", note="far",
)  # fmt: skip
BROKEN = replace(OK, claimed=0.25, verdict="claim-broken")
BUG = replace(OK, proven=0.25, verdict="bug")


def audit(*rows: Row) -> Audit:
    return Audit(subject="<script>mine</script>", confidence=0.999, seed=7, rows=rows)


def found() -> Beside:
    generator = np.random.default_rng(0)
    truth = generator.random(400) < 0.5
    roc = curve(generator.normal(size=400) + truth, truth, np.arange(400) // 10, seed=0)
    shared: dict[str, Any] = {"against": "a report", "setting": "small clients"}
    image = generator.random((1, 8, 8)).astype(np.float32)
    attacks = [
        Attack(kind="membership", name="LiRA", measure="AUC", result=roc.auc, baseline=0.5,
               roc=roc, **shared),
        Attack(kind="inversion", name="first layer", measure="error", baseline=1.0,
               result=Estimate(value=0.5, low=0.4, high=0.6),
               pictures=(Picture(original=image, recovered=image),), **shared),
        Attack(kind="property", name="share", measure="AUC", result=None, baseline=0.5,
               note="cannot be made", **shared),
    ]  # fmt: skip
    link = Link(
        channel="shuffler", span="within", evidence="time", attack="ranks", clocks="honest",
        target="any", clients=100, delay_seconds=10.0, chunk=1, guessing=0.01, hits=50, trials=100,
        low=0.4, high=0.6, confidence=0.99, verdict="linked",
    )  # fmt: skip
    lie = Poisoned(
        system="ldp_fl", attack="report", share=0.05, liars=5, clients=100, seed=0, accuracy=0.5,
        lost=0.375, stopped="",
    )  # fmt: skip
    return Beside(
        attacks=attacks,
        links=Linkage(system="ldp_fl", confidence=0.999, seed=0, rows=(link,)),
        lies=Poisoning(system="ldp_fl", rounds=5, influences=(), rows=(lie,)),
    )


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (OK, "No figure was refuted."),
        (BROKEN, "A published claim does not hold."),
        (BUG, "A figure that was said to be proven does not hold."),
    ],
)
def test_the_worst_verdict_is_said_first(row: Row, words: str) -> None:
    text = page(audit(OK, row))
    assert words in text.split("<h2>")[0]
    assert ('broken">' in text) is (row is not OK)


def test_it_is_one_file_whose_text_is_escaped() -> None:
    text = page(audit(OK), found())
    assert GENERATOR in text[:1000]
    assert "<script" not in text
    assert "&lt;script&gt;mine" in text
    assert "Mine(&lt;b&gt;)" in text
    sources = re.findall(r'(?:src|href)="([^"]*)"', text)
    assert sources
    assert all(each.startswith(("data:", "#")) for each in sources)


def test_it_shows_what_was_found() -> None:
    text = page(audit(OK), found())
    assert text.count("<svg") == 1  # of the one attack that decides
    assert text.count('src="data:image/png;base64,') == 2
    for words in ("0.500 [0.400, 0.600]", "cannot be made", ">linked<", "37.5", "5 %"):
        assert words in text
    assert "Clients that lie" not in page(audit(OK))


def test_without_matplotlib_there_are_figures_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charts, "available", lambda: False)
    text = page(audit(OK), found())
    assert "<svg" not in text
    assert "<img" not in text
    assert "0.500 [0.400, 0.600]" in text


def test_the_command_writes_it_and_replaces_no_other_file(
    fedldp_command: Any, tmp_path: Path
) -> None:
    arguments = ("audit", "--mechanism", "two_point", "--quick", "--trials", 20, "--workers", 1)
    other = tmp_path / "thesis.html"
    other.write_text("years of work")
    line = fedldp_command(*arguments, "--page", other).assert_refused()
    assert "thesis.html" in line
    assert other.read_text() == "years of work"
    place = tmp_path / "audit.html"
    for _ in range(2):  # one of ours is replaced
        done = fedldp_command(*arguments, "--page", place)
        assert done.status == 0
        assert "TwoPoint" in place.read_text()
