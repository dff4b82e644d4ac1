"""The tables of docs/study.md and its charts, made of the results alone; other text is kept."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

from benchmarks.study.contestants import CONTESTANTS, UNPROTECTED, System
from benchmarks.study.measuring import CLIENTS, EPSILONS, STUDY, cells
from benchmarks.study.tasks import TASKS
from fedldp.comparing import Cell, Row
from fedldp.core.errors import FedldpError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BLOCK = re.compile(r"(<!-- study (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
_COLOURS = {"server": "#1f77b4", "summing-server": "#2ca02c", "downlink": "#d62728"}
_MARKERS = "os^Dv<>ph*"
_SEEDS = len(STUDY.seeds)


class StudyError(FedldpError):
    """A page that cannot be made anew."""


def updated(page: str, rows: Sequence[Row]) -> str:
    """Return the page with everything between its markers made anew.

    Lines of another grid, or of what a system was before, are left out.

    Raises:
        StudyError: a marker names nothing, or the page has none.
        ComparisonError: a result may not stand.
    """
    rows = [row for row in rows if STUDY.is_current(row)]
    found = STUDY.standing(rows)

    def block(match: re.Match[str]) -> str:
        name = match[2]
        if name in TASKS:
            made = _task(name, found, STUDY.refusals(rows))
        elif name in _OTHERS:
            made = _OTHERS[name](found, rows)
        else:
            raise StudyError(f"page: nothing is called `study {name}`; use a task's name")
        return f"{match[1]}{made}{match[3]}"

    made, count = _BLOCK.subn(block, page)
    if not count:
        raise StudyError("page: it has nothing between `<!-- study NAME -->` and `<!-- end -->`")
    return made


def _task(name: str, found: dict[Cell, list[Row]], refused: dict[Cell, str]) -> str:
    """Return the chart and the tables of a task, one for each number of clients."""
    measured = {cell for cell, runs in found.items() if runs and cell.task == name}
    if not measured:
        return "Not measured yet.\n"
    parts = [f"![{TASKS[name].title}: accuracy against epsilon](study-{name}.svg)\n"]
    for clients in CLIENTS:
        if any(cell.clients == clients for cell in measured):
            parts.append(_panel(name, clients, found, refused))
    for cell, why in refused.items():
        if cell.task == name:
            parts.append(
                f"- {cell.contestant}, {cell.clients:,} clients, ε {cell.epsilon:g}: {why}.\n"
            )
    return "\n".join(parts)


def _panel(task: str, clients: int, found: dict[Cell, list[Row]], refused: dict[Cell, str]) -> str:
    """Return a table: a row for each system, a column for each epsilon."""
    planned = [cell for cell in cells() if (cell.task, cell.clients) == (task, clients)]
    lines = [
        f"| {clients:,} clients | against | "
        + " | ".join(f"ε {epsilon:g}" for epsilon in EPSILONS)
        + " |",
        "|---" * (2 + len(EPSILONS)) + "|",
    ]
    for contestant in CONTESTANTS:
        own = {cell.epsilon: cell for cell in planned if cell.contestant == contestant.name}
        if not own:
            continue
        shown = [
            _accuracy(own.get(epsilon if contestant.is_calibrated else 0.0), found, refused)
            for epsilon in EPSILONS
        ]
        lines.append(f"| {_name(contestant, own.values(), found)} | {_against(contestant)} | "
                     + " | ".join(shown) + " |")  # fmt: skip
    return "\n".join(lines) + "\n"


def _against(contestant: System) -> str:
    return contestant.against if contestant.is_calibrated else "nobody"


def _name(contestant: System, own: Iterable[Cell], found: dict[Cell, list[Row]]) -> str:
    return contestant.name + (" *" if _is_idealised(own, found) else "")


def _is_idealised(own: Iterable[Cell], found: dict[Cell, list[Row]]) -> bool:
    runs = [row for cell in own for row in found.get(cell, [])]
    return any(row.get("proven", {}).get("idealised") for row in runs)


def _accuracy(cell: Cell | None, found: dict[Cell, list[Row]], refused: dict[Cell, str]) -> str:
    """Return the mean and the sample deviation over seeds, in percent."""
    if cell in refused:
        return "refused"
    runs = [row["accuracy"] for row in found.get(cell, [])] if cell is not None else []
    if not runs:
        return "-"
    text = f"{100 * mean(runs):.1f}"
    if len(runs) > 1:
        text += f" ± {100 * stdev(runs):.1f}"
    return text if len(runs) >= _SEEDS else f"{text} ({len(runs)} of {_SEEDS} seeds)"


def _unprotected(found: dict[Cell, list[Row]], rows: Sequence[Row]) -> str:
    """Return why some systems have no guarantee for a client's run."""
    why = {row["cell"]["contestant"]: row["refused"] for row in rows if row["purpose"] == "stated"}
    lines = ["| system | client's run |", "|---|---|"]
    for system in UNPROTECTED:
        lines.append(f"| {system.name} | {why.get(system.name, 'not stated yet')} |")
    return "\n".join(lines) + "\n"


