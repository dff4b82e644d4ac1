"""Random values that can be packed, and tools that damage messages for the tests of the codec."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from fedldp.core.bounding import Ranges
from fedldp.core.errors import WireError
from fedldp.protocol.wire import Broadcast, Reason, Refusal, Report, RoundRequest

INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
DTYPES = ["bool", *INTEGERS, "float32", "float64"]

printable = st.characters(exclude_categories=["C", "Z"])
names = st.text(printable, min_size=1, max_size=20)
shapes = hnp.array_shapes(min_dims=0, max_dims=4, max_side=4) | st.just((0,))


@st.composite
def any_array(draw: st.DrawFn) -> NDArray[Any]:
    """Draw an array of any type that a message can hold, with NaN among its values."""
    return draw(hnp.arrays(draw(st.sampled_from(DTYPES)), draw(shapes)))


arrays = st.dictionaries(names, any_array(), max_size=4)
finite = st.floats(0, allow_infinity=False, allow_nan=False)


@st.composite
def broadcasts(draw: st.DrawFn) -> Broadcast:
    sizes = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    numbers = hnp.from_dtype(np.dtype(np.float32), allow_nan=False, allow_infinity=False)
    ranges = None
    if draw(st.booleans()):
        each = hnp.arrays(np.float64, len(sizes), elements=st.floats(1, 1e5))
        ranges = Ranges(draw(each), draw(each), sizes)
    return Broadcast(
        round=draw(st.integers(1, 2**63 - 1)),
        weights=draw(hnp.arrays(np.float32, sum(sizes), elements=numbers)),
        ranges=ranges,
        public=draw(arrays),
    )


requests = st.builds(
    RoundRequest, run=names, phase=st.integers(0, 2**32 - 1), broadcast=broadcasts()
)


@st.composite
def reports(draw: st.DrawFn) -> Report:
    size = draw(st.integers(1, 2**63 - 1))
    return Report(
        round=draw(st.integers(1, 2**63 - 1)),
        size=size,
        payload=draw(st.binary(max_size=40)),
        chunk=draw(st.integers(1, size)),
        weight=draw(st.none() | finite),
        epsilon=draw(st.none() | finite),
        client=draw(st.none() | st.integers(0, 2**63 - 1)),
    )


refusals = st.builds(Refusal, st.integers(1, 2**63 - 1), st.sampled_from(Reason))


def same_array(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Return whether two arrays are the same to the last bit."""
    return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())


def same_arrays(one: dict[str, NDArray[Any]], other: dict[str, NDArray[Any]]) -> bool:
    return one.keys() == other.keys() and all(same_array(one[n], other[n]) for n in one)


def same_broadcast(one: Broadcast, other: Broadcast) -> bool:
    if (one.round, one.ranges is None) != (other.round, other.ranges is None):
        return False
    if one.ranges is not None and other.ranges is not None:
        ends = zip(
            (one.ranges.centers, one.ranges.radii),
            (other.ranges.centers, other.ranges.radii),
            strict=True,
        )
        if one.ranges.sizes != other.ranges.sizes or not all(same_array(*end) for end in ends):
            return False
    return same_array(one.weights, other.weights) and same_arrays(
        dict(one.public), dict(other.public)
    )


def refused_or_same(
    read: Callable[[bytes], Any], pack: Callable[[Any], bytes], message: bytes
) -> bool:
    """Read a message that may be damaged. Return whether it was refused.

    It must be refused in one line, or pack to the same bytes again.
    """
    try:
        value = read(message)
    except WireError as error:
        complaint = str(error)
    else:
        assert pack(value) == message
        return False
    assert "\n" not in complaint
    assert len(complaint) < 3000
    return True


def peak_bytes(read: Callable[[bytes], Any], message: bytes) -> int:
    """Return the most memory that reading took, whether it was refused or not."""
    tracemalloc.start()
    try:
        read(message)
    except WireError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak
