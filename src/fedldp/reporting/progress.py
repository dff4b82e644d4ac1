"""A run's progress on stderr: a bar in a terminal, plain lines elsewhere."""

from __future__ import annotations

from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from fedldp.protocol.server_loop import Round


def bar(what: str, console: Console, *, transient: bool = False) -> Progress:
    """Return a bar that counts rounds or runs, with the time left; only a terminal shows it."""
    return Progress(
        TextColumn(what),
        MofNCompleteColumn(),
        BarColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=transient,
        disable=not console.is_terminal,
    )


class RunProgress:
    """Shows each round; use it as a context manager.

    Args:
        rounds: the number of rounds.
        console: the console to write to; stderr.
        table: whether a table of the rounds follows there, so that the bar is removed at the end.
    """

    def __init__(self, rounds: int, console: Console, table: bool = False) -> None:
        self._rounds = rounds
        self._console = console
        self._bar = bar("round", console, transient=table)
        self._task = self._bar.add_task("", total=rounds)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def show(self, record: Round) -> None:
        """Show a complete round."""
        told = _tested(record, loss=False)
        self._bar.update(self._task, completed=record.round, description=told)
        if self._console.is_terminal:
            return
        before = record.waited or 0.0
        waited = f" after waiting for {duration(before)}" if before >= 1 else ""
        self._console.print(
            f"{in_words(record, self._rounds)}{waited}", highlight=False, soft_wrap=True
        )


def duration(seconds: float) -> str:
    """Format a duration for display: 40 s, 3 min, 2 h 5 min."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def in_words(record: Round, rounds: int) -> str:
    """Return a complete round on one line.

    Args:
        record: the round's record.
        rounds: the number of rounds of the run.
    """
    return f"round {record.round}/{rounds}  {_tested(record)}  {record.seconds:.1f} s"


def _tested(record: Round, *, loss: bool = True) -> str:
    if "r2" in record.metrics:
        return f"R2 {record.metrics['r2']:.4f}"
    if record.accuracy is None:
        return f"{record.clients} took part"
    parts = [f"accuracy {record.accuracy:.4f}"]
    parts += [f"loss {record.loss:.4f}"] if loss else []
    # AUC is always shown, because a round's record does not say whether one class makes up most of
    # the examples.
    parts += [] if record.auc is None else [f"AUC {record.auc:.4f}"]
    return "  ".join(parts)
