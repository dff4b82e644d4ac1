"""Local updates in closed form: their reports, their protection, and refusals."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedldp.accounting.events import GaussianShare, InClear, PureReport
from fedldp.algorithms.bounds import InContrasts, InNorm, Rotated
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.systems import find_system
from fedldp.audit.harness import AttackedClient
from fedldp.audit.inputs import Canary
from fedldp.core import kinds
from fedldp.data import Examples
from fedldp.mechanisms.gaussian_share import SharedGaussian
from fedldp.mechanisms.k_closest import KClosest
from fedldp.protocol.roles import State, Update
from fedldp.protocol.wire import Broadcast, Layout, Sensitive
from fedldp.simulation.engine import simulate
from fedldp.testing.clients import Roles, clients_of, senders_of
from fedldp.training.linear_models import STATISTICS, LinearModel, Statistics
from fedldp.training.ridge import OwnStatistics, RidgeSolution

DIGITS = Problem((1, 8, 8), 10, 1437)
SHARED: dict[str, Any] = {
    "dataset": "digits", "model": "linear", "num_clients": 30, "rounds": 1,
}  # fmt: skip
SOLUTION: dict[str, Any] = {
    "local_update": "solution", "bound": "direction", "mechanism": "k_closest", "epsilon": 4.0,
}  # fmt: skip
STATISTICS_OF: dict[str, Any] = {
    "local_update": "statistics", "bound": "norm", "mechanism": "gaussian_share", "epsilon": 4.0,
    "channel": "sum",
}  # fmt: skip


def made(**settings: Any) -> RunConfig:
    given = {name: value for name, value in {**SHARED, **settings}.items() if value is not None}
    return find_system("composed").model_validate({"system": "composed", **given})


@pytest.mark.parametrize(("model", "inputs"), [("linear", 64), ("logistic", 65)])
def test_a_solution_is_sent_in_contrasts_of_the_classes(model: str, inputs: int) -> None:
    algorithm = made(**SOLUTION, model=model).algorithm(DIGITS)
    release = algorithm.release(0)
    assert algorithm.layout.size == 10 * inputs
    assert release.coordinates == 9 * inputs
    assert isinstance(release.event(), PureReport)
    assert release.event().epsilon <= 4
    share = made(**{**STATISTICS_OF, "model": model}).algorithm(DIGITS).release(0)
    size = inputs * (inputs + 1) // 2 + 9 * inputs
    assert share.coordinates == 1 << (size - 1).bit_length()  # rotated, so padded
    assert isinstance(share.event(), GaussianShare)


def test_a_report_in_clear_is_called_statistics() -> None:
    in_clear = {"mechanism": "none", "channel": "named", "bound": None, "epsilon": None}
    event = made(**{**STATISTICS_OF, **in_clear}).algorithm(DIGITS).encoder(0).event()
    assert event == InClear(what=(kinds.STATISTICS,))


def test_directions_have_the_norm_of_the_clip_and_zero_has_a_public_one() -> None:
    layout = Layout(("weight",), ((3, 4),))
    bound = InNorm(clip=2.0, send="update", direction=True, chart=InContrasts()).bound_to(layout)
    told = Broadcast(round=1, weights=np.full(12, 0.5, np.float32))
    rows = np.random.default_rng(0).normal(size=(4, 12)).astype(np.float32)
    rows[1] *= 1e30
    rows[2] = told.weights  # no change
    rows[3] = told.weights + np.tile(np.arange(4, dtype=np.float32), 3)  # the same for all classes
    found = bound.apply(rows, told)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 2)
    assert len(set(found[2])) == 1
    assert np.array_equal(found[2], found[3])
    for place in range(4):
        assert np.array_equal(bound.apply(rows[place : place + 1], told)[0], found[place])


def test_failed_training_is_answered_with_the_public_direction() -> None:
    roles = Roles(made(**SOLUTION), DIGITS)
    broadcast = roles.broadcast
    nan = np.full((1, 640), np.nan, np.float32)
    unchanged = broadcast.weights[None].copy()
    for config in (SOLUTION, STATISTICS_OF):
        encoder = Roles(made(**config), DIGITS).encoder(0)
        found = [
            list(encoder(Sensitive(Update(rows=rows)), broadcast, senders_of([7])))
            for rows in (nan, unchanged)
        ]
        assert found[0] == found[1]


def test_the_mean_of_solutions_is_the_model() -> None:
    config = made(local_update="solution", mechanism="none", ridge=0.1, num_clients=5)
    roles, size = Roles(config, DIGITS), 640
    draw = np.random.default_rng(1)
    features = draw.normal(size=(40, 1, 8, 8)).astype(np.float32)
    examples = Examples(features, draw.integers(0, 10, 40))
    rows = np.split(np.arange(40), [2, 10, 20, 21])
    batch = clients_of(examples, [len(own) for own in rows])
    ridge = RidgeSolution(model=LinearModel(10, 64, False), ridge=0.1)
    told = Broadcast(round=1, weights=np.zeros(size, np.float32))
    update = ridge(told, batch)
    reports = roles.encoder(0)(update, told, senders_of([len(own) for own in rows]))
    server = config.algorithm(DIGITS).server()
    state = State(weights=told.weights)
    found, _ = server.aggregate(state, [reports], lambda purpose: None)  # type: ignore[arg-type, return-value]
    np.testing.assert_allclose(found.weights, update.open().rows.mean(0), atol=1e-6)


# Sensitivity


def test_summed_values_of_two_clients_differ_by_no_more_than_is_charged() -> None:
    # Tries every pair of data sets of one or two of these examples, in exact integers.
    layout = Layout(("weight",), ((2, 2),))
    clip = 0.7
    bound = Rotated(clip=clip, send="weights", chart=_statistics_chart()).bound_to(layout)
    mechanism = SharedGaussian(1000.0, 1_010_000, 10, 24)
    release = replace(
        made(**STATISTICS_OF).algorithm(DIGITS).release(0), bound=bound, mechanism=mechanism, size=4
    )
    event = release.event()
    assert isinstance(event, GaussianShare)
    corners = [(1, 0), (0, 1), (-3, 0), (1, 1), (1, -1), (0, 0)]
    labelled = list(itertools.product(corners, (0, 1)))
    sets = [[one] for one in labelled] + [list(two) for two in itertools.combinations(labelled, 2)]
    flat = list(itertools.chain(*sets))
    examples = Examples(
        np.array([x for x, _ in flat], np.float32), np.array([y for _, y in flat], np.int64)
    )
    batch = clients_of(examples, [len(own) for own in sets])
    told = Broadcast(round=1, weights=np.zeros(4, np.float32))
    own = OwnStatistics(statistics=Statistics(LinearModel(2, 2, False)))
    found = own(told, batch).open().aux[STATISTICS]
    assert np.linalg.norm(found, axis=1).max() == pytest.approx(math.sqrt(1.5))
    steps = mechanism._clipped(bound.apply(found, told))
    rounded = np.trunc(steps)  # sent if random rounding is too long
    assert (np.square(rounded).sum(1) <= mechanism.squared_norm).all()
    apart = np.square(rounded[:, None] - rounded[None]).sum(-1)
    assert 0.3 * event.squared_distance < apart.max() <= event.squared_distance


def _statistics_chart() -> Any:
    bound = made(**STATISTICS_OF).composition.bound
    assert isinstance(bound, Rotated)
    return bound.chart


def test_clients_with_one_label_send_that_label_and_its_weights() -> None:
    algorithm = made(**SOLUTION, one_label=True, model="logistic").algorithm(DIGITS)
    release = algorithm.release(0)
    assert release.coordinates == 10 * 65
    assert isinstance(release.mechanism, KClosest)
    assert release.mechanism.blocks == 10
    assert release.event().epsilon <= 4  # type: ignore[attr-defined]
    model = LinearModel(10, 64, intercept=True)
    told = Broadcast(round=1, weights=np.zeros(650, np.float32))
    features = np.random.default_rng(0).normal(size=(4, 1, 8, 8)).astype(np.float32)
    batch = clients_of(Examples(features, np.array([7, 7, 0, 0])), [2, 2, 0])
    rows = np.asarray(RidgeSolution(model=model, ridge=0.1)(told, batch).open().rows)
    sent = release.bound.apply(rows, told).reshape(3, 10, 65)
    assert [np.flatnonzero(each.any(1)).tolist() for each in sent[:2]] == [[7], [0]]
    np.testing.assert_allclose(np.linalg.norm(sent, axis=(1, 2)), 1)
    assert sent[2].all()  # a zero solution sends a public direction
    for row, each in zip(rows, sent[:2], strict=False):
        back = release.bound.restore(each.ravel(), State(weights=told.weights))
        np.testing.assert_allclose(
            back / np.linalg.norm(back), row / np.linalg.norm(row), atol=1e-6
        )


def test_an_audit_replaces_statistics_by_statistics() -> None:
    attacked = AttackedClient(made(**STATISTICS_OF), DIGITS, 0)
    assert attacked.takes_updates
    assert attacked.sent_size == _statistics_chart().bound_to(attacked.policy.layout).size
    examples = Examples(np.ones((2, 1, 8, 8), np.float32), np.zeros(2, np.int64))
    plain = attacked.trained(Canary(examples), 1)
    for value in (1e6, np.nan):
        given = Canary(examples, lambda size, round, value=value: np.full(size, value))
        found = attacked.trained(given, 1)
        assert np.isfinite(found.rows).all() == np.isfinite(value)
        if np.isfinite(value):
            np.testing.assert_array_equal(found.rows, plain.rows)
            np.testing.assert_array_equal(attacked.sent(found), value)


# In a run


def test_a_weighted_mean_is_read_in_the_coordinates_that_were_sent() -> None:
    # All clients have the same number of examples, so weighting by it changes nothing.
    shared: dict[str, Any] = {"num_clients": 3, "partition": "iid", "num_examples": 1200}
    shared |= {"learning_rate": 0.05, "epsilon": 20.0, "range_radius": 0.01, "seed": 1}
    for more in ({}, {**SOLUTION, "learning_rate": None, "range_radius": None}):
        one, other = (
            simulate(made(**{**shared, **more, "weighting": weighting}))
            for weighting in ("uniform", "examples")
        )
        for name, weights in one.weights.items():
            np.testing.assert_allclose(weights, other.weights[name], rtol=1e-4, atol=1e-6)