def _progress(found: dict[Cell, list[Row]], rows: Sequence[Row]) -> str:
    """Return how much of the study is measured, and what the rest would take."""
    lines = [
        "| task | clients | cells measured | of | CPU minutes so far | for the rest, about |",
        "|---|---|---|---|---|---|",
    ]
    names = {system.name for system in UNPROTECTED}
    refused = STUDY.refusals(rows)
    for task in TASKS:
        for clients in CLIENTS:
            own = [
                cell
                for cell in cells()
                if (cell.task, cell.clients) == (task, clients) and cell.contestant not in names
            ]
            if not own:
                continue
            done = [cell for cell in own if cell in refused or len(found.get(cell, ())) >= _SEEDS]
            whole = set(done)
            spent = sum(row.get("cpu_seconds", 0.0) for row in rows if Cell(**row["cell"]) in whole)
            rest = spent / len(done) * (len(own) - len(done)) / 60 if done else None
            lines.append(
                f"| {task} | {clients:,} | {len(done)} | {len(own)} | {spent / 60:.1f} | "
                f"{'not known' if rest is None else f'{rest:.0f}'} |"
            )
    return "\n".join(lines) + "\n"


_TRUSTS: dict[str, tuple[str | None, bool]] = {
    "nobody: no noise": (None, True),
    "who sees the model; the server is trusted": ("downlink", True),
    "a server that sees only sums": ("summing-server", True),
    "any server": ("server", True),
    "any server, in a deployment too": ("server", False),
}
"""By a row's words its adversary, and whether what is proven for real numbers only will do."""
_SUMMARY = {
    ("mnist", 100): "100 clients, pixels",
    ("mnist", 1_000): "1,000 clients, pixels",
    ("mnist-gradients", 1_000): "1,000 clients, oriented gradients",
}
_FEW = (1.0, 4.0, 16.0)
_AT = "ε " + ", ".join(f"{epsilon:g}" for epsilon in _FEW)
_JUDGED = ("mnist", 1_000), 4.0
"""By whose accuracy a system is the best against its adversary."""
Place = tuple[str, int]


def _summary(found: dict[Cell, list[Row]], rows: Sequence[Row]) -> str:
    """Return in few columns what the best against each adversary comes to."""
    columns = [f"{words}: {_AT}" for words in _SUMMARY.values()]
    lines = ["| hidden from | by | " + " | ".join(columns) + " |"]
    lines.append("|---" * (2 + len(columns)) + "|")
    for words, best in _best(found).items():
        name = _name(best, [_cell(each, e, best) for each in _SUMMARY for e in _FEW], found)
        shown = [_at_few(place, best, found) for place in _SUMMARY]
        lines.append(f"| {words} | {name} | " + " | ".join(shown) + " |")
    return "\n".join(lines) + "\n"


def _overview(found: dict[Cell, list[Row]], rows: Sequence[Row]) -> str:
    """Return a row for all that is measured of a task with one number of clients."""
    best = _best(found)
    lines = [f"| {_AT} | clients | " + " | ".join(best) + " |", "|---" * (2 + len(best)) + "|"]
    for task, clients in itertools.product(TASKS, CLIENTS):
        shown = [_at_few((task, clients), each, found) for each in best.values()]
        if set(shown) != {"-"}:
            lines.append(f"| {task} | {clients:,} | " + " | ".join(shown) + " |")
    return "\n".join(lines) + "\n"


