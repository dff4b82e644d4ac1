"""Statements: their figures, agreement with what was really released, and calibration."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import some
from tables import DOWNLINK, released

import fedldp
from fedldp.accounting.accountants import from_record
from fedldp.accounting.events import (
    BinaryRandomizedResponse,
    Event,
    GaussianReport,
    InClear,
    Memoized,
    PerRecord,
    PureReport,
    to_record,
)
from fedldp.accounting.guarantees import (
    LARGEST_SHUFFLED,
    ONCE,
    local_guarantees,
    shuffled_guarantees,
)
from fedldp.accounting.numerics.gaussian import zcdp_epsilon
from fedldp.accounting.prices import cost
from fedldp.accounting.statement import statement
from fedldp.algorithms.recipes import recipes
from fedldp.core.errors import ConfigError
from fedldp.core.formatting import number
from fedldp.ledgers.columns import MemoryLedger
from fedldp.ledgers.protocol import Place
from fedldp.mechanisms import mechanisms
from fedldp.protocol.keys import draws_of_seed
from fedldp.reporting.text import explain
from fedldp.simulation.engine import simulate
from fedldp.simulation.participation import participants
from fedldp.simulation.plan import plan, problem_of, state
from fedldp.simulation.population import Encoders


def lines_of(privacy: dict[str, Any], unit: str, adversary: str = "server") -> list[dict[str, Any]]:
    return [g for g in privacy["guarantees"] if (g["unit"], g["adversary"]) == (unit, adversary)]


def epsilons(privacy: dict[str, Any], unit: str, adversary: str = "server") -> dict[str, float]:
    return {g["kind"]: g["epsilon"] for g in lines_of(privacy, unit, adversary)}


def planned(config: Any, **more: Any) -> dict[str, Any]:
    return plan(config, problem_of(config, None), **more).privacy


def small(name: str = "quickstart", **changes: Any) -> Any:
    base = {"dataset": "digits", "model": "logistic", "num_clients": 6, "rounds": 2,
            "local_epochs": 1, "standardise": True}  # fmt: skip
    return fedldp.recipe(name, **{**base, **changes})


# The figures of the specification


def test_account_states_what_ldp_fl_protects_at_the_papers_settings(fedldp_command: Any) -> None:
    outcome = fedldp_command("account", "ldp-fl-mnist", "--json")
    assert outcome.status == 0
    privacy = json.loads(outcome.out)
    assert privacy["claim"]["epsilon"] == 1.0
    assert privacy["claim"]["unit"] == "weight"
    assert epsilons(privacy, "weight") == {"pure": 1.0}
    each, run = epsilons(privacy, "client-round"), epsilons(privacy, "client-run")
    assert each["pure"] == 21_840
    assert each["approximate"] == pytest.approx(10_647.8103421534, abs=1e-9)
    assert run["pure"] == 218_400
    assert run["approximate"] == pytest.approx(102_689.98, abs=0.005)
    one, *_ = lines_of(privacy, "weight", "shuffled-server")
    assert one["epsilon"] == pytest.approx(0.407817894709581, abs=1e-9)
    for unit, low, high in (("client-round", 185.09765, 252.80219), ("client-run", 1405.4, 1991.9)):
        (line,) = lines_of(privacy, unit, "shuffled-server")
        assert line["lower"] == pytest.approx(low, rel=1e-4)
        assert line["epsilon"] == pytest.approx(high, rel=1e-4)
    assert all(g["neighbours"] == "replace-client" for g in privacy["guarantees"])
    assert any("protects nothing" in warning for warning in privacy["warnings"])


def test_account_takes_a_delta_and_refuses_bad_ones(fedldp_command: Any) -> None:
    exact = json.loads(fedldp_command("account", "--delta", 0, "--json").out)
    assert {g["kind"] for g in exact["guarantees"]} == {"pure"}
    loose = json.loads(fedldp_command("account", "--delta", "1e-2", "--json").out)
    default = json.loads(fedldp_command("account", "--json").out)
    for unit in ("client-round", "client-run"):
        assert epsilons(loose, unit)["approximate"] < epsilons(default, unit)["approximate"]
    for wrong in ("-1", "1", "nan", "x"):
        fedldp_command("account", "--delta", wrong).assert_refused()


def test_fedavg_has_no_guarantee(fedldp_command: Any) -> None:
    privacy = json.loads(fedldp_command("account", "fedavg-mnist", "--json").out)
    assert privacy["claim"] is None
    assert {g["kind"] for g in privacy["guarantees"]} == {"none"}
    assert all(g["epsilon"] is None for g in privacy["guarantees"])
    assert "infinity" in fedldp_command("account", "fedavg-mnist").out


# Before and after a run


ONE_OF_EACH_SYSTEM = {
    recipe.config.system: name
    for name, recipe in reversed(recipes().items())
    if recipe.config.dataset == "digits"
}
"""For other recipes, ``tests/gate`` makes the statement, and the same runtime counts events."""


@pytest.mark.parametrize("name", ONE_OF_EACH_SYSTEM.values())
def test_ledgers_after_a_run_give_the_statement_made_before_it(name: str) -> None:
    config = fedldp.recipe(name)
    problem = problem_of(config, None)
    made = plan(config, problem)
    draws, downlink = (
        draws_of_seed(config.seed),
        made.scheduled.algorithm(problem).server().downlink,
    )
    own, ledger = Encoders(made.scheduled, problem), MemoryLedger()
    for round in range(1, config.rounds + 1):
        for client in participants(made.scheduled, round, draws):
            for phase in range(config.composition.channel.phases):
                event = own[client].event(phase)
                place = Place("run", round, phase, bytes(32))
                ledger.release(place, event, [client], lambda: [b""])
        if downlink is not None:
            ledger.count_downlink("run", round, downlink)
    again = MemoryLedger.from_record(json.loads(json.dumps(ledger.to_record())))
    assert state(made.scheduled, made.problem, again.releases("run")) == made.privacy


@pytest.mark.parametrize("name", ["quickstart", "fedavg-quickstart"])
def test_the_statement_before_a_run_is_that_of_the_ledgers_after_it(
    name: str, tmp_path: Path
) -> None:
    config = small(name)
    result = simulate(config, out=tmp_path / "run")
    problem = problem_of(config, None)
    after = state(result.config, problem, result.ledger.releases(result.run))
    assert after == result.privacy == planned(config)
    assert json.loads((tmp_path / "run" / "privacy.json").read_text()) == after


def test_a_resumed_run_counts_its_earlier_rounds(tmp_path: Path) -> None:
    config = small(rounds=4, clients_per_round=3)

    def stop(record: Any) -> None:
        if record.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(config, out=tmp_path / "run", after_round=stop)
    resumed = fedldp.resume(tmp_path / "run")
    assert resumed.ledger.releases(resumed.run) == simulate(config).ledger.releases(resumed.run)


def test_participation_is_counted_not_assumed() -> None:
    config = small(rounds=9, clients_per_round=2, num_clients=8)
    most = max(Counter(c for r in range(1, 10) for c in _chosen(config, r)).values())
    assert most < 9
    assert epsilons(planned(config), "client-run")["pure"] == most * 650


def _chosen(config: Any, round: int) -> list[int]:
    return list(participants(config, round, draws_of_seed(config.seed)))


# Mixed budgets


def test_the_statement_covers_the_worst_client() -> None:
    mixed = planned(small(epsilon=[0.5, 0.5, 0.5, 2.0, 1.0, 1.0]))
    assert epsilons(mixed, "weight") == {"pure": 2.0}
    alone = planned(small(epsilon=2.0, num_clients=1))
    for unit in ("client-round", "client-run"):
        assert epsilons(mixed, unit) == epsilons(alone, unit)
        # The client with epsilon 2 is the only one of its kind, so the shuffler does not hide it.
        hidden = epsilons(mixed, unit, "shuffled-server")
        assert hidden["approximate"] == epsilons(alone, unit)["approximate"]


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
    assert not [g for g in privacy["guarantees"] if g["adversary"] == "shuffled-server"]
    assert any("arrival times" in warning for warning in privacy["warnings"])
    assert not [g for g in planned(small(shuffle=False))["guarantees"]
                if g["adversary"] == "shuffled-server"]  # fmt: skip


# Properties, over random histories

bits = st.builds(
    BinaryRandomizedResponse,
    epsilon=st.floats(1e-3, 8),
    coordinates=st.integers(1, 3000),
    whole=st.none(),
)
deltas = st.sampled_from([1e-2, 1e-5, 1e-9])


def approximate(event: Event, rounds: int, delta: float) -> float:
    lines = local_guarantees(Counter({event: rounds}), "client-run", delta)
    return min(g.epsilon for g in lines if g.epsilon is not None)


@settings(max_examples=some(60))
@given(event=bits, rounds=st.integers(1, 20), delta=deltas)
def test_more_releases_never_cost_less(event: Any, rounds: int, delta: float) -> None:
    cost = approximate(event, rounds, delta)
    more = [
        (event, rounds + 1),
        (
            BinaryRandomizedResponse(epsilon=event.epsilon, coordinates=event.coordinates + 7),
            rounds,
        ),
        (
            BinaryRandomizedResponse(epsilon=event.epsilon * 1.1, coordinates=event.coordinates),
            rounds,
        ),
    ]
    for larger, times in more:
        assert approximate(larger, times, delta) >= cost * (1 - 1e-9)
    pure = local_guarantees(Counter({event: rounds}), "client-run", 0.0)[0].epsilon
    assert pure is not None
    assert cost <= pure


@settings(max_examples=some(8))
@given(event=bits, rounds=st.integers(1, 5), anonymity_set=st.integers(1, 400), delta=deltas)
def test_a_shuffler_never_harms_and_a_crowd_helps(
    event: Any, rounds: int, anonymity_set: int, delta: float
) -> None:
    few = shuffled_guarantees(event, rounds, anonymity_set=anonymity_set, chunk=1, delta=delta)
    many = shuffled_guarantees(event, rounds, anonymity_set=anonymity_set * 2, chunk=1, delta=delta)
    for one, two in zip(few, many, strict=True):
        assert two.epsilon <= one.epsilon * (1 + 1e-6)
        assert one.lower is None or one.lower <= one.epsilon
    assert few[0].epsilon <= event.epsilon
    assert few[2].epsilon <= approximate(event, rounds, delta)


@pytest.mark.parametrize("chunk", [2, 7, 650])
def test_chunks_are_never_better_hidden_than_single_weights(chunk: int) -> None:
    event = BinaryRandomizedResponse(epsilon=1.0, coordinates=650)
    single = shuffled_guarantees(event, 3, anonymity_set=100, chunk=1, delta=1e-5)
    chunked = shuffled_guarantees(event, 3, anonymity_set=100, chunk=chunk, delta=1e-5)
    by_unit = {g.unit: g.epsilon for g in single}
    for line in chunked:
        assert line.epsilon >= by_unit[line.unit]
        assert line.epsilon <= approximate(event, 3 if line.unit == "client-run" else 1, 1e-5)


def test_where_a_shuffler_hides_nothing_the_local_guarantee_remains() -> None:
    event = BinaryRandomizedResponse(epsilon=LARGEST_SHUFFLED + 1, coordinates=5)
    for line in shuffled_guarantees(event, 2, anonymity_set=50, chunk=5, delta=1e-5):
        assert line.epsilon >= 5 * LARGEST_SHUFFLED * (1 - 1e-3)


def test_events_in_clear_and_unknown_events() -> None:
    mixed = Counter({InClear(what="labels"): 1, PureReport(epsilon=0.1): 1})
    (line,) = local_guarantees(mixed, "client-round", 1e-5)
    assert (line.kind, line.epsilon) == ("none", None)
    assert "labels" in line.method
    with pytest.raises(ConfigError, match="no accountant"):
        local_guarantees(Counter({Event(): 1}), "client-round", 1e-5)
    noise = GaussianReport(mu=1.0, rho=0.5)
    assert local_guarantees(Counter({noise: 1}), "client-run", 0.0)[-1].kind == "none"
    both = local_guarantees(Counter({noise: 2, PureReport(epsilon=1.0): 3}), "client-run", 1e-5)
    alone = local_guarantees(Counter({noise: 2}), "client-run", 1e-5)
    assert both[-1].epsilon > alone[-1].epsilon


@pytest.mark.parametrize("delta", [0.0, 5e-324, 1e-301])
def test_without_a_finite_epsilon_there_is_none(delta: float) -> None:
    for events in ([GaussianReport(mu=1.0, rho=0.5)],
                   [GaussianReport(mu=1.0, rho=0.5), PureReport(epsilon=1.0)]):  # fmt: skip
        (line,) = local_guarantees(Counter(events), "client-run", delta)
        assert (line.kind, line.epsilon, line.delta) == ("none", None, 0.0)


def test_mixed_events_add_up_what_they_cost_under_a_zcdp_budget() -> None:
    noise, large = GaussianReport(mu=1.0, rho=0.5), PureReport(epsilon=8.0)
    bits = BinaryRandomizedResponse(epsilon=0.5, coordinates=100)
    (line,) = local_guarantees(Counter({noise: 2, large: 1, bits: 3}), "client-run", 1e-5)
    # A pure epsilon of 8 is 8-zCDP, not 32; bits count singly, not as one report of 50.
    assert line.epsilon == zcdp_epsilon(2 * 0.5 + 8.0 + 3 * 100 * 0.125, 1e-5)


# Events that cost less for one record, events drawn once, and what the server releases


def stated(releases: Any, delta: float = 1e-5) -> dict[str, Any]:
    return statement(released(releases), claim=None, shuffler=None, delta=delta)


def test_a_record_has_its_own_line() -> None:
    event = PerRecord(record=PureReport(epsilon=0.5), client=PureReport(epsilon=30.0))
    privacy = stated({1: {0: event, 1: event}, 2: {0: event}})
    records = lines_of(privacy, "record")
    assert epsilons(privacy, "record")["pure"] == 1.0
    assert {line["neighbours"] for line in records} == {"replace-record"}
    assert epsilons(privacy, "client-run")["pure"] == 60.0
    assert {line["neighbours"] for line in lines_of(privacy, "client-run")} == {"replace-client"}
    assert not lines_of(stated({1: {0: PureReport(epsilon=1.0)}}), "record")


def test_a_client_without_a_cheaper_record_decides_the_record_line() -> None:
    cheap = PerRecord(record=PureReport(epsilon=0.5), client=PureReport(epsilon=9.0))
    assert epsilons(stated({1: {0: cheap, 1: PureReport(epsilon=3.0)}}), "record")["pure"] == 3.0
    (line,) = lines_of(stated({1: {0: cheap, 1: InClear(what="labels")}}), "record")
    assert line["kind"] == "none"


@given(rounds=st.integers(1, 30), epsilon=st.floats(0.01, 10))
def test_an_event_drawn_once_costs_once(rounds: int, epsilon: float) -> None:
    kept = Memoized(drawn=BinaryRandomizedResponse(epsilon=epsilon, coordinates=4), identity="all")
    once = local_guarantees(Counter({kept.drawn: 1}), "client-run", 1e-5)
    often = local_guarantees(Counter({kept: rounds}), "client-run", 1e-5)
    assert [line.epsilon for line in often] == [line.epsilon for line in once]
    assert all(ONCE in line.assumptions for line in often)
    # The report may reveal less about the input than the draw does, so there is no lower bound.
    assert once[0].lower is not None
    assert all(line.lower is None for line in often)
    more = local_guarantees(Counter({kept: rounds, PureReport(epsilon=1.0): 2}), "client-run", 0.0)
    assert more[0].epsilon == pytest.approx(4 * epsilon + 2)
    assert any(f"at most {rounds + 2} rounds" in text for text in more[0].assumptions)


def test_the_servers_own_noise_is_a_line_against_those_who_see_broadcasts() -> None:
    clear, noise = InClear(what="updates"), GaussianReport(mu=0.5, rho=0.125)
    privacy = stated({r: {DOWNLINK: noise, 0: clear} for r in (1, 2, 3)})
    assert {line["kind"] for line in lines_of(privacy, "client-run")} == {"none"}
    below = lines_of(privacy, "client-run", "downlink")
    alone = local_guarantees(Counter({noise: 3}), "client-run", 1e-5)
    assert [line["epsilon"] for line in below] == [line.epsilon for line in alone]
    assert all("the server is trusted" in line["assumptions"][-1] for line in below)
    assert not lines_of(stated({1: {0: clear}}), "client-run", "downlink")


@pytest.mark.parametrize(
    "event",
    [
        PerRecord(record=PureReport(epsilon=0.5), client=InClear(what="labels")),
        Memoized(drawn=BinaryRandomizedResponse(epsilon=0.1, coordinates=5), identity="all"),
        PerRecord(
            record=Memoized(drawn=GaussianReport(mu=1.0, rho=0.5), identity="all"),
            client=Memoized(drawn=PureReport(epsilon=70.0), identity="all"),
        ),
    ],
    ids=repr,
)
def test_events_within_events_survive_the_ledgers_record(event: Event) -> None:
    assert from_record(json.loads(json.dumps(to_record(event)))) == event
    ledger = MemoryLedger()
    ledger.release(Place("run", 1, 0, bytes(32)), event, [3], lambda: [b""])
    again = MemoryLedger.from_record(json.loads(json.dumps(ledger.to_record())))
    assert again.releases("run") == released({1: {3: event}})


def test_a_budget_charges_the_whole_client() -> None:
    event = PerRecord(record=PureReport(epsilon=0.5), client=PureReport(epsilon=7.0))
    assert cost(event, "pure") == 7.0
    assert cost(PerRecord(record=event.record, client=InClear(what="x")), "pure") == math.inf


def test_histories_and_crowds_of_releases() -> None:
    one, two = PureReport(epsilon=1.0), PureReport(epsilon=2.0)
    releases = released({1: {0: one, 1: one, 2: two}, 2: {0: one, 2: one}})
    assert sorted(map(dict, releases.histories()), key=len) == [{one: 2}, {two: 1, one: 1}]
    assert releases.anonymity_sets() == {one: {2}, two: {1}}


# Calibration


@pytest.mark.parametrize(
    ("mechanism", "unit"),
    [*((name, "client-run") for name in mechanisms()), ("two_point", "client-round")],
)
def test_a_calibrated_budget_meets_its_target_and_wastes_little(mechanism: str, unit: str) -> None:
    goal = {"unit": unit, "epsilon": 20.0, "delta": 1e-5}
    config = small(mechanism=mechanism, send="update", target=goal, rounds=3)
    calibrated = plan(config, problem_of(config, None))
    lines = lines_of(calibrated.privacy, unit)
    real = [g for g in lines if not any("idealised" in a for a in g["assumptions"])] or lines
    best = min(g["epsilon"] for g in real if g["delta"] <= 1e-5)
    assert best <= 20.0
    assert best >= 19.9
    assert planned(calibrated.config) == calibrated.privacy  # calibrating again changes nothing


@pytest.mark.slow
def test_targets_for_weights_for_shufflers_and_impossible_ones(fedldp_command: Any) -> None:
    def account(*assignments: str) -> Any:
        given = [part for text in assignments for part in ("--set", text)]
        return fedldp_command("account", *given, "--json")

    weight = json.loads(account("target.unit=weight", "target.epsilon=0.7").out)
    assert epsilons(weight, "weight")["pure"] == pytest.approx(0.7, rel=1e-9)
    assert epsilons(weight, "weight")["pure"] <= 0.7
    hidden = json.loads(account("target.unit=client-run", "target.epsilon=30",
                                "target.adversary=shuffled-server").out)  # fmt: skip
    (line,) = lines_of(hidden, "client-run", "shuffled-server")
    assert 29.9 <= line["epsilon"] <= 30.0


# In words


@settings(max_examples=some(300))
@given(epsilon=st.floats(1e-12, 1e7))
def test_a_printed_epsilon_is_never_too_small(epsilon: float) -> None:
    shown = float(number(epsilon).replace(",", ""))
    assert epsilon * (1 - 1e-12) <= shown <= epsilon * 1.01
    below = float(number(epsilon, up=False).replace(",", ""))
    assert epsilon * 0.99 <= below <= epsilon * (1 + 1e-12)


def test_the_text_has_the_best_proven_figures() -> None:
    privacy = planned(small())
    words = explain(privacy)
    for unit in ("client-round", "client-run"):
        best = min(g["epsilon"] for g in lines_of(privacy, unit))
        assert number(best) in words
    assert "gives practically no protection" in words
    in_clear = explain(planned(small("fedavg-quickstart")))
    assert "There is no guarantee (epsilon = infinity)" in in_clear
    assert "The reason: weights and number of examples sent in clear." in in_clear
    assert math.isinf(float(number(None).replace("infinity", "inf")))


def test_a_claim_for_records_is_compared_with_the_line_for_records() -> None:
    privacy = planned(fedldp.recipe("nbafl-digits"))
    record, run = (lines_of(privacy, unit) for unit in ("record", "client-run"))
    assert [g["epsilon"] for g in record] == [g["epsilon"] for g in run]
    assert {(g["neighbours"], g["lower"]) for g in record} == {("replace-record", None)}
    assert not lines_of(planned(small()), "record")  # the claim covers one weight


def test_a_statement_says_that_clients_have_their_own_budgets() -> None:
    def uneven(**changes: Any) -> list[str]:
        config = fedldp.recipe("personalized-sound-digits", **changes)
        return [w for w in planned(config)["warnings"] if "different degrees" in w]

    assert not uneven(epsilon=5.0)
    (warning,) = uneven()
    assert warning.endswith("costs at most epsilon 1.0000 (delta 1e-05)")


def test_a_target_needs_one_budget_for_all_clients(fedldp_command: Any) -> None:
    target = 'target={unit="client-run",epsilon=8}'
    line = fedldp_command("account", "personalized-digits", "--set", target).assert_refused()
    assert "target: epsilon = [1.0, 5.0, 10.0]" in line
    fedldp_command("account", "personalized-digits", "--set", target, "--set", "epsilon=1")
    record = target.replace("client-run", "record")
    found = fedldp_command("account", "nbafl-digits", "--set", record, "--json")
    (line,) = (g for g in json.loads(found.out)["guarantees"] if g["unit"] == "record")
    assert line["epsilon"] == pytest.approx(8.0, rel=1e-4)
