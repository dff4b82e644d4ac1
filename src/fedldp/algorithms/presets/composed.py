"""Composed: an algorithm of whatever parts its settings name.

    Broadcast: weights W, and ranges where `bound = range`
        |
        v
    local_update  local SGD from W
        |         Sensitive weights w
        v
    encoder       w or w - W (send) in the chart of `bound`; `mechanism` with the budget `epsilon`
        |
        v
    channel       named, shuffle, sum
        |
        v
    server_step   mean -> step of `server_optimizer` -> weights of the next Broadcast

It is nobody's paper: it claims nothing but what its mechanism proves. Published systems fix these
settings, and say so by their own names.
"""

from __future__ import annotations

from typing import Literal

from fedldp.algorithms.bounds import RANGES, Bound, InBox, InNorm, InRange, Unbounded
from fedldp.algorithms.calibration import Calibration, Fixed
from fedldp.algorithms.composition import (
    Composition,
    EstimateOf,
    OwnMean,
    Sgd,
    WeightedMean,
)
from fedldp.algorithms.matrix import WITHIN_ONE
from fedldp.algorithms.per_client import ClientValue, check_one_each
from fedldp.algorithms.per_report import INTEGER_BITS, MECHANISM, PerReport
from fedldp.algorithms.preset import Settings, preset
from fedldp.algorithms.settings import CLIP, MOMENTUM, WEIGHTING, Count, Offer, Positive
from fedldp.core.bounding import Box
from fedldp.core.errors import ConfigError
from fedldp.mechanisms import Mechanism, find_mechanism
from fedldp.mechanisms.codes import ClippedCodes
from fedldp.mechanisms.none import Plain


@preset(
    Offer(
        "bound",
        Literal["range", "norm"],
        "chart of what is randomised: within the ranges of each layer, or as it is, where the "
        "mechanism bounds a norm by clip",
        "range",
    ),
    MECHANISM.but(
        meaning='the local randomiser, from `fedldp list mechanisms`, or "module:Class"; none; or '
        "codes, the fixed-point numbers of a sum, which hide nothing by themselves",
        default="two_point",
    ),
    Offer(
        "epsilon",
        Positive | list[Positive] | ClientValue | None,
        "budget of one weight (two_point, sign, k_rr, unary, cldp) or of a client's report in one "
        "round (the other mechanisms); a list gives each client its own",
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
    Offer("code_bits", Count, "bits of a weight's fixed-point code", 24),
    WEIGHTING,
    MOMENTUM,
)
def composed(settings: Settings) -> Composition:
    """An algorithm of any parts that go together."""
    check_one_each("epsilon", settings.epsilon, settings.num_clients)
    randomises = settings.mechanism not in _BARE
    by_examples = settings.weighting == "examples"
    bound = bound_of(settings)
    estimate: EstimateOf = OwnMean()
    if by_examples or settings.mechanism == "none":
        estimate = WeightedMean(by_examples=by_examples)
    calibration: Calibration
    if randomises:
        calibration = PerReport(settings=settings)
        if not by_examples:
            estimate = OwnMean(scale=calibration.scale)
    else:
        calibration = Fixed(every=bare(settings))
    return Composition(
        local=Sgd(momentum=settings.momentum),
        bound=bound,
        calibration=calibration,
        estimate=estimate,
        unused=unused(settings, bound),
    )


_BARE = ("none", "codes")
"""What may stand in the mechanism's place, and randomises nothing."""


def bound_of(settings: Settings) -> Bound:
    """Return the chart in which the mechanism works.

    Raises:
        ConfigError: it is not one for the mechanism.
    """
    if settings.mechanism == "none":
        return Unbounded(send=settings.send)
    if settings.mechanism == "codes":
        return InBox(box=Box(settings.clip), send=settings.send)
    if settings.bound == "range":
        return InRange.of(settings)
    if issubclass(find_mechanism(settings.mechanism), WITHIN_ONE):
        raise ConfigError(
            f"bound = norm and mechanism = {settings.mechanism}: it randomises each coordinate "
            "within -1 and 1, whatever clip is; set bound = range"
        )
    return InNorm(clip=settings.clip, send=settings.send)


def bare(settings: Settings) -> Mechanism:
    """Return what stands in the mechanism's place, and protects nothing."""
    if settings.mechanism == "none":
        return Plain()
    return ClippedCodes(clip=settings.clip, bits=settings.code_bits)


def unused(settings: Settings, bound: Bound) -> dict[str, str]:
    """Return the settings that these parts do not use, and why."""
    found = {}
    if settings.mechanism != "codes":
        found["code_bits"] = f"mechanism = {settings.mechanism} has no codes"
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
