"""Measures error, cost and bias of k_closest, beside PrivUnit and other mechanisms.

    python -m benchmarks.k_closest [OUT.md] [--reports N] [--seeds N]

Error: the mean of |estimate - x|^2 over single reports of a random unit vector x. The optimum d/(c
eps) is the limit of PrivUnit's error for many coordinates, where no unbiased pure report does
better. Cost: processor time of one client's stream, its report and its share of the sum, over the
time that two-point bits take for as many coordinates; the least of five alternating tries. Bias:
the part of the expected sum of the k closest directions along x, over the S_k that the mechanism
assumes, and the part across x.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import hardware
from fedldp.core.randomness import Stream
from fedldp.mechanisms import Mechanism
from fedldp.mechanisms.k_closest import FrameChoice, KClosest
from fedldp.mechanisms.nearest_direction import NearestDirection
from fedldp.mechanisms.privunit import PrivUnit, best_cap
from fedldp.mechanisms.two_point import TwoPoint

SIZES = (100, 1_000, 2_000, 10_000, 100_000)
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
BIAS_EPSILONS = (1.0, 4.0, 8.0, 16.0)
BIAS_SIZE = 2047
COST_SIZE, COST_TIMES = 2_000, 25
"""Coordinates of the table of costs, and for how many times as many reports it is."""


def limit(epsilon: float) -> float:
    """Return c eps: for large d, the least error of a report is d/(c eps)."""
    dimension = 10_000_000
    return best_cap(epsilon, dimension).mean ** 2 * dimension


def streams(count: int) -> list[Stream]:
    """Return one stream for each report."""
    return [Stream.simulation(seed=0, round=1, client=i, purpose="mechanism") for i in range(count)]


def squared_error(mechanism: Mechanism, x: NDArray[np.float64], reports: int) -> float:
    """Return the mean squared error of the estimates from single reports."""
    payloads = mechanism.encode_many(np.tile(x, (reports, 1)), streams(reports))
    errors = []
    for payload in payloads:
        aggregate = mechanism.aggregate(x.size)
        aggregate.add(payload.tobytes())
        errors.append(((aggregate.mean() - x) ** 2).sum())
    return float(np.mean(errors))


def seconds(mechanism: Mechanism, values: NDArray[np.float64]) -> float:
    """Return the processor time of one report, its stream and its share of the sum."""
    start = time.process_time()
    payloads = mechanism.encode_many(values, streams(len(values)))
    aggregate = mechanism.aggregate(values.shape[1])
    for payload in payloads:
        aggregate.add(payload.tobytes())
    aggregate.mean()
    return (time.process_time() - start) / len(values)


def relative_cost(mechanism: Mechanism, x: NDArray[np.float64], reports: int) -> float:
    """Return how many times as long a report takes as a report of two-point bits."""
    values = np.tile(x, (reports, 1))
    both = [(seconds(mechanism, values), seconds(TwoPoint(1.0), values)) for _ in range(5)]
    mine, plain = (min(column) for column in zip(*both, strict=True))
    return mine / plain


def error_table(most: int) -> list[str]:
    """Return the rows of errors, for ``most`` reports of short vectors and fewer of long ones."""
    rows = [
        "| d | epsilon | B | M | k | bytes | k_closest | PrivUnit | nearest_direction | d/(c eps) "
        "| over PrivUnit | cost over two-point |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for size in SIZES:
        x = np.random.default_rng(size).normal(size=size)
        x /= np.linalg.norm(x)
        reports = max(20, min(most, 2_000_000 // size))
        for epsilon in EPSILONS:
            mechanism = KClosest(epsilon, 1.0)
            choice = mechanism.choice(size)
            errors = [
                squared_error(each, x, reports)
                for each in (mechanism, PrivUnit(epsilon, 1.0), NearestDirection(epsilon, 1.0))
            ]
            cost = relative_cost(mechanism, x, reports)
            cells = [
                f"{size:,}", f"{epsilon:g}", str(choice.frames.count),
                f"{choice.frames.directions:,}", f"{choice.closest:,}",
                str(mechanism.payload_bits(size) // 8), *(f"{each:,.4g}" for each in errors),
                f"{size / limit(epsilon):,.4g}", f"{errors[0] / errors[1]:.3f}", f"{cost:.1f}",
            ]  # fmt: skip
            rows.append("| " + " | ".join(cells) + " |")
            print(rows[-1], flush=True)
    return rows


def cost_table(reports: int) -> list[str]:
    """Return the rows of costs by the number of frames."""
    size = COST_SIZE
    rows = ["| d | reports | epsilon | B | cost over two-point |", "|---|---|---|---|---|"]
    x = np.random.default_rng(size).normal(size=size)
    x /= np.linalg.norm(x)
    for epsilon in (1.0, 4.0, 16.0):
        for frames in (1, 2, 3):
            cost = relative_cost(KClosest(epsilon, 1.0, frames), x, reports)
            rows.append(f"| {size:,} | {reports:,} | {epsilon:g} | {frames} | {cost:.1f} |")
            print(rows[-1], flush=True)
    return rows


def vectors(size: int) -> dict[str, NDArray[np.float64]]:
    """Return unit vectors spread over one, a few, or all coordinates."""
    found = {name: np.zeros(size) for name in ("one-hot", "two equal", "two unequal", "four")}
    found["one-hot"][0] = 1
    found["two equal"][:2] = 1
    found["two unequal"][:2] = 2, 1
    found["four"][:4] = 1
    found["flat"] = np.ones(size)
    found["random"] = np.random.default_rng(1).normal(size=size)
    found["few large"] = np.where(np.arange(size) < size // 64, 5.0, 1.0)
    return {name: x / np.linalg.norm(x) for name, x in found.items()}


def closest_mean(
    choice: FrameChoice, unit: NDArray[np.float64], seeds: list[bytes]
) -> NDArray[np.float64]:
    """Return for each seed the mean of the k closest directions, shape (n, D)."""
    found = []
    along = choice.frames.along(np.tile(unit, (len(seeds), 1)), seeds)
    for seed, row in zip(seeds, along, strict=True):
        pairs = np.argsort(-np.abs(row), kind="stable")[: choice.closest]
        categories = 2 * pairs + (row[pairs] < 0)
        total = choice.frames.rows([seed] * choice.closest, categories, unit.size).sum(0)
        found.append(total / choice.closest / choice.frames.dimension)
    return np.array(found)


def bias_table(seeds: int) -> list[str]:
    """Return the rows of slopes and parts across x, each with its standard error, in percent."""
    rows = [
        "| epsilon | B | k | x | slope - 1, % | across x, along x^3, % |",
        "|---|---|---|---|---|---|",
    ]
    for epsilon in BIAS_EPSILONS:
        choice = KClosest(epsilon, 1.0).choice(BIAS_SIZE)
        assumed = choice.scale / choice.advantage / choice.closest
        for name, unit in vectors(choice.frames.dimension).items():
            used = max(100, min(seeds, 100_000 // choice.closest))
            keys = [
                hashlib.blake2b(f"{epsilon} {name} {i}".encode(), digest_size=16).digest()
                for i in range(used)
            ]
            means = closest_mean(choice, unit, keys) / assumed
            cubes = unit**3 - (unit**4).sum() * unit
            size = float(np.linalg.norm(cubes))
            parts = [means @ unit - 1]
            if size > 1e-12:
                parts.append(means @ cubes / size)
            shown = [
                f"{100 * part.mean():+.2f} ± {100 * part.std() / math.sqrt(used):.2f}"
                for part in parts
            ]
            cells = [f"{epsilon:g}", str(choice.frames.count), f"{choice.closest:,}", name, *shown]
            rows.append("| " + " | ".join([*cells, *["-"] * (6 - len(cells))]) + " |")
            print(rows[-1], flush=True)
    return rows


def main() -> None:
    """Measure, print, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--reports", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=2000)
    given = parser.parse_args()
    machine = hardware()
    text = [
        f"# k_closest: error, cost and bias, {time.strftime('%Y-%m-%d')}\n", machine, "",
        "Made by `python -m benchmarks.k_closest`, whose docstring says what the columns are.\n",
        *error_table(given.reports), "", *cost_table(COST_TIMES * given.reports), "",
        *bias_table(given.seeds), "",
    ]  # fmt: skip
    if given.out is not None:
        given.out.write_text("\n".join(text))


if __name__ == "__main__":
    main()
