"""The command line: fedldp sweep."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedldp.cli import options
from fedldp.cli._common import draw_charts, many_runs, one_source, print_json, print_rows, verify
from fedldp.core.errors import ConfigError

if TYPE_CHECKING:
    from fedldp.experiments.sweeping.grid import Design


def sweep(
    recipes: list[str] | None = None,
    *,
    grid: list[str] | None = None,
    seeds: str | None = None,
    set_: options.Settings = None,
    rounds: int | None = None,
    device: str | None = None,
    guarantee: str | None = None,
    metric: str | None = None,
    how: options.Runs,
) -> None:
    """Run every combination of settings, recipes and seeds; write a table and a chart.

    Finished runs are kept: to continue after an interruption, give the same --out, or --resume DIR.
    The exit status is 2 if any run was refused or failed.

    Help:
        recipes ([RECIPE]...): names of recipes or .toml files [default: quickstart]
        grid (KEY=V1,V2,...): values of a setting, in the syntax of --set; repeat for other
            settings. recipe=A,B is the same as giving recipes as arguments. A recipe that lacks KEY
            runs once, without it
        seeds (SEEDS): seeds, such as 0-4 or 0,2,5 [default: the recipe's own]
        rounds: number of rounds in every run
        device: cpu, cuda or auto [default: cpu]
        guarantee (UNIT:ADVERSARY): the guarantee whose epsilon is shown, such as person:server
            [default: the target's guarantee]
        metric: the score that is shown first and plotted: accuracy, loss, auc, average_precision,
            balanced_accuracy, brier, f1_macro, client_accuracy or worst_tenth_accuracy; r2 or loss
            for numbers [default: the one that fits the labels]
    """
    from rich.console import Console

    from fedldp.experiments.kept import carried_out
    from fedldp.experiments.sweeping.sweeps import SweepExperiment, View, design_in, sweep_in

    chosen = {
        "RECIPE": recipes, "--grid": grid, "--seeds": seeds, "--set": set_, "--rounds": rounds,
        "--device": device,
    }  # fmt: skip
    one_source(how, chosen)
    verify(how, sweep_in)
    shown = View.of(guarantee, metric)
    if how.resume is not None:
        design = design_in(how.resume)
    else:
        design = _design(recipes or [], grid or [], seeds, set_ or [], rounds, device or "cpu")
    stderr = Console(stderr=True)
    if seeds is not None and seeds.strip().isdecimal() and int(seeds) > 1:
        stderr.print(f"seeds      one seed, {seeds}; for {seeds} seeds write 0-{int(seeds) - 1}")
    name = f"sweep-{Path(next(iter(design.bases))).stem}"
    with many_runs("sweep", name, how) as means:
        result = carried_out(SweepExperiment(design, None, how.data_dir, shown), means)
    if how.as_json:
        print_json(result.summary())
    else:
        print_rows(result, "sweep")
    if result.runs:
        draw_charts(result, ("svg", "png"))
    if result.failed:
        stderr.print(f"failed     {len(result.failed)} of {len(result.failed) + len(result.runs)}")
        raise typer.Exit(2)


def _design(
    recipes: list[str],
    grid: list[str],
    seeds: str | None,
    set_: list[str],
    rounds: int | None,
    device: str,
) -> Design:
    """Return the sweep that the options describe."""
    from fedldp.experiments.seeds import read_seeds
    from fedldp.experiments.sweeping.grid import read_grid
    from fedldp.experiments.sweeping.sweeps import design_of
    from fedldp.simulation.settings import assignment

    varied = read_grid(grid)
    if "recipe" in varied:
        if recipes:
            raise ConfigError(
                "grid recipe: recipes are also given as arguments; use only one of the two ways"
            )
        recipes = [str(name) for name in varied.pop("recipe")]
    settings = dict(assignment(text) for text in set_)
    if rounds is not None:
        settings["rounds"] = rounds
    chosen = None if seeds is None else read_seeds(seeds)
    return design_of(recipes or ["quickstart"], settings, varied, chosen, device)
