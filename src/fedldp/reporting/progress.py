"""A run's progress on stderr: a bar in a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections import deque
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from fedldp.protocol.server_loop import Round

_LATEST = 10
"""The number of latest rounds from which the remaining time is estimated."""


class RunProgress:
    """Shows each round; use it as a context manager.

    Args:
        rounds: the number of remaining rounds.
        console: the console to write to; stderr.
        table: whether a table of the rounds follows there, so that the bar is removed at the end.
    """

    def __init__(self, rounds: int, console: Console, table: bool = False) -> None:
        self._rounds = rounds
        self._seen = 0
        self._seconds: deque[float] = deque(maxlen=_LATEST)
        self._console = console
        self._bar = Progress(
            TextColumn("round {task.completed}/{task.total}"),
            BarColumn(),
            TextColumn("{task.fields[accuracy]}"),
            TextColumn("{task.fields[left]}"),
            console=console,
            transient=table,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("rounds", total=rounds, accuracy="", left="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def show(self, record: Round) -> None:
        """Show a complete round."""
        self._seen += 1
        if self._seen > 1:
            self._seconds.append(record.seconds)
        self._bar.update(
            self._task,
            completed=record.round,
            accuracy=_tested(record, loss=False),
            left=self._left(record),
        )
        if self._console.is_terminal:
            return
        before = record.waited or 0.0
        waited = f" after waiting for {duration(before)}" if before >= 1 else ""
        self._console.print(
            f"{in_words(record, self._rounds)}{waited}  {self._left(record)}",
            highlight=False,
            soft_wrap=True,
        )

    def _left(self, record: Round) -> str:
        """Return the estimated remaining time, from the latest rounds but not the first one shown.

        The first round includes one-off work: starting processes, reading data, allocating memory.
        """
        if record.round == self._rounds:
            return "done"
        if not self._seconds:
            return "estimating the time left"
        each = sum(self._seconds) / len(self._seconds)
        return f"about {duration((self._rounds - record.round) * each)} left"


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
