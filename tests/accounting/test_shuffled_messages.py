"""Shuffled chunks and whole reports: printed figures, against independent computations."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from accounting_oracles import Floats, clone_arrays, contour_delta, two_valued
from tables import stated

import fedldp
from fedldp.accounting.accountants import shuffled_loss
from fedldp.accounting.events import BinaryRandomizedResponse, PureReport, SubsetResponse
from fedldp.accounting.guarantees import Guarantee, shuffled_guarantees
from fedldp.accounting.numerics.blanket import Subset, blanket_epsilon
from fedldp.accounting.numerics.compose import two_valued_epsilon
from fedldp.accounting.numerics.shuffle import (
    clone_losses,
    clones_epsilon,
    shuffled_composed_lower,
)
from fedldp.accounting.prices import cost
from fedldp.accounting.releases import ClientIndices, ReleaseHistory
from fedldp.accounting.statement import ShufflerInPath
from fedldp.core.errors import ConfigError
from fedldp.core.kinds import HONEST_CATEGORIES, SHUFFLED_CATEGORIES, SHUFFLED_REPORTS
from fedldp.simulation.plan import Plan, plan, problem_of

Inputs = tuple[int, ...]


def of_run(event: BinaryRandomizedResponse, rounds: int, crowd: int, chunk: int) -> Guarantee:
    *_, line = shuffled_guarantees(event, rounds, anonymity_set=crowd, chunk=chunk, delta=1e-5)
    assert line.unit == "client-run"
    return line


# The figures, each with the figure of the clones of any randomiser


@pytest.mark.slow
def test_chunks_compose_the_losses_of_their_pair() -> None:
    epsilon, crowd, chunk = 0.3, 100, 3
    line = of_run(BinaryRandomizedResponse(epsilon=epsilon, coordinates=650), 15, crowd, chunk)
    messages = -(-650 // chunk) * 15
    assert line.epsilon == pytest.approx(46.3894, abs=1e-4)
    assert line.lower is not None
    assert line.lower <= line.epsilon
    clones = {2 / (math.exp(chunk * epsilon) + 1): line.epsilon}
    looser = clones_epsilon(chunk * epsilon, crowd, 1e-5, messages)
    assert looser == pytest.approx(60.1087, abs=1e-4)
    clones[math.exp(-chunk * epsilon)] = looser
    for clone, found in clones.items():
        pair = clone_arrays(chunk * epsilon, crowd, clone)
        assert contour_delta(*pair, messages, found) <= 1e-5 * (1 + 1e-6)
        assert contour_delta(*pair, messages, found * (1 - 1e-5)) > 1e-5


def test_whole_reports_compose_the_losses_of_their_pair() -> None:
    config = fedldp.recipe("quickstart", mechanism="two_point_l1", epsilon=0.937)
    lines = plan(config, problem_of(config, None)).privacy.guarantees
    (line,) = (g for g in lines if (g.unit, g.adversary) == ("client-run", "shuffled-server"))
    assert line.epsilon is not None
    assert line.epsilon == pytest.approx(2.1853, abs=1e-4)
    assert line.method == SHUFFLED_REPORTS(reports=15)
    assert line.lower is None
    pair = clone_arrays(0.937, 100, math.exp(-0.937))
    assert contour_delta(*pair, 15, line.epsilon) <= 1e-5 * (1 + 1e-6)
    assert contour_delta(*pair, 15, line.epsilon * (1 - 1e-5)) > 1e-5


# A chunk of bits is hidden at least as well as one bit with the sum of their epsilons


def law_of(inputs: Sequence[float]) -> Floats:
    """Return the law of a chunk whose bits are ones with these probabilities."""
    law = np.ones(1)
    for chance in inputs:
        law = np.multiply.outer(law, [1 - chance, chance]).reshape(-1)
    return law


def with_one_more(counts: dict[Inputs, float], law: Floats) -> dict[Inputs, float]:
    """Return the law of the count of each message after one more message of this law."""
    more: dict[Inputs, float] = {}
    for outcome, mass in counts.items():
        for i, chance in enumerate(law):
            key = (*outcome[:i], outcome[i] + 1, *outcome[i + 1 :])
            more[key] = more.get(key, 0.0) + mass * float(chance)
    return more


def worst_delta(chunk: int, n: int, chances: Sequence[float], ratios: Sequence[float]) -> Floats:
    """Return the largest delta of n shuffled chunks over all inputs with these bit chances."""
    inputs = list(itertools.product(chances, repeat=chunk))
    laws = {each: law_of(each) for each in inputs}
    worst = np.zeros(len(ratios))
    for others in itertools.combinations_with_replacement(inputs, n - 1):
        counts = {(0,) * 2**chunk: 1.0}
        for each in others:
            counts = with_one_more(counts, laws[each])
        shuffled = [np.array(list(with_one_more(counts, laws[x]).values())) for x in inputs]
        for first, second in itertools.permutations(shuffled, 2):
            found = [np.maximum(first - ratio * second, 0).sum() for ratio in ratios]
            worst = np.maximum(worst, found)
    return worst


@pytest.mark.parametrize(
    ("chunk", "n", "middle", "epsilon"),
    [(1, 4, True, 0.1), (2, 2, True, 3.0), (2, 4, False, 1.0), (3, 2, False, 0.1)],
)
def test_no_inputs_of_few_chunks_are_worse_than_the_pair(
    epsilon: float, chunk: int, n: int, middle: bool
) -> None:
    p = 1 / (1 + math.exp(-epsilon))
    chances = [1 - p, p, *([0.5, 0.3 + 0.4 * p] if middle else [])]
    points = np.linspace(0, 0.98, 8) * chunk * epsilon
    worst = worst_delta(chunk, n, chances, np.exp(points).tolist())
    pair = clone_losses(chunk * epsilon, n)
    bounds = np.array([pair.delta(at) for at in points])
    assert (worst <= bounds * (1 + 1e-12)).all()


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "chunk"), [(0.01, 2), (2.0, 7)])
def test_chunks_lie_between_single_bits_and_unshuffled_reports(epsilon: float, chunk: int) -> None:
    line = of_run(BinaryRandomizedResponse(epsilon=epsilon, coordinates=650), 4, 100, chunk)
    assert line.epsilon is not None
    assert line.lower is not None
    bits = shuffled_composed_lower(epsilon, 100, 2600, 1e-5)
    assert line.lower == pytest.approx(bits, rel=1e-8)
    assert bits * (1 - 1e-8) <= line.epsilon <= two_valued_epsilon(epsilon, 2600, 1e-5)


# Reports of one category each, shuffled as whole reports


EVENT = SubsetResponse(high=7, low=1, closest=1, categories=4)
SUBSET = Subset(high=7, low=1, closest=1, categories=4)


def made(
    participants: Mapping[int, ClientIndices | None],
    *,
    clients: int = 100,
    untrusted: int = 0,
    delta: float = 1e-5,
) -> list[Guarantee]:
    """Return the lines of a run whose clients release ``EVENT`` in each of their rounds."""
    released = ReleaseHistory.planned({EVENT: range(clients)}, participants)
    path = ShufflerInPath(chunk=1, untrusted_clients=untrusted, prediction_error=0.0)
    return stated(released, delta, shuffler=path)


def shuffled(lines: Iterable[Guarantee]) -> dict[str, Guarantee]:
    return {line.unit: line for line in lines if line.adversary == "shuffled-server"}


def test_a_round_and_a_run_have_the_figures_of_the_blanket() -> None:
    found = shuffled(made({1: None, 2: None, 3: None}))
    assert list(found) == ["client-round", "client-run"]
    assert found["client-round"].epsilon == blanket_epsilon(SUBSET, 100, 1e-5)
    assert found["client-run"].epsilon == blanket_epsilon(SUBSET, 100, 1e-5, 3)
    for line, rounds in zip(found.values(), (1, 3), strict=True):
        assert (line.kind, line.delta, line.lower) == ("approximate", 1e-5, None)
        assert line.method == SHUFFLED_CATEGORIES(reports=rounds)
        assert line.stated_by == "fedldp"


def test_a_client_that_answers_once_is_hidden_by_its_own_round_alone() -> None:
    once = {1: range(40), 2: range(40, 70), 3: range(70, 100)}
    found = shuffled(made(once))
    assert found["client-run"].epsilon == blanket_epsilon(SUBSET, 30, 1e-5)
    assert found["client-run"].epsilon == found["client-round"].epsilon
    (honest,) = HONEST_CATEGORIES.among(found["client-run"].assumptions)
    assert honest.values["reports"] == 30


def test_without_other_clients_nothing_is_hidden() -> None:
    alone = shuffled(made({1: None}, clients=1))["client-round"]
    assert alone.epsilon is not None
    assert alone.epsilon <= SUBSET.epsilon
    assert alone.epsilon == pytest.approx(SUBSET.epsilon, rel=1e-4)
    colluding = shuffled(made({1: None}, untrusted=100))["client-round"]
    assert colluding.epsilon == alone.epsilon


def test_the_lines_without_the_shuffler_are_those_of_a_pure_report() -> None:
    pure = PureReport(epsilon=SUBSET.epsilon)
    known = stated(dict.fromkeys((1, 2), dict.fromkeys(range(100), pure)))
    found = made({1: None, 2: None})
    assert [line for line in found if line.adversary == "server"] == known
    for kind in ("pure", "zcdp", "gdp"):
        assert cost(EVENT, kind) == cost(pure, kind)


def test_a_report_with_only_an_epsilon_is_not_hidden() -> None:
    assert shuffled_loss(PureReport(epsilon=1.0)) is None
    mixed = ReleaseHistory.planned(
        {EVENT: range(5), PureReport(epsilon=1.0): range(5, 9)}, {1: None}
    )
    path = ShufflerInPath(chunk=1, untrusted_clients=0, prediction_error=0.0)
    with pytest.raises(ConfigError, match="sends one kind of bits, or of categories"):
        stated(mixed, shuffler=path)


# A shuffler that keeps budgets apart hides no client with a budget of its own


SIZE = 650
"""The number of weights in the quickstart's model."""


def planned(**settings: Any) -> Plan:
    config = fedldp.recipe("quickstart", **settings)
    return plan(config, problem_of(config, None))


def test_budgets_that_the_shuffler_keeps_apart_do_not_hide_each_other() -> None:
    lone = math.nextafter(326.0, 1e9)
    made = planned(mechanism="two_point_l1", clip=1e6, epsilon=[326.0] * 99 + [lone], rounds=1)
    # A client that is alone in its group is not hidden: its guarantee is the local one.
    event = made.config.algorithm(made.problem).encoder(99).event()
    assert isinstance(event, BinaryRandomizedResponse)
    lines = [g for g in made.privacy.guarantees if g.adversary == "shuffled-server"]
    assert {g.unit for g in lines} >= {"client-round", "client-run"}
    for line in lines:
        if line.unit != "weight":
            assert two_valued(event.epsilon, SIZE, line.epsilon) <= 1e-5
