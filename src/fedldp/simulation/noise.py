"""How long the noise in a round's mean is expected to be, from public facts alone.

The bound, the mechanism, the number of coordinates and the number of reports are public, so a
report and a deployment may show this sentence. It explains a bad model before anything is trained.
"""

from __future__ import annotations

import math

import numpy as np

from fedldp.accounting.guarantees import proven_epsilon
from fedldp.accounting.prices import cost
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.core.errors import ConfigError
from fedldp.core.facts import Note
from fedldp.core.kinds import NOISE_OF_MEAN
from fedldp.mechanisms import Mechanism, MechanismSettings, find_mechanism

_STANDARD = "k_closest"
"""The mechanism that others are compared with."""

_LONG, _SHORT = 1e6, 1e-6
"""Norms far above and far below what mechanisms bound."""


def noise_of(config: RunConfig, problem: Problem) -> Note | None:
    """Return the expected norm of the noise in a round's mean; None if reports have no such noise.

    It is relative to the longest vector that one client can send. ``k_closest``, which sends one
    short message, is the standard that it is compared with, at the epsilon that one round has.

    Raises:
        ConfigError: the configuration is incompatible with the problem.
    """
    release = config.algorithm(problem).release(0).at(1)
    size, reports = release.coordinates, config.round_size
    if release.bound.bounds_people or config.composition.local.event(
        config.algorithm(problem), size
    ):
        return None  # the longest vector is a person's, or training draws the noise
    ratio = of_one_report(release.mechanism, size)
    if not ratio:
        return None
    best = None
    if release.mechanism.name != _STANDARD:
        event = release.event()
        epsilon: float | None = cost(
            event, "pure"
        )  # exact composition of coordinates takes seconds
        if epsilon == math.inf:
            epsilon = proven_epsilon(event, "client-round", config.delta)
        best = None if epsilon is None else of_closest(epsilon, size)
    return NOISE_OF_MEAN(
        ratio=ratio / math.sqrt(reports),
        reports=reports,
        times=None if best is None else ratio / best,
    )


def of_one_report(mechanism: Mechanism, size: int) -> float:
    """Return the expected norm of the noise in a report of ``size`` values.

    It is relative to the longest vector that the mechanism reports, of those with equal coordinates
    and those with one coordinate, and it is that of a short vector.
    """
    even, single = np.full(size, 1 / math.sqrt(size)), np.zeros(size)
    single[0] = 1
    longest = max(float(np.linalg.norm(mechanism.bound(_LONG * each))) for each in (even, single))
    variance = float(np.sum(mechanism.variance(_SHORT * longest * even)))
    return math.sqrt(max(variance, 0.0)) / longest


def of_closest(epsilon: float, size: int) -> float | None:
    """Return the same for ``k_closest``; None if it has no report for this epsilon and size."""
    try:
        settings = MechanismSettings(epsilon=epsilon, delta=0.0, clip=1.0, size=size)
        return of_one_report(find_mechanism(_STANDARD).from_settings(settings), size)
    except ConfigError:
        return None
