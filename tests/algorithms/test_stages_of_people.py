"""Stages of a run over people: shares of the budget, one event a stage, and exact vectors."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from runs_of_people import CHANNELS, run_over_people, told_of
from sklearn.metrics import roc_auc_score

import fedldp
from fedldp.accounting.events import GaussianShare, PerRecord
from fedldp.accounting.numerics.gaussian import gaussian_epsilon
from fedldp.accounting.statement import Statement
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.people import PerPersonRun
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.stages import (
    LEAST_SHARE,
    ClassShares,
    intercept_step,
    measured,
    stage_at,
    stages_of,
    start_at,
)
from fedldp.audit.harness import update_of
from fedldp.core.errors import RunError
from fedldp.core.kinds import DECLARED_PUBLIC, STAGE
from fedldp.data.examples import Examples
from fedldp.data.public_features import CONSTANT
from fedldp.mechanisms.summing import signed
from fedldp.protocol.client_store import MemoryStore
from fedldp.protocol.keys import SecretKeys, draws_of_seed
from fedldp.protocol.roles import HALF_WIDTH, Senders, Update
from fedldp.protocol.wire import Broadcast, Sensitive
from fedldp.simulation.engine import simulate
from fedldp.simulation.plan import plan, problem_of
from fedldp.training.column_sums import (
    BLOCK,
    LARGEST_SCALE,
    LARGEST_SHIFT,
    LONGEST,
    SCALE,
    SHIFT,
    ColumnMap,
    column_sums,
)
from fedldp.training.exact_sums import NORM
from fedldp.training.person_gradients import SUMS

PROBLEM = Problem((8,), 2, 1500, None, 5)
AGAINST = {"named": "server", "sum": "summing-server", "central": "downlink"}
STAGED = {"measure_share": 0.1, "intercept_share": 0.05}


def config_of(channel: str, **settings: Any) -> RunConfig:
    own = {"channel": channel, "rounds": 20, "epsilon": 1.0, "learning_rate": 4.0}
    made: RunConfig = run_over_people(**{**own, **settings})
    return made


def epsilon_of(config: RunConfig) -> float:
    return stated_by(plan(config, PROBLEM).privacy, config.composition.channel.kind)


def stated_by(privacy: Statement, channel: str) -> float:
    (line,) = [
        line
        for line in privacy.guarantees
        if line.unit == "record" and line.adversary == AGAINST[channel]
    ]
    assert line.epsilon is not None
    return line.epsilon


def share_of(config: RunConfig, round: int) -> GaussianShare:
    """Return what one row releases in a round, from the encoder that is charged."""
    event = config.algorithm(PROBLEM).encoder(0).event(0, round)
    assert isinstance(event, PerRecord)
    assert isinstance(event.record, GaussianShare)
    return event.record


def test_shares_are_exact_and_the_first_and_last_rounds_are_the_small_stages() -> None:
    config = config_of("named", **STAGED)
    found = stages_of(config)
    assert [stage.share for stage in found] == [Fraction(1, 10), Fraction(17, 20), Fraction(1, 20)]
    assert [stage.rounds for stage in found] == [range(1, 2), range(2, 18), range(18, 21)]
    notes = STAGE.among(plan(config, PROBLEM).privacy.warnings)
    assert [note.values["share"] for note in notes] == ["1/10", "17/20", "1/20"]


@given(st.floats(0, 1, exclude_max=True), st.floats(0, 1, exclude_max=True), st.integers(5, 99))
def test_shares_sum_to_exactly_one_and_every_round_is_in_one_stage(
    measure: float, intercept: float, rounds: int
) -> None:
    config = config_of("named", rounds=rounds)
    assume(Fraction(repr(measure)) + Fraction(repr(intercept)) < 1)
    found = stages_of(config.changed(measure_share=measure, intercept_share=intercept))
    assert sum(stage.share for stage in found) == 1
    assert all(stage.share > 0 for stage in found)
    assert list(itertools.chain(*(stage.rounds for stage in found))) == list(range(1, rounds + 1))


@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("epsilon", [0.5, 1, 8])
def test_epsilon_is_the_same_with_one_stage_and_with_three(channel: str, epsilon: float) -> None:
    for shares in ({}, STAGED):
        found = epsilon_of(config_of(channel, epsilon=epsilon, **shares))
        assert 0.999 * epsilon < found <= epsilon


@pytest.mark.parametrize("channel", ["named", "sum"])
def test_every_round_is_charged_at_the_noise_of_its_stage(channel: str) -> None:
    """mu^2 adds up over the releases, by their events (Dong, Roth, Su 2022)."""
    config, reports = config_of(channel, **STAGED), 5 if channel == "sum" else 1
    events = {round: share_of(config, round) for round in range(1, 21)}
    squared = {
        round: Fraction(event.squared_distance, event.variance * reports)
        for round, event in events.items()
    }
    total = sum(squared.values())
    assert epsilon_of(config) == pytest.approx(gaussian_epsilon(math.sqrt(total), 1e-5), rel=1e-3)
    for stage in stages_of(config):
        part = sum(squared[round] for round in stage.rounds) / total
        assert float(part) == pytest.approx(float(stage.share), rel=2e-3)
        release = config.algorithm(PROBLEM).release(0)
        for round in stage.rounds:  # what adds the noise states the event
            assert events[round] == release.at(round).mechanism.event(release.coordinates)


MIXED_SHARES = pytest.mark.parametrize(
    "shares", [STAGED, {"measure_share": 0.7, "intercept_share": 0.01}]
)
WIDE = Problem((1999,), 2, 1500, None, 5)
"""Has 4,000 weights, so that the deviation of one sum's noise is known within 2 %."""


