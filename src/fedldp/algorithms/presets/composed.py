"""Composed: an algorithm made of the parts that its settings name.

    Broadcast: weights W, and ranges if `bound = range`
        |
        v
    local_update  local SGD from W; a ridge regression in closed form; or the statistics for one
        |         Sensitive weights w, or statistics
        v
    encoder       w or w - W (send) in the chart of `bound`; `mechanism` with the budget `epsilon`
        |
        v
    channel       named, shuffle, sum, central
        |
        v
    server_step   mean -> for statistics, the ridge regression from them
                       -> step of `server_optimizer` -> weights of the next Broadcast

No paper defines this system, and it claims only what its mechanism proves. Published systems fix
these settings under their own names. Local updates besides SGD are

    solution     a client's own ridge regression
    statistics   what the server needs for a ridge regression

and those that papers bring in a file ``local_update.py``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field

from fedldp.algorithms.bounds import (
    Bound,
    Chart,
    InContrasts,
    InLabels,
    InNorm,
    InRange,
    OfStatistics,
    RangeSettings,
    Rotated,
    Send,
    Unbounded,
)
from fedldp.algorithms.calibration import (
    Calibration,
    Fixed,
    GrowthSettings,
    PerReport,
    SharesPerRun,
    by_round,
    check_budget,
)
from fedldp.algorithms.composition import Algorithm, Composition, Local, Sgd
from fedldp.algorithms.matrix import WITHIN_ONE
from fedldp.algorithms.participation import All, Participation, participation_of
from fedldp.algorithms.preset import Settings, preset
from fedldp.algorithms.server_update import (
    Estimate,
    OwnMean,
    WeightedMean,
)
from fedldp.algorithms.settings import (
    ClientValue,
    LearningRate,
    Mark,
    MomentumSettings,
    Offers,
    Positive,
    WeightingSettings,
    check_one_each,
)
from fedldp.core.errors import ConfigError
from fedldp.core.facts import Caveat
from fedldp.core.registry import paper_modules, scan
from fedldp.mechanisms import find_mechanism
from fedldp.mechanisms.gaussian_share import SharedGaussian
from fedldp.mechanisms.none import Plain
from fedldp.models import is_linear
from fedldp.protocol.roles import LocalUpdate
from fedldp.training.linear_models import STATISTICS, LinearModel, Statistics

if TYPE_CHECKING:
    import torch


class Composed(Offers):
    """The settings of composed, besides those of its parts."""

    local_update: str = "sgd"
    """what a client computes: sgd; solution (its own ridge regression, in closed form); statistics
    (from whose mean the server computes a ridge regression); or what a paper brings, such as a last
    layer that never leaves its client; solution and statistics are only for linear models"""
    ridge: Annotated[float, Field(ge=1e-6, le=1e6)] = 0.01
    """lambda of a ridge regression on examples of norm 1: the factor on the squared weights, which
    are added to the mean squared error"""
    one_label: bool = False
    """whether all examples of a client have the same label: the client's report then names this
    label and a direction for the label's weights, as a single index (needs local_update = solution,
    bound = direction and mechanism = k_closest)"""
    learning_rate: LearningRate | None = None
    """SGD step size; required unless local_update is in closed form"""
    bound: Literal["range", "norm", "layers", "direction"] = "range"
    """coordinates in which weights are randomised: range (scaled to the ranges of each layer), norm
    (not scaled, with a norm of at most clip), layers (as norm, but each of L tensors is first
    scaled down to clip/sqrt(L) by itself) or direction (only the direction, with norm clip)"""
    mechanism: str = "two_point"
    """the mechanism that randomises reports: a name from `fedldp list mechanisms`, or
    "module:Class" for your own; gaussian_share (a share of the noise in a sum); or none"""
    epsilon: Annotated[Positive | list[Positive] | ClientValue | None, Mark.PER_CLIENT] = None
    """privacy budget; what it covers depends on the mechanism: one weight (two_point, k_rr, and
    others that randomise each weight by itself); everything that a client sends in a run, against a
    server that sees only sums (gaussian_share); or a client's report in one round (all other
    mechanisms); a list gives each client its own budget"""
    clip: Positive = 1.0
    """for mechanisms that randomise whole vectors, the largest norm of a vector, in the coordinates
    of bound"""
    send: Literal["weights", "update"] = "update"
    """what clients send: weights, or update (their change from the broadcast)"""
    average: Annotated[float, Field(ge=0, le=1)] | None = None
    """share of the rounds, counted from the last, whose weights are averaged to give the model that
    is tested and saved; 0 means the last weights alone; if not set, 0.5 if the mechanism draws
    noise, else 0"""
    participation: Literal["all", "drawn", "once", "balanced", "auto"] = "auto"
    """which clients take part in which round: all clients in every round (all); clients_per_round
    clients, drawn anew for each round (drawn) or taking turns (balanced); or each client in one
    round only (once); auto means once if each report reaches the server and satisfies pure DP by
    itself, so that more rounds cost more, and otherwise clients_per_round decides"""


@preset(Composed, GrowthSettings, RangeSettings, WeightingSettings, MomentumSettings, version=2)
def composed(settings: Settings) -> Composition:
    """An algorithm made of any parts that go together."""
    check_one_each("epsilon", settings.epsilon, settings.num_clients)
    local = find_local_update(settings.local_update).of(settings)
    if settings.learning_rate is None and not isinstance(local, InClosedForm):
        raise ConfigError(
            f"learning_rate is not set, but local_update = {settings.local_update} needs it; add "
            "learning_rate"
        )
    bound = bound_of(settings, local)
    estimate: Estimate = OwnMean()
    if settings.weighting == "examples" or settings.mechanism == "none":
        estimate = WeightedMean(by_examples=settings.weighting == "examples")
    participation: Participation = All()
    calibration: Calibration
    shaped = None
    stages: tuple[range, ...] = ()
    bare = settings.mechanism == "none"
    if bare:
        what = "statistics" if local.sends == STATISTICS else "weights"
        calibration = Fixed(every=Plain(what))
    elif settings.mechanism == _SHARE:
        # With a budget for a run, a client that may be drawn in every round would have to pay for
        # all rounds.
        participation = participation_of(settings, default="balanced")
        check_budget(settings, of_run=True)
        assert isinstance(bound, Rotated)
        calibration = SharesPerRun(settings=settings, bound=bound, participation=participation)
    else:
        calibration = PerReport(settings=settings, bound=bound)
        if settings.weighting != "examples":
            estimate = OwnMean(scale=calibration.scale)
        if settings.epsilon_growth != 1:
            shaped = by_round(calibration)
            stages = tuple(range(each, each + 1) for each in range(1, settings.rounds + 1))
    return Composition(
        local=local,
        bound=bound,
        shaped=shaped,
        calibration=calibration,
        estimate=local.estimate(estimate, settings),
        stages=stages,
        notes=local.notes,
        participation=participation,
        averaged=0.0 if bare else 0.5,
        unused=unused(settings, local, bound),
    )


_OF_ONE_LABEL = {"local_update": "solution", "bound": "direction", "mechanism": "k_closest"}
"""What a report with a label and a direction needs."""

_SHARE = SharedGaussian.name

_OF_RANGES = ("ranges", "range_margin", "range_first")
"""The settings of ranges, except those of the fixed range, which is a fallback."""


@dataclass(frozen=True, kw_only=True)
class Choice(Local):
    """What ``local_update`` may choose; a paper's are in its file ``local_update.py``.

    Attributes:
        name: the value of ``local_update``.
        send: whether values or changes are sent, if these are not of all weights, as chosen.
        unused: the settings that it does not use, each with the reason.
        notes: additional caveats of a run's statement.
    """

    name: ClassVar[str]
    send: ClassVar[Send | None] = None
    unused: ClassVar[Mapping[str, str]] = {}
    notes: ClassVar[tuple[Caveat, ...]] = ()

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the part that the settings describe."""
        return cls()

    def chart(self, settings: Settings) -> Chart | None:
        """Return the coordinates of what is sent; None for the weights."""
        return None

    def estimate(self, mean: Estimate, settings: Settings) -> Estimate:
        """Return what the server computes, given the estimate of the mean."""
        return mean


