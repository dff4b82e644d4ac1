"""The pages of targets, and the tables of docs/papers, made from the committed results."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

from fedldp.accounting.statement import Statement
from fedldp.algorithms.recipes import Recipe, find_recipe
from fedldp.core.errors import ConfigError
from fedldp.core.formatting import number
from fedldp.experiments.reproduction.claims import OURS, claims_of, judged, statement_of
from fedldp.experiments.reproduction.comparison import Row, Verdict, compare
from fedldp.experiments.reproduction.results import Measurements, in_hours, missing
from fedldp.experiments.reproduction.targets import PaperTarget, first_names, targets
from fedldp.experiments.reproduction.targets import papers_with_targets as papers
from fedldp.experiments.table import Course, draw_courses

_SEEDS = 3
_COURSES = 7
"""The largest number of curves in one panel of a chart, because more are hard to tell apart."""

_PAGE = """# {paper.title}: {target.title}

{target.text}

[Reproduction](../reproduction.md) says how to read a row, and [{paper.title}](../{paper.page})
goes through the paper.

```sh
fedldp reproduce {target.name}            # the table
fedldp reproduce {target.name} --run      # measures what is missing
```

{table}"""


def updated(page: str) -> str:
    """Return the page with every table between markers regenerated.

    The text between the tables is not changed. A marker begins a block that ends at ``<!-- end
    -->``: ``<!-- claims PAPER -->`` is for the claims of a paper's text; ``<!-- proven RECIPE...
    -->`` for the lines of recipes' statements; ``<!-- overview -->`` for all targets; ``<!-- totals
    -->`` for the number of claims and cells of each paper with each verdict; ``<!-- unmeasured
    -->`` for what has not been measured.

    Raises:
        ConfigError: a marker has an unknown name, or there is none.
    """
    known = targets()
    made: dict[str, Callable[[str], str]] = {
        "claims": claims_table,
        "proven": proven_table,
        "overview": lambda _: overview(known.values()),
        "totals": lambda _: totals_table(known.values()),
        "unmeasured": lambda _: remaining(known.values()),
    }
    block = re.compile(rf"(<!-- ({'|'.join(made)}) ?([^>]*?) ?-->\n).*?(<!-- end -->)", re.DOTALL)
    text, count = block.subn(lambda found: f"{found[1]}{made[found[2]](found[3])}{found[4]}", page)
    if not count:
        raise ConfigError(
            "page: it has no table between `<!-- claims PAPER -->` and `<!-- end -->`"
        )
    return text


def name_of_page(target: str) -> str:
    """Return the file name, without an ending, of a target's page, and of its chart beside it."""
    return f"reproduction_{target}"


def committed(target: PaperTarget, *, prove: bool = True) -> list[Row]:
    """Return a target's rows from the committed results only."""
    return compare(target, Measurements(), prove=prove)


def write_page(target: PaperTarget, folder: Path) -> None:
    """Write a target's page: its text and table, and its chart if more rounds are known.

    Args:
        target: a table, figure or section of a paper with a page of its own.
        folder: the folder of result pages.
    """
    paper, rows, name = papers()[target.paper], committed(target), name_of_page(target.name)
    text = _PAGE.format(paper=paper, target=target, table=markdown(rows))
    if found := courses(rows):
        text += f"\n![Accuracy after each round]({name}.svg)\n"
        panels = [("", found[start : start + _COURSES]) for start in range(0, len(found), _COURSES)]
        draw_courses(panels, 100, "accuracy in %", (), folder / f"{name}.svg", stacked=True)
    (folder / f"{name}.md").write_text(text, encoding="utf-8")


def courses(rows: Iterable[Row]) -> list[Course]:
    """Return our results after each round, of the rows that have more than the last round's."""
    found: list[Course] = []
    for row in rows:
        if row.ours is not None and len(row.ours.after) > 1:
            rounds = sorted(row.ours.after)
            both = np.array([row.ours.after[n] for n in rounds], float)  # None becomes nan
            found.append((_name_of(row), rounds, both[:, 0], np.nan_to_num(both[:, 1])))
    return found


