"""What an audit concludes: rows with a verdict each, and the whole that they make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

from fedldp.accounting.guarantees import HOUSE

Verdict = Literal["ok", "claim-broken", "bug"]

NEAR = 0.75
"""From this share of the proven figure on a bound is called near."""

_WORST_FIRST: tuple[Verdict, ...] = ("bug", "claim-broken", "ok")


class AnyRow(Protocol):
    """One line of an audit: a dataclass with at least this."""

    @property
    def verdict(self) -> Verdict: ...

    @property
    def stated_by(self) -> str: ...


@dataclass(frozen=True, kw_only=True)
class Audit:
    """All rows of an audit; with probability ``confidence`` at least, all bounds hold together."""

    subject: str
    confidence: float
    seed: int
    rows: tuple[Any, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst of its rows."""
        return worst(self.rows)

    def as_json(self) -> dict[str, Any]:
        """Return what ``fedldp audit --json`` prints."""
        return {
            "subject": self.subject,
            "verdict": self.verdict,
            "confidence": self.confidence,
            "seed": self.seed,
            "rows": [_row_as_json(row) for row in self.rows],
        }


def _row_as_json(row: Any) -> dict[str, Any]:
    """Return a row; a figure that rests on the word of the user's own code is not "proven"."""
    found: dict[str, Any] = asdict(row)
    stated = found["proven"]
    return found | {"proven": stated if row.stated_by == HOUSE else None, "stated": stated}


def title_of(row: Any) -> str:
    """Return what a row is about: a mechanism, or a setting of a system."""
    return row.mechanism if hasattr(row, "mechanism") else f"{row.system}: {row.setting}"


def worst(rows: Sequence[AnyRow]) -> Verdict:
    """Return the worst verdict of some rows."""
    found = {row.verdict for row in rows}
    return next((each for each in _WORST_FIRST if each in found), "ok")


def verdict_of(claimed: float | None, proven: float | None, lower: float) -> Verdict:
    """Return what a bound says of a proven figure and of a claim."""
    if proven is not None and proven < lower:
        return "bug"
    return "claim-broken" if claimed is not None and claimed < lower else "ok"


def note_of(proven: float | None, lower: float, stated_by: str = HOUSE) -> str:
    """Return how near a bound is to the proven figure: far is no sign of privacy."""
    how = "proven" if stated_by == HOUSE else "stated"
    if proven is None:
        return f"alone: nothing is {how}"
    if proven < lower:
        return f"beyond the {how} figure"
    if lower == 0:
        return "nothing shown: a weak attack, too few trials, or a loose proof"
    if lower >= NEAR * proven:
        return f"near the {how} figure"
    return f"far from the {how} figure: a weak attack, too few trials, or a loose proof"
