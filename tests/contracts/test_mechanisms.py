"""Every mechanism of the package keeps the contract of ``Mechanism``."""

from __future__ import annotations

import dataclasses
import inspect
import math
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from samples import first_of_each
from scipy import stats

from fedldp.core.errors import PrivacyError, RunError
from fedldp.core.randomness import Stream
from fedldp.mechanisms import Aggregate, Mechanism, mechanisms
from fedldp.protocol.wire import Sensitive

INSTANCES = [m for _, cls in sorted(mechanisms().items()) for m in cls.examples()]
every_mechanism = pytest.mark.parametrize("mechanism", INSTANCES, ids=repr)
of_every_mechanism_one = pytest.mark.parametrize(
    "mechanism", first_of_each({repr(m): m for m in INSTANCES}, type)
)
"""All examples; only the first one of each class is not slow."""

# The encoders' blocks end at powers of two.
SIZES = [1, 7, 8, 9, 32_767, 32_768, 32_769, 65_535, 65_536, 65_537, 100_000]
FALSE_ALARM = 1e-9
DTYPES = [np.float32, np.float64]


def stream(number: int = 0) -> Stream:
    return Stream.simulation(seed=1, round=2, client=number, purpose="contract")


def some_values(size: int, seed: int = 0) -> np.ndarray:
    """Values within and beyond every bound, with exact ends and zeros among them."""
    values = np.random.default_rng(seed).uniform(-1.4, 1.4, size)
    values[:6] = [-1.0, 1.0, 0.0, -0.0, 3.0, -3.0][:size]
    return values


