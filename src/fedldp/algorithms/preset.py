"""Presets: functions from checked, flat settings to a composition of parts.

``@preset`` turns such a function into a configuration class. There are three sorts of settings:
those that every run has; those that the preset offers, in classes of ``Offers``; and those in
``EVERY``, which replace a part in any preset.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

from pydantic import ConfigDict, Field, create_model
from pydantic.fields import FieldInfo

from fedldp.algorithms.channel import Channel, ChannelSettings
from fedldp.algorithms.composition import Composition
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.features import FeatureSettings, chosen_features
from fedldp.algorithms.matrix import check_pairs, gains_by_once
from fedldp.algorithms.participation import All, ParticipationSettings, participation_of
from fedldp.algorithms.settings import Mark, Offers
from fedldp.core.errors import ConfigError
from fedldp.core.registry import PAPERS, note_own
from fedldp.mechanisms import sends_category

_PRESETS = ("fedldp.algorithms.presets.", f"{PAPERS}.")

EVERY = (ChannelSettings, ParticipationSettings, FeatureSettings)
"""The settings that every preset offers."""


class Settings(RunConfig):
    """The settings of a preset, as its function receives them."""

    model_config = ConfigDict(use_attribute_docstrings=False)  # its fields have descriptions

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


def preset(
    *offers: type[Offers],
    version: int = 1,
    calibrated: str = "epsilon",
    inverse: bool = False,
) -> Callable[[Callable[[Any], Composition]], type[Settings]]:
    """Turn a function from settings to parts into the configuration class of a preset.

    The setting ``system`` is the function's name; outside fedldp, it is the function's address.

    Args:
        offers: the preset's own settings; one of those in ``EVERY`` may have another default here.
        version: a number that is raised whenever the same settings give a different result.
        calibrated: the setting that a target is solved for.
        inverse: whether that setting is a noise level.
    """

    def make(compose: Callable[[Any], Composition]) -> type[Settings]:
        function, module = compose.__name__, compose.__module__
        name = function if module.startswith(_PRESETS) else f"{module}:{function}"
        note_own(module)  # in every process that imports it
        own = _fields(offers)
        fields = {**own, **{n: each for n, each in _fields(EVERY).items() if n not in own}}
        given: dict[str, Any] = {"system": (Literal[name], name)}
        given |= {
            each: (field.rebuild_annotation(), Field(field.default, description=field.description))
            for each, field in fields.items()
        }
        found = create_model(
            function,
            __base__=Settings,
            __module__=module,
            __doc__=compose.__doc__,
            **given,
        )
        found.compose = staticmethod(lambda settings: decided(compose, settings))
        found.version, found.calibrated, found.inverse = version, calibrated, inverse
        found.per_client = tuple(n for n, each in own.items() if Mark.PER_CLIENT in each.metadata)
        simulated = {n for n, each in fields.items() if Mark.SIMULATED in each.metadata}
        found.simulation_only = RunConfig.simulation_only | simulated
        return found

    return make


def _fields(offers: Sequence[type[Offers]]) -> dict[str, FieldInfo]:
    """Return the settings that classes offer, by name.

    Raises:
        ConfigError: a name is declared twice, or already means another thing.
    """
    found: dict[str, FieldInfo] = {}
    for name, field in ((name, each) for own in offers for name, each in own.model_fields.items()):
        known = Settings.model_fields.get(name)
        if name in found:
            raise ConfigError(f"setting {name}: this preset offers it twice; leave one out")
        if known is None and hasattr(Settings, name):
            why = "every configuration has something else of this name"
            raise ConfigError(f"setting {name}: {why}; choose another name")
        if known and not _kinds(known.annotation) & _kinds(field.annotation) - {NoneType}:
            why = "every run has this setting, with values of another type"
            raise ConfigError(f"setting {name}: {why}; choose another name")
        found[name] = field
    return found


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
    elif (
        settings.participation is not None
        and not participation.told  # else the setting chose a kind that only this preset has
        and participation != participation_of(settings)
    ):
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
