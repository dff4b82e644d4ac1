"""The papers' tables and figures as targets: their cells are recipes.

A paper whose tables are targets has in its folder ``targets.toml``:

    paper              authors and year, as in its recipes
    name               what the names of its targets begin with
    order              its place among the papers
    page, title        its page in the documentation, and what it is called there
    [about.TARGET]     a target's ``title`` and ``text``, in Markdown, on the target's page
    [notes]            sentences of several texts, which name them in braces
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from fedldp.algorithms.recipes import Recipe, Source, recipes
from fedldp.core.errors import ConfigError
from fedldp.core.registry import paper_folders


@dataclass(frozen=True, kw_only=True)
class PaperTarget:
    """A table, a figure or a section of a paper.

    Attributes:
        name: the paper's name and the place, joined by a hyphen.
        paper: authors and year.
        place: where it is in the paper, such as "Table 1".
        cells: recipes, each with its source.
        title: what the documentation calls it; its place, if nothing else is declared.
        text: what a reader of its table must know, in Markdown.
    """

    name: str
    paper: str
    place: str
    cells: tuple[Recipe, ...]
    title: str = ""
    text: str = ""


class About(BaseModel):
    """What the page of a target says beside its table; see ``PaperTarget``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    text: str


class Paper(BaseModel):
    """A paper whose tables and figures are targets.

    Attributes:
        folder: its folder.
        paper: authors and year.
        name: what the names of its targets begin with.
        order: its place among the papers.
        page: its page in the documentation.
        title: what the documentation calls it.
        notes: sentences of several texts, by the names that stand for them in braces.
        about: what the pages of its targets say, by the target's name.
        gain: the gains in any of its tables.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: Path
    paper: str
    name: str
    order: int
    page: str = ""
    title: str = ""
    notes: dict[str, str] = {}
    about: dict[str, About] = {}

    def text_of(self, target: str) -> str:
        """Return the text of a target's page, with the sentences of ``notes`` in their places."""
        text = self.about[target].text if target in self.about else ""
        for name, note in self.notes.items():
            text = text.replace(f"{{{name}}}", note.strip())
        return text.strip()


def papers_with_targets() -> dict[str, Paper]:
    """Return the papers whose tables and figures are targets, by authors and year."""
    files = map(Path, paper_folders("targets.toml"))
    found = [
        Paper(folder=file.parent, **tomllib.loads(file.read_text(encoding="utf-8")))
        for file in files
    ]
    return {paper.paper: paper for paper in found}


def targets() -> dict[str, PaperTarget]:
    """Return every target by name: the tables and figures to which recipes with a source belong."""
    papers = papers_with_targets()
    cells: dict[tuple[str, str], dict[tuple[str, str], Recipe]] = {}
    for recipe in recipes().values():
        source = recipe.source
        if source is not None:
            rows = cells.setdefault((source.paper, source.place), {})
            rows.setdefault((source.row, source.column), recipe)  # keep the first recipe of a cell
    made = []
    for (paper, place), members in cells.items():
        name, about = _name(papers[paper].name, place), papers[paper].about
        made.append(
            PaperTarget(
                name=name,
                paper=paper,
                place=place,
                cells=tuple(members.values()),
                title=about[name].title if name in about else place,
                text=papers[paper].text_of(name),
            )
        )

    def order(target: PaperTarget) -> tuple[int, str, int]:
        number = re.search(r"\d+", target.place)
        kind = target.place.partition(" ")[0]
        return papers[target.paper].order, kind, int(number[0]) if number else 0

    return {target.name: target for target in sorted(made, key=order)}


@cache
def first_names() -> Mapping[str, str]:
    """Return, for each recipe with a source, the name of the first that has the same runs.

    Papers show some runs twice, and a setting may say what another recipe has anyway. Second names
    of recipes come last.
    """
    sourced = [recipe for recipe in recipes().values() if recipe.source is not None]
    found: dict[str, str] = {}
    return {
        recipe.name: found.setdefault(json.dumps(recipe.config.identity()), recipe.name)
        for recipe in sorted(sourced, key=lambda recipe: recipe.same_as is not None)
    }


def find_target(name: str, known: Mapping[str, PaperTarget]) -> PaperTarget:
    """Return the target called ``name`` among known targets; of a recipe's name, only its cell.

    Raises:
        ConfigError: there is neither such a target nor such a recipe in one.
    """
    if name in known:
        return known[name]
    for target in known.values():
        for cell in target.cells:
            if cell.name == name:
                return replace(target, cells=(cell,))
    raise ConfigError(
        f"target {name}: there is no target, and no recipe in one, of that name; choose "
        f"{', '.join(known)}"
    )


def source_of(recipe: Recipe) -> Source:
    """Return a cell's source; the cell must have one."""
    assert recipe.source is not None
    return recipe.source


def _name(start: str, place: str) -> str:
    words = place.lower().replace("section", "text").replace(", ", "-")
    return f"{start}-{re.sub(r'[^-a-z0-9]', '', words)}"
