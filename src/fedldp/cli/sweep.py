"""The command line: fedldp sweep."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fedldp.cli import options
from fedldp.cli._common import carry_out, draw_charts, on_stderr, print_rows
from fedldp.experiments.engine import Means
from fedldp.experiments.runs import read_seeds
from fedldp.experiments.sweeping.sweeps import SweepExperiment, design_of, read_grid
from fedldp.simulation.settings import assignment


@dataclass(frozen=True, kw_only=True)
class _View:
    """What is shown of the runs.

    Help:
        guarantee (UNIT:ADVERSARY): the guarantee whose epsilon is shown, such as person:server
            [default: the target's guarantee]
        metric: the score that is shown first and plotted: accuracy, loss, auc, average_precision,
            balanced_accuracy, brier, f1_macro, client_accuracy or worst_tenth_accuracy; r2 or loss
            for numbers [default: the one that fits the labels]
    """

    guarantee: str | None = None
    metric: str | None = None


def sweep(
    recipes: list[str] | None = None,
    *,
    grid: list[str] | None = None,
    seeds: str | None = None,
    set_: options.Settings = None,
    device: str = "cpu",
    view: _View,
    how: options.Runs,
) -> options.Answer:
    """Run every combination of settings, recipes and seeds; write a table and a chart.

    Finished runs are kept: to continue after an interruption, give the same --out, or --resume DIR.
    The exit status is 2 if any run was refused or failed.

    Help:
        recipes ([RECIPE]...): names of recipes or .toml files [default: quickstart]
        grid (KEY=V1,V2,...): values of a setting, in the syntax of --set; repeat for other
            settings. A recipe that lacks KEY runs once, without it
        seeds (SEEDS): seeds, such as 0-4 or 0,2,5 [default: the recipe's own]
        device: cpu, cuda or auto
    """
    names, varied = recipes or ["quickstart"], read_grid(grid or [])
    stderr = on_stderr()

    def made(means: Means) -> SweepExperiment:
        settings = dict(map(assignment, set_ or []))
        own = None if seeds is None else read_seeds(seeds)
        if own and len(own) == 1 and own[0] > 1:
            stderr.say("seeds", f"one seed, {own[0]}; for {own[0]} seeds write 0-{own[0] - 1}")
        design = design_of(names, settings, varied, own, device)
        return SweepExperiment(design, None, means, **vars(view))

    result = carry_out(
        SweepExperiment, how, made, name=f"sweep-{Path(names[0]).stem}", **vars(view)
    )
    if result.runs:
        draw_charts(result, ("svg", "png"))
    if result.failed:
        stderr.say("failed", f"{len(result.failed)} of {len(result.failed) + len(result.runs)}")
    show = partial(print_rows, result, ("sweep", str(result.out)))
    return options.Answer(result.summary(), show, 2 if result.failed else 0)
