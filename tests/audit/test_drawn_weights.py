"""Mistakes in reports of one category are found by trials or by counting words; correct twins
pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import planted_categories as planted
import pytest
from planted import audit

from fedldp.audit import mechanism_checks
from fedldp.audit.efforts import QUICK
from fedldp.audit.mechanism_checks import WeightCheck
from fedldp.audit.mechanisms import planned_games
from fedldp.audit.observations import AuditKeys
from fedldp.mechanisms import find_mechanism

AT = replace(QUICK, mechanism_settings=((4.0, 64),))


def counted(cls: Any) -> Any:
    """Return the row of the exact check."""
    (check,) = [p for p in planned_games(cls, AT) if isinstance(p, WeightCheck)]
    (row,) = check.play(AuditKeys(0), 0.999)
    return row


@pytest.mark.slow
def test_a_private_k_is_found_by_trials() -> None:
    effort = replace(QUICK, mechanism_settings=((2.5, 64),), mechanism_most_words=0)
    (row, _) = audit("", [planted.PrivateK], effort=effort).rows
    assert row.verdict == "bug"
    assert row.proven == 2.5 < min(row.lower, row.finds or 0)


@pytest.mark.slow
@pytest.mark.parametrize("cls", [planted.OneMore, planted.RoundedUp])
def test_a_weight_that_is_off_by_one_is_found(cls: Any) -> None:
    assert counted(cls).verdict == "bug"


def test_a_refusal_of_an_input_of_which_few_words_are_tried_is_found() -> None:
    row = counted(planted.RefusesCorner)
    assert row.verdict == "bug"
    assert "the opposite corner: some reports come from only one" in row.attack


@pytest.mark.slow
def test_the_better_of_two_seeds_is_found() -> None:
    """Even if half of all inputs prefer the seed of the first: each of the others is a chance."""
    assert mechanism_checks._RANDOM > 10
    row = counted(planted.BetterSeed)
    assert row.verdict == "bug"
    assert "some reports come from only one" in row.attack


def test_weights_that_agree_with_the_statement_pass() -> None:
    row = counted(planted.Blurred)
    assert (row.verdict, row.note) == ("ok", "exact: the weights are as stated")
    assert row.lower == row.proven


@pytest.mark.slow
def test_mechanisms_whose_words_cannot_be_counted_are_named() -> None:
    row = counted(planted.Scattered)
    assert (row.verdict, row.lower) == ("ok", 0)
    assert row.note.startswith("unchecked")


@pytest.mark.slow
def test_fedldps_own_weights_pass() -> None:
    """CI's brief audits try those of all other mechanisms."""
    row = counted(find_mechanism("nearest_direction"))
    assert row.note == "exact: the weights are as stated"
