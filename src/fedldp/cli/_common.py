"""Helpers that several commands share."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedldp.core.errors import ConfigError
from fedldp.core.locks import OwnedFolder, owned_new
from fedldp.core.registry import is_installed

if TYPE_CHECKING:
    from rich.console import Console

    from fedldp.experiments.comparing import Compared
    from fedldp.experiments.kept import Means
    from fedldp.experiments.sweeping import Sweep


def folder(text: str) -> Path:
    """Return the path of a folder; refuse an empty string, which would be the working folder."""
    if not text.strip():
        raise ConfigError(f"folder {text!r}: give the path of a folder, or leave the option out")
    return Path(text)


def file(text: str) -> Path:
    """Return the path of a file; refuse an empty string."""
    if not text.strip():
        raise ConfigError(f"file {text!r}: give the path of a file, or leave the option out")
    return Path(text)


def recipe_names(incomplete: str) -> list[str]:
    """Return the names of recipes that complete what the user has typed."""
    from fedldp.algorithms import recipes

    return [name for name in recipes.recipe_names() if name.startswith(incomplete)]


DataDir = Annotated[
    Path | None,
    typer.Option(
        parser=folder,
        metavar="FOLDER",
        help="the data folder [default: $FEDLDP_DATA, or else the user's cache folder]",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="print one JSON document on stdout")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="change a setting; KEY= unsets it"),
]


Resume = Annotated[
    Path | None,
    typer.Option(
        "--resume",
        parser=folder,
        metavar="FOLDER",
        help="continue what is in this folder, with its own settings",
    ),
]
SameData = Annotated[
    bool,
    typer.Option(
        "--same-data",
        help="with a folder whose key is missing here: confirm that private data are the same",
    ),
]
Verify = Annotated[
    Path | None,
    typer.Option(
        "--verify",
        parser=folder,
        metavar="FOLDER",
        help="train nothing: say what is missing or differs in this folder",
    ),
]
Again = Annotated[
    int | None,
    typer.Option("--again", help="with --verify: make this many runs again, and compare them"),
]


def tell_differences(lines: Iterable[str]) -> typer.Exit:
    """Print what differs in a folder, and return the exit to raise: status 1 if anything does."""
    found = list(lines)
    for line in found or ["nothing is missing, and nothing differs"]:
        typer.echo(line)
    return typer.Exit(1 if found else 0)


def one_source(what: str, given: bool, out: Path | None, resume: Path | None) -> None:
    """Refuse settings that both the command and a folder give, or neither.

    Raises:
        ConfigError: they are given twice, or not at all.
    """
    if resume is not None and (given or out is not None):
        raise ConfigError(
            f"resume = {resume}: its folder has all settings; leave out {what} and --out"
        )
    if resume is None and not given:
        raise ConfigError(f"{what}: give it, or --resume FOLDER")


def at_most_cores(workers: int | None, stderr: Console) -> int | None:
    """Limit the number of workers to the number of cores; more would only use more memory."""
    from fedldp.simulation.plan import cores

    if workers is None or workers <= (most := cores()):
        return workers
    stderr.print(
        f"workers    {most} instead of {workers:,}: this machine has no more cores, and the "
        "result does not depend on the number of workers",
        highlight=False,
        soft_wrap=True,
    )
    return most


def notice_without_charts(stderr: Console, later: str) -> None:
    """Say before training begins that no charts can be drawn, if that is so.

    Args:
        stderr: where to print the notice.
        later: the command that can draw them afterwards.
    """
    if not is_installed("report"):
        stderr.print(
            "no chart   Matplotlib is not installed: run pip install 'fedldp[report]' now, or "
            f"before you run {later}, which draws the chart",
            highlight=False,
            soft_wrap=True,
            markup=False,
        )


@contextmanager
def results_folder(given: Path | None, name: str) -> Iterator[Path | OwnedFolder]:
    """Yield the folder that the user gave, or else own a new folder in runs/, named after the time.

    A new folder is removed if nothing was written into it.
    """
    if given is not None:
        yield given
        return
    with owned_new(Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}", "out") as own:
        yield own


@contextmanager
def many_runs(
    kind: str, name: str, folder: Path | None, workers: int | None, **means: Any
) -> Iterator[Means]:
    """Yield the means of an experiment, and show its progress.

    An interruption is answered by the command that continues.

    Args:
        kind: "sweep", "compare" or "advise".
        name: the beginning of the name of a new folder; see ``results_folder``.
        folder: the folder that the user gave.
        workers: the number of processes that the user gave; see ``at_most_cores``.
        means: other attributes of ``Means``.
    """
    from rich.console import Console

    from fedldp.experiments.kept import Means

    stderr = Console(stderr=True)
    workers = at_most_cores(workers, stderr)
    with results_folder(folder, name) as place:
        again = f"fedldp {kind} --resume {place}"
        notice_without_charts(stderr, again)
        try:
            with shown_progress(stderr) as (say, progress):
                yield Means(out=place, workers=workers, say=say, progress=progress, **means)
        except KeyboardInterrupt:
            begun = Path(place, f"{kind}.json").exists()
            stderr.print(
                f"interrupted; {f'continue with: {again}' if begun else 'nothing had begun'}",
                soft_wrap=True,
                highlight=False,
                markup=False,
            )
            raise typer.Exit(130) from None


@contextmanager
def shown_progress(
    stderr: Console,
) -> Iterator[tuple[Callable[[str], None], Callable[[int, int], None]]]:
    """Show the progress of many runs: yield how to say a line, and how to tell how many are done.

    In a terminal, a bar shows how many runs are done. What a user's own code prints goes to stderr.
    """
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        TextColumn("run"),
        MofNCompleteColumn(),
        BarColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=stderr,
        disable=not stderr.is_terminal,
    )
    task = bar.add_task("runs", total=None)
    with bar, redirect_stdout(sys.stderr):
        yield (
            lambda line: stderr.print(line, highlight=False, soft_wrap=True, markup=False),
            lambda done, total: bar.update(task, completed=done, total=total),
        )


def say_missing(missing: Sequence[str], place: object) -> None:
    """Say how many rows are missing, if any are, and how to continue."""
    from rich.console import Console

    if not missing:
        return
    Console(stderr=True).print(
        f"missing    {len(missing)} rows; to continue, give the same command with --out {place}",
        soft_wrap=True,
        highlight=False,
        markup=False,
    )


def print_rows(result: Sweep | Compared, folder: str) -> None:
    """Print a set of runs as a table, with notes, and ``folder`` as the name of its folder."""
    from rich.console import Console

    from fedldp.reporting.text import print_table

    console = Console()
    if not console.is_terminal:
        console = Console(width=200)  # a file has no terminal width
    head, rows = result.shown()
    print_table(console, head, rows)
    for note in result.notes():
        console.print(f"note       {note}", highlight=False, soft_wrap=True, markup=False)
    console.print(f"{folder:10} {result.out}", highlight=False, soft_wrap=True, markup=False)


def draw_charts(result: Sweep | Compared, kinds: tuple[str, str]) -> None:
    """Draw a chart of each kind of file into the result's folder, and name the first."""
    from rich.console import Console

    stderr, place = Console(stderr=True), result.out
    if place is None or not is_installed("report"):
        return
    try:
        for kind in kinds:
            result.plot(place / f"chart.{kind}")
    except ConfigError as error:
        stderr.print(f"no chart   {error}", highlight=False, soft_wrap=True, markup=False)
    else:
        stderr.print(f"chart      {place / f'chart.{kinds[0]}'}", highlight=False, soft_wrap=True)


def one_place() -> bool:
    """Return whether stdout and stderr go to the same place, so that a reader sees both."""
    try:
        return os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno())
    except (OSError, ValueError):  # one of the two has no file descriptor
        return False


def print_json(document: Any) -> None:
    """Print one JSON document on stdout."""
    typer.echo(json.dumps(document, indent=2, allow_nan=False))
