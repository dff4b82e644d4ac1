"""Presets: functions from checked, flat settings to a composition of parts.

``@preset`` turns such a function into a configuration class. There are three sorts of settings:
those that every run has; those that the preset offers, each declared once, next to its part; and
those in ``EVERY``, which replace a part in any preset.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from keyword import iskeyword
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

from pydantic import create_model

from fedldp.algorithms.channel import CHANNEL, SHUFFLER, Channel
from fedldp.algorithms.composition import Composition
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.features import FEATURES, chosen_features
from fedldp.algorithms.matrix import check_pairs, gains_by_once
from fedldp.algorithms.participation import PARTICIPATION, All, participation_of
from fedldp.algorithms.settings import Offer
from fedldp.core.errors import ConfigError
from fedldp.core.registry import PAPERS, note_own
from fedldp.mechanisms import sends_category

_PRESETS = ("fedldp.algorithms.presets.", f"{PAPERS}.")

EVERY = (CHANNEL, *SHUFFLER, PARTICIPATION, FEATURES)
"""The settings that every preset offers."""


class Settings(RunConfig):
    """The settings of a preset, as its function receives them."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


def preset(
    *offers: Offer,
    version: int = 1,
    calibrated: str = "epsilon",
    inverse: bool = False,
    instead: tuple[Offer, ...] = (),
) -> Callable[[Callable[[Any], Composition]], type[Settings]]:
    """Turn a function from settings to parts into the configuration class of a preset.

    The setting ``system`` is the function's name; outside fedldp, it is the function's address.

    Args:
        offers: the preset's own settings, in order.
        version: a number that is raised whenever the same settings give a different result.
        calibrated: the setting that a target is solved for.
        inverse: whether that setting is a noise level.
        instead: settings that every preset offers, with another default for this preset.
    """

    def make(compose: Callable[[Any], Composition]) -> type[Settings]:
        function, module = compose.__name__, compose.__module__
        name = function if module.startswith(_PRESETS) else f"{module}:{function}"
        note_own(module)  # in every process that imports it
        _check_names(offers)
        own = {offer.name for offer in offers}
        other = {offer.name: offer for offer in instead}
        more = [other.get(offer.name, offer) for offer in EVERY if offer.name not in own]
        fields: dict[str, Any] = {"system": (Literal[name], name)}
        fields |= {offer.name: offer.field for offer in (*offers, *more)}
        found = create_model(
            function,
            __base__=Settings,
            __module__=module,
            __doc__=compose.__doc__,
            **fields,
        )
        found.compose = staticmethod(lambda settings: decided(compose, settings))
        found.version, found.calibrated, found.inverse = version, calibrated, inverse
        found.per_client = tuple(offer.name for offer in offers if offer.per_client)
        simulated = {offer.name for offer in (*offers, *more) if offer.simulated}
        found.simulation_only = RunConfig.simulation_only | simulated
        return found

    return make


def _check_names(offers: Sequence[Offer]) -> None:
    """Refuse settings whose names a preset cannot use.

    Raises:
        ConfigError: a name is not a Python name, is declared twice, or already means another thing.
    """
    for number, offer in enumerate(offers):
        name, known = offer.name, Settings.model_fields.get(offer.name)
        if not name.isidentifier() or name.startswith("_") or iskeyword(name):
            why = "this is no name; use letters, digits and underscores, and begin with a letter"
        elif any(name == other.name for other in offers[:number]):
            why = "this preset offers it twice; leave one out"
        elif known is None and hasattr(Settings, name):
            why = "every configuration has something else of this name; choose another name"
        elif known and not _kinds(known.annotation) & _kinds(offer.type) - {NoneType}:
            why = "every run has this setting, with values of another type; choose another name"
        else:
            continue
        raise ConfigError(f"setting {name}: {why}")


def _kinds(annotation: Any) -> set[Any]:
    """Return the plain types that the values of an annotation may have."""
    inside, origin = get_args(annotation), get_origin(annotation)
    if origin is Literal:
        return {type(value) for value in inside}
    parts = inside[:1] if origin is Annotated else inside
    return set().union(*map(_kinds, parts)) if parts else {annotation}


def decided(compose: Callable[[Any], Composition], settings: Settings) -> Composition:
    """Return the parts of a preset for its settings, with an automatic ``participation`` decided.

    Raises:
        ConfigError: as for ``with_chosen``.
    """
    if settings.participation != "auto":
        return with_chosen(compose(settings), settings)
    settings = settings.with_participation(None)
    found = with_chosen(compose(settings), settings)
    if not gains_by_once(found, settings):
        return found
    settings = settings.with_participation("once")
    return with_chosen(compose(settings), settings)


def with_chosen(parts: Composition, settings: Settings) -> Composition:
    """Return the preset's parts, with the replacements that settings in ``EVERY`` name.

    Raises:
        ConfigError: two parts do not go together, or the preset returns something else.
    """
    if not isinstance(parts, Composition):
        raise ConfigError(
            f"system = {settings.name()}: its function returns {type(parts).__name__}; return a "
            "Composition"
        )
    channel = parts.channel
    if settings.channel not in (None, channel.kind):
        category = sends_category(parts.calibration.kind)
        channel = Channel.of(settings, settings.channel, category=category)
    participation = parts.participation
    if isinstance(participation, All):
        participation = participation_of(settings)
    elif settings.participation is not None and participation != participation_of(settings):
        raise ConfigError(
            f"participation = {settings.participation} and system = {settings.name()}: the system "
            "decides who takes part; leave participation out"
        )
    published = channel is parts.channel and settings.participation not in ("balanced", "once")
    found = replace(
        parts,
        channel=channel,
        features=chosen_features(settings, parts.features),
        claim=parts.claim if published else None,
        participation=participation,
    )
    check_pairs(found, settings)
    return found