def find_local_update(name: str) -> type[Choice]:
    """Return the local update called ``name``, of this module or of a paper.

    Raises:
        ConfigError: there is none.
    """
    every = scan(Choice, (sys.modules[__name__], *paper_modules("local_update")))  # type: ignore[type-abstract]
    known = {each.name: each for each in every}
    if name not in known:
        raise ConfigError(f"local_update = {name}: choose {', '.join(known)}")
    return known[name]


def bound_of(settings: Settings, local: Choice) -> Bound:
    """Return the chart in which the mechanism works, for what a client sends.

    Raises:
        ConfigError: the chart is incompatible with the mechanism or with what is sent.
    """
    bound, mechanism, computes = settings.bound, settings.mechanism, f"local_update = {local.name}"
    send, chart = local.send or settings.send, local.chart(settings)
    for name, value in _OF_ONE_LABEL.items() if settings.one_label else ():
        if (given := getattr(settings, name)) != value:
            raise ConfigError(
                f"one_label = true and {name} = {given}: k_closest makes the report with a label "
                f"and a direction, from a solution; set {name} = {value}, or leave one_label out"
            )
    if local.send is not None and settings.send == "weights":
        raise ConfigError(
            f"send = weights and {computes}: it does not send all weights; leave send out"
        )
    if mechanism == "none":
        return Unbounded(send=send, chart=chart)
    shared = mechanism == _SHARE
    within_one = not shared and issubclass(find_mechanism(mechanism), WITHIN_ONE)
    if bound == "range" and (local.send is not None or shared):
        other = " with mechanism = k_closest" if within_one else ""
        raise ConfigError(
            f"bound = range, mechanism = {mechanism} and {computes}: only whole weights that are "
            f"randomised one by one are sent in ranges; set bound = norm{other}"
        )
    if bound == "direction" and local.sends is not None:
        raise ConfigError(
            f"bound = direction and {computes}: the server needs the size of what it sends, too; "
            "set bound = norm"
        )
    if bound == "layers" and chart is not None:
        raise ConfigError(
            f"bound = layers and {computes}: layers are clipped only where all weights are sent; "
            "set bound = norm"
        )
    if bound == "range":
        return InRange.of(settings)
    if within_one:
        raise ConfigError(
            f"bound = {bound} and mechanism = {mechanism}: it randomises each coordinate between "
            "-1 and 1, and does not use clip; set bound = range"
        )
    return (Rotated if shared else InNorm)(
        clip=settings.clip,
        send=send,
        chart=chart,
        direction=bound == "direction",
        by_layer=bound == "layers",
    )


