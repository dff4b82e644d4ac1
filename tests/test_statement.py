"""Statements: their figures, for whom they hold, and calibration."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
from documents import document
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tables import released

import fedldp
from fedldp.accounting.events import (
    BinaryRandomizedResponse,
    GaussianReport,
    InClear,
    PerRecord,
    PureReport,
)
from fedldp.accounting.guarantees import (
    Guarantee,
    guarantees_of,
    shuffled_guarantees,
)
from fedldp.accounting.numerics.gaussian import zcdp_epsilon
from fedldp.accounting.numerics.shuffle import LARGEST_EPSILON
from fedldp.accounting.prices import cost
from fedldp.accounting.statement import Statement, statement
from fedldp.core.formatting import number
from fedldp.core.kinds import ARRIVAL_TIMES, NUMBER_OF_EXAMPLES, SENT_IN_CLEAR, SIMULATED, WEIGHTS
from fedldp.mechanisms import mechanisms
from fedldp.reporting import words
from fedldp.reporting.words import explain
from fedldp.simulation.plan import plan, problem_of


def lines_of(privacy: Statement, unit: str, adversary: str = "server") -> list[Guarantee]:
    return [g for g in privacy.guarantees if (g.unit, g.adversary) == (unit, adversary)]


def epsilons(privacy: Statement, unit: str, adversary: str = "server") -> dict[str, float | None]:
    return {g.kind: g.epsilon for g in lines_of(privacy, unit, adversary)}


def planned(config: Any, **more: Any) -> Statement:
    return plan(config, problem_of(config, None), **more).privacy


def small(name: str = "quickstart", **changes: Any) -> Any:
    base = {"dataset": "digits", "model": "logistic", "num_clients": 6, "rounds": 2,
            "local_epochs": 1, "standardise": True}  # fmt: skip
    return fedldp.recipe(name, **{**base, **changes})


# The figures of the specification


def test_account_states_what_ldp_fl_protects_at_the_papers_settings(fedldp_command: Any) -> None:
    outcome = fedldp_command("account", "ldp-fl-mnist", "--json")
    assert outcome.status == 0
    privacy = Statement.from_json(document(outcome.out))
    assert privacy.claim is not None
    assert (privacy.claim.epsilon, privacy.claim.unit) == (1.0, "weight")
    assert epsilons(privacy, "weight") == {"pure": 1.0}
    each, run = epsilons(privacy, "client-round"), epsilons(privacy, "client-run")
    assert each["pure"] == 21_840
    assert each["approximate"] == pytest.approx(10_647.8103421534, abs=1e-9)
    assert run["pure"] == 218_400
    assert run["approximate"] == pytest.approx(102_689.98, abs=0.005)
    one, *_ = lines_of(privacy, "weight", "shuffled-server")
    assert one.epsilon == pytest.approx(0.407817894709581, abs=1e-9)
    for unit, low, high in (("client-round", 185.09765, 252.80219), ("client-run", 1405.4, 1991.9)):
        (line,) = lines_of(privacy, unit, "shuffled-server")
        assert line.lower == pytest.approx(low, rel=1e-4)
        assert line.epsilon == pytest.approx(high, rel=1e-4)
    assert all(g.neighbours == "replace-client" for g in privacy.guarantees)
    assert SIMULATED in privacy.warnings


# Before and after a run


# Mixed budgets


def test_untrusted_clients_do_not_hide_anyone() -> None:
    crowd = planned(small(num_clients=6, untrusted_clients=2))
    smaller = planned(small(num_clients=4))
    none = planned(small(num_clients=6, untrusted_clients=5))
    for unit in ("weight", "client-round", "client-run"):
        found = epsilons(crowd, unit, "shuffled-server")
        assert found == epsilons(smaller, unit, "shuffled-server")
        local = epsilons(none, unit)
        most = epsilons(none, unit, "shuffled-server")["approximate"]
        assert most <= local.get("approximate", local["pure"])


def test_arrival_times_that_distinguish_clients_void_the_shuffler() -> None:
    privacy = planned(small(prediction_error=0.1))
    assert not [g for g in privacy.guarantees if g.adversary == "shuffled-server"]
    assert ARRIVAL_TIMES(prediction_error=0.1) in privacy.warnings
    assert not [g for g in planned(small(channel="named")).guarantees
                if g.adversary == "shuffled-server"]  # fmt: skip


# Properties, over random histories


def test_where_a_shuffler_hides_nothing_the_local_guarantee_remains() -> None:
    event = BinaryRandomizedResponse(epsilon=LARGEST_EPSILON + 1, coordinates=5)
    for line in shuffled_guarantees(event, 2, anonymity_set=50, chunk=5, delta=1e-5):
        assert line.epsilon >= 5 * LARGEST_EPSILON * (1 - 1e-3)


@pytest.mark.parametrize("delta", [0.0, 5e-324, 1e-301])
def test_without_a_finite_epsilon_there_is_none(delta: float) -> None:
    for events in ([GaussianReport(mu=1.0, rho=0.5)],
                   [GaussianReport(mu=1.0, rho=0.5), PureReport(epsilon=1.0)]):  # fmt: skip
        (line,) = guarantees_of(Counter(events), "client-run", delta)
        assert (line.kind, line.epsilon, line.delta) == ("none", None, 0.0)


def test_mixed_events_add_up_what_they_cost_under_a_zcdp_budget() -> None:
    noise, large = GaussianReport(mu=1.0, rho=0.5), PureReport(epsilon=8.0)
    bits = BinaryRandomizedResponse(epsilon=0.5, coordinates=100)
    (line,) = guarantees_of(Counter({noise: 2, large: 1, bits: 3}), "client-run", 1e-5)
    # A pure epsilon of 8 is 8-zCDP, not 32; bits count singly, not as one report of 50.
    assert line.epsilon == zcdp_epsilon(2 * 0.5 + 8.0 + 3 * 100 * 0.125, 1e-5)


# Events that cost less for one record, events drawn once, and what the server releases


def stated(releases: Any, delta: float = 1e-5) -> Statement:
    return statement(released(releases), claim=None, shuffler=None, delta=delta)


def test_a_record_has_its_own_line() -> None:
    event = PerRecord(record=PureReport(epsilon=0.5), client=PureReport(epsilon=30.0))
    privacy = stated({1: {0: event, 1: event}, 2: {0: event}})
    records = lines_of(privacy, "record")
    assert epsilons(privacy, "record")["pure"] == 1.0
    assert {line.neighbours for line in records} == {"replace-record"}
    assert epsilons(privacy, "client-run")["pure"] == 60.0
    assert {line.neighbours for line in lines_of(privacy, "client-run")} == {"replace-client"}
    assert not lines_of(stated({1: {0: PureReport(epsilon=1.0)}}), "record")


def test_a_client_without_a_cheaper_record_decides_the_record_line() -> None:
    cheap = PerRecord(record=PureReport(epsilon=0.5), client=PureReport(epsilon=9.0))
    assert epsilons(stated({1: {0: cheap, 1: PureReport(epsilon=3.0)}}), "record")["pure"] == 3.0
    (line,) = lines_of(stated({1: {0: cheap, 1: InClear(what="labels")}}), "record")
    assert line.kind == "none"


def test_a_budget_charges_the_whole_client() -> None:
    event = PerRecord(record=PureReport(epsilon=0.5), client=PureReport(epsilon=7.0))
    assert cost(event, "pure") == 7.0
    assert cost(PerRecord(record=event.record, client=InClear(what="x")), "pure") == math.inf


# Calibration


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mechanism", "unit", "adversary"),
    [
        *((name, "client-run", "server") for name in mechanisms()),
        ("two_point", "client-round", "server"),
        ("two_point", "weight", "shuffled-server"),
    ],
)
def test_a_calibrated_budget_meets_its_target_and_wastes_little(
    mechanism: str, unit: str, adversary: str
) -> None:
    goal = {"unit": unit, "adversary": adversary, "epsilon": 20.0, "delta": 1e-5}
    config = small(mechanism=mechanism, send="update", target=goal, rounds=3)
    calibrated = plan(config, problem_of(config, None))
    lines = lines_of(calibrated.privacy, unit, adversary)
    real = [g for g in lines if not g.is_idealised] or lines
    best = min(g.epsilon for g in real if g.delta <= 1e-5)
    assert 19.9 <= best <= 20.0
    assert planned(calibrated.config) == calibrated.privacy  # calibrating again changes nothing


# In words


@settings(max_examples=75)
@given(epsilon=st.floats(1e-12, 1e7))
@example(epsilon=218_400.0002)
@example(epsilon=0.12340000005)
@example(epsilon=1.0 + 5e-10)
def test_a_printed_epsilon_is_never_too_small(epsilon: float) -> None:
    shown = float(number(epsilon).replace(",", ""))
    assert epsilon * (1 - 1e-12) <= shown <= epsilon * 1.01
    below = float(number(epsilon, up=False).replace(",", ""))
    assert epsilon * 0.99 <= below <= epsilon * (1 + 1e-12)


def test_a_budget_is_not_shown_below_its_setting() -> None:
    told = small(epsilon=1.0000049).epsilon_in_words()
    assert told == "epsilon 1.0001 per weight against a server (proven)"


def test_the_text_has_the_best_proven_figures() -> None:
    privacy = planned(small())
    told = explain(privacy)
    for unit in ("client-round", "client-run"):
        best = min(g.epsilon for g in lines_of(privacy, unit))
        assert number(best) in told
    assert "gives practically no protection" in told
    in_clear = explain(planned(small("fedavg-quickstart")))
    assert "There is no guarantee (epsilon = infinity)" in in_clear
    sent = SENT_IN_CLEAR(what=(WEIGHTS, NUMBER_OF_EXAMPLES))
    assert f"The reason: {words.line(sent)}." in in_clear
    assert math.isinf(float(number(None).replace("infinity", "inf")))