def sent(encoder: Any, round: int, value: float) -> Any:
    """Return a real client's report of a sum that has one value in all coordinates."""
    size = encoder.release.coordinates
    told = Broadcast(round=round, weights=np.zeros(size, np.float32))
    update = Update(rows=told.weights[None], aux={SUMS: np.full((1, size), value)})
    keys = SecretKeys(bytes(32), "run")
    senders = Senders(
        indices=[0],
        num_examples=Sensitive(np.array([300])),
        fresh=lambda purpose: [keys.fresh(round, 0, purpose)],
        kept=lambda purpose: [keys.kept(purpose)],
        store=lambda place: MemoryStore(),
    )
    (report,) = encoder(Sensitive(update), told, senders)
    return report


@pytest.mark.parametrize("channel", ["named", "sum"])
@MIXED_SHARES
def test_what_a_client_sends_hides_a_person_as_well_as_the_event_of_the_round_says(
    channel: str, shares: dict[str, float]
) -> None:
    """From bytes alone: how far opposite sums of 20,000 equal people are apart, and the noise."""
    algorithm = config_of(channel, **shares).algorithm(WIDE)
    encoder: Any = algorithm.report_encoder(0)
    size, bits = encoder.release.coordinates, encoder.release.mechanism.bits
    people = 20_000
    value = people * NORM / math.sqrt(size)
    for round in (1, 2, 17, 18, 20):
        words = [
            signed(encoder.release.mechanism.words.unpack(sent(encoder, round, each).payload), bits)
            for each in (value, -value)
        ]
        apart = size * ((words[0].mean() - words[1].mean()) / people) ** 2
        noise = (words[0].var() + words[1].var()) / 2
        event = encoder.event(0, round).record
        claimed = event.squared_distance / event.variance
        assert 0.8 * claimed < apart / noise < 1.1 * claimed


@MIXED_SHARES
def test_a_trusted_server_hides_a_person_as_well_as_the_event_of_the_round_says(
    shares: dict[str, float],
) -> None:
    """The noise in what follows from equal sums, in steps in which a person moves 2 NORM."""
    algorithm = config_of("central", **shares).algorithm(WIDE)
    server, encoder = algorithm.server(), algorithm.report_encoder(0)
    first = server.initial(draws_of_seed(0)(0))
    for round in (1, 2, 17):
        state = replace(first, round=round)
        value = 100.0 * BLOCK if round == 1 else 0.0  # large means are shifted by all of it
        after, _ = server.aggregate(
            state, [sent(encoder, round, value)] * 5, draws_of_seed(0)(round)
        )
        if round == 1:
            noise = np.std(after.arrays[SHIFT]) * WIDE.num_examples * BLOCK
        else:
            rate = algorithm.release(0).bound.rate / 5
            noise = np.std(after.weights - state.weights) / rate
        assert server.downlink is not None
        event: Any = server.downlink(round)
        claimed = event.record.squared_distance / event.record.variance
        assert 0.8 * claimed < (2 * NORM / noise) ** 2 < 1.1 * claimed


