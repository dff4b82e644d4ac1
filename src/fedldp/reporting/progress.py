"""A run's progress on stderr: a bar in a terminal, plain lines elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from fedldp.server.loop import Round


class RunProgress:
    """Shows each round; use it as a context.

    Args:
        rounds: how many there will be.
        console: where to write; stderr.
    """

    def __init__(self, rounds: int, console: Console) -> None:
        self._rounds = rounds
        self._console = console
        self._bar: Progress | None = None
        if console.is_terminal:
            self._bar = Progress(
                TextColumn("round {task.completed}/{task.total}"),
                BarColumn(),
                TextColumn("{task.fields[accuracy]}"),
                TimeRemainingColumn(elapsed_when_finished=True),
                console=console,
            )
            self._task = self._bar.add_task("rounds", total=rounds, accuracy="")

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, record: Round) -> None:
        """Show a complete round."""
        if self._bar is not None:
            self._bar.update(
                self._task,
                completed=record.round,
                accuracy=_tested(record).split("  ")[0],
            )
            return
        self._console.print(
            f"round {record.round}/{self._rounds}  {_tested(record)}  {record.seconds:.1f} s  "
            f"{self._left(record)}",
            highlight=False,
            soft_wrap=True,
        )

    def _left(self, record: Round) -> str:
        left = (self._rounds - record.round) * record.seconds
        return "done" if record.round == self._rounds else f"about {left:.0f} s left"


def _tested(record: Round) -> str:
    if record.accuracy is None:
        return f"{record.clients} took part"
    return f"accuracy {record.accuracy:.4f}  loss {record.loss:.4f}"
