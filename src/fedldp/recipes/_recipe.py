"""What a recipe is, and a family of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from fedldp.recipes._aliases import ALIASES
from fedldp.systems import SystemConfig


@dataclass(frozen=True, kw_only=True)
class Source:
    """What a recipe reproduces.

    Attributes:
        paper: authors and year.
        place: its table, figure or section: "Table 1", "Fig. 5".
        row: of that table; or a curve, with the panel where there are several: "MNIST, fixed".
        column: of that table; or a point of the curve: "epsilon 5".
        metric: which figure of a round it shows: "accuracy", or one that the system adds.
    """

    paper: str
    place: str
    row: str
    column: str = "accuracy"
    metric: str = "accuracy"


@dataclass(frozen=True, kw_only=True)
class Expected:
    """The paper's number.

    Attributes:
        accuracy: 0 to 1, after the last round.
        tolerance: how far a mean over seeds may be from it, 0 to 1: the paper's rounding, its own
            deviation where it is known, and what it does not state.
    """

    accuracy: float
    tolerance: float


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A configuration with a name.

    Attributes:
        name: the system, the data set and, if that does not say all, a variant: hyphens between.
        config: the configuration.
        summary: part of a sentence; a setting's name in braces stands for its value.
        source: what it reproduces, if anything.
        expected: the number there, if the source gives one.

    >>> from fedldp.recipes import find_recipe
    >>> print(find_recipe("ldp-fl-mnist").description)
    LDP-FL on MNIST: eps 1, 100 clients, fixed range (0, 0.075) (Sun, Qian, Chen 2021: 96.24 %).
    """

    name: str
    config: SystemConfig
    summary: str
    source: Source | None = None
    expected: Expected | None = None

    @property
    def description(self) -> str:
        """The summary with the settings' values and the paper's number: one line."""
        text = self.summary.format(**dict(self.config))
        if self.source is not None and self.expected is not None:
            text += f" ({self.source.paper}: {100 * self.expected.accuracy:.4g} %)"
        return f"{text}."

    @property
    def same_as(self) -> str | None:
        """The name of the recipe whose configuration this one shares; None: it is the first."""
        return ALIASES.get(self.name)


def grid(
    name: str,
    summary: str,
    base: SystemConfig,
    *,
    source: Source | None = None,
    expected: Mapping[tuple[Any, ...], Expected] | None = None,
    **axes: Sequence[Any],
) -> tuple[Recipe, ...]:
    """Return one recipe for each point of a grid over settings.

    Args:
        name: of a recipe, with the axes' settings in braces: "ldp-fl-mnist-fig3-n{num_clients}".
        summary: likewise, with any settings.
        base: what is changed.
        source: of all of them; its row and column may have settings in braces.
        expected: the paper's numbers, by the values of the axes in their order.
        axes: the values of each setting that is changed.
    """
    made = []
    for values in product(*axes.values()):
        config = base.changed(**dict(zip(axes, values, strict=True)))
        settings = dict(config)
        made.append(
            Recipe(
                name=name.format(**settings),
                config=config,
                summary=summary,
                source=source
                and Source(
                    paper=source.paper,
                    place=source.place,
                    row=source.row.format(**settings),
                    column=source.column.format(**settings),
                    metric=source.metric,
                ),
                expected=(expected or {}).get(values),
            )
        )
    return tuple(made)


def shared_settings(config: SystemConfig) -> dict[str, Any]:
    """Return the settings that every system has: what a twin in another system takes over."""
    return config.model_dump(include=set(SystemConfig.model_fields) - {"system"})
