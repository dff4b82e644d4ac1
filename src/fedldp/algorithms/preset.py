"""Presets: functions from checked, flat settings to a composition of parts.

``@preset`` makes a configuration class of such a function: its settings are those of every run and
those that the preset offers, each declared once, beside the part that it is for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from pydantic import create_model

from fedldp.algorithms.composition import Composition
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.settings import Offer

_PRESETS = "fedldp.algorithms.presets."


class Settings(RunConfig):
    """The settings of a preset, as its function has them."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


def preset(
    *offers: Offer,
    semantics: int = 1,
    solved: str = "epsilon",
    inverse: bool = False,
    needs_extra: str | None = None,
) -> Callable[[Callable[[Any], Composition]], type[Settings]]:
    """Turn a function from settings to parts into the configuration class of a preset.

    The setting ``system`` has the function's name as its value; outside of fedldp, its address.

    Args:
        offers: the settings of its own, in their order.
        semantics: rises whenever the same settings give another result.
        solved: the setting that a target is solved for.
        inverse: whether that one is a noise.
        needs_extra: the extra of fedldp without which its clients cannot train.
    """

    def make(compose: Callable[[Any], Composition]) -> type[Settings]:
        function, module = compose.__name__, compose.__module__
        name = function if module.startswith(_PRESETS) else f"{module}:{function}"
        fields: dict[str, Any] = {"system": (Literal[name], name)}
        fields |= {offer.name: offer.field for offer in offers}
        found = create_model(
            function,
            __base__=Settings,
            __module__=module,
            __doc__=compose.__doc__,
            **fields,
        )
        found.compose = staticmethod(compose)
        found.semantics, found.solved, found.inverse = semantics, solved, inverse
        found.needs_extra = needs_extra
        found.per_client = tuple(offer.name for offer in offers if offer.per_client)
        found.simulation_only = RunConfig.simulation_only | {o.name for o in offers if o.simulated}
        return found

    return make
