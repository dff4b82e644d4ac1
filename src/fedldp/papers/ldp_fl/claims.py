"""What this paper's claims compute; ``claims.toml`` names these functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from fedldp.algorithms.recipes import find_recipe
from fedldp.core.bounding import Ranges
from fedldp.core.randomness import Stream, torch_seeded
from fedldp.mechanisms.two_point import TwoPoint
from fedldp.models import build_model
from fedldp.papers import Engine


def realised_epsilon(engine: Engine) -> Sequence[float]:
    """Return the epsilon of our integer sampling at a claimed epsilon of 1."""
    return [TwoPoint(1.0).realised_epsilon]


def crowds(engine: Engine) -> Sequence[float]:
    """Return eq. 3's epsilon for radii of 0.075 and 0.015 at epsilon 1, and the domains' widths."""
    made: list[float] = []
    radii = (0.075, 0.015)
    for radius in radii:
        most, least = (sign * radius * (math.e - 1) + radius * (math.e + 1) for sign in (1, -1))
        made.append(math.log(most / least))
    return [*made, *(2 * radius for radius in radii)]


def bias(engine: Engine) -> Sequence[float]:
    """Return the largest bias of a report of a weight, divided by the radius."""
    mechanism = TwoPoint(1.0)
    weights = np.linspace(-1, 1, 101)
    ones = np.array(mechanism.thresholds(weights), dtype=np.float64) / 2**mechanism.integer_bits
    return [float(np.abs(mechanism.scale * (2 * ones - 1) - weights).max())]


def variances(engine: Engine) -> Sequence[float]:
    """Return a mean's variance at an end and in the middle of the range, over r^2 K^2/n."""
    mechanism = TwoPoint(1.0)
    ends = mechanism.variance(np.array([1.0, 0.0])) / mechanism.scale**2
    return [float(each) for each in ends]


def corollary(engine: Engine) -> Sequence[float]:
    """Return the variance's extremes for radii 1 and 3, divided by the Corollary's formulas."""
    lowest, highest = TwoPoint(1.0).mean_variance([1.0, 3.0])
    square = ((math.e + 1) / (math.e - 1)) ** 2
    return [lowest / ((square - 1) * 10 / 4), highest / (square * 10 / 4)]


def growths(engine: Engine) -> Sequence[float]:
    """Return two ratios of a mean's variance.

    They compare a radius of 2 with a radius of 1, and 1 client with 100 clients.
    """
    one, twice, many = (
        TwoPoint(1.0).mean_variance(radii)[1] for radii in ([1.0], [2.0], [1.0] * 100)
    )
    return [twice / one, one / many]


def common_reports(engine: Engine) -> Sequence[float]:
    """Return how many values both of two clients can report, if their radii are 1 and 3."""
    scale = TwoPoint(1.0).scale
    return [float(len({-scale, scale} & {-3 * scale, 3 * scale}))]


def unshuffled(engine: Engine) -> Sequence[float]:
    """Return the pure epsilon of a client's run without a shuffler."""
    lines = engine.lines(find_recipe("ldp-fl-mnist").config, "client-run", "server")
    return [max(line.epsilon or 0.0 for line in lines if line.delta == 0)]


def model_shuffled(engine: Engine) -> Sequence[float]:
    """Return the bounds on epsilon for a client's run if each report is shuffled as a whole."""
    config = find_recipe("ldp-fl-mnist").config.changed(chunk=21_840)
    (line,) = engine.lines(config, "client-run", "shuffled-server")
    return [line.lower or 0.0, line.epsilon or math.inf]


def least_behind_a_shuffler(engine: Engine, *units: str) -> Sequence[float]:
    """Return lower bounds on epsilon for some units, behind a perfect shuffler."""
    config = find_recipe("ldp-fl-mnist").config
    lines = (engine.lines(config, unit, "shuffled-server") for unit in units)
    return [max(line.lower or 0.0 for line in each) for each in lines]


def common_windows(engine: Engine, apart: float, *spans: float) -> Sequence[float]:
    """Return what percentage of two clients' windows overlaps.

    One window begins ``apart`` seconds after the other. A client sends at times that are uniform
    over its window of T seconds; there is one result for each T in ``spans``.
    """
    return [100 * max(0.0, 1 - apart / span) for span in spans]


