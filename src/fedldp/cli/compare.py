"""The command line: fedldp compare."""

from __future__ import annotations

import typer

from fedldp.cli import options
from fedldp.cli._common import (
    draw_charts,
    many_runs,
    one_source,
    print_json,
    print_rows,
    say_missing,
    verify,
)
from fedldp.core.errors import ConfigError


def compare(
    recipes: list[str] | None = None,
    *,
    guarantee: str | None = None,
    epsilon: str | None = None,
    delta: float | None = None,
    metric: str | None = None,
    budget: options.Budget = None,
    tries: int | None = None,
    seeds: str | None = None,
    set_: options.Settings = None,
    mean: str | None = None,
    frequencies: str | None = None,
    how: options.Runs,
) -> None:
    """Compare recipes under the same guarantee, with the same number of tries for each.

    Each recipe is calibrated to each epsilon, and each run is checked against its statement. Tries
    are scored on clients that take no part in training, with a seed that is not used for the final
    measurements; the best try is then measured on the test set. The folder gets tables (text, CSV,
    LaTeX, JSON) and a chart (PDF, SVG). To continue after an interruption, give the same command
    with the same --out. The exit status is 2 if any recipe was refused or failed.

    Help:
        recipes (RECIPE...): names of recipes or .toml files, or one compare file
        guarantee (UNIT:ADVERSARY): the guarantee that all recipes must meet, such as
            client-run:server [default: their target's guarantee]
        epsilon (E1,E2,...): the guarantee's epsilons, such as 1,4,16
        delta: the guarantee's delta [default: 1e-5]
        metric: the score for comparing recipes and choosing the best try: accuracy, loss, auc,
            average_precision, balanced_accuracy, brier, f1_macro, client_accuracy or
            worst_tenth_accuracy; r2 or loss for numbers
        tries: number of tries per recipe; 1: as it is [default: 8]
        seeds (SEEDS): seeds, such as 0-4 or 0,2,5 [default: 0-2, and 0-9 for epsilons up to 1]
        mean (d=D,n=N): instead of training, estimate the mean of N vectors with D coordinates (or
            as many as in a recipe), by all mechanisms, or those named; MODULE:CLASS adds your own
        frequencies (k=K,n=N): the same for the frequencies of K categories
    """
    from fedldp.experiments.comparing.design import design_of
    from fedldp.experiments.comparing.running import (
        CompareExperiment,
        comparison_in,
        design_in,
    )
    from fedldp.experiments.kept import carried_out
    from fedldp.experiments.scheduling import end_of
    from fedldp.simulation.settings import assignment

    chosen = {
        "RECIPE": recipes, "--guarantee": guarantee, "--epsilon": epsilon, "--delta": delta,
        "--metric": metric, "--tries": tries, "--seeds": seeds, "--set": set_,
    }  # fmt: skip
    if mean is not None or frequencies is not None:
        others = {
            "--mean and --frequencies": mean is not None and frequencies is not None,
            "--guarantee": guarantee, "--metric": metric, "--tries": tries, "--set": set_,
            "--budget": budget, "--out": how.out, "--resume": how.resume, "--verify": how.verify,
        }  # fmt: skip
        if wrong := next((name for name, given in others.items() if given), None):
            raise ConfigError(f"{wrong}: a mean is estimated without training; leave it out")
        _estimate(recipes or [], mean, frequencies, epsilon, delta, seeds, how.as_json)
        return
    one_source(how, chosen, needed="RECIPE")
    verify(how, comparison_in)
    with many_runs("compare", "compare", how, end=end_of(budget)) as means:
        design = (
            design_in(how.resume)
            if how.resume is not None
            else design_of(
                recipes or [],
                dict(assignment(text) for text in set_ or []),
                guarantee=guarantee,
                epsilon=None if epsilon is None else _epsilons(epsilon),
                delta=delta,
                metric=metric,
                tries=tries,
                seeds=seeds,
            )
        )
        result = carried_out(CompareExperiment(design, None, means), means)
    if how.as_json:
        print_json(result.summary())
    else:
        print_rows(result, "folder")
    if any(line.mean(result.metric) is not None for line in result.groups):
        draw_charts(result, ("pdf", "svg"), result.plot_rounds if result.has_rounds else None)
    say_missing(result.missing, result.out)
    if result.refused:
        raise typer.Exit(2)


def _estimate(
    names: list[str],
    mean: str | None,
    frequencies: str | None,
    epsilon: str | None,
    delta: float | None,
    seeds: str | None,
    as_json: bool,
) -> None:
    """Estimate a mean or frequencies by mechanisms, and print the errors."""
    from rich.console import Console

    from fedldp.cli._common import table_console
    from fedldp.experiments.comparing.means import Estimation, compare_means
    from fedldp.experiments.seeds import read_seeds
    from fedldp.reporting.text import print_table, say

    if epsilon is None:
        raise ConfigError("epsilon: give one or more values, such as 1,4")
    stderr = Console(stderr=True)
    found = compare_means(
        Estimation.of(mean or frequencies or "", categories=frequencies is not None),
        _epsilons(epsilon),
        contestants=names,
        delta=1e-5 if delta is None else delta,
        seeds=read_seeds("0-2" if seeds is None else seeds),
        say=lambda line: stderr.print(line, highlight=False, soft_wrap=True, markup=False),
    )
    if as_json:
        print_json(found.document())
        return
    console = table_console()
    print_table(console, *found.shown())
    for note in found.notes():
        say(console, "note", note)


def _epsilons(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(
            f"epsilon {text}: write numbers separated by commas, such as 1,4,16"
        ) from None
