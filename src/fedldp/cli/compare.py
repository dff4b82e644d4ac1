"""The command line: fedldp compare."""

from __future__ import annotations

from functools import partial

from fedldp.cli import options
from fedldp.cli._common import carry_out, draw_charts, on_stderr, print_rows, say_missing
from fedldp.core.errors import ConfigError
from fedldp.experiments.comparing.compared import CompareExperiment
from fedldp.experiments.comparing.design import design_of
from fedldp.experiments.comparing.means import Estimation, compare_means
from fedldp.experiments.engine import Means
from fedldp.experiments.runs import read_seeds
from fedldp.simulation.settings import assignment


def compare(
    recipes: list[str] | None = None,
    *,
    guarantee: str | None = None,
    epsilon: str | None = None,
    delta: float | None = None,
    metric: str | None = None,
    tries: int | None = None,
    seeds: str | None = None,
    set_: options.Settings = None,
    mean: str | None = None,
    frequencies: str | None = None,
    how: options.Runs,
) -> options.Answer:
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
            [not with --frequencies, --guarantee, --metric, --tries, --set, --budget, --out]
        frequencies (k=K,n=N): the same for the frequencies of K categories
            [not with --guarantee, --metric, --tries, --set, --budget, --out]
    """
    if mean is not None or frequencies is not None:
        return _estimate(recipes or [], mean, frequencies, epsilon, delta, seeds)

    def made(means: Means) -> CompareExperiment:
        design = design_of(
            recipes or [],
            dict(map(assignment, set_ or [])),
            guarantee=guarantee,
            epsilon=None if epsilon is None else _epsilons(epsilon),
            delta=delta,
            metric=metric,
            tries=tries,
            seeds=seeds,
        )
        return CompareExperiment(design, None, means)

    result = carry_out(CompareExperiment, how, made)
    if any(line.mean(result.metric) is not None for line in result.groups):
        draw_charts(result, ("pdf", "svg"), result.plot_rounds if result.has_rounds else None)
    say_missing(result.missing, result.out)
    show = partial(print_rows, result, ("folder", str(result.out)))
    return options.Answer(result.summary(), show, 2 if result.refused else 0)


def _estimate(
    names: list[str],
    mean: str | None,
    frequencies: str | None,
    epsilon: str | None,
    delta: float | None,
    seeds: str | None,
) -> options.Answer:
    """Estimate a mean or frequencies by mechanisms, and return the errors."""
    if epsilon is None:
        raise ConfigError("epsilon: give one or more values, such as 1,4")
    found = compare_means(
        Estimation.of(mean or frequencies or "", categories=frequencies is not None),
        _epsilons(epsilon),
        contestants=names,
        delta=1e-5 if delta is None else delta,
        seeds=read_seeds("0-2" if seeds is None else seeds),
        say=on_stderr().put,
    )
    return options.Answer(found.document(), partial(print_rows, found, ()))


def _epsilons(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(
            f"epsilon {text}: write numbers separated by commas, such as 1,4,16"
        ) from None
