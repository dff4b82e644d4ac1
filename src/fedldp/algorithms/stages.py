"""The stages of a run over people: what is summed in which rounds, at which share of the budget.

    measure     once, first: class shares, and the means and mean squares of the columns
    train       gradients
    intercept   the gradient of the intercept alone
    look        last but one: people by the model's score
    question    last: people by label and band of the score; see ``evaluation``
    ask         in a run that trains nothing: people by classes and columns; see ``asking``

mu^2 adds up over releases of Gaussian noise. So a stage has a share of the run's mu^2, and divides
it equally among its own rounds. The shares are rational numbers whose sum is exactly 1: training
has whatever the other stages leave.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedldp.algorithms.asking import SHARE_OF_CLASS, AskSettings, rounds_to_ask
from fedldp.algorithms.evaluation import LOOK_SHARE
from fedldp.core.errors import ConfigError, RunError
from fedldp.data.public_features import CONSTANT
from fedldp.protocol.roles import Metrics
from fedldp.training.answers import SEEN, Answer, as_metrics, mean_of
from fedldp.training.column_sums import ColumnMap

_Share = Annotated[float, Field(ge=0, lt=1)]


class StageSettings(AskSettings):
    """The budget's shares of stages, and where the intercept starts."""

    measure_share: _Share = 0.0
    """share of the budget (of mu^2) for the first round, if it is above 0: that round measures the
    class shares and each column's mean and mean square; training then starts at the shares, in
    columns that are shifted and scaled by these"""
    intercept_share: _Share = 0.0
    """share of the budget (of mu^2) for the last 3 rounds, if it is above 0: these train the
    intercept alone, from the average of training, so that predicted risks fit the classes' shares
    """
    evaluation_share: _Share = 0.0
    """share of the budget (of mu^2) for the last 2 rounds, if it is above 0: these evaluate the
    model that is saved, on the people it was trained on; the AUC and other figures, or R2 and
    errors of numbers, have intervals, and the lines of the statement cover them"""
    class_shares: (
        Annotated[list[Annotated[float, Field(gt=0, lt=1)]], Field(min_length=2)] | None
    ) = None
    """public share of each class, in the order of the classes, at which the intercept starts; it
    must not be counted on private rows; if not set, the intercept starts at what measure_share
    measures, or else at 0"""


MEASURE_ROUNDS, INTERCEPT_ROUNDS, EVALUATION_ROUNDS = 1, 3, 2

LEAST_SHARE = 0.01
"""The lower limit of a class's noisy share, which also bounds the weight of the class."""

SHARES = "class shares"
"""The key under which the server keeps the classes' shares."""

_FEW_CLASSES = 10
"""With at most this many classes, a round's metrics include the classes' shares."""

_SHORTEST = 0.05
"""The least mean square of mapped rows that is made 1, since a measured one may be 0 by noise."""

_CURVATURE = 0.7
"""What is left of p (1 - p) once a model separates the classes, roughly."""


