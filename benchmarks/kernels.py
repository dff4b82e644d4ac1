"""Times encoding and aggregation of two-point reports on one core, beside plain torch.

    python -m benchmarks.kernels

The two encoders take turns in one process, so that the machine's speed cancels out of the ratio.
The script prints medians over the repetitions.
"""

from __future__ import annotations

import math
import platform
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

from fedldp.core.bounding import Ranges
from fedldp.core.randomness import Stream
from fedldp.mechanisms.two_point import TwoPoint

EPSILON, CENTER, RADIUS = 1.0, 0.0, 0.075
REPETITIONS = 15
SIZES = (21_840, 357_706, 4_000_000)


def plain_torch(weights: torch.Tensor) -> torch.Tensor:
    """Eq. 2 of Sun, Qian, Chen 2021, written in torch in the obvious way."""
    e = math.exp(EPSILON)
    scale = (e + 1) / (e - 1)
    probability = ((weights - CENTER) * (e - 1) + RADIUS * (e + 1)) / (2 * RADIUS * (e + 1))
    return torch.where(
        torch.rand(weights.shape) < probability,
        CENTER + RADIUS * scale,
        CENTER - RADIUS * scale,
    )


def seconds(task: Callable[[], object], times: int) -> float:
    """Return the seconds of one call, averaged over ``times`` calls."""
    started = time.perf_counter()
    for _ in range(times):
        task()
    return (time.perf_counter() - started) / times


def encoding_seconds(size: int) -> tuple[float, float, float]:
    """Return the seconds of our encoder and of plain torch on ``size`` weights, and their ratio."""
    generator = np.random.default_rng(0)
    weights = generator.normal(0, 0.05, size).astype(np.float32)
    tensor = torch.from_numpy(weights)
    ranges = Ranges.fixed(CENTER, RADIUS, (size,))
    mechanism, stream = TwoPoint(EPSILON), Stream.fresh()
    times = max(1, 4_000_000 // size)

    def ours() -> object:
        return mechanism.encode(ranges.normalise(weights), stream)

    def theirs() -> object:
        return plain_torch(tensor)

    ours(), theirs()
    pairs = [(seconds(ours, times), seconds(theirs, times)) for _ in range(REPETITIONS)]
    mine, plain = (statistics.median(column) for column in zip(*pairs, strict=True))
    return mine, plain, statistics.median(t / o for o, t in pairs)


def encoding(size: int) -> None:
    """Print the throughput of both encoders on ``size`` weights and their ratio."""
    mine, plain, ratio = encoding_seconds(size)
    print(
        f"encode {size:>10,} weights: {size / mine / 1e6:6.0f} M/s to packed bits, "
        f"{size / plain / 1e6:6.0f} M/s plain torch, ratio {ratio:.1f}"
    )


def many_encodings(rows: int, size: int) -> None:
    """Print the throughput of encoding the vectors of many clients at once."""
    weights = np.random.default_rng(0).normal(0, 0.05, (rows, size)).astype(np.float32)
    ranges = Ranges.fixed(CENTER, RADIUS, (size,))
    mechanism, streams = TwoPoint(EPSILON), [Stream.fresh() for _ in range(rows)]

    def encode() -> object:
        return mechanism.encode_many(ranges.normalise(weights), streams)

    encode()
    median = statistics.median(seconds(encode, 4) for _ in range(REPETITIONS))
    print(f"encode {rows} times {size:,} weights: {rows * size / median / 1e6:6.0f} M/s")


def aggregation(size: int, reports: int = 256) -> None:
    """Print the throughput of counting the ones of packed reports, one by one and as rows."""
    mechanism = TwoPoint(EPSILON)
    stream = Stream.fresh()
    payloads = [mechanism.encode(np.zeros(size, np.float32), stream) for _ in range(reports)]
    rows = np.array([np.frombuffer(payload, np.uint8) for payload in payloads])

    def one_by_one() -> object:
        counts = mechanism.aggregate(size)
        for payload in payloads:
            counts.add(payload)
        return counts.mean()

    def as_rows() -> object:
        counts = mechanism.aggregate(size)
        counts.add_many(rows)
        return counts.mean()

    for name, count in (("one by one", one_by_one), ("as rows", as_rows)):
        count()
        median = statistics.median(seconds(count, 3) for _ in range(REPETITIONS))
        print(
            f"aggregate {size:>10,} bits a report, {name}: "
            f"{size * reports / median / 1e9:.1f} Gbit/s"
        )


def main() -> None:
    """Print the throughput of everything."""
    torch.set_num_threads(1)
    print(f"{platform.processor() or platform.machine()}, torch {torch.__version__}, one thread")
    for length in SIZES:
        encoding(length)
    many_encodings(128, 7_850)
    for length in SIZES:
        aggregation(length)


if __name__ == "__main__":
    main()
