"""Helpers that several commands share."""

from __future__ import annotations

import inspect
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fedldp.cli.options import Runs
from fedldp.core.errors import ConfigError
from fedldp.core.locks import OwnedFolder, owned_new
from fedldp.core.registry import is_installed

if TYPE_CHECKING:
    from rich.console import Console

    from fedldp.algorithms.config import RunConfig
    from fedldp.experiments.comparing import Compared
    from fedldp.experiments.kept import KeptExperiment, Means
    from fedldp.experiments.sweeping import Sweep


_UNBROKEN = 10_000
"""More characters than any row of a table has."""


def verify(how: Runs, found: Callable[[Path, Path | None], KeptExperiment[Any]]) -> None:
    """With --verify, print what differs in that folder, and end with status 1 if anything does.

    Args:
        how: the options of all commands that make many runs.
        found: returns the experiment in a folder, given the data folder.
    """
    from fedldp.experiments.kept import verify as differences

    if how.verify is not None:
        experiment = found(how.verify, how.data_dir)
        lines = list(differences(experiment, how.verify, how.again or 0))
        for line in lines or ["nothing is missing, and nothing differs"]:
            typer.echo(line)
        raise typer.Exit(1 if lines else 0)


def say_settings(console: Console, config: RunConfig, metrics: Mapping[str, float]) -> None:
    """Print the settings that follow from people's answers, as lines of a TOML file.

    Args:
        console: where to print.
        config: the run that asked; one that asked for nothing tells no settings.
        metrics: its own metrics.
    """
    from fedldp.reporting.text import say
    from fedldp.simulation.asking import lines_of, settings_from

    if lines := lines_of(settings_from(config, metrics)):
        say(console, "settings", "a file of settings may have these lines:")
        console.print(*lines, sep="\n", highlight=False, soft_wrap=True, markup=False)


def confirmed(yes: bool, question: str) -> None:
    """Ask the user, unless ``yes``; end the command with status 1 if the answer is no."""
    if not yes and not typer.confirm(question):
        raise typer.Exit(1)


def one_source(how: Runs, given: Mapping[str, object], *, needed: str | None = None) -> None:
    """Refuse settings that both the command and a folder give, or neither.

    Args:
        how: the options of all commands that make many runs.
        given: the command's own arguments by name.
        needed: the name of the one that is needed without a folder, if any is.

    Raises:
        ConfigError: they are given twice, or not at all.
    """
    twice = [name for name, value in {**given, "--out": how.out}.items() if value is not None]
    for name, folder in (("verify", how.verify), ("resume", how.resume)):
        if folder is not None and twice:
            raise ConfigError(
                f"{name} = {folder}: its folder has all settings; leave out {', '.join(twice)}"
            )
    if needed and how.verify is None and how.resume is None and given[needed] is None:
        raise ConfigError(f"{needed}: give it, or --resume FOLDER")


def at_most_cores(workers: int | None, stderr: Console) -> int | None:
    """Limit the number of workers to the number of cores; more would only use more memory."""
    from fedldp.reporting.text import say
    from fedldp.simulation.plan import cores

    if workers is None or workers <= (most := cores()):
        return workers
    why = "this machine has no more cores, and the result does not depend on the number of workers"
    say(stderr, "workers", f"{most} instead of {workers:,}: {why}")
    return most


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
def many_runs(kind: str, name: str, how: Runs, **means: Any) -> Iterator[Means]:
    """Yield the means of an experiment, and show its progress.

    If the user interrupts it, it prints the command that continues.

    Args:
        kind: "sweep", "compare" or "advise".
        name: the beginning of the name of a new folder; see ``results_folder``.
        how: the options that the user gave.
        means: other attributes of ``Means``.
    """
    from rich.console import Console

    from fedldp.experiments.kept import Means
    from fedldp.reporting.text import say

    stderr = Console(stderr=True)
    means |= {"cluster": how.cluster, "data_dir": how.data_dir, "same_data": how.same_data}
    means["workers"] = at_most_cores(how.workers, stderr)
    with results_folder(how.resume or how.out, name) as place:
        again = f"fedldp {kind} --resume {place}"
        if not is_installed("report"):
            install = "Matplotlib is not installed: run pip install 'fedldp[report]' now"
            say(stderr, "no chart", f"{install}, or before you run {again}, which draws the chart")
        try:
            with shown_progress(stderr) as (tell, progress):
                yield Means(out=place, say=tell, progress=progress, **means)
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
    from fedldp.reporting.progress import bar

    shown = bar("run", stderr)
    task = shown.add_task("", total=None)
    with shown, redirect_stdout(sys.stderr):
        yield (
            lambda line: stderr.print(line, highlight=False, soft_wrap=True, markup=False),
            lambda done, total: shown.update(task, completed=done, total=total),
        )


def say_missing(missing: Sequence[str], place: object) -> None:
    """Say how many rows are missing, if any are, and how to continue."""
    from rich.console import Console

    from fedldp.reporting.text import say

    if missing:
        again = f"to continue, give the same command with --out {place}"
        say(Console(stderr=True), "missing", f"{len(missing)} rows; {again}")


def table_console(*, stderr: bool = False) -> Console:
    """Return a console on stdout, or stderr; into a file or pipe no row or sentence is broken."""
    from rich.console import Console

    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=_UNBROKEN)


def print_rows(result: Sweep | Compared, folder: str) -> None:
    """Print a set of runs as a table, with notes, and ``folder`` as the name of its folder."""
    from fedldp.reporting.text import print_table, say

    console = table_console()
    print_table(console, *result.shown())
    for note in result.notes():
        say(console, "note", note)
    say(console, folder, str(result.out))


def draw_charts(
    result: Sweep | Compared, kinds: tuple[str, str], rounds: Callable[[Path], Any] | None = None
) -> None:
    """Draw a chart of each kind of file into the result's folder, and name the first.

    Args:
        result: the result.
        kinds: file extensions.
        rounds: draws scores by round, if there is such a chart.
    """
    from rich.console import Console

    from fedldp.reporting.text import say

    stderr, place = Console(stderr=True), result.out
    if place is None or not is_installed("report"):
        return
    try:
        for kind in kinds:
            result.plot(place / f"chart.{kind}")
            if rounds is not None:
                rounds(place / f"rounds.{kind}")
    except ConfigError as error:
        say(stderr, "no chart", str(error))
    else:
        say(stderr, "chart", str(place / f"chart.{kinds[0]}"))


def summary_of(documented: object) -> str:
    """Return the first line of a docstring; an empty string without one."""
    return (inspect.getdoc(documented) or "").partition("\n")[0]


def one_place() -> bool:
    """Return whether stdout and stderr go to the same place, so that a reader sees both."""
    try:
        return os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno())
    except (OSError, ValueError):  # one of the two has no file descriptor
        return False


def print_json(document: Any) -> None:
    """Print one JSON document on stdout."""
    typer.echo(json.dumps(document, indent=2, allow_nan=False))
