"""Composed: an algorithm of whatever parts its settings name.

    Broadcast: weights W, and ranges where `bound = range`
        |
        v
    local_update  local SGD from W; a ridge regression in closed form; or the statistics of one
        |         Sensitive weights w, or statistics
        v
    encoder       w or w - W (send) in the chart of `bound`; `mechanism` with the budget `epsilon`
        |
        v
    channel       named, shuffle, sum
        |
        v
    server_step   mean -> of statistics, the ridge regression
                       -> step of `server_optimizer` -> weights of the next Broadcast

It is nobody's paper: it claims nothing but what its mechanism proves. Published systems fix these
settings, and say so by their own names.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fedldp.algorithms.bounds import (
    RANGES,
    Bound,
    Chart,
    InBox,
    InContrasts,
    InLabels,
    InNorm,
    InRange,
    OfStatistics,
    Rotated,
    Send,
    Unbounded,
)
from fedldp.algorithms.calibration import Calibration, Fixed
from fedldp.algorithms.composition import (
    Composition,
    EstimateOf,
    Local,
    OwnMean,
    Sgd,
    WeightedMean,
)
from fedldp.algorithms.matrix import WITHIN_ONE
from fedldp.algorithms.participation import PARTICIPATION, All, Participation, participation_of
from fedldp.algorithms.per_client import ClientValue, check_one_each, is_own
from fedldp.algorithms.per_report import INTEGER_BITS, MECHANISM, PerReport
from fedldp.algorithms.preset import Settings, preset
from fedldp.algorithms.settings import (
    CLIP,
    MOMENTUM,
    WEIGHTING,
    Count,
    LearningRate,
    Offer,
    Positive,
)
from fedldp.algorithms.shares_per_run import SharesPerRun
from fedldp.algorithms.solution import (
    LOCAL_UPDATE,
    RIDGE,
    OwnSolution,
    StatisticsOf,
    sends_statistics,
)
from fedldp.core.bounding import Box
from fedldp.core.errors import ConfigError
from fedldp.core.frozen_config import LEFT_OUT
from fedldp.mechanisms import Mechanism, find_mechanism
from fedldp.mechanisms.codes import ClippedCodes
from fedldp.mechanisms.gaussian_share import SharedGaussian
from fedldp.mechanisms.none import Plain


@preset(
    LOCAL_UPDATE,
    RIDGE,
    Offer(
        "one_label",
        Annotated[bool, LEFT_OUT],
        "for clients whose examples have one label each: the report names a label and a direction "
        "of its weights, as one index (local_update = solution, bound = direction, mechanism = "
        "k_closest)",
        False,
    ),
    Offer(
        "learning_rate", LearningRate | None, "SGD step size; local_update = sgd needs one", None
    ),
    Offer(
        "bound",
        Literal["range", "norm", "direction"],
        "chart of what is randomised: within the ranges of each layer; as it is, where the "
        "mechanism bounds a norm by clip; or the direction alone, with the norm clip",
        "range",
    ),
    MECHANISM.but(
        meaning='the local randomiser, from `fedldp list mechanisms`, or "module:Class"; '
        "gaussian_share, of the noise of a sum; none; or codes, the fixed-point numbers of a sum, "
        "which hide nothing by themselves",
        default="two_point",
    ),
    Offer(
        "epsilon",
        Positive | list[Positive] | ClientValue | None,
        "budget of one weight (two_point, sign, k_rr, unary, cldp), of all that a client sends in "
        "a run, against a server that sees sums only (gaussian_share), or of a client's report in "
        "one round (the other mechanisms); a list gives each client its own",
        None,
        per_client=True,
    ),
    CLIP.but(
        type=Positive,
        meaning="norm bound of mechanisms of whole vectors, in the chart; of codes that on the "
        "magnitude of one weight",
        default=1.0,
    ),
    Offer(
        "send",
        Literal["weights", "update"],
        "send weights, or their change from the broadcast",
        "update",
    ),
    *RANGES,
    INTEGER_BITS,
    Offer(
        "code_bits",
        Count,
        "bits of a weight's fixed-point code, or of a sum of gaussian_share",
        24,
    ),
    WEIGHTING,
    MOMENTUM,
    Offer(
        "average",
        Annotated[Annotated[float, Field(ge=0, le=1)] | None, LEFT_OUT],
        "share of the last rounds whose weights are averaged for the test and the model; 0: the "
        "last weights alone. Where it is not set, a half if the mechanism draws noise, else 0",
        None,
    ),
    semantics=2,
    instead=(
        PARTICIPATION.but(
            type=Literal["all", "drawn", "once", "balanced", "auto"],
            meaning="who answers when: all clients; clients_per_round of them, drawn for each "
            "round, or in turns (balanced); each client in one round only (once); auto: once where "
            "each report reaches the server, and by itself is pure private, so that more rounds "
            "cost more, else as clients_per_round says",
            default="auto",
        ),
    ),
)
def composed(settings: Settings) -> Composition:
    """An algorithm of any parts that go together."""
    check_one_each("epsilon", settings.epsilon, settings.num_clients)
    statistics = settings.local_update == "statistics"
    bound = bound_of(settings)
    estimate: EstimateOf = OwnMean()
    if settings.weighting == "examples" or settings.mechanism == "none":
        estimate = WeightedMean(by_examples=settings.weighting == "examples")
    participation: Participation = All()
    calibration: Calibration
    if settings.mechanism in _BARE:
        calibration = Fixed(every=bare(settings))
    elif settings.mechanism == _SHARE:
        # A budget of a run: who is drawn anew in each round would pay for all of them.
        participation = participation_of(settings, default="balanced")
        calibration = shares(settings, bound, participation)
    else:
        calibration = PerReport(settings=settings, bound=bound)
        if settings.weighting != "examples":
            estimate = OwnMean(scale=calibration.scale)
    return Composition(
        local=local_of(settings),
        bound=bound,
        shaped=sends_statistics if statistics else None,
        calibration=calibration,
        estimate=estimate,
        participation=participation,
        averaged=0.0 if settings.mechanism in _BARE else 0.5,
        unused=unused(settings, bound),
        uses=frozenset({"untrusted_clients"} if settings.mechanism == _SHARE else ()),
    )


_BARE = ("none", "codes")
"""What may stand in the mechanism's place, and randomises nothing."""