Kind = Literal["measure", "train", "intercept", "look", "question", "ask"]


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Consecutive rounds in which the same is summed.

    Attributes:
        kind: what is summed.
        rounds: these rounds.
        share: the stage's share of the run's mu^2.
    """

    kind: Kind
    rounds: range
    share: Fraction


def stages_of(settings: Any) -> tuple[Stage, ...]:
    """Return the stages of a run, in order; a run that sets no shares has one, which trains.

    Raises:
        ConfigError: no round, or nothing of the budget, would be left for training.
    """
    if settings.ask:
        return _asking(settings)
    names = ("measure_share", "intercept_share", "evaluation_share")
    measure, intercept, evaluation = (_exact(getattr(settings, name)) for name in names)
    left = 1 - measure - intercept - evaluation
    if left <= 0:
        given = ", ".join(f"{name} = {getattr(settings, name):g}" for name in names)
        raise ConfigError(
            f"{given}: nothing of the budget would be left for training; give shares whose sum is "
            "below 1"
        )
    look = EVALUATION_ROUNDS // 2 * (evaluation > 0)
    counts = [MEASURE_ROUNDS * (measure > 0), INTERCEPT_ROUNDS * (intercept > 0), look, look]
    if sum(counts) >= settings.rounds:
        raise ConfigError(
            f"rounds = {settings.rounds}: of these, {counts[0]} measure, {counts[1]} train the "
            f"intercept and {2 * look} evaluate ({', '.join(names)}), so none would be left for "
            f"training; give at least {sum(counts) + 1}"
        )
    counts.insert(1, settings.rounds - sum(counts))
    kinds: tuple[Kind, ...] = ("measure", "train", "intercept")
    shares = measure, left, intercept
    return _consecutive(*zip(kinds, counts, shares, strict=False), *_evaluating(look, evaluation))


def _asking(settings: Any) -> tuple[Stage, ...]:
    """Return the stages of a run that trains nothing; tables and an evaluation cost the same."""
    tables, evaluation = rounds_to_ask(settings.ask)
    if settings.rounds != tables + evaluation:
        raise ConfigError(
            f"rounds = {settings.rounds} and ask = {settings.ask}: asking takes as many rounds as "
            f"there are questions; set rounds = {tables + evaluation}"
        )
    look = evaluation // 2
    share = Fraction(1, tables + look)
    return _consecutive(("ask", tables, share), *_evaluating(look, share))


_Part = tuple[Kind, int, Fraction]
"""The kind of a stage, the number of its rounds, and its share."""


def _evaluating(look: int, share: Fraction) -> tuple[_Part, _Part]:
    return ("look", look, LOOK_SHARE * share), ("question", look, (1 - LOOK_SHARE) * share)


def _consecutive(*parts: _Part) -> tuple[Stage, ...]:
    """Return stages one after another, from round 1 on; without those that have no rounds."""
    ends = itertools.accumulate((count for _, count, _ in parts), initial=1)
    return tuple(
        Stage(kind=kind, rounds=range(*rounds), share=share)
        for (kind, count, share), rounds in zip(parts, itertools.pairwise(ends), strict=True)
        if count
    )


def stage_at(stages: Sequence[Stage], round: int) -> Stage:
    """Return the stage of a round.

    Raises:
        RunError: the round is not one of the run.
    """
    for stage in stages:
        if round in stage.rounds:
            return stage
    raise RunError(f"round {round}: the run has the rounds 1 to {stages[-1].rounds[-1]}")


def _exact(share: float) -> Fraction:
    """Return a share as it is written: 0.1 is 1/10, not the nearest float."""
    return Fraction(repr(float(share)))


# What the server computes; all of it is post-processing of what was released.


def measured(
    noisy: NDArray[np.float64], noise: float, classes: int, unmeasured: Sequence[int] = ()
) -> tuple[ColumnMap, ClassShares]:
    """Return what a measuring round tells of a table, whose rows have norm 1 and the constant.

    Args:
        noisy: class shares, means and mean squares of people, each with noise, in this order;
            shape (classes + 2 columns,).
        noise: the standard deviation of each number's noise, above 0.
        classes: the number of classes.
        unmeasured: the places of columns that stay as they are, which hold what is not to grow:
            folded columns, whose declared weight is half that of others.

    Returns:
        The map that gives every column the mean 0 and about the mean square 1/columns, and their
        sum the mean square that rows of norm 1 have; and the shares of the classes.
    """
    shares = noisy[:classes]
    means, squares = np.split(noisy[classes:], 2)
    count, variance = means.size, noise**2
    variances = squares - means**2 + variance  # without the bias of noisy means
    scale = 1 / np.sqrt(count * np.maximum(variances, max(2 * noise, 0.02 / count)))
    kept = list(unmeasured)
    # Columns that vary less than the noise would make all rows short, and gradients with them.
    squared = float(np.delete(variances * scale**2, kept).mean()) * count
    scale /= math.sqrt(max(squared, _SHORTEST))
    # Means no larger than their noise are no shift (the estimate of W. James and C. Stein).
    of_means = max(float(np.delete(means**2, kept).mean()), variance)
    shift = means * (1 - variance / of_means)
    shift[kept], scale[kept] = 0.0, 1.0
    return ColumnMap.agreed(shift, scale), ClassShares(shares, noise)


@dataclass(frozen=True)
class ClassShares:
    """Noisy shares of the classes among the people who were asked.

    Of labels that are numbers it is one "share": the mean of their places in their range, 0 to 1.

    A share that is not seen above the noise would set a wrong start or weight, so all of them are
    used or none.

    Attributes:
        noisy: the shares, shape (classes,).
        noise: the standard deviation of a share.
    """

    noisy: NDArray[np.float64]
    noise: float

    @property
    def seen(self) -> bool:
        """Whether every class is seen: its share is at least ``SEEN`` deviations of its noise."""
        return bool((self.noisy >= SEEN * self.noise).all())

    def usable(self, otherwise: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return shares, each at least about ``LEAST_SHARE``, whose sum is 1.

        Args:
            otherwise: what is returned if a class was not seen.
        """
        if not self.seen:
            return otherwise
        if self.noisy.size == 1:
            return self.noisy.clip(0, 1)
        found = np.maximum(self.noisy / self.noisy.sum(), LEAST_SHARE)
        return np.asarray(found / found.sum(), np.float64)

    def metrics(self, people: float) -> Metrics:
        """Return the shares of classes with their intervals, if there are few classes.

        Intervals cover the noise and the chance of who was asked, as those of questions do. Shares
        are told of all who answered, however many people were stated.

        Args:
            people: how many people were asked.
        """
        if not 1 < self.noisy.size <= _FEW_CLASSES:
            return {}
        counts, noise = self.noisy * people, self.noise * people
        return as_metrics(
            Answer.of(f"{SHARE_OF_CLASS}{k}", *mean_of(cell, counts, noise), seen=self.seen)
            for k, cell in enumerate(np.eye(counts.size))
        )


