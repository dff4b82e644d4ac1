"""The command line: fedldp run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedldp.accounting.statement import Statement
from fedldp.algorithms.config import RunConfig
from fedldp.cli._common import at_most_cores, on_stderr, one_place, results_folder
from fedldp.cli.options import Answer, DataDir, Settings, recipe_names
from fedldp.core.locks import OwnedFolder, owned
from fedldp.reporting import lines, text
from fedldp.reporting.progress import RunProgress
from fedldp.reporting.record import RunFolder, check_new
from fedldp.reporting.text import Terminal
from fedldp.simulation.plan import Plan, cores, early_plan
from fedldp.simulation.settings import from_mapping, resolve, to_toml

if TYPE_CHECKING:
    from fedldp.simulation.engine import Result


@dataclass(frozen=True, kw_only=True)
class _How:
    """How a run is carried out and looked at, which changes no model.

    Help:
        device: auto, cpu or cuda
        workers: number of processes [default: one per core, or one for a small run]
        cluster: use a Ray cluster (auto or HOST:PORT) instead of --workers
        evaluate_every: test the model after every so many rounds and the last
        signal: measure each round's signal and noise, from private rows; 1 process
    """

    device: str = "auto"
    workers: int | None = None
    cluster: str | None = None
    data_dir: DataDir = None
    evaluate_every: Annotated[int, typer.Option(min=1)] = 1
    signal: bool = False

    def planned(self, config: RunConfig) -> Plan | None:
        """Return the plan, unless a slow check could still refuse the run."""
        slow = self.cluster is not None or self.device not in ("auto", "cpu")
        if slow or (self.workers is not None and self.workers < 1):
            return None
        return early_plan(config, self.data_dir)


def run(
    recipe: Annotated[str | None, typer.Argument(autocompletion=recipe_names)] = None,
    *,
    set_: Settings = None,
    rounds: int | None = None,
    seed: int | None = None,
    out: Path | None = None,
    resume: Path | None = None,
    how: _How,
    print_config: bool = False,
) -> Answer:
    """Train a model over simulated clients, and report what the run protected.

    Help:
        recipe: a recipe's name or a .toml file [default: quickstart]
        rounds: number of rounds
        seed: the simulation's seed
        out (FOLDER): the run folder to create
        resume (FOLDER): continue the run in this folder, with its own settings [not with other
            settings]
        print_config: print the configuration as TOML, and stop
    """
    name, config, begun = _configuration(recipe, set_ or [], rounds, seed, resume)
    if print_config:
        document = config.model_dump(mode="json")
        return Answer(document, lambda _: typer.echo(to_toml(config), nl=False))
    shown: list[Statement] = []
    title = f"{Path(name or config.system).stem}-seed{config.seed}"
    with nullcontext() if begun else _new_folder(out, title) as own:
        result = _simulate(config, name, how, own, begun, shown)
    summary, config = result.summary(), result.config

    def show(console: Terminal) -> None:
        console.print_result(
            summary,
            config.composition.local.tested_on,
            result.metrics,
            config.epsilon_in_words(result.privacy.guarantees),
            classes=result.schema.class_names,
            stated=bool(shown) and shown[-1] == result.privacy and one_place(),
            told=begun is None and one_place() and not sys.stdout.isatty(),
        )
        console.print_signal(result.rounds)

    return Answer(summary, show)


@contextmanager
def _new_folder(out: Path | None, name: str) -> Iterator[OwnedFolder]:
    """Own the folder for a new run: the one that the user gave, or else a new one in runs/."""
    with results_folder(out, name) as place, owned(place, "out", "run", check_new) as own:
        yield own


def _configuration(
    recipe: str | None, given: list[str], rounds: int | None, seed: int | None, resume: Path | None
) -> tuple[str | None, RunConfig, RunFolder | None]:
    """Return the run's name and configuration, and the folder to continue in."""
    if resume is not None:
        folder = RunFolder(resume)
        document = folder.read_config()
        return document["recipe"], from_mapping(document["config"]), folder
    name, extra = "quickstart" if recipe is None else recipe, {"rounds": rounds, "seed": seed}
    more = [f"{key}={value}" for key, value in extra.items() if value is not None]
    return name, resolve(name, given + more), None


def _simulate(
    config: RunConfig,
    name: str | None,
    how: _How,
    out: OwnedFolder | None,
    folder: RunFolder | None,
    shown: list[Statement],
) -> Result:
    """Run the simulation, with progress on stderr; append the printed statement to ``shown``.

    In a terminal where a table of the rounds follows, the progress is removed at the end.
    """
    stderr = on_stderr()
    workers = at_most_cores(how.workers)
    several = cores() if how.cluster is None else 1

    def show(plan: Plan) -> None:
        what = text.run_text(name or "a run from Python", plan.config)
        stderr.say("run", what)
        asked = lines.asked_for(plan.config.model_dump())
        stderr.print_statement(lines.asked_first(plan.privacy, asked))
        shown.append(plan.privacy)

    try:
        planned = None if folder else how.planned(config)
        if planned is not None:
            show(planned)
        from fedldp.simulation.engine import simulate  # imports torch, which takes seconds

        # A user's own model may print to stdout, and Ray prints when a worker dies.
        shown_rounds = RunProgress(config.rounds, stderr, one_place())
        with shown_rounds as progress, redirect_stdout(sys.stderr):
            return simulate(
                config,
                recipe=name,
                device=how.device,
                workers=several if workers is None else workers,
                alone_if_small=workers is None,
                cluster=how.cluster,
                out=out,
                resume=folder,
                data_dir=how.data_dir,
                planned=planned,
                evaluate_every=how.evaluate_every,
                signal=how.signal,
                before=show,
                after_round=progress.show,
            )
    except KeyboardInterrupt:
        place = folder.path if folder else out.path if out else None
        kept = place is not None and (place / "checkpoint").exists()
        again = f"; continue with: fedldp run --resume {place}"
        none = " before the first round was complete; nothing was saved"
        stderr.put(f"interrupted{again if kept else none}")
        raise typer.Exit(130) from None