def _best(found: dict[Cell, list[Row]]) -> dict[str, System]:
    """Return who is the best against each adversary, where that is judged."""
    best = {}
    for words, (adversary, idealised) in _TRUSTS.items():
        rivals = [
            each
            for each in CONTESTANTS
            if adversary == (each.against if each.is_calibrated else None)
            and (idealised or not _is_idealised([_cell(*_JUDGED, each)], found))
        ]
        best[words] = max(rivals, key=lambda each: _mean(_cell(*_JUDGED, each), found))
    return best


def _at_few(place: Place, contestant: System, found: dict[Cell, list[Row]]) -> str:
    shown = [_percent(_cell(place, epsilon, contestant), found) for epsilon in _FEW]
    return ", ".join(shown if contestant.is_calibrated and set(shown) != {"-"} else shown[:1])


def _cell(place: Place, epsilon: float, contestant: System) -> Cell:
    return Cell(*place, contestant.name, epsilon if contestant.is_calibrated else 0.0)


def _mean(cell: Cell, found: dict[Cell, list[Row]]) -> float:
    return mean([row["accuracy"] for row in found.get(cell, [])] or [0.0])


def _percent(cell: Cell, found: dict[Cell, list[Row]]) -> str:
    return f"{100 * _mean(cell, found):.1f}" if found.get(cell) else "-"


_OTHERS: dict[str, Callable[[dict[Cell, list[Row]], Sequence[Row]], str]] = {
    "unprotected": _unprotected,
    "progress": _progress,
    "overview": _overview,
    "summary": _summary,
}


def charts(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Draw each task that has results, and return the files, which are called study-TASK.svg."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    found = STUDY.standing([row for row in rows if STUDY.is_current(row)])
    made = []
    for name, task in TASKS.items():
        runs = {cell: found[cell] for cell in found if cell.task == name and found[cell]}
        if not runs:
            continue
        style = {"svg.fonttype": "none", "svg.hashsalt": "fedldp", "axes.unicode_minus": False}
        with rc_context(style):
            figure = Figure(figsize=(12, 5.2), layout="constrained")
            panels = figure.subplots(1, len(CLIENTS), sharey=True)
            for axes, clients in zip(panels, CLIENTS, strict=True):
                _draw(axes, clients, runs)
            panels[0].set_ylabel("accuracy on the test set")
            known: dict[str, Any] = {}
            for axes in panels:
                known |= {
                    label: line
                    for line, label in zip(*axes.get_legend_handles_labels(), strict=True)
                }
            figure.legend(
                known.values(), known.keys(), loc="outside lower center", ncols=4, fontsize=8
            )
            figure.suptitle(task.title)
            path = folder / f"study-{name}.svg"
            figure.savefig(path, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
            made.append(path)
    return made


def _draw(axes: Axes, clients: int, runs: dict[Cell, list[Row]]) -> None:
    """Draw one number of clients: a line for each system, in the colour of its adversary."""
    for number, contestant in enumerate(CONTESTANTS):
        points = {
            cell.epsilon: mean(row["accuracy"] for row in measured)
            for cell, measured in runs.items()
            if (cell.clients, cell.contestant) == (clients, contestant.name)
        }
        if not points:
            continue
        if not contestant.is_calibrated:
            axes.axhline(points[0.0], color="black", linestyle=":", label=contestant.name)
            continue
        at = sorted(points)
        axes.plot(
            at,
            [points[epsilon] for epsilon in at],
            color=_COLOURS[contestant.against],
            marker=_MARKERS[number % len(_MARKERS)],
            linestyle="-" if contestant.rank == 0 else (0, (5, 2)),
            linewidth=1.2,
            markersize=4,
            label=f"{contestant.name} ({contestant.against})",
        )
    axes.set_xscale("log", base=2)
    axes.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
    axes.set_ylim(0, 1)
    axes.grid(visible=True, linewidth=0.4)
    axes.set_title(f"{clients:,} clients")
    axes.set_xlabel("epsilon for a client's whole run")