def shares_of(settings: Any, classes: int) -> NDArray[np.float64]:
    """Return the declared class shares, or else equal ones, shape (classes,); their sum is 1.

    For labels that are numbers, with one "class": where the typical one is in their range, or else
    the middle, 0 to 1.
    """
    if classes == 1:
        within, typical = settings.columns.label_range, settings.label_typical
        return np.array([0.5 if typical is None else (typical - within.low) / (2 * within.half)])
    found = np.array(settings.class_shares or np.ones(classes), np.float64)
    return np.asarray(found / found.sum(), np.float64)


def start_at(shares: NDArray[np.float64], weights: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the weights with the intercept at log(share): a model without columns predicts it.

    Args:
        shares: the classes' shares, positive, shape (classes,); or, for labels that are numbers,
            the place of one in their range, 0 to 1, shape (1,).
        weights: of each class in turn, the constant's last, shape (d,).
    """
    found = weights.astype(np.float64).reshape(shares.size, -1)
    start = np.log(shares) - np.log(shares).mean() if shares.size > 1 else 2 * shares - 1
    found[:, -1] = start / CONSTANT
    return found.ravel()


def intercept_step(
    gradient: NDArray[np.float64], shares: NDArray[np.float64], step: int
) -> NDArray[np.float64]:
    """Return the change of the weights for a noisy mean gradient of the intercept, shape (d,).

    It is nearly a Newton step, at the curvature of the classes' shares. Steps of 1, 1/2, 1/3
    average the noise of the rounds so far. All coordinates but the constant's hold noise alone, and
    change nothing.

    Args:
        gradient: the mean gradient over people, in the units of the weights, shape (d,).
        shares: the classes' shares, shape (classes,), whose sum is 1; of labels that are numbers,
            any one number.
        step: the number of the step, from 1.
    """
    found = np.zeros((shares.size, gradient.size // shares.size))
    of_constant = gradient.reshape(found.shape)[:, -1]
    if shares.size == 1:  # a squared error has the same curvature everywhere
        found[:, -1] = -of_constant / CONSTANT**2 / step
        return found.ravel()
    curvature = _CURVATURE * CONSTANT**2 * (np.diag(shares) - np.outer(shares, shares))
    # Equal changes of all classes change nothing, so the curvature is singular along them; adding
    # them as one more direction makes a plain solution possible, without their part.
    along = np.full(curvature.shape, 1 / shares.size)
    newton = np.linalg.solve(curvature + along, of_constant - of_constant.mean())
    found[:, -1] = -(newton - newton.mean()) / step
    return found.ravel()
