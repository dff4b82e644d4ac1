"""Tables of constants say of each row what it is, so that no two rows can be exchanged.

Most tables are words for a unit, an adversary or a kind of trust. Each row's words are sorted
back into a row, by the words that only that row may use.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, get_args

import pytest

from fedldp.accounting import accountants, guarantees, statement
from fedldp.accounting.accountants import BudgetKind, Side
from fedldp.accounting.events import GaussianReport, PureReport
from fedldp.accounting.guarantees import Adversary, Neighbours, Unit
from fedldp.accounting.prices import cost
from fedldp.algorithms.recipes import recipes
from fedldp.comparing import compared, proving
from fedldp.comparing.advising import advice, page, plan
from fedldp.core.errors import (
    AskedOtherwise,
    LedgerUnusable,
    NoLongerKept,
    OutOfTurn,
    OverBudget,
)
from fedldp.deployment import agreement, status, watch
from fedldp.integrations import client as node
from fedldp.ledgers import budget
from fedldp.mechanisms import two_point
from fedldp.protocol import client_runtime
from fedldp.protocol.wire import Reason
from fedldp.reporting import card, charts, text


def _unit(words: str) -> str:
    """Return which unit some words are about; what follows the first clause only explains it."""
    clause = re.split(r"[.:]", words)[0]
    for unit, pattern in (
        ("weight", r"\bweight\b"),
        ("person", r"\b(person|people)\b"),
        ("client-round", r"\bclient\b.*\bround\b"),
        ("client-run", r"\bclient\b"),
        ("record", r"\b(rows?|records?|example)\b"),
    ):
        if re.search(pattern, clause):
            return unit
    raise AssertionError(f"words about no unit: {words}")


def _adversary(words: str) -> str:
    """Return against which adversary some words are."""
    for adversary, word in (
        ("downlink", "broadcast"),
        ("shuffled-server", "shuffler"),
        ("summing-server", "sum"),
        ("server", "server"),
    ):
        if word in words:
            return adversary
    raise AssertionError(f"words about no adversary: {words}")


def _side(words: str) -> str:
    """Return in what neighbours differ, or what is sampled, according to some words."""
    found = re.search(r"client|takes part", words)
    return "client" if found else _unit(words)


def _trust(words: str) -> str:
    for trust, pattern in (
        ("none", r"nobody|any server"),
        ("sum", r"\bsums?\b"),
        ("central", r"one server|trusted server|no protection against the server"),
    ):
        if re.search(pattern, words, re.IGNORECASE):
            return trust
    raise AssertionError(f"words about no trust: {words}")


UNITS, ADVERSARIES, SIDES = set(get_args(Unit)), set(get_args(Adversary)), {"record", "person"}
TRUSTS = {"none", "sum", "central"}
ADVISED = {"record", "person", "client-run"}

TABLES: dict[str, tuple[Mapping[Any, str], Callable[[str], str], set[str]]] = {
    "card, units": (card._UNITS, _unit, UNITS),
    "lines, units": (text._FROM, _unit, UNITS),
    "compare, units": (compared._UNITS, _unit, UNITS),
    "proofs, units": (proving._UNITS, _unit, UNITS),
    "advice, units": (advice.UNITS, _unit, ADVISED),
    "advice, who is hidden": (page.WHO, _unit, ADVISED),
    "card, adversaries": (card._WHO_SEES, _adversary, ADVERSARIES),
    "lines, adversaries": (text._WHO, _adversary, ADVERSARIES),
    "charts, adversaries": (charts._AGAINST, _adversary, ADVERSARIES),
    "sides, neighbours": (guarantees.NEIGHBOURS, _side, SIDES | {"client"}),
    "what is sampled": (
        {side: words.replace("examples", "example") for side, words in guarantees.SECRET.items()},
        _side,
        SIDES | {"client"},
    ),
    "budgets": (budget._ONES, _side, SIDES | {"client"}),
    "advice, trust": (advice.TRUST_WORDS, _trust, TRUSTS),
    "advice, adversaries": (page.FROM, _trust, TRUSTS),
    "contestants": ({trust: name for trust, (name, _) in plan.TRUSTS.items()}, _trust, TRUSTS),
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.sampled(len(TABLES))
def test_each_row_is_about_its_own_key(name: str) -> None:
    table, meant, keys = TABLES[name]
    assert set(table) == keys
    assert {key: meant(words) for key, words in table.items()} == {key: key for key in keys}


def test_neighbours_of_a_card_differ_in_what_their_name_says() -> None:
    assert set(card._NEIGHBOURS) == set(get_args(Neighbours))
    for name, words in card._NEIGHBOURS.items():
        differ = words.removeprefix("two data sets are adjacent if ")
        assert _side(differ) == name.removeprefix("replace-")


def test_a_card_trusts_whom_the_line_trusts() -> None:
    for adversary, words in card._WHO_SEES.items():
        assert ("is not trusted" in words) == (adversary == "server")
        assert ("the server is trusted" in words) == (adversary == "downlink")


MODELS = {
    "server": {"person": "Federated", "record": "Federated"},
    "shuffled-server": dict.fromkeys(UNITS, "Shuffle"),
    "summing-server": dict.fromkeys(UNITS, "Federated"),
    "downlink": dict.fromkeys(UNITS, "Central"),
}
"""What the registry of deployments calls each kind of trust; "Local" where nothing is said."""


def test_a_cards_trust_model_is_the_registrys_for_each_line() -> None:
    for adversary in ADVERSARIES:
        for unit in UNITS:
            found = card._model({"adversary": adversary, "unit": unit})
            assert found == MODELS[adversary].get(unit, "Local"), (adversary, unit)
    assert card._VARIANTS == {"pure": "Pure DP", "approximate": "Approximate DP", "none": None}


def test_each_trust_has_the_channel_and_the_adversary_of_its_runs() -> None:
    people = recipes()["person-dp-sgd-digits"].config
    for trust, (_, adversary) in plan.TRUSTS.items():
        meaning = people.changed(channel=plan._CHANNELS[trust]).composition.calibration.meaning
        assert meaning is not None
        assert meaning.adversary == adversary
    assert {trust: adversary for trust, (_, adversary) in plan.TRUSTS.items()} == {
        "none": "server", "sum": "summing-server", "central": "downlink",
    }  # fmt: skip
    assert set(plan._CLIENTS) == TRUSTS
    for trust, (settings, _) in plan._CLIENTS.items():
        assert (settings["system"] == "central_dp") == (trust == "central")
        assert (settings.get("channel") == "sum") == (trust == "sum")


def test_what_is_not_hidden_follows_from_the_unit() -> None:
    assert set(page.NOT_HIDDEN) == ADVISED
    for unit, part in (("person", "most of its people"), ("record", "most of its rows")):
        assert part in page.NOT_HIDDEN[unit]
    assert page.NOT_HIDDEN["client-run"].startswith("If a person has rows at several clients")
    assert "example" in statement._PART_OF_CLIENT["record"]
    assert "person" in statement._PART_OF_CLIENT["person"]
    assert budget._OF_ONE == {
        "client": "", "person": " for each person", "record": " for each record",
    }  # fmt: skip
    assert set(budget._OF_ONE) == set(budget._ONES) == set(guarantees.NEIGHBOURS)


def test_budgets_are_in_the_unit_of_their_prices() -> None:
    assert cost(GaussianReport(mu=0.5, rho=0.125), "zcdp") == pytest.approx(0.125)
    assert cost(PureReport(epsilon=0.5), "pure") == pytest.approx(0.5)
    assert accountants.UNITS == {"pure": "epsilon", "zcdp": "rho", "gdp": "mu^2"}
    assert set(accountants.UNITS) == set(get_args(BudgetKind))
    assert set(get_args(Side)) >= SIDES


def test_bits_of_a_two_valued_report_limit_its_epsilon() -> None:
    assert two_point.LIMITS == {64: (1e-12, 32.0), 32: (1e-6, 10.0)}


# Refusals, states and own code

SAID = {
    "malformed": "cannot be read",
    "wrong-round": "no such round",
    "out-of-range": "out of range",
    "asked-otherwise": "a different request was answered",
    "over-budget": "does not cover another answer",
    "not-kept": "is not stored",
    "ledger": "cannot be used",
    "policy": "does not answer this request",
}


def test_a_refusal_names_its_own_reason() -> None:
    assert {
        OverBudget: Reason.OVER_BUDGET,
        AskedOtherwise: Reason.ASKED_OTHERWISE,
        NoLongerKept: Reason.NOT_KEPT,
        OutOfTurn: Reason.POLICY,
        LedgerUnusable: Reason.LEDGER,
    } == client_runtime._REASONS
    _assert_said(node._WORDS, SAID)
    assert set(node._WORDS) <= set(Reason)


AMISS = {
    "unseen": "never",
    "away": "is not there|no longer connected",
    "not-accepted": "has not accepted",
    "other-version": "another version",
    "refused": "refused",
}
IN_ORDER = {
    "ready": "is connected and has accepted",
    "asked": "^was asked$",
    "answered": "^has answered$",
}


def test_a_sites_state_is_said_in_its_own_words() -> None:
    _assert_said(status._AMISS, AMISS)
    _assert_said(watch._IN_WORDS, AMISS | IN_ORDER)
    assert {"refused", *IN_ORDER} == watch.TAKES_PART


def _assert_said(table: Mapping[Any, str], patterns: Mapping[str, str]) -> None:
    """Check that each row's words match its own pattern, and no other one."""
    assert {str(key) for key in table} == set(patterns)
    for key, words in table.items():
        found = {other for other, pattern in patterns.items() if re.search(pattern, words)}
        assert found == {str(key)}, words


def test_own_code_is_named_by_its_kind() -> None:
    assert agreement._MAY_BE_OWN == {
        "system": "systems",
        "mechanism": "mechanisms",
        "features": "features",
        "initial": "models",
        "loss": "models",
    }
