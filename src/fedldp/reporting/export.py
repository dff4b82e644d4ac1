"""Export of finished runs to TensorBoard, MLflow and Weights & Biases, through their libraries.

Each tool receives what the HTML page shows: the settings, for every round the metrics and the
budget spent so far, and the statement.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedldp.core.errors import ConfigError, RunError, first_line
from fedldp.core.registry import import_extra
from fedldp.protocol.server_loop import MODEL_SCORES
from fedldp.reporting.runs import FinishedRun
from fedldp.reporting.scores import FIGURES
from fedldp.reporting.words import explain

EXPERIMENT = "fedldp"
_LONGEST_PARAM = 500
_LONGEST_TAG = 5000
_AT_A_TIME = 100


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
    with _sending(f"tensorboard = {logdir}", "choose a writable folder"):
        for run, place in zip(runs, places, strict=True):
            writer: Any = SummaryWriter(str(place))
            for name, value, round in _figures(run):
                writer.add_scalar(name, value, round)
            writer.add_text("privacy", explain(run.privacy))
            writer.add_text("warnings", _warnings(run))
            writer.add_text("settings", _as_code(run.summary["config"]))
            writer.close()


def to_mlflow(runs: Sequence[FinishedRun], uri: str) -> None:
    """Send each run to an MLflow tracking store, as a run of the experiment "fedldp".

    Raises:
        ConfigError: MLflow is not installed.
        RunError: the store cannot be reached, or refuses a run.
    """
    # MLflow sends usage data to its developers unless this variable is set before the import.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    import_extra("mlflow", extra="mlflow")
    from mlflow import MlflowClient

    remedy = "give a tracking store, such as sqlite:///mlflow.db or http://HOST:PORT"
    with _sending(f"mlflow = {uri}", remedy):
        client = MlflowClient(tracking_uri=uri)
        found = client.get_experiment_by_name(EXPERIMENT)
        experiment = client.create_experiment(EXPERIMENT) if found is None else found.experiment_id
        for run in runs:
            _send(client, experiment, run)


def to_wandb(runs: Sequence[FinishedRun], project: str) -> None:
    """Send each run to a project of Weights & Biases, with the library's local configuration.

    Raises:
        ConfigError: wandb is not installed.
        RunError: the service cannot be reached, or refuses a run.
    """
    wandb: Any = import_extra("wandb", extra="wandb")
    remedy = "check the login (wandb login), or set WANDB_MODE=offline"
    with _sending(f"wandb = {project}", remedy):
        for run in runs:
            made = wandb.init(
                project=project,
                name=run.path.resolve().name,
                config=run.summary["config"],
                notes=f"{explain(run.privacy)}\n\n{_warnings(run)}",
                reinit=True,
                save_code=False,
                settings=wandb.Settings(console="off", disable_git=True),
            )
            by_round: dict[int, dict[str, float]] = {}
            for name, value, round in _figures(run):
                by_round.setdefault(round, {})[name] = value
            for round, figures in sorted(by_round.items()):
                made.log(figures, step=round)
            made.finish()


@contextmanager
def _sending(where: str, remedy: str) -> Iterator[None]:
    """Refuse in one line what a library, its store or the network refuses."""
    try:
        yield
    except ImportError as error:
        raise ConfigError(
            f"{where}: {error}; install that package, which this store needs"
        ) from error
    except Exception as error:  # the library's own exceptions, and the network's
        raise RunError(f"{where}: {first_line(error)}; {remedy}") from error


def _send(client: Any, experiment: str, run: FinishedRun) -> None:
    from mlflow.entities import Metric, Param

    made = client.create_run(experiment, run_name=run.path.resolve().name).info
    params = [
        Param(_key(name), json.dumps(value)[:_LONGEST_PARAM])
        for name, value in run.summary["config"].items()
    ]
    metrics = [
        Metric(_key(name), value, made.start_time, round) for name, value, round in _figures(run)
    ]
    for start in range(0, max(len(params), len(metrics)), _AT_A_TIME):
        part = slice(start, start + _AT_A_TIME)
        client.log_batch(made.run_id, metrics=metrics[part], params=params[part])
    for name, text in (("privacy", explain(run.privacy)), ("warnings", _warnings(run))):
        for start in range(0, len(text), _LONGEST_TAG):
            more = f".{start // _LONGEST_TAG + 1}" if start else ""
            client.set_tag(made.run_id, f"fedldp.{name}{more}", text[start : start + _LONGEST_TAG])
    client.set_terminated(made.run_id, "FINISHED")


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


def _warnings(run: FinishedRun) -> str:
    return "\n\n".join(run.warnings)


def _as_code(document: Any) -> str:
    text = json.dumps(document, indent=2)
    return "\n".join(f"    {line}" for line in text.splitlines())


def _key(name: str) -> str:
    """Return a name in the form that MLflow allows."""
    return re.sub(r"[^\w\-. /]", "_", name, flags=re.ASCII)[:250] or "_"


def _file_name(run: FinishedRun, place: int) -> str:
    name = re.sub(r"[^\w.-]", "_", run.path.resolve().name, flags=re.ASCII).strip(".")
    return f"{place + 1}-{name}"[:100]
