"""Statements about reports of one category each, shuffled as whole reports."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from fedldp.accounting.accountants import from_record, shuffled_loss
from fedldp.accounting.events import PureReport, SubsetResponse, to_record
from fedldp.accounting.numerics.blanket import Subset, blanket_epsilon
from fedldp.accounting.prices import cost
from fedldp.accounting.releases import ReleaseHistory
from fedldp.accounting.statement import ShufflerInPath, statement
from fedldp.core.errors import ConfigError
from fedldp.mechanisms.k_closest import KClosest
from fedldp.mechanisms.k_rr import KRR
from fedldp.mechanisms.nearest_direction import NearestDirection

EVENT = SubsetResponse(high=7, low=1, closest=1, categories=4)
SUBSET = Subset(high=7, low=1, closest=1, categories=4)
PAGE = Path(__file__).parents[2] / "docs" / "privacy" / "proofs_shuffled_reports.md"


def made(
    participants: dict[int, Any], *, clients: int = 100, untrusted: int = 0, delta: float = 1e-5
) -> list[dict[str, Any]]:
    """Return the lines of a run whose clients release ``EVENT`` in each of their rounds."""
    released = ReleaseHistory.planned({EVENT: range(clients)}, participants)
    path = ShufflerInPath(chunk=1, untrusted_clients=untrusted, prediction_error=0.0)
    found: list[dict[str, Any]] = statement(released, claim=None, shuffler=path, delta=delta)[
        "guarantees"
    ]
    return found


def shuffled(lines: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {line["unit"]: line for line in lines if line["adversary"] == "shuffled-server"}


def test_a_round_and_a_run_have_the_figures_of_the_blanket() -> None:
    found = shuffled(made({1: None, 2: None, 3: None}))
    assert list(found) == ["client-round", "client-run"]
    assert found["client-round"]["epsilon"] == blanket_epsilon(SUBSET, 100, 1e-5)
    assert found["client-run"]["epsilon"] == blanket_epsilon(SUBSET, 100, 1e-5, 3)
    for line in found.values():
        assert (line["kind"], line["delta"], line["lower"]) == ("approximate", 1e-5, None)
        assert "privacy blanket (Balle, Bell, Gascon, Nissim 2019)" in line["method"]
        assert line["stated_by"] == "fedldp"


def test_a_line_states_all_its_assumptions() -> None:
    run = shuffled(made({1: None, 2: None}, untrusted=5))["client-run"]["assumptions"]
    text = "; ".join(run)
    assert "95 honest reports in every round, each one of 4 categories, of which 1 have" in text
    assert "a client's second report in a round is dropped and does not count" in text
    assert "a shuffler that the server does not control puts out only the reports" in text
    assert "the seed of a report is fresh" in text
    assert "does not depend on the data" in text
    assert "the client takes part in at most 2 rounds" in run


def test_a_client_that_answers_once_is_hidden_by_its_own_round_alone() -> None:
    once = {1: range(40), 2: range(40, 70), 3: range(70, 100)}
    found = shuffled(made(once))
    assert found["client-run"]["epsilon"] == blanket_epsilon(SUBSET, 30, 1e-5)
    assert found["client-run"]["epsilon"] == found["client-round"]["epsilon"]
    assert "30 honest reports" in " ".join(found["client-run"]["assumptions"])


def test_without_other_clients_nothing_is_hidden() -> None:
    alone = shuffled(made({1: None}, clients=1))["client-round"]
    assert alone["epsilon"] <= SUBSET.epsilon
    assert alone["epsilon"] == pytest.approx(SUBSET.epsilon, rel=1e-4)
    colluding = shuffled(made({1: None}, untrusted=100))["client-round"]
    assert colluding["epsilon"] == alone["epsilon"]


def test_the_lines_without_the_shuffler_are_those_of_a_pure_report() -> None:
    pure = PureReport(epsilon=SUBSET.epsilon)
    released = ReleaseHistory.planned({pure: range(100)}, {1: None, 2: None})
    known = statement(released, claim=None, shuffler=None, delta=1e-5)["guarantees"]
    assert [line for line in made({1: None, 2: None}) if line["adversary"] == "server"] == known
    for kind in ("pure", "zcdp", "gdp"):
        assert cost(EVENT, kind) == cost(pure, kind)


def test_the_event_is_kept_under_its_name_and_read_back() -> None:
    large = SubsetResponse(high=2**64 - 1, low=2**53 + 1, closest=2, categories=4)
    assert to_record(large) == {
        "event": "SubsetResponse", "high": 2**64 - 1, "low": 2**53 + 1, "closest": 2,
        "categories": 4,
    }  # fmt: skip
    assert from_record(to_record(large)) == large
    with pytest.raises(ConfigError, match="closest = 3: give at most 2, half of the 4 categories"):
        from_record(to_record(EVENT) | {"closest": 3})


def test_a_report_with_only_an_epsilon_is_not_hidden() -> None:
    assert shuffled_loss(PureReport(epsilon=1.0)) is None
    mixed = ReleaseHistory.planned(
        {EVENT: range(5), PureReport(epsilon=1.0): range(5, 9)}, {1: None}
    )
    path = ShufflerInPath(chunk=1, untrusted_clients=0, prediction_error=0.0)
    with pytest.raises(ConfigError, match="sends one kind of bits, or of categories"):
        statement(mixed, claim=None, shuffler=path, delta=1e-5)


def rows(header: str) -> list[list[float]]:
    """Return the numbers of the page's table below a header."""
    below = PAGE.read_text(encoding="utf-8").split(header)[1].split("\n\n")[0]
    lines = below.strip().splitlines()[1:]
    return [[float(n) for n in re.findall(r"[\d.]+", line.replace(",", ""))] for line in lines]


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("row", rows("| `nearest_direction`, n = 100 | n = 1,000 | n = 10,000 |"))
def test_the_page_has_the_figures_of_the_mechanisms(row: list[float]) -> None:
    epsilon, *said = row
    choice = KClosest(epsilon, 1.0).choice(7850)
    blur: KRR = NearestDirection(epsilon, 1.0).choice.blur
    found = [
        blanket_epsilon(
            Subset(high=w.high, low=w.low, closest=w.width, categories=w.cells), n, 1e-5
        )
        for w in (choice.window, blur.window)
        for n in (100, 1_000, 10_000)
    ]
    for number, exact in zip(said, found, strict=True):
        assert exact <= number <= exact + 1.01e-3  # the page rounds up
