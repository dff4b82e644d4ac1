"""A server's estimates and steps, compared with their formulas."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedldp.algorithms.bounds import Unbounded
from fedldp.algorithms.release import Release
from fedldp.algorithms.server_update import (
    Estimate,
    Estimated,
    ServerUpdate,
    Step,
    WeightedMean,
    last_of,
)
from fedldp.core.bounding import LARGEST_WEIGHT
from fedldp.core.errors import Diverged
from fedldp.core.randomness import Stream
from fedldp.mechanisms.none import Plain
from fedldp.protocol.keys import draws_of_seed
from fedldp.protocol.roles import State
from fedldp.protocol.wire import Report

SIZE = 5
START = np.linspace(-1, 1, SIZE).astype(np.float32)


def sent(values: Any, round: int = 1, **fields: Any) -> Report:
    payload = np.asarray(values, "<f4").tobytes()
    return Report(round=round, size=SIZE, payload=payload, chunk=SIZE, **fields)


def draw(purpose: str) -> Stream:
    return draws_of_seed(0)(1)(purpose)


def plain(gives: Any) -> WeightedMean:
    bound = Unbounded(send=gives)
    return WeightedMean(release=Release(bound=bound, mechanism=Plain(), size=SIZE))


class UsesNone(Estimate):
    """An estimate that reads the reports and uses none of them."""

    needs = "sender"
    gives = "weights"

    def __call__(self, state: State, reports: Any, draw: Any, factor: float = 1.0) -> Estimated:
        assert list(reports)
        return Estimated(values=None, metrics={"drawn": 1.0})


def go(update: ServerUpdate, rounds: list[Any], start: np.ndarray = START) -> list[State]:
    """Return the states after rounds in which one client reports each of these values."""
    states = [update.role(lambda draw: State(weights=start)).initial(draw)]
    for values in rounds:
        states.append(update(states[-1], [sent(values)], draw)[0])
    return states


# Steps


def by_hand(step: Step, changes: Any) -> list[np.ndarray]:
    """Return the iterates by the papers' formulas, coordinate by coordinate."""
    iterates, rate, beta = [], step.rate, step.momentum
    weights = [float(w) for w in START]
    first, second = [0.0] * SIZE, [1e-3**2] * SIZE
    for change in changes:
        for i in range(SIZE):
            # The change that the server gets: the mean of the weights minus its own, in float32.
            target = float(np.float32(np.float32(weights[i]) + np.float32(change[i])))
            gradient = weights[i] - target
            if step.optimizer == "momentum":
                first[i] = beta * first[i] + gradient
                weights[i] -= rate * first[i]
            elif step.optimizer == "adam":
                first[i] = beta * first[i] + (1 - beta) * gradient
                second[i] = 0.99 * second[i] + 0.01 * gradient**2
                weights[i] -= rate * first[i] / (math.sqrt(second[i]) + 1e-3)
            else:
                weights[i] -= rate * gradient
            weights[i] = float(np.float32(weights[i]))
        iterates.append(np.array(weights))
    return iterates


@pytest.mark.parametrize(
    "step",
    [
        Step(rate=0.3),
        Step(optimizer="momentum", momentum=0.7),
        Step(optimizer="momentum", rate=0.25),
        Step(optimizer="adam", rate=0.05),
        Step(optimizer="adam", rate=0.01, momentum=0.0),
    ],
    ids=str,
)
def test_steps_are_the_papers_formulas(step: Step) -> None:
    changes = np.random.default_rng(3).normal(0, 0.1, (6, SIZE))
    expected = by_hand(step, changes)
    for gives in ("weights", "update"):
        update = ServerUpdate(estimate=plain(gives), step=step)
        state = go(update, [])[0]
        for change, iterate in zip(changes, expected, strict=True):
            weights = (state.weights + change.astype(np.float32)).astype(np.float32)
            values = weights if gives == "weights" else weights - state.weights
            state, metrics = update(state, [sent(values)], draw)
            assert metrics == {}
            np.testing.assert_allclose(state.weights, iterate, rtol=1e-5, atol=1e-6)


def test_without_a_step_the_estimate_itself_is_used() -> None:
    """With W + rate (mean - W), some weights would differ in the last digit."""
    values = np.float32([1e-9, 3e7, 1 / 3, -7e-3, 0.1])
    weights = go(ServerUpdate(estimate=plain("weights")), [values])[-1].weights
    assert weights.tobytes() == values.tobytes()
    weights = go(ServerUpdate(estimate=plain("update")), [values])[-1].weights
    assert weights.tobytes() == (START + values.astype(np.float64)).astype(np.float32).tobytes()


def test_an_interrupted_step_continues_as_if_it_had_not_been() -> None:
    update = ServerUpdate(estimate=plain("update"), step=Step(optimizer="adam", rate=0.1))
    states = go(update, list(np.random.default_rng(0).normal(size=(4, SIZE))))
    assert set(states[2].arrays) == {"momentum", "second_moment"}
    copied = State(
        round=3,
        weights=states[2].weights.copy(),
        arrays={name: value.copy() for name, value in states[2].arrays.items()},
    )
    last = np.random.default_rng(0).normal(size=(4, SIZE))[2]
    assert update(copied, [sent(last)], draw)[0].weights.tobytes() == states[3].weights.tobytes()


# Noise, and the last operation


def noise(size: int, draw: Any) -> np.ndarray:
    return np.full(size, 0.5)


