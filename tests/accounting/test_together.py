"""What several runs on the same rows guarantee together."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from tables import DOWNLINK, Table, released

import fedldp
from fedldp.accounting.events import (
    BinaryRandomizedResponse,
    Event,
    GaussianReport,
    GaussianShare,
    InClear,
    Memoized,
    PerPerson,
    PerRecord,
    PureReport,
    SampledGaussian,
    SampledShare,
)
from fedldp.accounting.guarantees import Adversary, Unit
from fedldp.accounting.numerics.gaussian import gaussian_epsilon, shares_mu
from fedldp.accounting.proven import Proven, Released, Together, together
from fedldp.accounting.statement import ShufflerInPath, SumInPath, statement
from fedldp.core.errors import ConfigError
from fedldp.core.facts import Assumption
from fedldp.core.kinds import (
    AT_SITES,
    DISCRETE,
    IDEALISED,
    OWN_CODE,
    RESTS_ON,
    SECRET_SAMPLE,
    SIMULATED,
    TAKES_PART,
)
from fedldp.reporting import words
from fedldp.simulation.plan import plan, problem_of
from fedldp.simulation.plan import released as released_by_run

DELTA = 1e-5
CLEAR = InClear(what="weights")
MU = {0.5: 0.142211, 1.0: 0.268051}
"""The mu of a Gaussian of each epsilon at ``DELTA``."""


def normal(mu: float) -> GaussianReport:
    return GaussianReport(mu=mu, rho=mu**2 / 2)


NOISE = normal(MU[1.0])
PURE = PureReport(epsilon=0.5)
BITS = BinaryRandomizedResponse(epsilon=0.5, coordinates=20)
STEPS = SampledGaussian(noise_multiplier=2.0, sampling_rate=0.1, steps=10)
SHARE = GaussianShare(squared_distance=900, variance=2**10)


def of(
    table: Table | Event, *, delta: float = DELTA, sites: int = 1, own: Any = (), **path: Any
) -> Released:
    """Return a run of ``table``, or of one client that releases an event in one round."""
    releases = released({1: {0: table}} if isinstance(table, Event) else table)
    given = {"claim": None, "shuffler": None, "own_code": own, "persons_at_sites": sites, **path}

    def at(delta: float) -> Any:
        return statement(releases, delta=delta, **given)

    return Released(releases=releases, statement=at(delta), at=at, persons_at_sites=sites)


def of_person(event: Event) -> PerPerson:
    return PerPerson(person=event, client=CLEAR)


def epsilon_of(
    runs: Sequence[Released], unit: Unit = "client-run", adversary: Adversary = "server"
) -> float:
    found = together(runs, unit, adversary).proven.epsilon
    assert found is not None
    return found


# The numbers of the specification, and of plans


@pytest.mark.parametrize(
    ("runs", "expected"),
    [({0.5: 2, 1.0: 2}, 1.6811), ({1.0: 8}, 3.1858), ({1.0: 24}, 6.0198), ({1.0: 100}, 14.4293)],
)
def test_squares_of_mu_add_up_over_runs(runs: dict[float, int], expected: float) -> None:
    found = [
        of({round: {0: of_person(normal(MU[each] / 2))} for round in range(4)})
        for each, times in runs.items()
        for _ in range(times)
    ]
    assert epsilon_of(found, "person") == pytest.approx(expected, rel=5e-5)


def planned(recipe: str, **settings: Any) -> Released:
    config = fedldp.recipe(recipe, **settings)
    problem = problem_of(config, None)
    made = plan(config, problem)
    return released_by_run(made.config, problem, made.privacy)


TABLE = """
system = "person_dp_sgd"
dataset = "visits.csv"
label_column = "after"
classes = ["0", "1"]
client_column = "site"
person_column = "who"
persons_at_sites = {sites}
num_clients = 4
rounds = 10
model = "logistic"
clip = 1.0
learning_rate = 1.0
channel = "{channel}"
epsilon = {epsilon}
[scale_columns]
age = [0, 100]
"""


@pytest.fixture
def of_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Released]:
    """Return a function that plans a run on a table of people at one to three of four sites."""
    monkeypatch.chdir(tmp_path)
    rows = [f"{who},{(who + at) % 4},{who % 90},{who % 2}"
            for who in range(200) for at in range(1 + who % 3)]  # fmt: skip
    Path("visits.csv").write_text("\n".join(["who,site,age,after", *rows]) + "\n")

    def run(epsilon: float, channel: str) -> Released:
        Path("run.toml").write_text(TABLE.format(sites=3, channel=channel, epsilon=epsilon))
        return planned("run.toml")

    return run


@pytest.mark.parametrize(
    ("channel", "adversary", "mixed", "many"),
    [
        ("named", "server", 1.68108, 6.01969),
        ("central", "downlink", 1.68108, 6.01966),
        ("sum", "summing-server", 1.68109, 6.01966),
    ],
)
def test_plans_for_people_at_several_sites(
    of_table: Callable[..., Released],
    channel: str,
    adversary: Adversary,
    mixed: float,
    many: float,
) -> None:
    half, one = of_table(0.5, channel), of_table(1.0, channel)
    found = together([half, half, one, one], "person", adversary)
    assert found.proven.epsilon == pytest.approx(mixed, abs=1e-4)
    assert (found.runs, found.unprotected) == (4, 0)
    assert AT_SITES(sites=3) in found.proven.conditions
    assert epsilon_of([one] * 24, "person", adversary) == pytest.approx(many, abs=1e-4)


def test_plans_for_rows() -> None:
    half, one = (planned("person-dp-sgd-digits", epsilon=each) for each in (0.5, 1.0))
    assert epsilon_of([half, half, one, one], "record") == pytest.approx(1.68101, abs=1e-5)
    assert epsilon_of([one] * 24, "record") == pytest.approx(6.01932, abs=1e-5)


def test_what_is_drawn_once_in_a_run_is_drawn_anew_in_the_next() -> None:
    one = planned("ldpfl-sound-digits")
    assert epsilon_of([one], "record") == pytest.approx(8.0, rel=1e-5)
    assert epsilon_of([one] * 24, "record") == pytest.approx(192.0, rel=1e-6)
    once = Memoized(drawn=PureReport(epsilon=3.0), identity="bits")
    run = of({1: {0: once}, 2: {0: once}}, delta=0.0)
    found = together([run] * 5, "client-run", "server").proven
    assert (found.epsilon, found.delta) == (15.0, 0.0)


# Mixed sets


def test_pure_and_gaussian_runs_cost_at_most_the_sum_of_the_parts() -> None:
    found = together([of(PURE), of(NOISE)], "client-run", "server").proven
    assert found.epsilon == pytest.approx(0.5 + 1.0, rel=1e-4)
    assert found.delta == DELTA
    assert DISCRETE in found.conditions
    # Many small losses cost less in one computation.
    assert epsilon_of([of(PureReport(epsilon=0.05))] * 40 + [of(NOISE)]) < 40 * 0.05 + 1


def test_sampled_and_unsampled_runs_add_up() -> None:
    sampled, full = (of(PerRecord(record=each, client=CLEAR)) for each in (STEPS, NOISE))
    both = together([sampled, full], "record", "server")
    assert both.runs == 2
    assert both.proven.epsilon is not None
    assert both.proven.epsilon > max(epsilon_of([each], "record") for each in (sampled, full))
    assert {SECRET_SAMPLE(of="record"), IDEALISED, DISCRETE} <= set(both.proven.conditions)


def test_a_run_without_a_guarantee_counts_as_unprotected() -> None:
    run = of(NOISE)
    alone = together([run], "client-run", "server", data="rows")
    mixed = together([run, of(CLEAR), of(CLEAR)], "client-run", "server", data="rows")
    assert (mixed.runs, mixed.unprotected) == (1, 2)
    assert mixed == replace(alone, unprotected=2)
    assert together([of(CLEAR)], "record", "server") == Together(
        proven=Proven(epsilon=None, delta=0.0, unit="record", adversary="server", conditions=()),
        runs=0,
        unprotected=1,
    )


@pytest.mark.parametrize(
    ("event", "unit", "adversary", "covers"),
    [
        (PURE, "record", "downlink", True),
        (of_person(PURE), "record", "server", True),
        (of_person(PURE), "client-run", "server", False),
        (PerRecord(record=PURE, client=CLEAR), "person", "server", False),
    ],
)
def test_a_line_for_more_or_against_more_covers(
    event: Event, unit: Unit, adversary: Adversary, covers: bool
) -> None:
    found = together([of(event)], unit, adversary)
    assert (found.runs, found.proven.epsilon is not None) == (int(covers), covers)


def test_what_only_broadcasts_hide_does_not_cover_the_server() -> None:
    run = of({1: {DOWNLINK: PURE, 0: CLEAR}})
    assert together([run], "client-run", "downlink").runs == 1
    assert together([run], "client-run", "server").unprotected == 1


def test_a_line_for_one_client_covers_no_person_at_several() -> None:
    (alone, several) = (together([of(PURE, sites=n)], "person", "server") for n in (1, 3))
    assert alone.proven.epsilon is not None
    assert AT_SITES(sites=1) in alone.proven.conditions
    assert (several.runs, several.proven.epsilon) == (0, None)
    three = of(of_person(PURE), sites=3)
    assert epsilon_of([three, three], "person") == pytest.approx(6 * 0.5, rel=1e-3)


def test_the_smallest_delta_is_that_of_the_set() -> None:
    loose, tight = of(NOISE, delta=1e-3), of(NOISE, delta=1e-6)
    found = together([loose, tight, of(PURE, delta=0.0)], "client-run", "server").proven
    assert found.delta == 1e-6
    alone = gaussian_epsilon(math.sqrt(2) * NOISE.mu, 1e-6)
    assert found.epsilon == pytest.approx(alone + 0.5, rel=1e-6)


def test_the_client_that_is_worst_by_one_notion_of_loss_may_not_be_by_another() -> None:
    # Client 0 has the larger mu, and client 1 the larger rho. Both are bounds, and the better one
    # of a client counts.
    by_mu, by_rho = GaussianReport(mu=9.0, rho=0.1), GaussianReport(mu=1.0, rho=30.0)
    both = of({1: {0: by_mu, 1: by_rho}})
    assert epsilon_of([both, both]) >= max(epsilon_of([of(each)] * 2) for each in (by_mu, by_rho))


# Sums


def summed(clients: int, delta: float = DELTA) -> Released:
    table = {round: dict.fromkeys(range(clients), SHARE) for round in (1, 2)}
    return of(table, delta=delta, summed=SumInPath(untrusted_clients=1))


def test_noise_in_sums_is_composed_like_that_of_single_reports() -> None:
    run = summed(10)
    mu = shares_mu(SHARE.squared_distance, SHARE.variance, 9)
    expected = gaussian_epsilon(math.sqrt(3 * 2) * mu, DELTA)
    assert epsilon_of([run] * 3, adversary="summing-server") == pytest.approx(expected, rel=1e-12)
    assert epsilon_of([run], adversary="summing-server") == pytest.approx(
        run.covering("client-run", "summing-server")[0].size, rel=1e-12
    )
    assert epsilon_of([run] * 3, "client-run", "downlink") == pytest.approx(expected, rel=1e-12)
    # With a run whose single reports the server sees.
    both = gaussian_epsilon(math.sqrt(2 * mu**2 + NOISE.mu**2), DELTA)
    assert epsilon_of([run, of(NOISE)], adversary="summing-server") == pytest.approx(both, rel=1e-9)


def test_a_sum_may_have_noise_of_several_sizes_in_its_rounds() -> None:
    other = GaussianShare(squared_distance=100, variance=2**9)
    table = {1: dict.fromkeys(range(10), SHARE), 2: dict.fromkeys(range(10), other)}
    run = of(table, summed=SumInPath(untrusted_clients=1))
    mus = [shares_mu(each.squared_distance, each.variance, 9) for each in (SHARE, other)]
    expected = gaussian_epsilon(math.hypot(*mus, *mus), DELTA)
    assert epsilon_of([run] * 2, adversary="summing-server") == pytest.approx(expected, rel=1e-12)


def test_a_sum_of_fewer_clients_than_planned_counts_with_those_it_had() -> None:
    fewer = replace(summed(10), statement=summed(5).statement)
    found = together([fewer, summed(10)], "client-run", "summing-server")
    mus = [shares_mu(SHARE.squared_distance, SHARE.variance, n) for n in (4, 4, 9, 9)]
    expected = gaussian_epsilon(math.hypot(*mus), DELTA)
    assert found.proven.epsilon == pytest.approx(expected, rel=1e-12)
    assert found.runs == 2


@pytest.mark.parametrize(("sites", "rate"), [(1, 0.1), (3, 1.0)])
def test_sampled_shares_in_sums_are_composed(sites: int, rate: float) -> None:
    def run(steps: int) -> Released:
        share = SampledShare(squared_distance=900, variance=2**10, sampling_rate=rate, steps=steps)
        table = {1: dict.fromkeys(range(10), of_person(share))}
        return of(table, summed=SumInPath(untrusted_clients=1), sites=sites)

    for times in (1, 4):
        line = run(5 * times).covering("person", "summing-server")[0]
        assert line.adversary == "summing-server"
        found = epsilon_of([run(5)] * times, "person", "summing-server")
        assert found == pytest.approx(line.size, rel=1e-12)


def crowd(bits: Event, clients: int, rounds: int, shuffled: bool) -> Released:
    table = dict.fromkeys(range(rounds), dict.fromkeys(range(clients), bits))
    if not shuffled:
        return of(table, summed=SumInPath(untrusted_clients=1))
    path = ShufflerInPath(chunk=5, untrusted_clients=1, prediction_error=0.0)
    return of(table, shuffler=path)


@pytest.mark.slow
@pytest.mark.parametrize("adversary", ["summing-server", "shuffled-server"])
def test_equal_bits_in_crowds_cost_as_in_one_run_with_the_smallest_crowd(
    adversary: Adversary,
) -> None:
    shuffled = adversary == "shuffled-server"
    runs = [crowd(BITS, clients, 2, shuffled) for clients in (150, 100, 200)]
    found = epsilon_of(runs, adversary=adversary)
    as_one = crowd(BITS, 100, 6, shuffled).covering("client-run", adversary)[0]
    assert as_one.adversary == adversary
    assert found == as_one.size
    assert found < 0.9 * sum(run.covering("client-run", adversary)[0].size for run in runs)
    with_others = epsilon_of([*runs, of(NOISE)], adversary=adversary)
    assert found < with_others < found + 1.5
    # A round with fewer honest reports than planned counts with those it had.
    assert epsilon_of([replace(runs[0], statement=runs[1].statement)], adversary=adversary) == (
        runs[1].covering("client-run", adversary)[0].size
    )


@pytest.mark.slow
def test_clients_of_several_kinds_behind_a_shuffler_are_added() -> None:
    other = BinaryRandomizedResponse(epsilon=1.0, coordinates=20)
    table = {1: dict.fromkeys(range(100), BITS) | dict.fromkeys(range(100, 200), other)}
    run = of(table, shuffler=ShufflerInPath(chunk=1, untrusted_clients=0, prediction_error=0.0))
    part = math.nextafter(DELTA / 2, 0)
    each = [
        min(g.size for g in run.at(part).guarantees if g.adversary == adversary
            and g.unit == "client-run")
        for adversary in ("shuffled-server", "server")
    ]  # fmt: skip
    found = epsilon_of([run, run], adversary="shuffled-server")
    assert found == pytest.approx(2 * each[0], rel=1e-12)
    assert each[0] < each[1]
    fewer = replace(run, statement=replace(run.statement, guarantees=tuple(
        replace(line, epsilon=line.size + 1, lower=None) if line.epsilon and line.adversary ==
        "shuffled-server" else line for line in run.statement.guarantees)))  # fmt: skip
    worse = epsilon_of([fewer, run], adversary="shuffled-server")
    assert worse == epsilon_of([run, run], adversary="server")


def test_an_adversary_who_sees_more_may_have_the_smaller_figure() -> None:
    # In crowds of two, bits are hardly hidden; the server's figure needs no part of delta for each.
    kinds = [BinaryRandomizedResponse(epsilon=e, coordinates=30) for e in (0.5, 0.6, 0.7)]
    runs = [crowd(kind, 3, 1, shuffled=False) for kind in kinds]
    assert all(run.covering("client-run", "summing-server")[0].adversary == "summing-server"
               for run in runs)  # fmt: skip
    alone = epsilon_of(runs, adversary="server")
    assert epsilon_of(runs, adversary="summing-server") <= alone


def test_runs_whose_inputs_move_differently_are_composed_in_groups() -> None:
    # A person at three sites: three reports of one's own noise, or thrice as far in one broadcast.
    named = of(of_person(NOISE), sites=3)
    central = of({1: {DOWNLINK: of_person(NOISE), 0: CLEAR}}, sites=3)
    part = math.nextafter(DELTA / 2, 0)
    mus = math.sqrt(2 * 3) * NOISE.mu, math.sqrt(2) * 3 * NOISE.mu
    found = epsilon_of([named, central] * 2, "person", "downlink")
    assert found == pytest.approx(sum(gaussian_epsilon(mu, part) for mu in mus), rel=1e-9)


# Conditions


def test_conditions_are_those_of_all_runs_and_rounds_add_up() -> None:
    long = of({round: {0: NOISE} for round in range(7)})
    other = of({round: {0: PURE} for round in range(2)}, own=("mine:A", "mine:B"))
    again = of(PURE, own=("mine:B",))
    found = together([long, other, again], "client-run", "server").proven
    assert TAKES_PART.among(found.conditions) == [TAKES_PART(rounds=10)]
    of_other = OWN_CODE(of=("mine:A", "mine:B"))
    assert {DISCRETE, SIMULATED, of_other, OWN_CODE(of=("mine:B",))} <= set(found.conditions)
    assert RESTS_ON(assumption=of_other, of="code") in found.conditions
    assert len(set(found.conditions)) == len(found.conditions)
    assert found.stated_by == "mine:A, mine:B"


def test_an_unknown_assumption_is_refused() -> None:
    run = of(NOISE)
    lines = [line.assuming(Assumption("of-a-later-version")) for line in run.statement.guarantees]
    newer = replace(run, statement=replace(run.statement, guarantees=tuple(lines)))
    with pytest.raises(ConfigError, match="assumes of-a-later-version"):
        together([run, newer], "client-run", "server")
    with pytest.raises(ConfigError, match="assumes of-a-later-version"):
        Proven.of(newer.statement, "client-run", "server")


def test_one_run_is_proven_as_its_best_line_says() -> None:
    made = of(BITS, own=("mine:A",)).statement
    found = Proven.of(made, "client-run", "server")
    line = min(
        (g for g in made.guarantees if g.unit == "client-run"), key=lambda g: g.epsilon or math.inf
    )
    assert (found.epsilon, found.delta, found.stated_by) == (line.epsilon, DELTA, "mine:A")
    assert set(found.conditions) == {*line.assumptions, *made.warnings}
    nothing = Proven.of(of(CLEAR).statement, "client-run", "server")
    assert (nothing.epsilon, nothing.reason is None) == (None, False)
    nobody = Proven.of(made, "person", "downlink")
    assert (nobody.epsilon, nobody.conditions) == (None, made.warnings)


# Independent oracles: basic composition bounds from above, dp-accounting from below

POOL: list[Event] = [
    NOISE, normal(0.9), PURE, BITS, STEPS, PureReport(epsilon=4.0),
    BinaryRandomizedResponse(epsilon=0.2, coordinates=3000),
    BinaryRandomizedResponse(epsilon=1.0, coordinates=500, whole=2.0),
]  # fmt: skip


def by_dp_accounting(events: Counter[Event]) -> float:
    """Return an epsilon at ``DELTA`` below that of two neighbours that attain the losses."""
    whole = None
    for event, times in events.items():
        if isinstance(event, SampledGaussian):
            # One of the two neighbours lacks the row: at most half as far as two rows are apart.
            one = pld.from_gaussian_mechanism(
                event.noise_multiplier,
                sampling_prob=event.sampling_rate,
                pessimistic_estimate=False,
                value_discretization_interval=1e-3,
            ).self_compose(event.steps)
        elif isinstance(event, GaussianReport):
            one = pld.from_gaussian_mechanism(
                1 / event.mu, pessimistic_estimate=False, value_discretization_interval=1e-3
            )
        else:
            assert isinstance(event, PureReport)
            noise = 2 / (1 + math.exp(event.epsilon))
            one = pld.from_randomized_response(
                noise, 2, pessimistic_estimate=False, value_discretization_interval=1e-3
            )
        one = one.self_compose(times)
        whole = one if whole is None else whole.compose(one)
    assert whole is not None
    return float(whole.get_epsilon_for_delta(DELTA))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_a_set_costs_no_more_than_its_runs_added(seed: int) -> None:
    rng = np.random.default_rng(seed)
    runs = []
    for _ in range(int(rng.integers(1, 6))):
        at_clients = {
            client: PerRecord(record=POOL[int(rng.integers(len(POOL)))], client=CLEAR)
            for client in range(int(rng.integers(1, 3)))
        }
        if any(each.record is STEPS for each in at_clients.values()):
            at_clients = dict.fromkeys(at_clients, PerRecord(record=STEPS, client=CLEAR))
        runs.append(of(dict.fromkeys(range(int(rng.integers(1, 4))), at_clients)))
    basic = 0.0
    for run in runs:
        line = min(
            (g for g in run.at(DELTA / len(runs)).guarantees if g.unit == "record"),
            key=lambda g: g.epsilon or math.inf,
        )
        assert line.epsilon is not None
        basic += line.epsilon
    found = epsilon_of(runs, "record")
    assert found <= basic * (1 + 1e-6)
    assert found >= max(epsilon_of([run], "record") for run in runs)


@pytest.mark.parametrize(
    "events",
    [
        {NOISE: 4, normal(0.9): 1},
        {PURE: 3, PureReport(epsilon=1.0): 2},
        {PURE: 4, NOISE: 2},
        {STEPS: 3},
        {STEPS: 1, NOISE: 3},
        {STEPS: 1, NOISE: 1, PURE: 2},
    ],
)
def test_no_set_costs_less_than_what_another_accountant_attains(events: dict[Event, int]) -> None:
    runs = [
        of(PerRecord(record=event, client=CLEAR))
        for event, times in events.items()
        for _ in range(times)
    ]
    assert epsilon_of(runs, "record") >= by_dp_accounting(Counter(events))


def test_a_sum_says_on_whose_word_it_relies() -> None:
    runs = [of(NOISE, own=["mine:Noise"]), of(NOISE)]
    told = words.together_line(together(runs, "client-run", "server"))
    assert "stated by mine:Noise" in told
    assert "stated by" not in words.together_line(together([of(NOISE)], "client-run", "server"))