def test_a_round_that_the_run_does_not_have_is_refused() -> None:
    config = config_of("named", **STAGED)
    for round in (0, 21):
        with pytest.raises(RunError, match=f"round {round}: the run has the rounds 1 to 20"):
            stage_at(stages_of(config), round)
        with pytest.raises(RunError):
            config.algorithm(PROBLEM).encoder(0).event(0, round)


def test_all_stages_have_one_modulus_and_their_own_noise() -> None:
    calibration = config_of("sum", **STAGED).composition.calibration
    assert isinstance(calibration, PerPersonRun)
    stages = stages_of(calibration.settings)
    found = [calibration.noise(16, people=1500, stage=stage) for stage in stages]
    assert len({each.bits for each in found}) == 1
    assert len({each.step / 2.0**each.scale_bits for each in found}) == 3
    alone = config_of("sum").composition.calibration
    assert isinstance(alone, PerPersonRun)
    assert {each.bits for each in found} == {alone.noise(16, people=1500).bits}


def hostile_rows() -> list[np.ndarray[Any, np.dtype[np.float32]]]:
    generator = np.random.default_rng(0)
    rows = [
        (generator.normal(size=9) * scale).astype(np.float32)
        for scale in (0.3, 1.0, 10.0, 1e30)
        for _ in range(20)
    ]
    for place, sign in itertools.product(range(8), (1, -1)):  # all of a row in one column
        row = np.zeros(9, np.float32)
        row[place] = sign * 1.0000001
        rows.append(row)
    return [*rows, np.full(9, np.nan, np.float32), np.full(9, -np.inf, np.float32)]


def test_one_person_moves_a_measuring_sum_by_at_most_the_distance() -> None:
    vectors = [
        [int(each) for each in column_sums(Examples(row[None], np.array([label])), 2)]
        for row, label in itertools.product(hostile_rows(), (0, 1))
    ]
    assert max(sum(each**2 for each in vector) for vector in vectors) <= LONGEST**2
    assert max(abs(each) for vector in vectors for each in vector) == BLOCK <= NORM
    apart = max(
        sum((a - b) ** 2 for a, b in zip(one, other, strict=True))
        for one, other in itertools.combinations(vectors, 2)
    )
    assert (2 * NORM * 0.86) ** 2 < apart <= (2 * NORM) ** 2


def test_blocks_bound_the_distance_for_people_with_many_rows() -> None:
    generator = np.random.default_rng(2)
    for rows in (2, 7, 1000):
        features = generator.choice(hostile_rows(), size=rows)
        labels = generator.integers(0, 3, rows)
        alone = Examples(features, labels, np.zeros(rows, np.int64))
        shares, means, squares = np.split(column_sums(alone, 3).astype(object), [3, 11])
        assert sum(int(each) for each in shares) <= BLOCK
        assert all(each >= 0 for each in (*shares, *squares))
        assert sum(int(each) for each in squares) <= BLOCK
        assert sum(int(each) ** 2 for each in means) <= BLOCK**2


def test_a_measuring_sum_is_the_sum_of_what_each_person_gives_alone() -> None:
    generator = np.random.default_rng(1)
    whose = np.repeat(np.arange(9), generator.integers(1, 6, 9))
    generator.shuffle(whose)
    features = generator.normal(size=(len(whose), 9)).astype(np.float32)
    features[whose == 1] = np.inf
    labels = generator.integers(0, 2, len(whose))
    every = Examples(features, labels, whose)
    parts = [column_sums(every.taken(whose == person), 2) for person in range(9)]
    assert [int(each) for each in column_sums(every, 2)] == [
        sum(int(part[place]) for part in parts) for place in range(18)
    ]
    assert not column_sums(every.taken(whose > 99), 2).any()


