"""Export of runs to TensorBoard, in the files that other tools read as well.

They have what the HTML page shows: the settings, for every round the metrics and the budget spent
so far, and the statement.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fedldp.core.errors import RunError, first_line
from fedldp.core.registry import import_extra
from fedldp.protocol.server_loop import MODEL_SCORES
from fedldp.reporting.runs import FinishedRun
from fedldp.reporting.scores import FIGURES
from fedldp.reporting.words import explain


def to_tensorboard(runs: Sequence[FinishedRun], logdir: Path) -> None:
    """Write each run below ``logdir``, in a folder named after the run's own folder.

    Raises:
        ConfigError: TensorBoard is not installed.
        RunError: ``logdir`` cannot be written, or already has a run with that name.
    """
    import_extra("tensorboard", extra="tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    places = [logdir / _file_name(run, i) for i, run in enumerate(runs)]
    for place in places:
        if place.exists():
            raise RunError(f"tensorboard = {place}: it exists already; choose another folder")
    try:
        for run, place in zip(runs, places, strict=True):
            writer: Any = SummaryWriter(str(place))
            for name, value, round in _figures(run):
                writer.add_scalar(name, value, round)
            writer.add_text("privacy", explain(run.privacy))
            writer.add_text("warnings", "\n\n".join(run.warnings))
            writer.add_text("settings", _as_code(run.summary["config"]))
            writer.close()
    except OSError as error:
        raise RunError(
            f"tensorboard = {logdir}: {first_line(error)}; choose a writable folder"
        ) from error


def _figures(run: FinishedRun) -> Iterator[tuple[str, float, int]]:
    """Yield the name, value and round of each measurement."""
    for record in run.summary["rounds"]:
        names = ("accuracy", "loss", *FIGURES, *MODEL_SCORES)
        for name in (*names, "uplink_bits_per_client", "seconds", "clients"):
            if record.get(name) is not None:
                yield name, float(record[name]), record["round"]
    for name, mean in run.means.items():
        yield f"mean/{name}", mean, run.summary["rounds"][-1]["round"]
    yield from _privacy(run)


def _privacy(run: FinishedRun) -> Iterator[tuple[str, float, int]]:
    """Yield epsilons and budgets by round; the last round has the headline's epsilon at least."""
    shown, last = set(), run.summary["rounds"][-1]["round"]
    for round, (lines, budgets) in enumerate(zip(run.spent, run.budgets, strict=True), 1):
        for line in lines:
            if line["epsilon"] is not None:
                name = _epsilon(line["unit"], line["adversary"])
                shown.add((name, round))
                yield name, line["epsilon"], round
        for budget in budgets:
            for what in ("spent", "left"):
                if budget[what] is not None:
                    yield f"budget_{budget['unit']}_{budget['kind']}_{what}", budget[what], round
    # The loop does not yield the headline's epsilon if the headline's unit is a round.
    headline = run.headline
    if headline is not None and headline.epsilon is not None:
        name = _epsilon(headline.unit, headline.adversary)
        if (name, last) not in shown:
            yield name, headline.epsilon, last


def _epsilon(unit: str, adversary: str) -> str:
    return f"epsilon_{unit}_{adversary}".replace("-", "_")


def _as_code(document: Any) -> str:
    text = json.dumps(document, indent=2)
    return "\n".join(f"    {line}" for line in text.splitlines())


def _file_name(run: FinishedRun, place: int) -> str:
    name = re.sub(r"[^\w.-]", "_", run.path.resolve().name, flags=re.ASCII).strip(".")
    return f"{place + 1}-{name}"[:100]