_SHARE = SharedGaussian.name


def local_of(settings: Settings) -> Local:
    """Return what a client computes.

    Raises:
        ConfigError: SGD has no step size.
    """
    if settings.local_update == "solution":
        return OwnSolution(ridge=settings.ridge)
    if settings.local_update == "statistics":
        return StatisticsOf()
    if settings.learning_rate is None:
        raise ConfigError("learning_rate is not set, and local_update = sgd needs it: add one")
    return Sgd(momentum=settings.momentum)


def bound_of(settings: Settings) -> Bound:
    """Return the chart in which the mechanism works.

    Raises:
        ConfigError: it is not one for the mechanism, or for what is sent.
    """
    send, chart = sent(settings)
    if settings.one_label:
        needed = {"local_update": "solution", "bound": "direction", "mechanism": "k_closest"}
        for name, value in needed.items():
            if (given := getattr(settings, name)) != value:
                raise ConfigError(
                    f"one_label = true and {name} = {given}: a label and a direction are the "
                    f"solution of k_closest; set {name} = {value}, or leave one_label out"
                )
    if settings.send == "weights" and settings.local_update == "statistics":
        raise ConfigError(
            "send = weights and local_update = statistics: statistics are sent in place of "
            "weights; leave send out, or set local_update = solution"
        )
    if settings.mechanism == "none":
        return Unbounded(send=send, chart=chart)
    if settings.mechanism == "codes":
        return InBox(box=Box(settings.clip), send=send, chart=chart)
    within_one = settings.mechanism != _SHARE and issubclass(
        find_mechanism(settings.mechanism), WITHIN_ONE
    )
    if settings.bound == "range" and settings.local_update == "statistics":
        other = " with mechanism = k_closest" if within_one else ""
        raise ConfigError(
            f"bound = range, mechanism = {settings.mechanism} and local_update = statistics: "
            f"ranges are those of weights; set bound = norm{other}, or local_update = solution"
        )
    if settings.bound == "direction" and settings.local_update == "statistics":
        raise ConfigError(
            "bound = direction and local_update = statistics: their size tells as much as their "
            "direction; set bound = norm, or local_update = solution"
        )
    whole = settings.bound == "direction"
    if settings.mechanism == _SHARE:
        if settings.bound == "range":
            raise ConfigError(
                f"bound = range and mechanism = {_SHARE}: its noise is for a vector of bounded "
                "norm; set bound = norm"
            )
        return Rotated(clip=settings.clip, send=send, chart=chart, direction=whole)
    if settings.bound == "range":
        return InRange.of(settings)
    if within_one:
        raise ConfigError(
            f"bound = {settings.bound} and mechanism = {settings.mechanism}: it randomises each "
            "coordinate within -1 and 1, whatever clip is; set bound = range"
        )
    return InNorm(clip=settings.clip, send=send, chart=chart, direction=whole)