def test_a_measuring_sum_holds_shares_means_and_mean_squares() -> None:
    generator = np.random.default_rng(3)
    rows = generator.normal(size=(50, 5))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    labels = generator.integers(0, 2, 50)
    examples = Examples(np.hstack([rows, np.full((50, 1), 0.3)]).astype(np.float32), labels)
    by_hand = [*np.bincount(labels), *rows.sum(0), *np.square(rows).sum(0)]
    assert column_sums(examples, 2) / BLOCK == pytest.approx(by_hand, abs=50 * 2.0**-11)


told = st.lists(st.floats(width=32, allow_nan=True, allow_infinity=True), min_size=3, max_size=3)


@given(told, told)
def test_a_client_maps_columns_within_the_agreed_ranges_whatever_it_is_told(
    shift: list[float], scale: list[float]
) -> None:
    public = {SHIFT: np.array(shift, np.float32), SCALE: np.array(scale, np.float32)}
    found = ColumnMap.told(Broadcast(round=2, weights=np.zeros(8, np.float32), public=public), 3)
    assert (abs(found.shift) <= LARGEST_SHIFT).all()
    assert ((found.scale >= 0) & (found.scale <= LARGEST_SCALE)).all()
    mapped = found(Examples(np.array([[0.5, -1, 0.1, 0.3]], np.float32), np.array([0])))
    assert np.isfinite(mapped.features).all()
    assert mapped.features[0, 3] == np.float32(0.3)


@pytest.mark.parametrize("public", [{}, {SHIFT: 3, SCALE: 2}, {SHIFT: 4, SCALE: 4}, {SHIFT: 3}])
def test_a_broadcast_without_a_map_is_refused_before_an_example_is_looked_at(
    public: dict[str, int],
) -> None:
    given = {name: np.zeros(size, np.float32) for name, size in public.items()}
    broadcast = Broadcast(round=2, weights=np.zeros(8, np.float32), public=given)
    with pytest.raises(RunError, match="round 2: the broadcast does not have a shift and a scale"):
        ColumnMap.told(broadcast, 3)


def update_of_stages() -> Any:
    update = config_of("named", **STAGED).algorithm(PROBLEM).local_update(torch.device("cpu"))
    return getattr(update, "update", update)


def test_a_client_knows_the_stage_from_its_agreement_and_not_from_the_server() -> None:
    """Whatever a broadcast says beside its number, the sum is that of the number's stage."""
    update = update_of_stages()
    assert update.measured == range(1, 2)
    assert update.intercepts == range(18, 21)
    columns = {SHIFT: np.zeros(8, np.float32), SCALE: np.ones(8, np.float32)}
    weights = np.zeros(18, np.float32)
    examples = Examples(
        np.random.default_rng(0).normal(size=(9, 9)).astype(np.float32), np.arange(9) % 2
    )

    def asked(round: int, public: dict[str, Any]) -> np.ndarray[Any, np.dtype[np.float64]]:
        told = Broadcast(round=round, weights=weights, public=public)
        return np.asarray(update_of(update, told, examples).aux[SUMS][0])

    said = {**columns, "stage": np.zeros(1, np.float32)}
    assert (asked(1, said) == column_sums(examples, 2)).all()
    assert (asked(2, said) == asked(17, columns)).all()
    of_intercept = asked(18, said).reshape(2, 9)
    assert not of_intercept[:, :-1].any()
    assert of_intercept[:, -1].any()


@pytest.mark.parametrize("largest", [0.0, 1.0])
def test_no_gradient_of_the_intercept_is_clipped(largest: float) -> None:
    """A single row's gradient has the length |p - y| 0.3, whatever the weights are."""
    update = update_of_stages()
    weights = np.zeros((2, 9), np.float32)
    weights[0, -1] = largest * 300
    row = Examples(np.array([[0.0] * 8 + [0.3]], np.float32), np.array([1]))
    found = update.summed.of_intercept()(weights.ravel(), row).reshape(2, 9)[:, -1]
    p = 1 / (1 + math.exp(-largest * 300 * 0.3))
    assert found * (0.43 / NORM) == pytest.approx([p * 0.3, -p * 0.3], rel=1e-3)


