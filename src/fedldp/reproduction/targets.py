"""The papers' tables and figures as targets: their cells are recipes, or gains between recipes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from fedldp.algorithms.recipes import Expected, Recipe, Source, recipes
from fedldp.core.errors import ConfigError

_SHORT = {
    "Sun, Qian, Chen 2021": "ldp-fl",
    "Chamikara et al. 2022": "ldpfl",
    "Talaei, Izadi 2024": "priority",
    "Wu, Xu, Zhu 2023": "personalized",
}
"""The prefix of each paper's targets."""


@dataclass(frozen=True, kw_only=True)
class Gain:
    """A derived cell: how much better some recipes are than others, paired by seed.

    Attributes:
        row: the row, as in ``Source``.
        column: the column, as in ``Source``.
        pairs: pairs of recipe names; the gain is the mean, over the pairs, of the first recipe's
            result minus the second's.
        expected: the paper's number, 0 to 1, if the paper gives one.
    """

    row: str
    column: str
    pairs: tuple[tuple[str, str], ...]
    expected: Expected | None = None


@dataclass(frozen=True, kw_only=True)
class PaperTarget:
    """A table, a figure or a section of a paper.

    Attributes:
        name: the target's name, such as "ldp-fl-table1".
        paper: authors and year.
        place: where it is in the paper, such as "Table 1".
        cells: recipes, each with its source.
        gains: derived cells.
    """

    name: str
    paper: str
    place: str
    cells: tuple[Recipe, ...]
    gains: tuple[Gain, ...] = ()


def targets_of(found: Iterable[Recipe]) -> dict[str, PaperTarget]:
    """Return the targets to which the cells of some recipes belong, by name."""
    cells: dict[tuple[str, str], dict[tuple[str, str], Recipe]] = {}
    for recipe in found:
        source = recipe.source
        if source is not None:
            rows = cells.setdefault((source.paper, source.place), {})
            rows.setdefault((source.row, source.column), recipe)  # keep the first recipe of a cell
    made = {}
    for (paper, place), members in cells.items():
        name = _name(paper, place)
        made[name] = PaperTarget(
            name=name,
            paper=paper,
            place=place,
            cells=tuple(members.values()),
            gains=_gains(paper, place, {recipe.name for recipe in members.values()}),
        )
    return dict(sorted(made.items(), key=lambda item: _order(item[1])))


def targets() -> dict[str, PaperTarget]:
    """Return every target by name."""
    return targets_of(recipes().values())


def find_target(name: str, found: dict[str, PaperTarget] | None = None) -> PaperTarget:
    """Return the target called ``name``.

    Raises:
        ConfigError: there is no such target.
    """
    known = targets() if found is None else found
    if name not in known:
        raise ConfigError(
            f"target {name}: there is no target of that name; choose {', '.join(known)}"
        )
    return known[name]


def source_of(recipe: Recipe) -> Source:
    """Return a cell's source; the cell must have one."""
    assert recipe.source is not None
    return recipe.source


def _name(paper: str, place: str) -> str:
    start = _SHORT.get(paper) or re.sub(r"\W+", "-", paper.lower())
    words = place.lower().replace("section", "text").replace(", ", "-")
    return f"{start}-{re.sub(r'[^-a-z0-9]', '', words)}"


def _order(target: PaperTarget) -> tuple[int, str, int]:
    papers = list(_SHORT)
    paper = papers.index(target.paper) if target.paper in papers else len(papers)
    number = re.search(r"\d+", target.place)
    return paper, target.place.partition(" ")[0], int(number[0]) if number else 0


_SELECTION: dict[str, tuple[tuple[str, ...], dict[str, float | None]]] = {
    "mnist-fig2": (("llh", "lmh", "lhh"), {"b": 5.57, "c": 11.28}),
    "digits-fig2": (("llh", "lmh", "lhh"), {"b": 5.57, "c": 11.28}),
    "fmnist-fig3": (("llh", "lmh", "lhh"), {"b": 3.04, "c": 3.93}),
    "covertype-fig4": (("lmh", "lh"), {"b": 4.07, "c": 10.90}),
    "mnist-fig5": (("lmh", "lh"), {"b": None, "c": 6.97}),
    "fmnist-fig6": (("lmh", "lh"), {"b": None, "c": 19.85}),
    "covertype-fig7": (("lmh", "lh"), {"b": None, "c": None}),
}
"""For each figure of Wu, Xu, Zhu: its mixes, and the mean gains of (B) and (C) over (A), in points.

For Fig. 7 the paper says, without a number, that neither has a gain."""

_LOSSES = {
    "mnist": ("MNIST", 0.97),
    "fmnist": ("Fashion-MNIST", 1.32),
    "cifar10": ("CIFAR-10", 1.09),
}
"""Sun, Qian, Chen's losses against FedAvg, in points (Section 1)."""

_LARGEST_TOLERANCE = 0.03
"""The largest tolerance of a gain, 0 to 1."""


def _expected_gain(points: float) -> Expected:
    """Return a gain with a tolerance of at most half the gain, so that a zero gain never passes."""
    gain = points / 100
    return Expected(accuracy=gain, tolerance=min(_LARGEST_TOLERANCE, abs(gain) / 2))


def _gains(paper: str, place: str, names: set[str]) -> tuple[Gain, ...]:
    every = [
        Gain(
            row=f"mean gain of ({letter.upper()}) over (A)",
            column="points",
            pairs=tuple(
                (f"personalized-{figure}-{mix}-{letter}", f"personalized-{figure}-{mix}-a")
                for mix in mixes
            ),
            expected=None if points is None else _expected_gain(points),
        )
        for figure, (mixes, numbers) in _SELECTION.items()
        for letter, points in numbers.items()
    ]
    every += [
        Gain(
            row=f"{title}, LDP-FL against FedAvg",
            column="points",
            pairs=((f"ldp-fl-{dataset}", f"fedavg-{dataset}"),),
            expected=_expected_gain(-points),
        )
        for dataset, (title, points) in _LOSSES.items()
    ]
    return tuple(gain for gain in every if {name for pair in gain.pairs for name in pair} <= names)
