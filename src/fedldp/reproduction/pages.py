"""The tables of docs/reproduction.md and of docs/papers, made of the committed results.

The prose between them is kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from fedldp.core.errors import ConfigError
from fedldp.core.formatting import number
from fedldp.reproduction import papers
from fedldp.reproduction.comparison import Row, compare
from fedldp.reproduction.results import Store
from fedldp.reproduction.runner import jobs
from fedldp.reproduction.targets import Target, find_target, targets

_BLOCK = re.compile(r"(<!-- target (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
_CLAIMS = re.compile(r"(<!-- claims (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
_PROVEN = re.compile(r"(<!-- proven ([^>]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_REST = re.compile(r"(<!-- unmeasured -->\n).*?(<!-- end -->)", re.DOTALL)
_SEEDS = 3
_CORES = 2
"""What the guessed time of a run is for."""
_WHOLE = 10
"""Hours from which on a guess has no tenths."""
_MOST = 7
"""Rounds of a run that a page shows."""

_NOWHERE = Path("/nonexistent")
"""A data folder, and a store, with nothing in them: the page is the same on every machine."""


def updated(page: str) -> str:
    """Return the page with every table between its markers made anew.

    The markers, each up to ``<!-- end -->``: ``<!-- target NAME -->``, a table or figure;
    ``<!-- claims PAPER -->``, what its text claims; ``<!-- proven RECIPE... -->``, the lines of
    statements; ``<!-- unmeasured -->``, what is left.

    Raises:
        ConfigError: a marker names nothing that there is.
    """
    known = targets()

    def table(match: re.Match[str]) -> str:
        rows = compare(find_target(match[2], known), Store(_NOWHERE), _NOWHERE)
        return f"{match[1]}{markdown(rows)}{match[3]}"

    made, count = _BLOCK.subn(table, page)
    made, claims = _CLAIMS.subn(lambda m: f"{m[1]}{papers.claims_table(m[2])}{m[3]}", made)
    made, proofs = _PROVEN.subn(lambda m: f"{m[1]}{papers.proven_table(m[2])}{m[3]}", made)
    if not count + claims + proofs:
        raise ConfigError("page: it has no table between `<!-- target NAME -->` and `<!-- end -->`")
    return _REST.sub(lambda match: f"{match[1]}{remaining(known.values())}{match[2]}", made)


def remaining(found: Iterable[Target]) -> str:
    """Return a table of what is committed with fewer than three seeds, and about what it costs."""
    lines = [
        "| target | cells | measured | with three seeds | CPU hours, one seed of what is not "
        "measured | three seeds of all |",
        "|---|---|---|---|---|---|",
    ]
    for target in found:
        rows = compare(replace(target, gains=()), Store(_NOWHERE), _NOWHERE)
        seeds = [len(row.ours.seeds) if row.ours else 0 for row in rows]
        if min(seeds) >= _SEEDS:
            continue
        one, all_three = (_hours(target, seeds, most) for most in (1, _SEEDS))
        measured, whole = (sum(count >= most for count in seeds) for most in (1, _SEEDS))
        lines.append(
            f"| `{target.name}` | {len(seeds)} | {measured} | {whole} | {one} | {all_three} |"
        )
    return "\n".join(lines) + "\n"


def _hours(target: Target, seeds: Sequence[int], most: int) -> str:
    """Return about how many hours of a core the runs take that are left to ``most`` seeds."""
    seconds = 0.0
    for count in range(most):
        cells = [cell for cell, known in zip(target.cells, seeds, strict=True) if known == count]
        todo = jobs(cells, range(count, most), Store(_NOWHERE), _NOWHERE, "cpu")
        seconds += sum(job.seconds for job in todo)
    hours = _CORES * seconds / 3600
    return f"{hours:.1f}" if hours < _WHOLE else f"{hours:.0f}"


def markdown(rows: Sequence[Row]) -> str:
    """Return rows as a table."""
    columns: dict[str, Callable[[Row], str]] = {
        "row": lambda row: row.row if row.column == "accuracy" else f"{row.row}; {row.column}",
        "paper": paper_text,
        "ours": ours_text,
        "ours, by round": _by_round,
        "seeds": lambda row: ", ".join(map(str, row.ours.seeds)) if row.ours else "-",
        "verdict": lambda row: row.verdict,
        "proven ε, client's run": epsilon_text,
        "recipe": lambda row: "-" if row.column == "points" else f"`{row.recipe}`",
    }
    if not any(map(_has_rounds, rows)):
        del columns["ours, by round"]
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(show(row) for show in columns.values()) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _has_rounds(row: Row) -> bool:
    return row.ours is not None and len(row.ours.after) > 1  # the last alone is told anyway


def _by_round(row: Row) -> str:
    after = row.ours.after if row.ours else {}
    shown = sorted(after)
    if len(shown) > _MOST:
        shown = [shown[(len(shown) - 1) * place // (_MOST - 1)] for place in range(_MOST)]
    return "; ".join(f"{n}: {_with_spread(*after[n])}" for n in shown) or "-"


def _with_spread(mean: float, deviation: float | None) -> str:
    return percent(mean) if deviation is None else f"{percent(mean)} ± {percent(deviation)}"


def percent(value: float | None, *, sign: bool = False) -> str:
    """Return a fraction in percent; a dash where there is none."""
    if value is None:
        return "-"
    text = f"{100 * value:{'+' if sign else ''}.2f}"
    return text[:-1] if text.endswith("0") else text  # what is known to a tenth has no more


def paper_text(row: Row) -> str:
    """Return the paper's number, or its range, in percent."""
    if row.paper_lowest is None:
        return percent(row.paper)
    return f"{percent(row.paper_lowest)} to {percent(row.paper)}"


def ours_text(row: Row) -> str:
    """Return our mean and deviation in percent."""
    if row.ours is None:
        return "-"
    text = percent(row.ours.mean, sign=row.column == "points")
    if row.ours.deviation is not None:
        text += f" ± {percent(row.ours.deviation)}"
    marks = ["GPU"] if row.ours.device == "cuda" else []
    marks += ["subset"] if row.ours.stand_in else []
    return f"{text} ({', '.join(marks)})" if marks else text


def epsilon_text(row: Row) -> str:
    """Return the proven epsilon, rounded up, with what it holds for."""
    if row.column == "points":
        return "-"
    if row.epsilon is None:
        return "none"
    text = number(row.epsilon)
    if row.delta:
        text += f" at {row.delta:g}"
    return f"{text}, idealised" if row.idealised else text
