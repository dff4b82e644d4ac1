"""Helpers that several commands share."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import typer

from fedldp.algorithms.config import RunConfig
from fedldp.cli.options import Runs
from fedldp.core.errors import ConfigError
from fedldp.core.locks import OwnedFolder, owned_new
from fedldp.core.registry import is_installed
from fedldp.experiments.comparing import Compared
from fedldp.experiments.comparing.means import MeanTable
from fedldp.experiments.engine import Experiment, Means, View, carried_out, end_of, verify
from fedldp.experiments.sweeping import Sweep
from fedldp.reporting.progress import bar
from fedldp.reporting.text import Terminal
from fedldp.simulation.asking import lines_of, settings_from
from fedldp.simulation.plan import cores


def on_stderr() -> Terminal:
    """Return what prints on stderr."""
    return Terminal(stderr=True)


def carry_out(
    kept: type[Experiment[View]],
    how: Runs,
    made: Callable[[Means], Experiment[View]],
    *,
    name: str | None = None,
    **more: Any,
) -> View:
    """Make the missing runs of an experiment, show their progress, and return what all runs say.

    With --verify, print what differs in that folder instead, and end the command with status 1 if
    anything does. If the user interrupts the runs, print the command that continues.

    Args:
        kept: the class of the experiment.
        how: the options of all commands that make many runs.
        made: returns the experiment that the command's arguments describe.
        name: the beginning of the name of a new folder, if it is not the kind; see
            ``results_folder``.
        more: further arguments of the class, for an experiment that is in a folder already.

    Raises:
        FedldpError: the arguments contradict the folder, or a run's statement proves less than its
            target.
    """
    kind = kept.kind
    if how.verify is not None:
        experiment = kept.found(how.verify, Means(data_dir=how.data_dir), **more)
        lines = list(verify(experiment, how.verify, how.again or 0))
        for line in lines or ["nothing is missing, and nothing differs"]:
            typer.echo(line)
        raise typer.Exit(1 if lines else 0)
    stderr = on_stderr()
    with results_folder(how.resume or how.out, name or kind) as place:
        again = f"fedldp {kind} --resume {place}"
        if not is_installed("matplotlib"):
            install = "Matplotlib is not installed: run pip install 'fedldp[report]' now"
            stderr.say("no chart", f"{install}, or before you run {again}, which draws the chart")
        try:
            with shown_progress(
                how.workers,
                out=place,
                data_dir=how.data_dir,
                end=end_of(how.budget),
                cluster=how.cluster,
                same_data=how.same_data,
            ) as means:
                begun = made(means) if how.resume is None else kept.found(how.resume, means, **more)
                return carried_out(begun, means)
        except KeyboardInterrupt:
            is_begun = Path(place, f"{kind}.json").exists()
            told = f"continue with: {again}" if is_begun else "nothing had begun"
            stderr.put(f"interrupted; {told}")
            raise typer.Exit(130) from None


def say_settings(console: Terminal, config: RunConfig, metrics: Mapping[str, float]) -> None:
    """Print the settings that follow from people's answers, as lines of a TOML file.

    Args:
        console: where to print.
        config: the run that asked; one that asked for nothing tells no settings.
        metrics: its own metrics.
    """
    if lines := lines_of(settings_from(config, metrics)):
        console.say("settings", "a file of settings may have these lines:")
        console.print(*lines, sep="\n", highlight=False, soft_wrap=True, markup=False)


def confirmed(yes: bool, question: str) -> None:
    """Ask the user, unless ``yes``; end the command with status 1 if the answer is no."""
    if not yes and not typer.confirm(question):
        raise typer.Exit(1)


def at_most_cores(workers: int | None) -> int | None:
    """Limit the number of workers to the number of cores; more would only use more memory."""
    if workers is None or workers <= (most := cores()):
        return workers
    why = "this machine has no more cores, and the result does not depend on the number of workers"
    on_stderr().say("workers", f"{most} instead of {workers:,}: {why}")
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
def shown_progress(workers: int | None, **means: Any) -> Iterator[Means]:
    """Yield the means of an experiment, whose progress is shown.

    In a terminal, a bar shows how many runs are done. What a user's own code prints goes to stderr.

    Args:
        workers: the number of processes that the user wants.
        means: other attributes of ``Means``.
    """
    stderr = on_stderr()
    shown = bar("run", stderr)
    task = shown.add_task("", total=None)
    workers = at_most_cores(workers)
    with shown, redirect_stdout(sys.stderr):
        yield Means(
            workers=workers,
            say=stderr.put,
            progress=lambda done, total: shown.update(task, completed=done, total=total),
            **means,
        )


def say_missing(missing: Sequence[str], place: object) -> None:
    """Say how many rows are missing, if any are, and how to continue."""
    if missing:
        again = f"to continue, give the same command with --out {place}"
        on_stderr().say("missing", f"{len(missing)} rows; {again}")


def print_rows(
    result: Sweep | Compared | MeanTable, last: Sequence[str], console: Terminal
) -> None:
    """Print a set of runs, or of estimates, as a table with notes and a last line, if any."""
    console.print_table(*result.shown())
    for note in result.notes():
        console.say("note", note)
    if last:
        console.say(*last)


def draw_charts(
    result: Sweep | Compared, kinds: tuple[str, str], rounds: Callable[[Path], Any] | None = None
) -> None:
    """Draw a chart of each kind of file into the result's folder, and name the first.

    Args:
        result: the result.
        kinds: file extensions.
        rounds: draws scores by round, if there is such a chart.
    """
    stderr, place = on_stderr(), result.out
    if place is None or not is_installed("matplotlib"):
        return
    try:
        for kind in kinds:
            result.plot(place / f"chart.{kind}")
            if rounds is not None:
                rounds(place / f"rounds.{kind}")
    except ConfigError as error:
        stderr.say("no chart", str(error))
    else:
        stderr.say("chart", str(place / f"chart.{kinds[0]}"))


def one_place() -> bool:
    """Return whether stdout and stderr go to the same place, so that a reader sees both."""
    try:
        return os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno())
    except (OSError, ValueError):  # one of the two has no file descriptor
        return False
