"""The papers' claims: each has a verdict, and a claim that does not hold has an explanation."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from fedldp.algorithms.recipes import find_recipe
from fedldp.core.errors import ConfigError
from fedldp.reproduction import papers, results
from fedldp.reproduction.claims import PaperClaim, halves, near, rising
from fedldp.reproduction.papers import NO_CAUSE, PAPERS, claims_of, judged, proven_table
from fedldp.reproduction.results import data_digests, digest

CLAIMS = [claim for paper in PAPERS for claim in claims_of(paper)]


@pytest.mark.slow
@pytest.mark.spare
def test_every_claim_that_does_not_hold_has_a_cause_or_says_that_none_is_known() -> None:
    verdicts = [judged(claim)[1] for claim in CLAIMS]
    for claim, verdict in zip(CLAIMS, verdicts, strict=True):
        assert NO_CAUSE not in verdict, (claim.place, claim.says)
        assert verdict.startswith(("agrees", "does not: ", "not measured: ")), claim.says
    assert len(CLAIMS) > 90
    for start in ("agrees", "does not: ", "not measured: "):
        assert sum(verdict.startswith(start) for verdict in verdicts) > 3


def test_a_claims_cells_have_a_source_and_a_place_for_their_numbers() -> None:
    for claim in CLAIMS:
        assert all(find_recipe(name.partition("@")[0]).source for name in claim.cells), claim.says
        assert claim.ours.count("{") or not claim.cells, claim.says


def test_shares_of_linked_messages_agree_with_the_linkage_page() -> None:
    """The page's first table is about any of 100 clients, for T = 0.1, 1, 10, 100 and 1000 s."""
    page = (Path(__file__).parents[2] / "docs" / "linkage.md").read_text(encoding="utf-8")
    table = page.partition("<!-- made delay-any-100 -->")[2].partition("<!-- end -->")[0]
    shares = {
        line.split("|")[1].strip(): re.findall(r"([\d.]+)\*{0,2} \(", line)
        for line in table.strip().splitlines()
    }
    said = " ".join(claim.ours for claim in claims_of("ldp_fl") if "linkage.md" in claim.ours)
    exact, printed, second, predicted = (
        shares[clocks]
        for clocks in (
            "as the paper assumes",
            "Algorithm 3 as printed: nobody waits",
            "clocks off by 1 s",
            "own times predicted to 10 %",
        )
    )
    assert f"{exact[0]} % of messages are linked at T = 0.1 s" in said
    assert f"{second[0]} and {second[3]} % of messages are linked; {predicted[0]} %" in said
    assert f"{printed[0]} and {printed[3]} % of messages are linked" in said


def published(name: str, mean: float, deviation: float | None, seeds: int) -> results.Published:
    config = find_recipe(name).config
    return results.Published(
        recipe=name, digest=digest(config, data_digests(config)[0]), rounds=config.rounds,
        seeds=list(range(seeds)), mean=mean, deviation=deviation, after={}, device="cpu",
        hardware="", date="2026-01-01",
    )  # fmt: skip


@pytest.fixture
def committed(monkeypatch: pytest.MonkeyPatch) -> dict[str, results.Published]:
    found: dict[str, results.Published] = {}
    monkeypatch.setattr("fedldp.reproduction.comparison.published", lambda: found)
    return found


PAIR = ("ldp-fl-mnist", "fedavg-mnist")


def test_verdicts_follow_from_the_committed_results(committed: dict[str, Any]) -> None:
    claim = PaperClaim(
        place="5", says="ninety", cells=PAIR[:1], ours="{:.1f}", holds=near(90, 1), cause="C"
    )
    assert judged(claim)[0] == "-"
    assert judged(claim)[1].startswith("not measured: 3 CPU minutes")
    committed["a"] = published(PAIR[0], 0.895, None, 1)
    assert judged(claim) == ("89.5", "agrees")
    committed["a"] = published(PAIR[0], 0.88, None, 1)
    assert judged(claim) == ("88.0", "does not: C")


@pytest.mark.parametrize(("deviation", "seeds", "holds"), [
    (None, 1, True), (0.02, 3, False), (0.02, 8, True), (0.01, 3, True),
])  # fmt: skip
def test_an_order_holds_by_more_than_the_standard_error(
    deviation: float | None, seeds: int, holds: bool, committed: dict[str, Any]
) -> None:
    """A gap of 0.0101, with a standard error of 0.0163, 0.01 or 0.008."""
    committed["low"] = published(PAIR[0], 0.90, deviation, seeds)
    committed["high"] = published(PAIR[1], 0.9101, deviation, seeds)
    for cells, above in ((PAIR, rising(2)), (PAIR[::-1], halves(2))):
        claim = PaperClaim(place="5", says="more", cells=cells, ours="{:.1f}, {:.1f}", above=above)
        assert (judged(claim)[1] == "agrees") is holds
        assert judged(PaperClaim(**{**vars(claim), "cells": cells[::-1]}))[1] != "agrees"


@pytest.mark.parametrize(("gap", "holds"), [(0.0101, False), (0.0099, True), (-0.5, True)])
def test_a_value_that_is_not_above_may_exceed_by_the_standard_error(
    gap: float, holds: bool, committed: dict[str, Any]
) -> None:
    """The standard error of the difference is 0.01."""
    committed["low"] = published(PAIR[0], 0.40, 0.016, 4)
    committed["high"] = published(PAIR[1], 0.40 + gap, 0.012, 4)
    claim = PaperClaim(
        place="5", says="no more", cells=PAIR[::-1], ours="{:.1f}, {:.1f}", not_above=halves(2)
    )
    assert (judged(claim)[1] == "agrees") is holds


@pytest.mark.parametrize(("gap", "holds"), [(0.0081, True), (0.0079, False)])
def test_a_cell_given_twice_in_a_group_counts_twice(
    gap: float, holds: bool, committed: dict[str, Any]
) -> None:
    """The standard error of one cell given twice is 0.008; for two cells it would be 0.0057."""
    committed["low"] = published(PAIR[0], 0.90, None, 1)
    committed["high"] = published(PAIR[1], 0.90 + gap, 0.016, 4)
    claim = PaperClaim(
        place="5", says="more", cells=PAIR, ours="{:.1f}, {:.1f}", above=(((1, 1), (0, 0)),)
    )
    assert (judged(claim)[1] == "agrees") is holds


def test_a_claim_may_be_about_an_earlier_round_or_no_recipe(committed: dict[str, Any]) -> None:
    row = published(PAIR[0], 0.9, None, 1)
    committed["a"] = dataclasses.replace(row, after={"5": [0.7, None]})
    claim = PaperClaim(place="5", says="early", cells=(f"{PAIR[0]}@5",), ours="{:.1f}")
    assert judged(claim) == ("70.0", "agrees")
    claim = PaperClaim(place="5", says="dear", ours="", cost="3 CPU days")
    assert judged(claim) == ("-", "not measured: 3 CPU days")


def test_a_statement_is_shown_with_its_claim_and_units_without_a_guarantee() -> None:
    lines = proven_table("ldp-fl-mnist-model-shuffling priority-digits").splitlines()
    assert any("**claimed** | | **1** | 0" in line for line in lines)
    assert "| `priority-digits` | client-run | server | none | | |" in lines
    assert all(line.count("|") == 7 for line in lines)


def test_an_unknown_paper_is_refused() -> None:
    with pytest.raises(
        ConfigError, match="paper ldpf: there is no paper of that name; choose ldp_fl,"
    ):
        papers.claims_table("ldpf")