# What the server computes from what was measured


def test_columns_become_standard_and_the_model_is_that_of_the_tables_columns() -> None:
    generator = np.random.default_rng(4)
    rows = generator.normal([0.2, -0.1, 0.0], [0.3, 0.05, 0.2], (4000, 3)).clip(-1, 1)
    labels = generator.integers(0, 2, 4000)
    noisy = np.concatenate([np.bincount(labels) / 4000, rows.mean(0), np.square(rows).mean(0)])
    columns, _ = measured(noisy, 1e-6, 2)
    examples = Examples(np.hstack([rows, np.full((4000, 1), CONSTANT)]).astype(np.float32), labels)
    mapped = columns(examples).features.astype(np.float64)
    assert mapped[:, :3].mean(0) == pytest.approx(0, abs=1e-4)
    squares = np.square(mapped[:, :3]).mean(0)
    assert squares.sum() == pytest.approx(1, rel=1e-4)
    assert squares[0] == pytest.approx(squares[2], rel=1e-3)
    assert squares[1] / squares[0] == pytest.approx(0.0025 * 50 * 3, rel=0.05)  # the floor
    weights = generator.normal(size=(2, 4))
    of_table = columns.to_table_weights(weights.ravel(), CONSTANT).reshape(2, 4)
    assert examples.features @ of_table.T == pytest.approx(mapped @ weights.T, abs=1e-5)


def test_a_class_that_is_not_seen_sets_no_start_and_no_curvature() -> None:
    columns, declared = [0.0, 0.0, 0.3, 0.3], np.array([0.7, 0.3])
    of_seen, seen = measured(np.array([0.9, 0.1, *columns]), 0.03, 2)
    assert seen.usable(declared) == pytest.approx([0.9, 0.1])
    # Of the noise on both shares, as they are divided by their sum, and of who was asked.
    half = 1.96 * math.sqrt((0.1**2 + 0.9**2) * 0.03**2 + 0.1 * 0.9 / 100)
    assert seen.metrics(100) == {
        "private share of class 0": pytest.approx(0.9),
        f"private share of class 0{HALF_WIDTH}": pytest.approx(half),
        "private share of class 1": pytest.approx(0.1),
        f"private share of class 1{HALF_WIDTH}": pytest.approx(half),
    }
    of_hidden, hidden = measured(np.array([0.9, 0.1, *columns]), 0.04, 2)
    assert list(hidden.metrics(100)) == [f"private share of class {k}{HALF_WIDTH}" for k in (0, 1)]
    assert (hidden.usable(declared) == declared).all()
    assert of_seen.scale == pytest.approx(of_hidden.scale, rel=0.01)


@pytest.mark.parametrize(
    ("noisy", "shares"),
    [([1.08, 0.12], [0.9, 0.1]), ([0.5, 0.25, 0.25], [0.5, 0.25, 0.25]), ([0.4, 0.1], [0.8, 0.2])],
)
def test_noisy_shares_are_used_in_proportion(noisy: list[float], shares: list[float]) -> None:
    told = ClassShares(np.array(noisy), 0.03).usable(np.full(len(noisy), 1 / len(noisy)))
    assert told == pytest.approx(shares)


def test_a_share_that_is_used_is_never_below_the_least() -> None:
    told = ClassShares(np.array([1.998, 0.002]), 1e-6).usable(np.array([0.5, 0.5]))
    assert told == pytest.approx(np.array([0.999, LEAST_SHARE]) / (0.999 + LEAST_SHARE))


