"""Settings of a run over people that follow from public facts about a table.

One number says how hard a table is: N, the number of people over the standard deviation of the
noise on a sum, in vectors of the largest norm, if the whole budget went into one release. It comes
from the mechanism itself, so people at several sites, colluders and the channel count.

    rounds         N/20, from 5 to 80
    clip           0.3 |x|, where |x| = sqrt(1.09) is the norm of a row with its constant
    learning rate  min(N/(clip rounds |x|), 25/(p (1 - p) |x|^2)), p (1 - p) of the most even class
    measured       with 10 % of the budget, if a spread or the class shares are not declared, from
                   N = 60 on
    intercept      in 3 more rounds with 5 % of the budget, from N = 60/p on, p the rarest share

With two classes, a softmax has the gradient twice, once with the other sign. So its clip is sqrt(2)
times as large, and its rate half as large. Class shares that are not declared count as equal for
the rate; for the intercept, the rarest counts as a tenth.

For labels that are numbers, in units of half their range, the rate is
min(0.1 N/(clip rounds |x|), 5/|x|^2): the squared error has the curvature |x|^2. As it is the same
everywhere, more than the larger of 24 and N/40 rounds add more noise than they learn. The intercept
starts at the declared typical label, or at the measured mean, and has rounds of its own from
N = 600 on, because the clip shortens most the gradients of far labels: those of a long tail.

Source: a trial on 18 tables and 5 epsilons, whose constants these are; 24 and N/40 are from a trial
on 4 tables of numbers.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.people import PerPersonRun, people_of
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.stages import INTERCEPT_ROUNDS, MEASURE_ROUNDS
from fedldp.core.errors import ConfigError
from fedldp.data.public_features import CONSTANT
from fedldp.training.exact_sums import NORM

LENGTH = math.sqrt(1 + CONSTANT**2)
"""The norm of a row of norm 1 with the constant."""

PATHS = (0.4, 1.0, 2.5)
"""Factors on the rule's learning rate, to try around it."""

_TO_MEASURE, _TO_CALIBRATE = 60, 60
"""The least N for measuring, and the least N times the rarest share for the intercept's rounds."""

_FEWEST, _MOST = 5, 80
"""The numbers of rounds that train."""

_ENOUGH_OF_NUMBERS = 24
"""The number of rounds that train a model for numbers well up to N = 960."""

_RAREST = 0.1
"""The rarest class share, where none is declared."""

RULED = ("rounds", "clip", "learning_rate", "measure_share", "intercept_share")
"""The settings that follow from the rule."""


def ruled(
    n: float,
    shares: Sequence[float],
    *,
    declared: bool = False,
    spreads: bool = False,
    path: float = 1.0,
    rounds: int | None = None,
    stages: bool = True,
) -> dict[str, Any]:
    """Return the values of ``RULED`` for one N; see the module's docstring.

    Args:
        n: N.
        shares: the declared class shares; equal ones if none are declared. One share, of 1, stands
            for labels that are numbers.
        declared: whether class shares, or a typical label, are declared.
        spreads: whether the spread of every column of numbers is declared.
        path: a factor on the learning rate.
        rounds: the number of rounds, if it is given; few of them leave none for small stages.
        stages: whether the run may have small stages.
    """
    measures = n >= _TO_MEASURE and not (declared and spreads)
    of_numbers = len(shares) == 1
    rarest = min(shares) if declared and not of_numbers else _RAREST
    calibrates = n * rarest >= _TO_CALIBRATE
    more = MEASURE_ROUNDS * measures + INTERCEPT_ROUNDS * calibrates
    if not stages or (rounds is not None and rounds < more + _FEWEST):
        measures, calibrates, more = False, False, 0
    enough = n / 20
    if of_numbers:
        enough = min(enough, max(_ENOUGH_OF_NUMBERS, n / 40))
    trained = min(_MOST, max(_FEWEST, round(enough)))
    if rounds is not None:
        trained = rounds - more
    clip, two = 0.3 * LENGTH, len(shares) == 2
    length, most = 0.1 * n, 5.0
    if not of_numbers:
        length, most = n, 25 / max(share * (1 - share) for share in shares)
    rate = min(length / (clip * trained * LENGTH), most / LENGTH**2) * path
    return {
        "rounds": trained + more,
        "clip": _figures(clip * math.sqrt(2) if two else clip),
        "learning_rate": _figures(rate / 2 if two else rate),
        "measure_share": 0.1 if measures else 0.0,
        "intercept_share": 0.05 if calibrates else 0.0,
    }