def overview(found: Iterable[PaperTarget]) -> str:
    """Return a table of all targets, with their pages and the number of cells with each verdict."""
    verdicts, rows = get_args(Verdict), []
    for target in found:
        counts = Counter(row.verdict for row in committed(target, prove=False))
        page = f"[`{target.name}`]({name_of_page(target.name)}.md)"
        numbers = [counts.total(), *(counts[verdict] for verdict in verdicts)]
        rows.append(f"{page} | {target.paper}: {target.place} | {' | '.join(map(str, numbers))}")
    return _table(f"target | of | cells | {' | '.join(verdicts)}", rows)


def totals(rows: Mapping[str, Sequence[Row]]) -> list[dict[str, Any]]:
    """Return how many claims (without ours) and cells of each paper have each verdict.

    Args:
        rows: the rows of each paper's targets, by the paper's authors and year.
    """
    made = []
    for paper, its in papers().items():
        if paper in rows:
            claims = [c for c in claims_of(its.folder.name) if not c.says.startswith(OURS)]
            found = {
                "claims": [judged(claim).verdict for claim in claims],
                "cells": [row.verdict for row in rows[paper]],
            }
            made += [
                {"paper": paper, "what": what, "all": len(each)}
                | {verdict: each.count(verdict) for verdict in get_args(Verdict)}
                for what, each in found.items()
            ]
    return made


def totals_table(found: Iterable[PaperTarget]) -> str:
    """Return ``totals`` of the committed results, as a table."""
    rows: dict[str, list[Row]] = {}
    for target in found:
        rows.setdefault(target.paper, []).extend(committed(target, prove=False))
    made = totals(rows)
    return _table(" | ".join(made[0]), [" | ".join(map(str, each.values())) for each in made])


def remaining(found: Iterable[PaperTarget]) -> str:
    """Return a table of the targets with fewer than three seeds in a cell, with estimated costs.

    Its last row has the cells of all targets; cells with the same run count as one.
    """
    cells = {f"`{target.name}`": target.cells for target in found}
    once = {first_names()[cell.name]: cell for each in cells.values() for cell in each}
    rows = [
        _left(name, each) for name, each in {**cells, "every run once": [*once.values()]}.items()
    ]
    return _table(
        "target | cells | measured | with three seeds | CPU hours for one seed of the unmeasured "
        "cells | CPU hours for three seeds of all cells",
        filter(None, rows),
    )


def _left(name: str, cells: Sequence[Recipe]) -> str | None:
    """Return a row of ``remaining``; None if all cells have three seeds."""
    ours = map(Measurements().of, cells)
    seeds = [len(each.seeds) if each else 0 for each in ours]
    if min(seeds) >= _SEEDS:
        return None
    measured, whole = (sum(count >= most for count in seeds) for most in (1, _SEEDS))
    one, all_three = (_hours(cells, seeds, most) for most in (1, _SEEDS))
    return f"{name} | {len(seeds)} | {measured} | {whole} | {one} | {all_three}"


def _hours(cells: Sequence[Recipe], seeds: Sequence[int], most: int) -> str:
    """Return the estimated core hours of the runs that ``most`` seeds of each cell still need."""
    seconds = 0.0
    for count in range(most):
        few = [cell for cell, known in zip(cells, seeds, strict=True) if known == count]
        seconds += missing(few, range(count, most), Measurements()).core_seconds
    return in_hours(seconds)


def claims_table(paper: str) -> str:
    """Return a paper's claims beside our results, with a verdict on each, as a table."""
    rows = []
    for claim in claims_of(paper):
        found = judged(claim)
        rows.append(f"{claim.place} | {claim.says} | {found.ours} | {found.text}")
    return _table("place | the paper | ours | verdict", rows)