@pytest.mark.parametrize("noise", [1e-6, 0.01, 0.03])
def test_rows_stay_as_long_as_they_were_however_strong_the_noise(noise: float) -> None:
    """Fifty columns with a variance of 0.006 each; the means of half of them are far from 0."""
    generator = np.random.default_rng(5)
    rows = generator.normal(np.repeat([0.0, 0.167], 25), math.sqrt(0.3 / 50), (2000, 50))
    squares, longest = [], []
    for _ in range(20):
        exact = np.concatenate([[0.5, 0.5], rows.mean(0), np.square(rows).mean(0)])
        found = measured(exact + generator.normal(0, noise, exact.size), noise, 2)[0]
        squares.append(np.square((rows - rows.mean(0)) * found.scale).sum(1).mean())
        longest.append(np.abs(found.shift).max())
    assert np.median(squares) == pytest.approx(1, rel=0.2)
    assert np.mean(longest) < 0.175 + 3 * noise


def test_means_within_their_noise_are_no_shift() -> None:
    columns = np.full(40, 0.02)
    noisy = np.concatenate([[0.5, 0.5], 0.1 * np.tile([1, -1], 20), columns])
    assert measured(noisy, 0.1, 2)[0].shift == pytest.approx(0)
    half = measured(noisy, 0.1 / math.sqrt(2), 2)[0].shift
    assert half == pytest.approx(noisy[2:42] / 2, rel=1e-5)
    assert measured(noisy, 1e-3, 2)[0].shift == pytest.approx(noisy[2:42], rel=1e-3)


def test_training_starts_where_a_model_without_columns_predicts_the_shares() -> None:
    shares = np.array([0.7, 0.2, 0.1])
    weights = start_at(shares, np.full(12, 0.5, np.float32)).reshape(3, 4)
    logits = weights[:, -1] * CONSTANT
    assert np.exp(logits) / np.exp(logits).sum() == pytest.approx(shares)
    assert (weights[:, :-1] == 0.5).all()


def test_the_server_rate_changes_no_measured_start() -> None:
    """A start is no step: at a rate of 0.5, training would begin half way to it."""
    starts = []
    for rate in (1.0, 0.5, 0.1):
        config = config_of("named", epsilon=50.0, measure_share=0.3, server_rate=rate)
        counts = np.array([270, 30]) * BLOCK  # of the 300 people of each client
        starts.append(told_of(config.algorithm(PROBLEM), [counts] * 5)[0].weights)
    assert float(abs(starts[0]).max()) > 1
    assert starts[1] == pytest.approx(starts[0])
    assert starts[2] == pytest.approx(starts[0])


@pytest.mark.parametrize("more", [{}, {"measure_share": 0.1}, {"intercept_share": 0.1}])
def test_declared_shares_are_where_the_intercept_starts(more: dict[str, Any]) -> None:
    config = config_of("named", class_shares=[0.87, 0.13], **more)
    state = config.algorithm(PROBLEM).server().initial(draws_of_seed(0)(0))
    logits = state.weights.reshape(2, 9)[:, -1] * CONSTANT
    assert np.exp(logits) / np.exp(logits).sum() == pytest.approx([0.87, 0.13])
    rests = [each for line in plan(config, PROBLEM).privacy.guarantees for each in line.assumptions]
    assert DECLARED_PUBLIC(of=("class_shares",)) in rests


def test_a_typical_label_of_0_is_declared_like_any_other() -> None:
    config = config_of("named", label_range=[-1.0, 1.0], label_typical=0.0)
    problem = replace(PROBLEM, num_classes=1)
    rests = [each for line in plan(config, problem).privacy.guarantees for each in line.assumptions]
    assert DECLARED_PUBLIC(of=("label_range", "label_typical")) in rests


