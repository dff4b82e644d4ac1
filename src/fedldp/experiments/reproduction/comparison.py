"""A target's cells: the paper's number, our number, and a verdict on the difference."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from fedldp.accounting.proven import Proven
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.recipes import Expected, Recipe
from fedldp.core.errors import FedldpError
from fedldp.core.registry import paper_folders
from fedldp.experiments.reproduction.results import Measurement, Measurements, published_of
from fedldp.experiments.reproduction.targets import PaperTarget, first_names, source_of
from fedldp.reporting import words
from fedldp.simulation.plan import problem_of, stated_without_shuffler

Verdict = Literal[
    "agrees", "explained", "differs", "not comparable", "not measured", "no number published"
]

WORTH_A_REASON = 0.01
"""A committed cell that differs by more than this fraction needs a reason, whatever its
tolerance."""


@dataclass(frozen=True)
class Reason:
    """Why our number differs from a paper's, in words; their beginning decides the verdict.

    - "not known": the verdict is "differs"; the text gives a possible cause, and the command that
      would test it.
    - "our": "not comparable"; the text says where we deviate from the paper, or chose what it does
      not state, in a way that no run has excluded as the cause.
    - anything else is a cause that a run or a proof shows: "explained".
    """

    text: str

    @property
    def verdict(self) -> Verdict:
        """What a number is called that differs for this reason."""
        if self.text.startswith("not known"):
            return "differs"
        return "not comparable" if self.text.startswith("our ") else "explained"


@dataclass(frozen=True, kw_only=True)
class Row:
    """A cell with its comparison.

    Attributes:
        row: the row of the table, or the name of a curve.
        column: the column of the table, or a point of the curve.
        recipe: the recipe's name.
        expected: the paper's number; None if the paper gives none.
        ours: the measurement, or None.
        verdict: the result of the comparison.
        why: the cause of a difference of more than a point, or a note that the cause is not known;
            None if nothing is noted, which ``fedldp reproduce --check`` refuses if ours differs.
        proven: the epsilon proven for a client's whole run against the server; None if none is
            proven.
        same_run: the recipe whose runs these are; None if they are of no earlier recipe.
    """

    row: str
    column: str
    recipe: str
    expected: Expected | None
    ours: Measurement | None
    verdict: Verdict
    why: str | None = None
    proven: Proven | None = None
    same_run: str | None = None

    @property
    def difference(self) -> float | None:
        """Our number less the paper's; 0 if ours is within the paper's range."""
        return self.expected.difference(self.ours.mean) if self.ours and self.expected else None

    def as_json(self) -> dict[str, Any]:
        """Return a cell in the form that ``fedldp reproduce --json`` prints."""
        paper, ours, proven = self.expected, self.ours, self.proven
        as_measured = ("mean", "deviation", "device", "hardware", "date")
        return {
            "row": self.row,
            "column": self.column,
            "recipe": self.recipe,
            "same_run": self.same_run,
            "paper": paper and paper.accuracy,
            "paper_lowest": paper and paper.lowest,
            "tolerance": paper and paper.tolerance,
            **{name: ours and getattr(ours, name) for name in as_measured},
            "seeds": ours.seeds if ours else [],
            "difference": self.difference,
            "verdict": self.verdict,
            "why": self.why,
            "epsilon": proven and proven.epsilon,
            "delta": proven and proven.delta,
            "idealised": proven is not None and proven.is_idealised,
            "conditions": words.facts(proven.conditions) if proven else [],
            "published": ours is not None and ours.published,
            "stand_in": ours is not None and ours.stand_in,
            "after": {str(k): v for k, v in ours.after.items()} if ours else {},
        }


def compare(target: PaperTarget, measurements: Measurements, *, prove: bool = True) -> list[Row]:
    """Return a target's rows with everything known about them, without running anything.

    Args:
        target: the table or figure.
        measurements: what is measured.
        prove: whether to compute the proven epsilons, which takes longer than everything else.
    """
    reasons, rows = known(), []
    for recipe in target.cells:
        ours, committed = measurements.of(recipe), published_of(recipe)
        row = _row(recipe, ours, reasons.get(recipe.name), committed)
        found = proven(recipe.config, measurements.root) if prove else None
        first = first_names().get(recipe.name, recipe.name)
        rows.append(replace(row, proven=found, same_run=None if first == recipe.name else first))
    return rows


def proven(config: RunConfig, root: Path) -> Proven | None:
    """Return the epsilon proven for a client's whole run against the server; None if none is."""
    try:
        statement = stated_without_shuffler(config, problem_of(config, root))
    except FedldpError:  # such as a missing file of the user's own
        return None
    found = Proven.of(statement, "client-run", "server")
    return None if found.epsilon is None else found


def _row(
    recipe: Recipe,
    ours: Measurement | None,
    why: Reason | None,
    committed: Measurement | None,
) -> Row:
    """Return a row with its verdict on our number, and why it differs.

    A reason explains the committed number and numbers near it, but not every later result.
    """
    row = Row(
        row=source_of(recipe).row,
        column=source_of(recipe).column,
        recipe=recipe.name,
        expected=recipe.expected,
        ours=ours,
        verdict="no number published" if ours else "not measured",
    )
    if ours is None or row.expected is None or row.difference is None:
        return row
    tolerance = row.expected.tolerance
    near = committed is None or abs(ours.mean - committed.mean) <= tolerance
    if abs(row.difference) <= tolerance:
        told = why.text if why is not None and abs(row.difference) > WORTH_A_REASON else None
        return replace(row, verdict="agrees", why=told)
    if why is None or not near:
        return replace(row, verdict="differs")
    return replace(row, verdict=why.verdict, why=why.text)


def known() -> dict[str, Reason]:
    """Return why our numbers differ from papers' numbers, by recipe.

    A paper's folder has the reasons in ``known.toml``. Every committed cell that differs by more
    than a point from the paper's number has one. A cell outside its tolerance that has none makes
    ``fedldp reproduce --check`` fail.
    """
    documents = (
        tomllib.loads(Path(file).read_text(encoding="utf-8"))
        for file in paper_folders("known.toml")
    )
    return {
        name: Reason(each["why"])
        for document in documents
        for each in document["known"]
        for name in each["of"]
    }
