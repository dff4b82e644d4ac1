"""A contestant's default tries: values around its own learning rate, clip and rounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from fedldp.algorithms.bounds import InRange
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.core.errors import ConfigError
from fedldp.experiments.comparing.comparison import Try

_FACTORS: Mapping[str, Sequence[float]] = {
    "learning_rate": (1, 4, 1 / 4, 16, 1 / 16),
    "clip": (1, 1 / 4, 4, 1 / 16),
    "range_radius": (1, 1 / 4, 4, 1 / 16),
    "ridge": (1, 1 / 10, 10, 1 / 100, 100),
}
_FEWER, _MORE = (1, 1 / 16, 1 / 4), (1, 4, 16)
"""Factors for the number of rounds. Far fewer rounds are tried first, because rounds cost budget;
if the configuration has only a few rounds, more rounds are tried instead."""

_FEW_ROUNDS = 4


def default_tries(config: RunConfig, problem: Problem, most: int) -> tuple[Try, ...]:
    """Return tries around the settings of ``config``, the nearest first.

    The varied settings are learning rate, clip (or the radius of a range), ridge and rounds, if
    they affect ``config``; they are multiplied by powers of 4, or of 10 for a ridge. A larger
    ``most`` only adds tries after the first ones, so that a comparison can grow.

    Args:
        config: the contestant's configuration.
        problem: the shape of its data.
        most: the largest number of tries; there may be fewer.

    With one try, ``config`` is measured as it is.

    Raises:
        ConfigError: nothing can be varied.
    """
    if most == 1:
        return ({},)
    levels = _levels(config, problem)
    points = product(*(range(len(values)) for values in levels.values()))
    order = sorted(points, key=lambda point: (max(point, default=0), sum(point), point[::-1]))
    found: list[Try] = []
    for point in order:
        attempt = {name: levels[name][k] for name, k in zip(levels, point, strict=True)}
        if len(found) < most and _fits(config, attempt):
            found.append(attempt)
    if len(found) < 2:
        raise ConfigError(
            f"tries: {config.name()} has no learning rate, clip, ridge or rounds to vary; give the "
            "contestant a grid"
        )
    return tuple(found)


def grid_of(name: str, given: Any) -> tuple[Try, ...]:
    """Return the tries that a user wrote: a list of tries, or a mapping to lists of values.

    Args:
        name: the contestant's name, for messages.
        given: ``[{"clip": 1.0, "rounds": 4}, ...]``, or ``{"clip": [1.0, 0.5]}``, all combinations
            of which are tried.

    Raises:
        ConfigError: the grid has neither form.
    """
    match given:
        case list() if given and all(isinstance(each, Mapping) and each for each in given):
            found = [dict(each) for each in given]
        case dict() if given and all(isinstance(each, list) and each for each in given.values()):
            found = [dict(zip(given, values, strict=True)) for values in product(*given.values())]
        case _:
            raise ConfigError(
                f"contestant {name}: grid = {given}: give lists of values, such as "
                "{clip = [1.0, 0.5]}, or a list of tries"
            )
    return tuple(found)


def _levels(config: RunConfig, problem: Problem) -> dict[str, list[Any]]:
    """Return the values to try for each setting that affects the run, the current value first."""
    unused = config.unused_settings()
    found: dict[str, list[Any]] = {}
    for name, factors in _FACTORS.items():
        own = getattr(config, name, None)
        if isinstance(own, int | float) and name not in unused and _matters(config, problem, name):
            found[name] = _distinct(float(f"{own * factor:.4g}") for factor in factors)
    rounds = config.rounds
    factors = _MORE if rounds < _FEW_ROUNDS else _FEWER
    found["rounds"] = _distinct(max(1, round(rounds * factor)) for factor in factors)
    return found


def _matters(config: RunConfig, problem: Problem, name: str) -> bool:
    """Return whether a setting changes a run.

    If the bound is a range, its radius changes the run, and a clip changes it only in rare cases.
    """
    if name not in ("clip", "range_radius"):
        return True
    own = getattr(config, name)
    try:
        release, other = (
            each.algorithm(problem).encoder(0).release  # type: ignore[attr-defined]
            for each in (config, config.changed(**{name: own / 4}))
        )
    except (AttributeError, ConfigError):  # the system has no release of this kind
        return True
    if isinstance(release.bound, InRange):
        return name == "range_radius" or release.mechanism != other.mechanism
    return name == "clip"


def _distinct(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values))


def _fits(config: RunConfig, attempt: Try) -> bool:
    try:
        config.changed(**attempt)
    except ConfigError:
        return False
    return True