def sent(settings: Settings) -> tuple[Send, Chart | None]:
    """Return what clients send, and in which coordinates where these are not the weights."""
    match settings.local_update:
        case "solution":
            return settings.send, InLabels() if settings.one_label else InContrasts()
        case "statistics":
            return "weights", OfStatistics(ridge=settings.ridge)
        case _:
            return settings.send, None


def shares(settings: Settings, bound: Bound, participation: Participation) -> SharesPerRun:
    """Return shares of noise for a budget of a run.

    Raises:
        ConfigError: there is no budget, or one for each client.
    """
    if settings.epsilon is None:
        raise ConfigError(
            f"epsilon is not set: mechanism = {_SHARE} needs a budget; give one, or set "
            "mechanism = codes"
        )
    if is_own(settings.epsilon):
        raise ConfigError(
            f"epsilon is a list, and {_SHARE} takes one budget for all clients: give one number"
        )
    if not 1e-4 <= settings.epsilon <= 1e4:
        raise ConfigError(
            f"epsilon = {settings.epsilon:g}: {_SHARE} takes budgets of a run from 0.0001 to 10000"
        )
    assert isinstance(bound, Rotated)
    return SharesPerRun(
        settings=settings, bound=bound, participation=participation, bits=settings.code_bits
    )


def bare(settings: Settings) -> Mechanism:
    """Return what stands in the mechanism's place, and protects nothing."""
    what = "statistics" if settings.local_update == "statistics" else "weights"
    if settings.mechanism == "none":
        return Plain(what)
    return ClippedCodes(clip=settings.clip, bits=settings.code_bits, what=what)


def unused(settings: Settings, bound: Bound) -> dict[str, str]:
    """Return the settings that these parts do not use, and why."""
    found = {}
    if settings.local_update == "sgd":
        found["ridge"] = "local_update = sgd solves no regression"
    else:
        found |= dict.fromkeys(
            ("learning_rate", "local_epochs", "batch_size", "momentum"),
            f"local_update = {settings.local_update} takes no steps",
        )
    if settings.mechanism not in ("codes", _SHARE):
        found["code_bits"] = f"mechanism = {settings.mechanism} has no codes"
    if settings.mechanism == _SHARE:
        found["integer_bits"] = f"mechanism = {_SHARE} compares no integers"
    if settings.mechanism in _BARE:
        found |= dict.fromkeys(
            ("epsilon", "integer_bits", "bound"), f"mechanism = {settings.mechanism} draws nothing"
        )
    if settings.mechanism == "none":
        found["clip"] = "mechanism = none bounds nothing"
    if isinstance(bound, InRange):
        return found | bound.unused
    without = ("ranges", "range_floor", "range_margin")  # a fixed range is one to go back to
    return found | dict.fromkeys(without, "nothing is sent in ranges")
