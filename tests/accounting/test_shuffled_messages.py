"""Shuffled chunks and whole reports: printed figures, against independent computations."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from accounting_oracles import Floats, clone_arrays, contour_delta

import fedldp
from fedldp.accounting.events import BinaryRandomizedResponse
from fedldp.accounting.guarantees import Guarantee, shuffled_guarantees
from fedldp.accounting.numerics.compose import two_valued_epsilon
from fedldp.accounting.numerics.shuffle import (
    clone_losses,
    clones_epsilon,
    shuffled_composed_lower,
)
from fedldp.core.kinds import SHUFFLED_REPORTS
from fedldp.simulation.plan import plan, problem_of

Inputs = tuple[int, ...]


def of_run(event: BinaryRandomizedResponse, rounds: int, crowd: int, chunk: int) -> Guarantee:
    *_, line = shuffled_guarantees(event, rounds, anonymity_set=crowd, chunk=chunk, delta=1e-5)
    assert line.unit == "client-run"
    return line


# The figures, each with the figure of the clones of any randomiser


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