def unused(settings: Settings, local: Choice, bound: Bound) -> dict[str, str]:
    """Return the settings that these parts do not use, with reasons."""
    mechanism, of_ranges = settings.mechanism, isinstance(bound, InRange)
    draws_nothing = ("epsilon", "bound", "clip", "epsilon_growth")
    closed = isinstance(local, InClosedForm)
    rules: tuple[tuple[bool, tuple[str, ...], str], ...] = (
        (not closed, ("ridge",), f"local_update = {local.name} solves no regression"),
        (mechanism == "none", draws_nothing, "mechanism = none draws nothing"),
        (mechanism == _SHARE, ("epsilon_growth",), "the budget is for the whole run"),
        (not of_ranges, _OF_RANGES, "nothing is sent in ranges"),
    )
    found = {name: why for applies, names, why in rules if applies for name in names}
    return {**local.unused, **found, **(bound.unused if isinstance(bound, InRange) else {})}


@dataclass(frozen=True, kw_only=True)
class PlainSgd(Choice, Sgd):
    """Local SGD."""

    name: ClassVar[str] = "sgd"

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return SGD with a momentum."""
        return cls(momentum=settings.momentum)


@dataclass(frozen=True, kw_only=True)
class InClosedForm(Choice):
    """A ridge regression, or a part of one, which gives a linear model."""

    unused: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("learning_rate", "local_epochs", "batch_size", "momentum"),
        "a closed form takes no steps",
    )

    def check(self, algorithm: Algorithm) -> None:
        """Refuse a single class, and models that are not linear; see ``Local.check``."""
        config, classes = algorithm.config, algorithm.problem.num_classes
        if classes < 2:
            raise ConfigError(
                f"local_update = {self.name} and dataset = {config.dataset}: the data set has only "
                "one class, so there is nothing to learn; choose data with two or more classes"
            )
        if not is_linear(config.model, algorithm.input_shape, classes):
            raise ConfigError(
                f"local_update = {self.name} and model = {config.model}: a ridge regression gives "
                "a linear model; set model = linear, or local_update = sgd"
            )


@dataclass(frozen=True, kw_only=True)
class OwnSolution(InClosedForm):
    """The weights that best fit a client's examples, in closed form.

    Attributes:
        ridge: lambda, positive.
    """

    name: ClassVar[str] = "solution"

    ridge: float

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the solution with the settings' lambda."""
        return cls(ridge=settings.ridge)

    def chart(self, settings: Settings) -> Chart:
        """Return contrasts of classes, or one label and its weights; see ``Choice``."""
        return InLabels() if settings.one_label else InContrasts()

    def __call__(self, algorithm: Algorithm, device: torch.device) -> LocalUpdate:
        """Return the local update, which always computes on the CPU."""
        from fedldp.training.ridge import RidgeSolution

        return RidgeSolution(model=LinearModel.of(algorithm.layout), ridge=self.ridge)


@dataclass(frozen=True, kw_only=True)
class StatisticsOf(InClosedForm):
    """The mean products of features with each other and with labels, over a client's examples."""

    name: ClassVar[str] = "statistics"
    sends: ClassVar[str] = STATISTICS
    send: ClassVar[Send] = "weights"

    def chart(self, settings: Settings) -> Chart:
        """Return statistics, from which the server computes a regression; see ``Choice``."""
        return OfStatistics(ridge=settings.ridge)

    def __call__(self, algorithm: Algorithm, device: torch.device) -> LocalUpdate:
        """Return the local update, which always computes on the CPU."""
        from fedldp.training.ridge import OwnStatistics

        return OwnStatistics(statistics=Statistics(LinearModel.of(algorithm.layout)))