def proven_table(names: str) -> str:
    """Return the claims of some recipes, and the guarantees of their statements, as a table.

    Args:
        names: the names of recipes, separated by spaces.
    """
    rows = [
        f"`{name}` | {line}"
        for name in names.split()
        for line in _lines(statement_of(find_recipe(name).config))
    ]
    head = "recipe | protected | against | epsilon | delta | true epsilon is at least"
    return _table(head, rows)


def _lines(statement: Statement) -> Iterator[str]:
    """Yield the claim and the guarantees of a statement, each as the cells of a row."""
    claim = statement.claim
    if claim is not None:
        yield f"{claim.unit}, **claimed** | | **{number(claim.epsilon)}** | {claim.delta:g} |"
    for line in statement.guarantees:
        start = f"{line.unit}{', idealised' if line.is_idealised else ''} | {line.adversary}"
        if line.epsilon is None:
            yield f"{start} | none | |"
        else:
            lower = "" if line.lower is None else number(line.lower, up=False)
            yield f"{start} | {number(line.epsilon)} | {line.delta:g} | {lower}"


def table(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Return the table of a target's rows: its headings and its cells."""
    columns: dict[str, Callable[[Row], str]] = {
        "row": _name_of,
        "paper": paper_text,
        "ours": ours_text,
        "seeds": _seeds_text,
        "verdict": lambda row: row.verdict,
        "proven ε, client's run": epsilon_text,
        "recipe": _recipe_text,
    }
    return list(columns), [[show(row) for show in columns.values()] for row in rows]


def markdown(rows: Sequence[Row]) -> str:
    """Return rows as a table in Markdown."""
    head, cells = table(rows)
    return _table(" | ".join(head), map(" | ".join, cells))


def _table(head: str, rows: Iterable[str]) -> str:
    """Return a table in Markdown, from rows whose cells are divided by bars."""
    rule = "|" + "---|" * (head.count("|") + 1)
    return "\n".join([f"| {head} |", rule, *(f"| {row} |" for row in rows)]) + "\n"


def _name_of(row: Row) -> str:
    return row.row if row.column == "accuracy" else f"{row.row}; {row.column}"


def _recipe_text(row: Row) -> str:
    return f"`{row.recipe}`" + (f", the run of `{row.same_run}`" if row.same_run else "")


def _seeds_text(row: Row) -> str:
    seeds = row.ours.seeds if row.ours else []
    if len(seeds) > 2 and seeds == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]} to {seeds[-1]}"
    return ", ".join(map(str, seeds)) or "-"


def percent(value: float | None) -> str:
    """Return a fraction in percent; a dash for None."""
    if value is None:
        return "-"
    # Without a final zero, because some numbers are known only to a tenth.
    return re.sub(r"0$", "", f"{100 * value:.2f}")


def paper_text(row: Row) -> str:
    """Return the paper's number, or its range, in percent."""
    if row.expected is None:
        return "-"
    ends = (row.expected.lowest, row.expected.accuracy)
    return " to ".join(percent(end) for end in ends if end is not None)


def ours_text(row: Row) -> str:
    """Return our mean and deviation in percent."""
    if row.ours is None:
        return "-"
    text = percent(row.ours.mean)
    if row.ours.deviation is not None:
        text += f" ± {percent(row.ours.deviation)}"
    marks = ["GPU"] if row.ours.device == "cuda" else []
    marks += ["subset"] if row.ours.stand_in else []
    return f"{text} ({', '.join(marks)})" if marks else text


def epsilon_text(row: Row) -> str:
    """Return the proven epsilon, rounded up, with its conditions."""
    if row.proven is None:
        return "none"
    text = number(row.proven.epsilon)
    if row.proven.delta:
        text += f" at {row.proven.delta:g}"
    return f"{text}, idealised" if row.proven.is_idealised else text