def shares_of_a_round(engine: Engine, *spreads: float) -> Sequence[float]:
    """Return what percentage of a round T is, if T is 100 times each spread of the clocks.

    The paper's rounds take 6 minutes: "within an hour with 10 CRs" (Section 5).
    """
    return [100 * 100 * spread / (3600 / 10) for spread in spreads]


def error_ratios(engine: Engine) -> Sequence[float]:
    """Return by what twice the epsilon divides Theorem 2's error, at epsilon 0.5 and 4."""
    return [
        TwoPoint(epsilon).error_bound(0.075, 100, 0.05)
        / TwoPoint(2 * epsilon).error_bound(0.075, 100, 0.05)
        for epsilon in (0.5, 4.0)
    ]


def condensed(engine: Engine) -> Sequence[float]:
    """Return the formula's epsilon, divided by 10^10, and the proven epsilon of a weight."""
    config = find_recipe("cldp-fed-fmnist").config.model_dump()
    formula = config["alpha"] * 2 * config["clip"] * 10.0 ** config["precision"]
    return [formula / 1e10, engine.epsilon("cldp-fed-fmnist", "weight")]


def printed_radii(engine: Engine) -> Sequence[float]:
    """Return the radii of the printed ranges on Fashion-MNIST and on MNIST."""
    configs = (find_recipe(f"ldp-fl-{data}").config for data in ("fmnist", "mnist"))
    return [config.model_dump()["range_radius"] for config in configs]


def initial_radii(engine: Engine) -> Sequence[float]:
    """Return the least and the largest radius of the CNN's and the VGG's layers, untrained."""
    found = (_initial_radii(model)[0] for model in ("cnn", "vgg"))
    return [float(end) for radii in found for end in (radii.min(), radii.max())]


def variances_of_one_range(engine: Engine) -> Sequence[float]:
    """Return Lemma 3's bound for one common range, over its mean for one range per layer.

    The first is for the CNN, the second for the VGG.
    """
    found = (_initial_radii(model) for model in ("cnn", "vgg"))
    return [float(whole**2 / np.average(radii**2, weights=sizes)) for radii, sizes, whole in found]


def first_noise(engine: Engine, *models: str) -> Sequence[float]:
    """Return the noise of round 1 in percent of a weight's deviation, its least and its largest.

    The noise is the deviation of the mean of 500 reports at epsilon 10, in adaptive ranges, of
    weights as they are at first; there is a least and a largest tensor for each model.
    """
    found: list[float] = []
    for model in models:
        tensors = _initial_tensors(model)
        spreads = [each.std() for each in tensors]
        noises = [
            np.sqrt(TwoPoint(10.0).variance((each - middle) / radius).mean() / 500) * radius
            for each in tensors
            for middle, radius in [((each.max() + each.min()) / 2, (each.max() - each.min()) / 2)]
        ]
        shares = [100 * noise / spread for noise, spread in zip(noises, spreads, strict=True)]
        found += [float(min(shares)), float(max(shares))]
    return found


@cache
def _initial_radii(model: str) -> tuple[NDArray[np.float64], NDArray[np.int64], float]:
    """Return the radii of a model's initial tensors (seed 0), their sizes, and the common radius.

    Biases are left out: the VGG's begin at 0 and have the smallest radius allowed.
    """
    tensors = _initial_tensors(model)
    weights = np.concatenate(tensors)
    sizes = tuple(each.size for each in tensors)
    layers, whole = (
        Ranges.of_public(weights, pieces, floor=0.001, margin=1.0)
        for pieces in (sizes, (weights.size,))
    )
    return np.asarray(layers.radii), np.asarray(sizes), float(np.max(whole.radii))


def _initial_tensors(model: str) -> list[NDArray[np.float32]]:
    """Return a model's initial weights (seed 0) by tensor, without biases and norms."""
    shape = (1, 28, 28) if model == "cnn" else (3, 32, 32)
    with torch_seeded(Stream.simulation(seed=0, round=0, client=0, purpose="model")):
        tensors = [each for each in build_model(model, shape, 10).parameters() if each.ndim > 1]
    return [each.detach().numpy().ravel() for each in tensors]
