"""Which parts go together: pairs that do not are refused, with both of them and a remedy.

A combination is refused where nothing could be said of it, or where one part would undo what the
other is for; whatever is merely of no use is left to those who measure it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedldp.algorithms.participation import Balanced, Preselected
from fedldp.core.errors import ConfigError
from fedldp.mechanisms import BitMechanism, Mechanism
from fedldp.mechanisms.categories import CategoryMechanism
from fedldp.mechanisms.codes import ClippedCodes
from fedldp.mechanisms.gaussian import Gaussian
from fedldp.mechanisms.gaussian_share import SharedGaussian
from fedldp.mechanisms.none import Plain
from fedldp.mechanisms.piecewise import Piecewise
from fedldp.mechanisms.two_point import TwoPoint

if TYPE_CHECKING:
    from fedldp.algorithms.composition import Composition

WITHIN_ONE: tuple[type[Mechanism], ...] = (TwoPoint, Piecewise, CategoryMechanism)
"""Mechanisms that bound each coordinate to [-1, 1], and no norm."""

SUMMABLE: tuple[type[Mechanism], ...] = (BitMechanism, ClippedCodes, SharedGaussian)
"""Mechanisms whose reports add up to something that a server can read."""


_BITS = "take system = ldp_fl or composed with mechanism = two_point"


def check_pairs(parts: Composition, system: str) -> None:
    """Refuse parts that do not go together.

    Args:
        parts: all of an algorithm.
        system: what the user knows it as.

    Raises:
        ConfigError: two of them do not.
    """
    channel, kind = parts.channel.kind, parts.calibration.kind
    named = f"mechanism = {kind.name}"
    if channel != "central" and parts.downlink is not None:
        raise ConfigError(
            f"channel = {channel} and system = {system}: its noise is drawn once, by a server that "
            "clients trust; set channel = central"
        )
    if channel == "central" and parts.downlink is None:
        raise ConfigError(
            f"channel = central and {named}: with central the server draws the noise, once for the "
            "sum, which system = central_dp does; take that, or set channel = named"
        )
    if channel == "central" and isinstance(parts.participation, Balanced):
        raise ConfigError(
            "channel = central and participation = balanced: what is proven of broadcasts is of a "
            "secret sample, drawn anew in each round; set participation = drawn"
        )
    if channel == "named" and issubclass(kind, SharedGaussian):
        raise ConfigError(
            f"channel = named and {named}: one share of a sum's noise hides little by itself; set "
            "channel = sum"
        )
    if channel == "shuffle" and not issubclass(kind, BitMechanism):
        raise ConfigError(
            f"channel = shuffle and {named}: its reports are not one bit a weight, and cannot "
            f"travel as messages of single weights; {_BITS}, or set channel = named"
        )
    if channel == "sum" and not issubclass(kind, SUMMABLE):
        raise ConfigError(f"channel = sum and {named}: {_no_sum(kind)}, or set channel = named")
    if channel in ("shuffle", "sum") and parts.estimate.needs != "sum":
        what = {
            "sender": "must know whose report it weighs",
            "weight": "weighs reports by the example counts that come with them",
            "reports": "reads reports one by one",
        }[parts.estimate.needs]
        raise ConfigError(
            f"channel = {channel} and {parts.estimate.setting}: the server {what}; set channel = "
            "named"
        )
    if channel in ("shuffle", "sum") and isinstance(parts.participation, Preselected):
        raise ConfigError(
            f"channel = {channel} and participation = preselected: how many take part would vary "
            "with their budgets; set channel = named"
        )


def _no_sum(kind: type[Mechanism]) -> str:
    """Return why reports of a mechanism do not add up, and what to take instead."""
    if issubclass(kind, Plain):
        return "floats do not add up exactly; take system = secure_aggregation"
    if issubclass(kind, Gaussian):
        return (
            "this noise is sized for one client alone, and is not one that sums are exact for; "
            "take system = distributed_gaussian"
        )
    return f"its reports add up to nothing that can be read; {_BITS}"