def test_a_step_of_the_intercept_is_that_of_newton_for_two_classes() -> None:
    shares, gradient = np.array([0.9, 0.1]), np.zeros(8)
    gradient[[3, 7]] = -0.01, 0.01
    gradient[[0, 5]] = 1e3  # noise in the other coordinates moves nothing
    for step in (1, 2, 3):
        found = intercept_step(gradient, shares, step).reshape(2, 4)
        newton = 0.01 / (2 * CONSTANT**2 * 0.7 * 0.09) / step
        assert found[:, -1] == pytest.approx([newton, -newton])
        assert not found[:, :-1].any()


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_steps_of_the_intercept_reach_the_shares(classes: int) -> None:
    """Without noise and without columns, from equal shares, three full steps get near."""
    shares = np.random.default_rng(classes).dirichlet(np.full(classes, 3.0))
    weights = np.zeros(2 * classes)
    for _ in range(8):
        logits = weights.reshape(classes, 2)[:, -1] * CONSTANT
        p = np.exp(logits) / np.exp(logits).sum()
        gradient = np.zeros((classes, 2))
        gradient[:, -1] = CONSTANT * (p - shares)
        weights = weights + intercept_step(gradient.ravel(), shares, 1)
    assert p == pytest.approx(shares, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("channel", ["named", "central"])
def test_a_measured_run_finds_shares_and_risks_in_wide_ranges(channel: str) -> None:
    """The column that counts is far narrower than the others; measured, it is learned."""
    generator = np.random.default_rng(5)
    x = generator.normal(size=(9000, 4))
    y = (generator.random(9000) < 1 / (1 + np.exp(2.2 - 2 * x[:, 0]))).astype(np.int64)
    rows = (x * [0.03, 1, 1, 1]).astype(np.float32)
    data = fedldp.Dataset.from_arrays(rows, y)
    common: dict[str, Any] = {"rounds": 14, "epsilon": 4.0, "learning_rate": 30.0}
    plain = simulate(config_of(channel, **common), dataset=data)
    staged = simulate(config_of(channel, **common, **STAGED), dataset=data)
    assert staged.rounds[0].metrics["private share of class 1"] == pytest.approx(y.mean(), abs=0.02)
    risks = [result.predict_proba(rows)[:, 1] for result in (plain, staged)]
    assert roc_auc_score(y, risks[1]) > roc_auc_score(y, risks[0]) + 0.02
    for result in (plain, staged):  # of what was released, each round at its stage's noise
        assert 3.999 < stated_by(result.privacy, channel) <= 4
    assert risks[1].mean() == pytest.approx(y.mean(), abs=0.02)


@pytest.mark.slow
def test_a_folded_column_finds_a_u_and_measuring_leaves_it_alone(tmp_path: Path) -> None:
    generator = np.random.default_rng(6)
    x = generator.normal(size=(6000, 3))
    y = (generator.random(6000) < 1 / (1 + np.exp(1.5 - x[:, 0] ** 2))).astype(np.int64)
    path = tmp_path / "u.csv"
    lines = (f"{a:.4f},{b:.4f},{c:.4f},{label}\n" for (a, b, c), label in zip(x, y, strict=True))
    path.write_text("a,b,c,label\n" + "".join(lines))
    common: dict[str, Any] = {
        "dataset": str(path), "spread_columns": {name: [0.0, 1.0] for name in "abc"}, **STAGED,
        "rounds": 24, "epsilon": 4.0, "learning_rate": 8.0,
    }  # fmt: skip
    found = {}
    for folds in ([], ["a", "b", "c"]):
        result = simulate(config_of("central", **common, fold_columns=folds))
        found[len(folds)] = result.rounds[-1].auc
        if folds:
            names, folds = problem_of(result.config, None).features, result.config.columns.folds
            assert names is not None
            assert [names.index(each) for each in folds] == [1, 3, 5]
    assert found[0] < 0.55
    assert found[3] > found[0] + 0.15
    noisy = np.concatenate([[0.5, 0.5], [0.1, 0.2, 0.3], [0.4, 0.5, 0.6]])
    columns = measured(noisy, 1e-3, 2, (1,))[0]
    assert (columns.shift[1], columns.scale[1]) == (0, 1)
    others = measured(noisy, 1e-3, 2)[0]
    assert columns.scale[[0, 2]] == pytest.approx(others.scale[[0, 2]])


# Refusals


def test_a_budget_that_covers_all_stages_is_enough() -> None:
    config = config_of(
        "named", **STAGED, person_budget={"kind": "zcdp", "limit": 0.04, "unit": "record"}
    )
    assert plan(config, PROBLEM).privacy.guarantees
