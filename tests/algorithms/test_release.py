"""A release: a bound, a mechanism, and an encoder that opens an update once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedldp.accounting.events import BinaryRandomizedResponse, Event, InClear, PerRecord
from fedldp.algorithms.bounds import Bound, InBox, InNorm, InRange, Rotated, Unbounded
from fedldp.algorithms.release import Encoder, Release
from fedldp.core import kinds
from fedldp.core.bounding import Ranges
from fedldp.mechanisms import Mechanism
from fedldp.mechanisms.codes import ClippedCodes
from fedldp.mechanisms.gaussian import Gaussian
from fedldp.mechanisms.gaussian_share import SharedGaussian
from fedldp.mechanisms.laplace import Laplace
from fedldp.mechanisms.none import Plain
from fedldp.mechanisms.two_point import TwoPoint
from fedldp.protocol.roles import State, Update
from fedldp.protocol.updates import alone, each_alone, open_finite
from fedldp.protocol.wire import Broadcast, Sensitive, pack_reply, pack_reports
from fedldp.testing.clients import senders_of

SIZE = 13
CLEAR = Release(bound=Unbounded(), mechanism=Plain(), size=SIZE)
WEIGHTS = np.linspace(-1, 1, SIZE).astype(np.float32)
TOLD = Broadcast(round=3, weights=WEIGHTS, ranges=Ranges.fixed(0.1, 0.5, (5, 8)))

RELEASES: dict[str, tuple[Bound, Mechanism]] = {
    "none": (Unbounded(), Plain()),
    "update, laplace": (Unbounded(send="update"), Laplace(1.0, 1.0)),
    "range": (InRange(sizes=(5, 8), radius=0.5), TwoPoint(1.0)),
    "range of changes": (InRange(sizes=(5, 8), send="update"), TwoPoint(1.0)),
    "l2": (InNorm(clip=1.0), Gaussian(1.0, 2.0)),
    "layers": (InNorm(clip=1.0, by_layer=True, sizes=(5, 8), send="update"), Gaussian(1.0, 2.0)),
    "rotated": (Rotated(clip=1.0), SharedGaussian(1000.0, 1_100_000, 10, 24)),
    "box": (InBox(most=0.5), ClippedCodes(clip=0.5, bits=24)),
}


def encoder_of(name: str, **more: Any) -> Encoder:
    bound, mechanism = RELEASES[name]
    return Encoder(release=Release(bound=bound, mechanism=mechanism, size=SIZE), **more)


def rows(count: int) -> np.ndarray:
    generator = np.random.default_rng(0)
    return WEIGHTS + generator.normal(0, 0.5, (count, SIZE)).astype(np.float32)


@pytest.mark.parametrize("more", [{}, {"needs": "weight"}, {"needs": "sender"}])
@pytest.mark.parametrize("name", RELEASES)
def test_each_report_is_the_one_its_client_sends_alone(name: str, more: dict[str, Any]) -> None:
    encoder, given = encoder_of(name, **more), rows(4)
    given[1, 2] = np.nan
    given[2] = 3e38
    sealed, senders = Sensitive(Update(rows=given.copy())), senders_of([5, 6, 0, 8], round=3)
    together = encoder(sealed, TOLD, senders)
    one_by_one = each_alone(
        lambda update, told, sender: alone(encoder, update, told, sender), sealed, TOLD, senders
    )
    assert list(together) == list(one_by_one)
    packed = pack_reports(together, run="run", phase=0)
    assert [row.tobytes() for row in packed] == [
        pack_reply(report, run="run", phase=0) for report in one_by_one
    ]
    needs = more.get("needs")
    weights = [5.0, 6.0, 0.0, 8.0] if needs == "weight" else [None] * 4
    assert [report.weight for report in together] == weights
    named = [0, 1, 2, 3] if needs == "sender" else [None] * 4
    assert [report.client for report in together] == named
    np.testing.assert_array_equal(sealed.open().rows, given)  # the input is not changed


@pytest.mark.parametrize("name", RELEASES)
def test_failed_training_gives_a_report_of_the_broadcast(name: str) -> None:
    encoder, senders = encoder_of(name), senders_of([5], round=3)
    failed = np.full((1, SIZE), np.nan, np.float32)
    one = WEIGHTS.copy()[None]
    one[0, 4] = np.inf
    reports = [
        list(encoder(Sensitive(Update(rows=each)), TOLD, senders))
        for each in (failed, one, WEIGHTS[None])
    ]
    assert reports[0] == reports[1] == reports[2]


def test_values_computed_with_failed_weights_are_opened_as_zeros() -> None:
    given = rows(3)
    given[1] = np.nan
    aux = {"importance": np.arange(6.0).reshape(3, 2) + 1}
    found = open_finite(Sensitive(Update(rows=given, aux=aux)), TOLD)
    np.testing.assert_array_equal(found.rows, np.stack([given[0], WEIGHTS, given[2]]))
    np.testing.assert_array_equal(found.aux["importance"], [[1, 2], [0, 0], [5, 6]])
    assert aux["importance"][1].tolist() == [3, 4]


@pytest.mark.parametrize(
    ("encoder", "expected"),
    [
        (Encoder(release=CLEAR), InClear(what="weights")),
        (
            Encoder(release=CLEAR, needs="weight"),
            InClear(what=(kinds.WEIGHTS, kinds.NUMBER_OF_EXAMPLES)),
        ),
        (encoder_of("l2"), Gaussian(1.0, 2.0).event(SIZE)),
        (encoder_of("l2", needs="weight"), InClear(what="number-of-examples")),
        (encoder_of("l2", needs="sender"), Gaussian(1.0, 2.0).event(SIZE)),
        (
            encoder_of("range", label=2.0),
            BinaryRandomizedResponse(
                epsilon=TwoPoint(1.0).event(1).epsilon, coordinates=SIZE, group=2.0
            ),
        ),
        (encoder_of("rotated"), SharedGaussian(1000.0, 1_100_000, 10, 24).event(16)),
        (
            Encoder(
                release=CLEAR,
                inner=PerRecord(record=TwoPoint(1.0).event(3), client=InClear(what="count")),
            ),
            PerRecord(record=TwoPoint(1.0).event(3), client=InClear(what="count")),
        ),
    ],
)
def test_the_event_covers_everything_that_is_sent(encoder: Encoder, expected: Event) -> None:
    assert encoder.event() == expected


def test_reports_add_up_if_only_a_sum_is_released() -> None:
    for name in ("range", "rotated", "box"):
        summing = encoder_of(name).summing(10)
        assert summing is not None
        assert summing.size == encoder_of(name).release.coordinates
        for more in ({"needs": "weight"}, {"needs": "sender"}, {"label": 1.0}):
            assert encoder_of(name, **more).summing(10) is None
    for name in ("none", "l2", "update, laplace"):
        assert encoder_of(name).summing(10) is None


@pytest.mark.parametrize("name", ["none", "range", "range of changes", "rotated"])
def test_a_bound_inverts_its_own_map(name: str) -> None:
    bound, _ = RELEASES[name]
    given = WEIGHTS + np.linspace(-0.1, 0.1, SIZE).astype(np.float32)
    told = replace(TOLD, ranges=bound.announce(WEIGHTS))
    values = bound.apply(given[None], told)[0]
    assert values.shape == (bound.size(SIZE),)
    state = State(round=3, weights=WEIGHTS)
    expected = given if bound.send == "weights" else given - WEIGHTS
    np.testing.assert_allclose(bound.restore(values, state), expected, atol=1e-6)


def test_each_layer_is_within_its_share_of_the_clip() -> None:
    bound = InNorm(clip=3.0, by_layer=True, sizes=(5, 8), send="update")
    given = rows(4)
    given[1, :5] = WEIGHTS[:5] + np.float32(1e-3)  # one layer is short, and stays as it is
    given[2] = 3e38
    found, changes = bound.apply(given, TOLD), given - WEIGHTS.astype(np.float64)
    norms = np.stack([np.linalg.norm(part, axis=1) for part in np.split(found, [5], 1)])
    assert (norms <= 3.0 / np.sqrt(2) * (1 + 1e-12)).all()
    assert (np.linalg.norm(found, axis=1) <= 3.0 * (1 + 1e-12)).all()
    np.testing.assert_array_equal(found[1, :5], changes[1, :5])
    for part, whole in zip(np.split(found, [5], 1), np.split(changes, [5], 1), strict=True):
        cosine = (
            (part * whole).sum(1) / np.linalg.norm(part, axis=1) / np.linalg.norm(whole, axis=1)
        )
        np.testing.assert_allclose(cosine, 1)


@given(st.floats(1e-6, 1e6), st.integers(1, 3000), st.integers(0, 2**32 - 1))
def test_a_box_clips_only_what_is_outside_of_it(limit: float, size: int, seed: int) -> None:
    values = np.random.default_rng(seed).normal(scale=2 * limit, size=size).astype(np.float32)
    box = InBox(most=limit)
    told = Broadcast(round=1, weights=np.zeros(size, np.float32))
    clipped = box.apply(values[None], told)[0]
    assert np.abs(clipped).max() <= limit
    inside = np.abs(values.astype(np.float64)) <= limit
    np.testing.assert_array_equal(clipped[inside], values[inside])
