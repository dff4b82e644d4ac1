"""Refuse incompatible pairs of parts; each message names both parts and suggests a fix.

A pair is refused if nothing could be proven about it, or if one part would undo the purpose of the
other. A pair that is merely useless is allowed, because measurements show that it is useless.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedldp.algorithms.channel import MaskedSum
from fedldp.algorithms.participation import All, Drawn, Once, cohort_sizes
from fedldp.core.errors import ConfigError
from fedldp.mechanisms import BitMechanism, Mechanism, sends_category
from fedldp.mechanisms.categories import CategoryMechanism
from fedldp.mechanisms.codes import ClippedCodes
from fedldp.mechanisms.gaussian import Gaussian
from fedldp.mechanisms.gaussian_share import SharedGaussian
from fedldp.mechanisms.gaussian_summand import GaussianSummand
from fedldp.mechanisms.integer_gaussian import IntegerGaussian
from fedldp.mechanisms.none import Plain
from fedldp.mechanisms.piecewise import Piecewise
from fedldp.mechanisms.two_point import TwoPoint

if TYPE_CHECKING:
    from fedldp.algorithms.composition import Composition

WITHIN_ONE: tuple[type[Mechanism], ...] = (TwoPoint, Piecewise, CategoryMechanism)
"""Mechanisms that bound each coordinate to [-1, 1], but no norm."""

NOT_PURE: tuple[type[Mechanism], ...] = (
    Plain,
    ClippedCodes,
    Gaussian,
    IntegerGaussian,
    SharedGaussian,
)
"""Mechanisms without a pure epsilon: reports in the clear, or with Gaussian noise."""

SUMMABLE: tuple[type[Mechanism], ...] = (
    BitMechanism,
    ClippedCodes,
    GaussianSummand,
    IntegerGaussian,
    SharedGaussian,
)
"""Mechanisms whose reports add up to a sum that a server can read."""


def check_pairs(parts: Composition, settings: Any) -> None:
    """Refuse incompatible parts.

    Args:
        parts: all parts of an algorithm.
        settings: the settings from which the parts follow; a suggested fix may also change other
            settings.

    Raises:
        ConfigError: two parts are incompatible.
    """
    channel, kind = parts.channel.kind, parts.calibration.kind
    named, whole = f"mechanism = {kind.name}", parts.channel.shuffles_reports
    home = "sum" if issubclass(kind, SharedGaussian) else "named"
    if channel != "central" and parts.downlink is not None:
        raise ConfigError(
            f"channel = {channel} and system = {settings.name()}: this system's noise is drawn "
            "once, by a server that clients trust; set channel = central"
        )
    closed = getattr(settings, "local_update", "sgd")
    if channel == "central" and parts.downlink is None:
        what = named if closed == "sgd" else f"local_update = {closed}"
        raise ConfigError(
            f"channel = central and {what}: the server draws the noise once for the sum, and only "
            "for weights trained with SGD; use system = central_dp, or set channel = "
            f"{home}"
        )
    if channel == "central" and not isinstance(parts.participation, All | Drawn):
        raise ConfigError(
            f"channel = central and participation = {type(parts.participation).__name__.lower()}: "
            "the guarantee for broadcasts is proven only if all clients take part, or a secret "
            "sample that is drawn anew in each round; set participation = all"
        )
    if getattr(settings, "epsilon_growth", 1) != 1 and not isinstance(parts.participation, All):
        raise ConfigError(
            f"epsilon_growth = {settings.epsilon_growth:g} and participation = "
            f"{type(parts.participation).__name__.lower()}: what a client pays would depend on the "
            "rounds that it is asked in; set participation = all and leave clients_per_round out"
        )
    if channel == "sum" and parts.local.keeps:
        raise ConfigError(
            f"channel = sum and local_update = {closed}: a client forgets what it kept of a round "
            "as the next secure sum begins; set channel = named, or local_update = sgd"
        )
    once = isinstance(parts.participation, Once)
    if once and parts.local.drawn_once:
        raise ConfigError(
            f"participation = once and system = {settings.name()}: what a client sends is "
            "randomised once, and answering in more rounds costs nothing; set participation = "
            "all"
        )
    if once and channel == "sum" and cohort_sizes(settings.num_clients, settings.rounds)[0] < 2:
        raise ConfigError(
            f"participation = once and channel = sum: with num_clients = {settings.num_clients} "
            f"and rounds = {settings.rounds} some rounds have only one client, and the sum of one "
            "report hides nothing; set participation = all"
        )
    if channel == "named" and home == "sum":
        raise ConfigError(
            f"channel = named and {named}: one share of a sum's noise hides little by itself; set "
            "channel = sum"
        )
    if channel == "shuffle" and issubclass(kind, CategoryMechanism):
        raise ConfigError(
            f"channel = shuffle and {named}: a report has one category for each weight, and "
            "together these categories make the report recognisable; use mechanism = k_closest, "
            "which sends a single category, or set channel = named"
        )
    carried = sends_category(kind) if whole else issubclass(kind, BitMechanism)
    if channel == "shuffle" and not carried:
        raise ConfigError(
            f"channel = shuffle and {named}: its {kind.unsplit}; set channel = {home}, or use "
            "system = composed with mechanism = two_point (bound = range) or k_closest"
        )
    if channel == "sum" and not issubclass(kind, SUMMABLE):
        raise ConfigError(
            f"channel = sum and {named}: {_no_sum(kind)}; set channel = named, or use system = "
            "composed with mechanism = two_point (bound = range), or mechanism = gaussian_share "
            "(bound = norm)"
        )
    labelled = parts.calibration.label(0) is not None
    if channel == "sum" and labelled:
        raise ConfigError(
            "channel = sum and epsilon is a list: each report would have to carry its own budget, "
            "and such reports cannot be added up; give one epsilon, or set channel = named"
        )
    if labelled and parts.estimate.needs != "sum":
        raise ConfigError(
            f"{parts.estimate.setting} and epsilon is a list: reports that are read one by one "
            "must have the same budget; give one epsilon, or set weighting = uniform"
        )
    drops = isinstance(parts.channel, MaskedSum) and parts.channel.dropout > 0
    if drops and issubclass(kind, SharedGaussian | IntegerGaussian | BitMechanism):
        raise ConfigError(
            f"dropout and {named}: the guarantee for a sum needs all its reports, but reports "
            "from clients that leave are missing; set dropout = 0"
        )
    if channel in ("shuffle", "sum") and parts.estimate.needs != "sum":
        what = {
            "sender": "must know whose report it weights",
            "weight": "weights reports by the example counts that come with them",
            "reports": "reads reports one by one",
        }[parts.estimate.needs]
        raise ConfigError(
            f"channel = {channel} and {parts.estimate.setting}: the server {what}; set channel = "
            "named"
        )
    if channel in ("shuffle", "sum") and parts.participation.told:
        raise ConfigError(
            f"channel = {channel} and a selection by noise: the number of clients in a round would "
            "depend on their budgets; set channel = named"
        )


def gains_by_once(parts: Composition, settings: Any) -> bool:
    """Return whether each client should answer in only one round, with its whole budget.

    One round for each client is better than several if each report by itself satisfies pure DP. Let
    a report's variance be 1/g(epsilon). Dividing the budget among T rounds multiplies the variance
    by g(epsilon)/g(epsilon/T); dividing the clients leaves 1/T of the reports for each round. For
    every budget that gives protection, g grows faster than linearly, and for a small budget
    quadratically, so dividing the budget costs more. With Gaussian noise, both cost the same. In a
    sum, dividing the clients costs more than dividing the budget, because all clients of a round
    share the noise. Behind a shuffler, dividing the clients also costs more, because the fewer
    reports in a round hide each other less.

    Args:
        parts: the parts, with all clients in every round.
        settings: the settings from which the parts follow.
    """
    return (
        isinstance(parts.participation, All)
        and not parts.stages
        and 1 < settings.rounds <= settings.num_clients
        and parts.channel.kind == "named"
        and parts.estimate.needs in ("sum", "reports")
        and not parts.local.drawn_once
        and not issubclass(parts.calibration.kind, NOT_PURE)
    )


def _no_sum(kind: type[Mechanism]) -> str:
    """Return why a mechanism's reports do not add up."""
    if issubclass(kind, Plain):
        return "floats do not add up exactly"
    if issubclass(kind, Gaussian):
        return "this noise is sized for a single client, and sums of such reports are not exact"
    return "no mean can be read from the sum of its reports"