class Unread:
    """A stream that must not be read."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the stream's {name} was used")


# The object


def test_there_are_mechanisms_with_unique_names() -> None:
    assert {m.name for m in INSTANCES} == set(mechanisms())
    assert "two_point" in mechanisms()


@every_mechanism
def test_a_mechanism_is_frozen(mechanism: Mechanism) -> None:
    fields = dataclasses.fields(mechanism)  # type: ignore[arg-type]
    for field in fields:
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(mechanism, field.name, getattr(mechanism, field.name))
    with pytest.raises(dataclasses.FrozenInstanceError):
        mechanism.something_new = 1  # type: ignore[attr-defined]


@every_mechanism
def test_equal_parameters_make_equal_mechanisms(mechanism: Mechanism) -> None:
    values = {f.name: getattr(mechanism, f.name) for f in dataclasses.fields(mechanism)}  # type: ignore[arg-type]
    for twin in (type(mechanism)(**values), pickle.loads(pickle.dumps(mechanism))):
        assert twin == mechanism
        assert hash(twin) == hash(mechanism)
        assert repr(twin) == repr(mechanism)


def test_different_parameters_make_different_mechanisms() -> None:
    assert len(set(INSTANCES)) == len(INSTANCES)
    assert len({repr(m) for m in INSTANCES}) == len(INSTANCES)


@pytest.mark.parametrize("cls", mechanisms().values(), ids=lambda cls: cls.name)
def test_the_representation_shows_name_and_parameters(cls: type[Mechanism]) -> None:
    assert inspect.getdoc(cls)
    assert len(cls.examples()) >= 2


# Refusals

NAN, INF = np.nan, np.inf
REFUSED: dict[str, Any] = {
    "nan": np.array([0.1, NAN, 0.2]),
    "nan float32": np.array([NAN], np.float32),
    "inf": np.array([0.1, INF]),
    "minus inf float32": np.array([-INF, 0.1], np.float32),
    "nan in two axes": np.array([[0.1, 0.2], [NAN, 0.3]]),
    "nan under a mask": np.ma.array([NAN, 0.5], mask=[True, False]),
    "int64": np.array([0, 1]),
    "int8": np.array([0, 1], np.int8),
    "uint8": np.array([0, 1], np.uint8),
    "bool": np.array([True, False]),
    "complex": np.array([0.1 + 0j]),
    "float16": np.array([0.1], np.float16),
    "object": np.array([0.1, 0.2], object),
    "text": np.array(["0.1"]),
    "0-d": np.array(0.5),
    "numpy scalar": np.float64(0.5),
    "empty": np.array([], np.float32),
    "empty axis": np.zeros((3, 0)),
    "list": [0.1, 0.2],
    "tuple": (0.1, 0.2),
    "float": 0.1,
    "none": None,
    "bytes": b"12345678",
    "torch": torch.zeros(3),
    "sensitive": Sensitive(np.zeros(3, np.float32)),
}


@every_mechanism
def test_values_that_cannot_be_protected_are_refused_before_the_stream_is_read(
    mechanism: Mechanism,
) -> None:
    for name, values in REFUSED.items():
        message = ""
        try:
            mechanism.encode(values, Unread())  # type: ignore[arg-type]
        except PrivacyError as refusal:
            message = str(refusal)
        assert len(message.splitlines()) == 1, name


# Bytes


@of_every_mechanism_one
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_payload_has_the_promised_length(
    mechanism: Mechanism, dtype: type[np.floating]
) -> None:
    for size in SIZES:
        payload = mechanism.encode(some_values(size).astype(dtype), stream())
        assert isinstance(payload, bytes)
        assert len(payload) == math.ceil(mechanism.payload_bits(size) / 8), size
        aggregate = mechanism.aggregate(size)
        aggregate.add(payload)
        mean = aggregate.mean()
        assert mean.shape == (size,)
        assert mean.dtype == np.float64
        assert np.isfinite(mean).all(), size


@of_every_mechanism_one
@pytest.mark.parametrize("dtype", DTYPES)
def test_many_reports_equal_those_encoded_one_by_one(
    mechanism: Mechanism, dtype: type[np.floating]
) -> None:
    for rows, size in [(1, 1), (5, 9), (3, 650), (20, 4000), (2, 65_537)]:
        values = np.array([some_values(size, row) for row in range(rows)]).astype(dtype)
        found = mechanism.encode_many(values, [stream(row) for row in range(rows)])
        assert found.dtype == np.uint8
        assert found.shape == (rows, math.ceil(mechanism.payload_bits(size) / 8))
        for number, row in enumerate(values):
            assert found[number].tobytes() == mechanism.encode(row, stream(number))


@every_mechanism
def test_if_one_of_many_reports_is_refused_none_is_drawn(mechanism: Mechanism) -> None:
    for value in (NAN, INF, -INF):
        values = np.zeros((3, 8))
        values[2, 7] = value
        with pytest.raises(PrivacyError):
            mechanism.encode_many(values, [Unread()] * 3)  # type: ignore[list-item]


@every_mechanism
def test_each_row_needs_a_stream(mechanism: Mechanism) -> None:
    for shape in [(3,), (2, 8), (4, 8), (3, 2, 4), (0, 8), (3, 0)]:
        with pytest.raises(PrivacyError):
            mechanism.encode_many(np.zeros(shape), [Unread()] * 3)  # type: ignore[list-item]


@every_mechanism
def test_the_stream_determines_the_report(mechanism: Mechanism) -> None:
    for dtype in DTYPES:
        values = some_values(2000).astype(dtype)
        assert mechanism.payload_bits(2000) >= 32
        first = mechanism.encode(values, stream(0))
        assert mechanism.encode(values, stream(0)) == first
        if mechanism.variance(values).sum() > 20:  # otherwise hardly any coordinate is changed
            assert mechanism.encode(values, stream(1)) != first


@every_mechanism
def test_the_input_is_not_changed(mechanism: Mechanism) -> None:
    for dtype in DTYPES:
        values = some_values(500).astype(dtype)
        values.flags.writeable = False
        before = values.tobytes()
        mechanism.encode(values, stream())
        mechanism.bound(values)
        mechanism.variance(values)
        assert values.tobytes() == before


@every_mechanism
def test_the_memory_layout_of_the_input_does_not_matter(mechanism: Mechanism) -> None:
    wide = some_values(600)
    apart = wide[::2]
    expected = mechanism.encode(np.ascontiguousarray(apart), stream())
    assert mechanism.encode(apart, stream()) == expected
    assert mechanism.encode(apart[::-1][::-1], stream()) == expected


@every_mechanism
def test_values_beyond_the_bound_behave_as_the_bounded_ones(mechanism: Mechanism) -> None:
    mixed, denormal = some_values(400), np.full(400, 5e-324)
    for values in (mixed, mixed * 1e30, np.full(400, 1e300), denormal):
        bounded = mechanism.bound(values)
        for given in (bounded, mechanism.expected(values), mechanism.variance(values)):
            assert given.shape == values.shape
            assert given.dtype == np.float64
            assert np.isfinite(given).all()
        assert mechanism.encode(values, stream()) == mechanism.encode(bounded, stream())
        np.testing.assert_allclose(mechanism.bound(bounded), bounded, rtol=1e-12)
        np.testing.assert_array_equal(mechanism.expected(values), mechanism.expected(bounded))
        np.testing.assert_array_equal(mechanism.variance(values), mechanism.variance(bounded))
        assert (mechanism.variance(values) >= 0).all()


# The aggregate


@every_mechanism
def test_an_empty_aggregate_has_no_mean(mechanism: Mechanism) -> None:
    with pytest.raises(RunError):
        mechanism.aggregate(5).mean()


@every_mechanism
def test_a_payload_of_another_length_is_refused_and_leaves_no_trace(mechanism: Mechanism) -> None:
    for size in (1, 8, 1000):
        payload = mechanism.encode(some_values(size), stream())
        aggregate = mechanism.aggregate(size)
        aggregate.add(payload)
        before = aggregate.mean().copy()
        for wrong in (b"", payload[:-1], payload + b"\0", payload * 2):
            with pytest.raises(RunError) as refusal:
                aggregate.add(wrong)
            assert len(str(refusal.value).splitlines()) == 1
        np.testing.assert_array_equal(aggregate.mean(), before)


@of_every_mechanism_one
def test_the_order_of_reports_does_not_matter(mechanism: Mechanism) -> None:
    payloads = [mechanism.encode(some_values(50, n), stream(n)) for n in range(40)]
    shuffled = [payloads[i] for i in np.random.default_rng(0).permutation(len(payloads))]
    means = []
    for order in (payloads, payloads[::-1], shuffled):
        aggregate = mechanism.aggregate(50)
        for payload in order:
            aggregate.add(payload)
        means.append(aggregate.mean())
    for mean in means[1:]:
        np.testing.assert_allclose(mean, means[0], rtol=1e-12, atol=1e-12 * np.ptp(means[0]))


@of_every_mechanism_one
def test_the_mean_may_be_read_on_the_way(mechanism: Mechanism) -> None:
    payloads = [mechanism.encode(some_values(20, n), stream(n)) for n in range(10)]
    read, unread = mechanism.aggregate(20), mechanism.aggregate(20)
    for payload in payloads:
        read.add(payload)
        read.mean()
        unread.add(payload)
    np.testing.assert_allclose(read.mean(), unread.mean(), rtol=1e-12, atol=1e-12)


# The distribution


def scores(mechanism: Any, values: np.ndarray, reports: int) -> dict[str, tuple[float, float]]:
    """Measure how far the estimates from single reports are from the mechanism's claims.

    Each score is the mean over reports, with its standard error, of a weighted sum over the
    coordinates of (estimate - claimed mean), or of (squared deviation - claimed variance). Reports
    are independent; coordinates of one report need not be.
    """
    bounded, expected = mechanism.bound(values), mechanism.expected(values)
    variance = mechanism.variance(values)
    estimates = np.empty((reports, values.size))
    for number in range(reports):
        aggregate = mechanism.aggregate(values.size)
        aggregate.add(mechanism.encode(values, stream(number)))
        estimates[number] = aggregate.mean()
    half = np.arange(values.size) < values.size // 2
    weights = {
        "all": np.ones(values.size),
        "signed": bounded,
        "cubed": bounded**3,
        "first half": bounded * half,
        "second half": bounded * ~half,
        "end": bounded * (np.arange(values.size) >= values.size - 9),
    }
    deviations = estimates - expected
    found = {f"mean, {name}": deviations @ weight for name, weight in weights.items()}
    excess = deviations**2 - variance
    found |= {"variance, all": excess.sum(1), "variance, ends": excess @ np.abs(bounded)}
    # A mechanism that samples coordinates may send none of the few in a weighted sum, so the error
    # is at least that of the claimed variance.
    claimed = {f"mean, {name}": variance @ weight**2 for name, weight in weights.items()}
    return {
        name: (
            float(samples.mean()),
            math.sqrt(max(samples.var(ddof=1), claimed.get(name, 0.0)) / reports),
        )
        for name, samples in found.items()
    }


def misfits(mechanism: Any, values: np.ndarray, reports: int) -> dict[str, float]:
    """Return the scores that an honest mechanism reaches with probability FALSE_ALARM each."""
    limit = stats.t.isf(FALSE_ALARM / 2, reports - 1)
    # If all reports agree up to rounding, the claim must agree with them.
    smallest = 1e-9 * math.sqrt(values.size)
    # A variance below 1e-3 comes from events too rare to be seen, so it may look smaller than it
    # is.
    unseen = mechanism.variance(values).mean() < 1e-3
    return {
        name: mean / max(error, 1e-300)
        for name, (mean, error) in scores(mechanism, values, reports).items()
        if abs(mean) > limit * error + smallest
        and not (unseen and name.startswith("variance") and mean < 0)
    }


@dataclass(frozen=True)
class Tampered:
    """A mechanism with a false claim."""

    honest: Mechanism
    scale: float = 1.0
    shift: float = 0.0
    claimed_variance: float = 1.0
    sees: Callable[[np.ndarray], np.ndarray] = lambda values: values

    def encode(self, values: np.ndarray, stream: Stream) -> bytes:
        return self.honest.encode(self.sees(values), stream)

    def bound(self, values: np.ndarray) -> np.ndarray:
        return self.honest.bound(values)

    def expected(self, values: np.ndarray) -> np.ndarray:
        return self.honest.expected(values)

    def variance(self, values: np.ndarray) -> np.ndarray:
        return self.honest.variance(values) * self.claimed_variance

    def aggregate(self, size: int) -> Aggregate:
        aggregate = self.honest.aggregate(size)
        mean = aggregate.mean
        aggregate.mean = lambda: mean() * self.scale + self.shift  # type: ignore[method-assign]
        return aggregate


@of_every_mechanism_one
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_mean_is_unbiased_and_the_variance_as_claimed(
    mechanism: Mechanism, dtype: type[np.floating]
) -> None:
    assert misfits(mechanism, some_values(1500).astype(dtype), 150) == {}


@of_every_mechanism_one
@pytest.mark.parametrize(
    "size", [9, *(pytest.param(n, marks=pytest.mark.slow) for n in (32_769, 65_537)), 100_000]
)
def test_the_mean_is_unbiased_across_blocks(mechanism: Mechanism, size: int) -> None:
    values = np.where(np.random.default_rng(size).random(size) < 0.5, 0.9, -0.7)
    values = values.astype(np.float32)
    assert misfits(mechanism, values, 12) == {}


@of_every_mechanism_one
def test_the_check_rejects_claims_that_are_off_by_a_few_standard_errors(
    mechanism: Mechanism,
) -> None:
    values = some_values(1500)
    reports = 60
    slip = 3 * stats.t.isf(FALSE_ALARM / 2, reports - 1)
    honest, total = scores(mechanism, values, reports), mechanism.variance(values).sum()
    moved = (
        slip * honest["mean, signed"][1] / (mechanism.bound(values) @ mechanism.expected(values))
    )
    wrong = [
        Tampered(mechanism, scale=1 + moved),
        Tampered(mechanism, scale=1 - moved),
        Tampered(mechanism, shift=slip * honest["mean, all"][1] / values.size),
    ]
    # The claim is too small: a mistake in this direction is visible even for rare events, if any
    # occur.
    if honest["variance, all"][0] > -total / 2:
        claimed = max(0.0, 1 - slip * honest["variance, all"][1] / total)
        wrong.append(Tampered(mechanism, claimed_variance=claimed))
    for tampered in wrong:
        assert misfits(tampered, values, reports), tampered


@of_every_mechanism_one
def test_the_check_rejects_wrong_probabilities(mechanism: Mechanism) -> None:
    # Encoding 0.9 x instead of x is the mistake of a wrong constant in p(x); encoding the previous
    # coordinate is that of a wrong index. For a mechanism too noisy to show this, the check above
    # finds larger mistakes; a mechanism of signs alone has no such constant.
    values = some_values(1500)
    error = scores(mechanism, values, 150)["mean, signed"][1]
    for sees in (lambda x: 0.9 * mechanism.bound(x), lambda x: np.roll(mechanism.bound(x), 1)):
        lost = mechanism.bound(values) @ (
            mechanism.expected(values) - mechanism.expected(sees(values))
        )
        if lost > 3 * stats.t.isf(FALSE_ALARM / 2, 149) * error:
            assert misfits(Tampered(mechanism, sees=sees), values, 150)


@pytest.mark.parametrize("cls", mechanisms().values(), ids=lambda cls: cls.name)
def test_many_reports_are_encoded_by_the_class_that_encodes_single_ones(
    cls: type[Mechanism],
) -> None:
    """Otherwise what a subclass adds in ``encode`` would be skipped for many reports, and still be
    claimed."""
    one, many = (
        next(owner for owner in cls.__mro__ if name in vars(owner))
        for name in ("encode", "encode_many")
    )
    assert many is Mechanism or issubclass(many, one)