def difficulty(config: RunConfig, problem: Problem) -> float:
    """Return N for a run over people; its rounds, clip and stages do not matter.

    Args:
        config: the configuration; its target, if it has one, sets epsilon and delta.
        problem: the public facts about the data.

    Raises:
        ConfigError: the configuration does not sum over people.
    """
    clients = problem.num_clients or config.num_clients
    changes: dict[str, Any] = {
        "rounds": 1, "clients_per_round": None, "target": None, "num_clients": clients,
        "measure_share": 0.0, "intercept_share": 0.0, "evaluation_share": 0.0,
        "sample_rate": 1.0,
    }  # fmt: skip
    if config.target is not None:
        changes |= {"epsilon": config.target.epsilon, "delta": config.target.delta}
    calibration = config.composition.calibration
    if isinstance(calibration, PerPersonRun):
        calibration = config.changed(**changes).composition.calibration
    if not isinstance(calibration, PerPersonRun):
        raise ConfigError(
            f"system = {config.name()}: the rule is for runs that sum one gradient for each person "
            "in a round; choose system = person_dp_sgd"
        )
    noise = calibration.noise(config.layout(problem).size)
    reports = 1 if calibration.channel == "central" else clients
    deviation = math.sqrt(reports) * noise.step * 2.0**noise.scale_bits / NORM
    return people_of(calibration.settings, problem) / deviation


def by_rule(
    config: RunConfig, problem: Problem, *, path: float = 1.0, given: Collection[str] = ()
) -> RunConfig:
    """Return a configuration with the settings of the rule.

    Args:
        config: the configuration of a run over people, with a linear model on rows of norm 1.
        problem: the public facts about the data.
        path: a factor on the rule's learning rate; see ``PATHS``.
        given: the settings that somebody chose, which stay.

    Raises:
        ConfigError: see ``difficulty``.
    """
    shares = getattr(config, "class_shares", None)
    classes = problem.num_classes
    found = ruled(
        difficulty(config, problem),
        shares or [1 / classes] * classes,
        declared=shares is not None or config.label_typical is not None,
        spreads=not without_spread(config, problem),
        path=path,
        rounds=config.rounds if "rounds" in given else None,
        stages=_allows_stages(config, problem),
    )
    return config.changed(**{name: value for name, value in found.items() if name not in given})


def _allows_stages(config: RunConfig, problem: Problem) -> bool:
    """Return whether no other setting refuses stages."""
    staged = {"rounds": _FEWEST, "measure_share": 0.1, "intercept_share": 0.05, "target": None}
    try:
        config.changed(**staged).algorithm(problem).release(0)
    except ConfigError:
        return False
    return True


def without_spread(config: RunConfig, problem: Problem) -> tuple[str, ...]:
    """Return the features of a table that have no declared spread and are no categories.

    Features without names are told as one, "all".
    """
    if problem.features is None:
        return ("all",)
    columns = config.columns
    known = {*columns.spreads}
    for name in (*columns.categories, *columns.filled, *columns.folded):
        known |= set(columns.made(name)) - {name}
    return tuple(name for name in problem.features if name not in known)


def _figures(value: float) -> float:
    """Return a number with three significant digits."""
    return float(f"{value:.3g}")