def test_the_servers_noise_is_added_before_the_step() -> None:
    """Everything that the step computes and stores follows from the noisy estimate alone."""
    zero = np.zeros(SIZE)
    straight = ServerUpdate(estimate=plain("update"), noise=noise)
    np.testing.assert_allclose(go(straight, [zero])[-1].weights, START + 0.5, rtol=1e-6)
    halved = ServerUpdate(estimate=plain("update"), step=Step(rate=0.5), noise=noise)
    np.testing.assert_allclose(go(halved, [zero])[-1].weights, START + 0.25, rtol=1e-6)
    moved = go(
        ServerUpdate(estimate=plain("update"), step=Step(optimizer="momentum"), noise=noise),
        [zero],
    )[-1]
    np.testing.assert_allclose(moved.arrays["momentum"], 0.5)
    np.testing.assert_allclose(moved.weights, START + 0.5, rtol=1e-6)


def test_the_last_operation_works_on_the_next_weights_before_the_cast() -> None:
    seen = []

    def finish(weights: Any, state: State) -> Any:
        seen.append(weights.dtype)
        return np.sign(weights)

    state = go(ServerUpdate(estimate=plain("weights"), finish=finish), [START])[-1]
    np.testing.assert_array_equal(state.weights, np.sign(START))
    assert seen == [np.float64]


@pytest.mark.parametrize(
    ("value", "optimizer"), [(np.nan, "momentum"), (np.inf, "adam"), (2 * LARGEST_WEIGHT, "adam")]
)
def test_weights_that_a_server_may_not_send_do_not_enter_its_state(
    optimizer: Any, value: float
) -> None:
    """Adam would take a step of ordinary size and then be stuck for hundreds of rounds."""
    update = ServerUpdate(estimate=plain("weights"), step=Step(optimizer=optimizer, rate=0.01))
    with pytest.raises(Diverged, match=r"^round 1: the mean of the reports .*; lower learning_"):
        go(update, [np.full(SIZE, value)])


# The average of the last iterates


@pytest.mark.parametrize(
    ("share", "rounds", "first"),
    [(0.0, 10, 11), (1.0, 10, 1), (0.5, 10, 6), (0.1, 10, 10), (1e-9, 10, 10), (0.3, 3, 3)],
)
def test_which_rounds_are_averaged(share: float, rounds: int, first: int) -> None:
    assert last_of(range(1, rounds + 1), share) == range(first, rounds + 1)
    assert list(last_of(range(5, rounds + 5), share)) == list(range(first + 4, rounds + 5))


def test_the_result_is_the_mean_of_the_last_iterates_and_no_step_sees_it() -> None:
    values = list(np.random.default_rng(1).normal(size=(5, SIZE)))
    without = go(ServerUpdate(estimate=plain("weights")), values)
    update = ServerUpdate(estimate=plain("weights"), averaged=range(3, 9))
    states = go(update, values)
    iterates = [state.weights for state in without]
    for round, state in enumerate(states):
        assert state.weights.tobytes() == iterates[round].tobytes()
        expected = iterates[round] if round < 3 else np.mean(iterates[3 : round + 1], axis=0)
        np.testing.assert_allclose(update.result(state), expected, rtol=1e-6, atol=1e-7)
        assert update.result(state).dtype == np.float32
    assert update.result(states[2]).tobytes() == iterates[2].tobytes()


def test_a_server_role_does_not_send_its_steps_state() -> None:
    step = Step(optimizer="adam", rate=0.1)
    update = ServerUpdate(estimate=plain("weights"), step=step, averaged=range(1, 9))
    role = update.role(lambda draw: State(weights=START))
    state = go(update, [START + 1])[-1]
    assert role.publish(state).public == {}
    np.testing.assert_array_equal(role.publish(state).weights, state.weights)
    np.testing.assert_array_equal(role.tested(state).weights, update.result(state))
    # The estimate from single reports does not use the server's state from earlier rounds.
    np.testing.assert_allclose(role.read(state, [sent(START * 3)], draw), START * 3)


def test_the_round_after_an_average_starts_from_it_and_is_not_averaged() -> None:
    values = list(np.random.default_rng(1).normal(size=(5, SIZE)))
    update = ServerUpdate(estimate=plain("update"), averaged=range(2, 4), restarts=True)
    states = go(update, values)
    mean = np.mean([START + values[0] + values[1], START + sum(values[:3])], axis=0)
    np.testing.assert_allclose(states[3].weights, mean, rtol=1e-6)
    further = mean, mean + values[3], mean + values[3] + values[4]
    for state, after in zip(states[3:], further, strict=True):
        np.testing.assert_allclose(update.result(state), after, rtol=1e-5)


def test_an_average_ends_even_if_its_last_round_uses_no_report() -> None:
    update = ServerUpdate(estimate=plain("weights"), averaged=range(1, 4), restarts=True)
    state = go(update, [START + 1, START + 3])[-1]
    after, _ = replace(update, estimate=UsesNone())(state, [sent(START, client=0)], draw)
    np.testing.assert_allclose(after.weights, START + 2)
    np.testing.assert_allclose(update.result(after), START + 2)


# Estimates


def test_if_no_client_has_a_share_the_weights_stay_and_no_iterate_is_averaged() -> None:
    step = Step(optimizer="momentum")
    update = ServerUpdate(estimate=UsesNone(), step=step, averaged=range(1, 9))
    before = go(update, [])[0]
    after, metrics = update(before, [sent(START + 1, client=0)], draw)
    assert (after.round, after.weights.tobytes()) == (2, START.tobytes())
    assert metrics == {"drawn": 1.0}
    np.testing.assert_array_equal(update.result(after), START)
    assert not after.arrays["momentum"].any()
