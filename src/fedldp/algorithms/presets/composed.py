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
    scaffold     SGD with SCAFFOLD's control variates
    own_head     SGD with a last layer of the client's own

What clients keep releases nothing more than the report of a round. A client's control variate is
made of its own steps, and the server's of the mean of the reports, so that is post-processing; a
head never leaves its client.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedldp.algorithms.bounds import (
    Bound,
    Chart,
    InBox,
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
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.server_update import (
    Around,
    Estimate,
    Estimated,
    FirstArrays,
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
from fedldp.core.facts import Unprotected
from fedldp.core.kinds import OWN_HEADS, SCORES
from fedldp.mechanisms import find_mechanism
from fedldp.mechanisms.codes import ClippedCodes
from fedldp.mechanisms.gaussian_share import SharedGaussian
from fedldp.mechanisms.none import Plain
from fedldp.models import HEAD, is_linear, trained_of
from fedldp.protocol.roles import Arrays, Draw, LocalUpdate, State, Tester
from fedldp.protocol.wire import Incoming
from fedldp.training.linear_models import STATISTICS, LinearModel, Statistics

if TYPE_CHECKING:
    import torch

    from fedldp.training.stateful_sgd import OwnHeadSgd


class Composed(Offers):
    """The settings of composed, besides those of its parts."""

    local_update: Literal["sgd", "scaffold", "own_head", "solution", "statistics"] = "sgd"
    """what a client computes: sgd; scaffold (SGD whose steps are corrected by what other clients'
    steps were like); own_head (SGD whose last layer never leaves its client); solution (its own
    ridge regression, in closed form); or statistics (from whose mean the server computes a ridge
    regression); solution and statistics are only for linear models"""
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
    "module:Class" for your own; gaussian_share (a share of the noise in a sum); none; or codes
    (fixed-point numbers for a sum, which hide nothing by themselves)"""
    epsilon: Annotated[Positive | list[Positive] | ClientValue | None, Mark.PER_CLIENT] = None
    """privacy budget; what it covers depends on the mechanism: one weight (two_point, k_rr, and
    others that randomise each weight by itself); everything that a client sends in a run, against a
    server that sees only sums (gaussian_share); or a client's report in one round (all other
    mechanisms); a list gives each client its own budget"""
    clip: Positive = 1.0
    """for mechanisms that randomise whole vectors, the largest norm of a vector, in the coordinates
    of bound; with codes, the largest magnitude of one weight"""
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
    if settings.learning_rate is None and settings.local_update not in _CLOSED_FORMS:
        raise ConfigError(
            f"learning_rate is not set, but local_update = {settings.local_update} needs it; add "
            "learning_rate"
        )
    local, send, chart = computed(settings)
    bound = bound_of(settings, send, chart)
    estimate: Estimate = OwnMean()
    if settings.weighting == "examples" or settings.mechanism == "none":
        estimate = WeightedMean(by_examples=settings.weighting == "examples")
    participation: Participation = All()
    calibration: Calibration
    shaped = None
    stages: tuple[range, ...] = ()
    if settings.mechanism in _BARE:
        what = "statistics" if settings.local_update == "statistics" else "weights"
        codes = ClippedCodes(clip=settings.clip, what=what)
        calibration = Fixed(every=Plain(what) if settings.mechanism == "none" else codes)
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
    if settings.local_update == "scaffold":
        share = settings.round_size / settings.num_clients
        estimate = Controlled(inner=estimate, share=share)
    return Composition(
        local=local,
        bound=bound,
        shaped=shaped,
        calibration=calibration,
        estimate=estimate,
        stages=stages,
        notes=(OWN_HEADS,) if settings.local_update == "own_head" else (),
        participation=participation,
        averaged=0.0 if settings.mechanism in _BARE else 0.5,
        unused=unused(settings, bound),
    )


_BARE = ("none", "codes")
"""What may replace the mechanism without randomising anything."""

_CLOSED_FORMS = ("solution", "statistics")
"""Local updates that take no steps."""

_SHARE = SharedGaussian.name

_OF_RANGES = ("ranges", "range_margin", "range_first")
"""The settings of ranges, except those of the fixed range, which is a fallback."""


def computed(settings: Settings) -> tuple[Local, Send, Chart | None]:
    """Return what a client computes and sends, and its coordinates if they are not the weights."""
    match settings.local_update:
        case "solution":
            chart = InLabels() if settings.one_label else InContrasts()
            return OwnSolution(ridge=settings.ridge), settings.send, chart
        case "statistics":
            return StatisticsOf(), "weights", OfStatistics(ridge=settings.ridge)
        case "scaffold":
            return Scaffold(), settings.send, None
        case "own_head":
            return OwnHead(momentum=settings.momentum), "update", InBody()
        case _:
            return Sgd(momentum=settings.momentum), settings.send, None


def bound_of(settings: Settings, send: Send, chart: Chart | None) -> Bound:
    """Return the chart in which the mechanism works, for what a client sends.

    Raises:
        ConfigError: the chart is incompatible with the mechanism or with what is sent.
    """
    computes, bound, mechanism = settings.local_update, settings.bound, settings.mechanism
    if settings.one_label:
        needed = {"local_update": "solution", "bound": "direction", "mechanism": "k_closest"}
        for name, value in needed.items():
            if (given := getattr(settings, name)) != value:
                raise ConfigError(
                    f"one_label = true and {name} = {given}: k_closest makes the report with a "
                    f"label and a direction, from a solution; set {name} = {value}, or leave "
                    "one_label out"
                )
    statistics = computes == "statistics"
    if settings.send == "weights" and computes in ("statistics", "own_head"):
        sends = "statistics are" if statistics else "the change of all but the last layer is"
        raise ConfigError(
            f"send = weights and local_update = {computes}: {sends} sent instead of weights; leave "
            f"send out, or set local_update = {'solution' if statistics else 'sgd'}"
        )
    if mechanism == "none":
        return Unbounded(send=send, chart=chart)
    if mechanism == "codes":
        return InBox(most=settings.clip, send=send, chart=chart)
    shared = mechanism == _SHARE
    within_one = not shared and issubclass(find_mechanism(mechanism), WITHIN_ONE)
    if bound == "range" and computes in ("statistics", "own_head"):
        other = "bound = norm with mechanism = k_closest" if within_one else "bound = norm"
        raise ConfigError(
            f"bound = range, mechanism = {mechanism} and local_update = {computes}: ranges are for "
            + (
                f"weights, not for statistics; set {other}, or local_update = solution"
                if statistics
                else f"whole weights, not for their change; set {other}"
            )
        )
    if bound == "direction" and statistics:
        raise ConfigError(
            "bound = direction and local_update = statistics: statistics need their size as well "
            "as their direction; set bound = norm, or local_update = solution"
        )
    if bound == "layers" and chart is not None:
        raise ConfigError(
            f"bound = layers and local_update = {computes}: layers are clipped only where all "
            "weights are sent; set bound = norm"
        )
    if bound == "range" and shared:
        raise ConfigError(
            f"bound = range and mechanism = {_SHARE}: its noise is for a vector of bounded norm; "
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


def unused(settings: Settings, bound: Bound) -> dict[str, str]:
    """Return the settings that these parts do not use, with reasons."""
    computes, mechanism = settings.local_update, settings.mechanism
    closed, bare = computes in _CLOSED_FORMS, mechanism in _BARE
    steps = ("learning_rate", "local_epochs", "batch_size", "momentum")
    rules: tuple[tuple[bool, tuple[str, ...], str], ...] = (
        (not closed, ("ridge",), f"local_update = {computes} solves no regression"),
        (closed, steps, f"local_update = {computes} takes no steps"),
        (computes == "scaffold", ("momentum",), "control variates correct plain steps"),
        (bare, ("epsilon", "bound", "epsilon_growth"), f"mechanism = {mechanism} draws nothing"),
        (mechanism == _SHARE, ("epsilon_growth",), "the budget is for the whole run"),
        (mechanism == "none", ("clip",), "mechanism = none bounds nothing"),
        (not isinstance(bound, InRange), _OF_RANGES, "nothing is sent in ranges"),
    )
    found = {name: why for applies, names, why in rules if applies for name in names}
    return found | (bound.unused if isinstance(bound, InRange) else {})


@dataclass(frozen=True, kw_only=True)
class InClosedForm(Local):
    """A ridge regression, or a part of one, which gives a linear model.

    Attributes:
        name: the value of ``local_update``.
    """

    name: ClassVar[str]

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

    def __call__(self, algorithm: Algorithm, device: torch.device) -> LocalUpdate:
        """Return the local update, which always computes on the CPU."""
        from fedldp.training.ridge import RidgeSolution

        return RidgeSolution(model=LinearModel.of(algorithm.layout), ridge=self.ridge)


@dataclass(frozen=True, kw_only=True)
class StatisticsOf(InClosedForm):
    """The mean products of features with each other and with labels, over a client's examples."""

    name: ClassVar[str] = "statistics"
    sends: ClassVar[str] = STATISTICS

    def __call__(self, algorithm: Algorithm, device: torch.device) -> LocalUpdate:
        """Return the local update, which always computes on the CPU."""
        from fedldp.training.ridge import OwnStatistics

        return OwnStatistics(statistics=Statistics(LinearModel.of(algorithm.layout)))


CONTROL = "control"
"""The name of the mean of the clients' control variates, which the server keeps and tells."""


@dataclass(frozen=True, kw_only=True)
class Scaffold(Sgd):
    """Steps that are corrected by control variates; see ``training.stateful_sgd.ControlledSgd``."""

    trains_statistics: ClassVar[bool] = False

    def __call__(self, algorithm: Algorithm, device: torch.device) -> LocalUpdate:
        """Return the local update."""
        from fedldp.training.stateful_sgd import ControlledSgd

        return ControlledSgd(algorithm.sgd(device))


@dataclass(frozen=True, kw_only=True)
class Controlled(Around):
    """An estimate that also moves the mean of the control variates.

    Of the share s of the clients that answer, each C_i changes by D_i - C, where D_i is how far its
    weights moved towards smaller loss. So the mean changes by s (D - C), and D is the estimate's.

    Attributes:
        share: s, above 0 and up to 1.
    """

    gives: ClassVar[Send] = "update"

    share: float

    def arrays(self, problem: Problem) -> FirstArrays:
        """Return control variates of 0, which correct nothing; see ``Estimate``."""
        return lambda draw: {CONTROL: np.zeros(self.released.size, np.float32)}

    def told(self, state: State) -> Arrays:
        """Return the control variate that the server tells clients; see ``Estimate``."""
        return {CONTROL: state.arrays[CONTROL]}

    def __call__(self, state: State, reports: Incoming, draw: Draw) -> Estimated:
        """Return the mean change, and the next mean of the control variates; see ``Estimate``."""
        found = self.inner(state, reports, draw)
        change = found.change(self.inner.gives, state.weights)
        control = state.arrays[CONTROL]
        moved = (control - self.share * (change + control)).astype(np.float32)
        return replace(found, values=change, arrays={**found.arrays, CONTROL: moved})


@dataclass(frozen=True, kw_only=True)
class OwnHead(Sgd):
    """SGD whose last layer is each client's own; see ``training.stateful_sgd.OwnHeadSgd``."""

    tested_on: str = "test examples with labels like each client's, by its own model"
    trains_part: ClassVar[bool] = False
    trains_statistics: ClassVar[bool] = False

    @property
    def private_scores(self) -> list[Unprotected]:
        """Scores of models that were trained on the clients' examples and are never sent."""
        return [SCORES(on="common", encoder="last layer")]

    def check(self, algorithm: Algorithm) -> None:
        """Refuse a model that is nothing but a head; see ``Local.check``."""
        if not InBody(layout=algorithm.layout).size:
            raise ConfigError(
                f"local_update = own_head and model = {algorithm.config.model}: it is one layer, "
                "and nothing would be sent; set model = mlp, or local_update = sgd"
            )

    def __call__(self, algorithm: Algorithm, device: torch.device) -> OwnHeadSgd:
        """Return the local update."""
        from fedldp.training.stateful_sgd import OwnHeadSgd

        sgd = algorithm.sgd(device, self.momentum)
        return OwnHeadSgd(sgd, InBody(layout=algorithm.layout).size)

    def tester(self, algorithm: Algorithm, device: torch.device) -> Tester:
        """Return the test of each client's own model."""
        own, prepared = self(algorithm, device), algorithm.prepared()
        return lambda broadcast, client, test: own.score(broadcast, client, prepared(test))


@dataclass(frozen=True, kw_only=True)
class InBody(Chart):
    """The change of all weights but those of the last layer, which does not change."""

    @property
    def size(self) -> int:
        """The number of coordinates."""
        return self.whole.size - self._head

    def apply(self, rows: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return the change of the body's weights; see ``Chart``."""
        return rows[:, : self.size]

    def restore(self, mean: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the change of all weights; see ``Chart``."""
        return np.concatenate([mean, np.zeros(self._head)])

    @property
    def _head(self) -> int:
        names = trained_of(self.whole.names, HEAD)
        return sum(self.whole.sizes[-len(names) :])
