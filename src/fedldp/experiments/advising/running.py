"""``advise``: from a table to verdicts, and to the page for those who protect data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedldp.accounting.proven import Proven
from fedldp.core.errors import ConfigError
from fedldp.core.kinds import SCORES_LOGGED
from fedldp.data import Dataset
from fedldp.experiments.advising.advice import KEPT, NEXT, Advice, shown
from fedldp.experiments.advising.asking import checked_data, read_request
from fedldp.experiments.advising.intervals import held_people
from fedldp.experiments.advising.plan import (
    EPSILONS,
    FREE,
    MOST_TRIES,
    NO_NOISE,
    TRUSTS,
    AdviceRequest,
    BreadthFirst,
    unit_of,
)
from fedldp.experiments.engine import Means, carried_out
from fedldp.experiments.store import RunStore
from fedldp.reporting import charts, words
from fedldp.reporting.html import render
from fedldp.reporting.lines import asked_first
from fedldp.reporting.record import environment, replace_file
from fedldp.reporting.scores import Figure
from fedldp.simulation.given import Data, given_data

PAGE = "advice.html"


def advise(
    table: Path | str | None = None,
    *,
    dataset: Data | None = None,
    test: Any = None,
    client: str | None = None,
    person: str | None = None,
    label: str | None = None,
    settings: Mapping[str, Any] | None = None,
    by: Sequence[str] = (),
    epsilon: Sequence[float] = EPSILONS,
    tries: int = MOST_TRIES,
    seeds: Sequence[int] | None = None,
    budget: str | float | None = None,
    out: Path | str | None = None,
    data_dir: Path | str | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    say: Callable[[str], None] = lambda line: None,
    same_data: bool = False,
) -> Advice:
    """Return who in a table can be protected, under which kind of trust, and at what cost.

    This makes short runs of existing compositions under each kind of trust, at equal epsilons and
    with equal numbers of tries, and runs without protection for comparison. The runs use private
    rows, and their results are not private; see ``Advice.warnings``.

    Args:
        table: a .csv or .parquet file; or a .toml file that names such a file and declares its
            columns, such as one that ``draft`` wrote and you answered.
        dataset: data in any form that ``fedldp.run`` takes, which say whose each row is; or the
            path of another file with the columns that ``table`` declares.
        test: the examples to test on, in any form that ``fedldp.run`` takes; without them, a fifth
            of the people is held out.
        client: the column that names each row's client or site.
        person: the column that names each row's person; without it the unit is a row, or a whole
            client if there are 100 clients or more.
        label: the column that holds the classes; "label" by default.
        settings: other declarations about the data, by dotted name: "scale_columns.age", ...; and
            "class_shares", "people", "sites" and "delta". Without "delta" it is 1e-5, or less for
            more than 10,000 "people".
        by: columns by whose values scores are also given, such as sex; they may be columns that no
            model sees. These scores are exact, and no epsilon covers them.
        epsilon: the epsilons of the guarantees, ascending.
        tries: the number of candidate hyperparameters per contestant, 2 to 6; the rule for tables
            has three.
        seeds: the seeds to measure; by default three, and five at an epsilon of 1 or less.
        budget: no run begins after this time, which is given in seconds or as in "20m"; the result
            then says what is missing, and the same call with the same ``out`` completes it.
        out: the folder. If it already holds this advice, or a part of it, that advice is continued.
            With None, nothing is kept.
        data_dir: the data folder.
        workers: the number of runs at once; None for one per core.
        cluster: "auto" or the address of a Ray cluster; each of its CPUs then carries out one run
            at a time, instead of ``workers``; see docs/sweep.md.
        say: called with a line about every run.
        same_data: whether the table is that of the folder, where nobody can tell.

    Raises:
        FedldpError: the table or an argument is wrong, or ``out`` holds something else.
    """
    declared = {**(settings or {}), **({"by_columns": list(by)} if by else {})}
    of_data, given = given_data(dataset, test, tested=True)
    _check_source(table, of_data, given, client or person or label)
    names = ("dataset", "test_file")
    request = replace(
        read_request(
            table,
            client=client,
            person=person,
            label=label,
            settings=declared,
            given={name: of_data[name] for name in names if name in of_data},
            in_memory=given is not None,
        ),
        epsilons=tuple(epsilon),
        tries=tries,
        seeds=None if seeds is None else tuple(seeds),
    )
    if not 2 <= tries <= MOST_TRIES:
        raise ConfigError(f"tries = {tries}: give 2 to {MOST_TRIES}")
    means = Means.of(
        out, data_dir, budget, workers=workers, cluster=cluster, say=say, same_data=same_data
    )
    asked = str(table).endswith(".toml")
    return carried_out(AdviseExperiment(request, given, means, asked=asked), means)


def _check_source(
    table: Path | str | None, of_data: Mapping[str, Any], given: Dataset | None, named: str | None
) -> None:
    """Refuse a call that says twice what the data are, or not at all."""
    if given is not None and (table is not None or named is not None):
        raise ConfigError(
            "dataset: data given in Python say themselves whose each row is; leave out table, "
            "client, person and label (see Dataset.from_table)"
        )
    if given is not None and given.clients is None:
        raise ConfigError(
            f"dataset: the data set {given.name!r} does not say which client each row belongs to; "
            "make it with Dataset.from_table(..., client=...), or give a list of clients' data"
        )
    if table is None and given is None and "dataset" not in of_data:
        raise ConfigError("table: give the path of a .csv, .parquet or .toml file, or dataset=")


class AdviseExperiment(BreadthFirst[Advice]):
    """The runs of ``advise``, as an experiment.

    Args:
        request: the request for advice.
        given: the data, if they are given.
        means: how it is carried out.
        asked: whether a file declares the columns already.
    """

    kind = "advise"
    designed_by = AdviceRequest
    free = ("seeds",)
    design: AdviceRequest

    def __init__(
        self, request: AdviceRequest, given: Dataset | None, means: Means, *, asked: bool = True
    ) -> None:
        load = means.shared(request.load, given)
        data = checked_data(request, load, in_memory=given is not None, asked=asked)
        comparison = request.comparison(load, means.data_dir)
        cells = request.cells(comparison, len(data.clients or ()))
        super().__init__(comparison, cells, request, given)
        self.dataset = data
        self.configs = [request.config]
        self._people = held_people(request, data)

    def before(self, left: int, at_once: int, folder: Path | None) -> Iterator[str]:
        """Yield what must be said of private scores and delta."""
        yield f"note: {words.line(SCORES_LOGGED)}"
        yield f"note: {self.design.delta_in_words(unit_of(self.dataset))}"

    def view(self, store: RunStore, folder: Path | None) -> Advice:
        """Return what the rows so far say, and write it.

        Raises:
            ComparisonError: a run's statement has a larger epsilon or delta than its label.
        """
        data, comparison, figures, worked = self.dataset, self.comparison, {}, 0.0
        for cell in self.cells:
            line = comparison.result(cell, store.rows, store.failed)
            first = store.rows.get(self.first(cell).digest)
            if first is not None and first not in line.runs:
                worked += first["cpu_seconds"]
                comparison.check(cell, first)
            worked += line.cpu_seconds
            if first is not None and not line.runs and first["refused"] is None:
                line = replace(line, settled=False)
                if line.refused is None:
                    line = replace(line, runs=[first], each=[comparison.proven(cell, first)])
            figures[line.name, line.epsilon] = line
        cost = self.cost(store, [(unit_of(data), adversary) for _, adversary in TRUSTS.values()])
        found = Advice(self.design, data, comparison, figures, self._people, folder, worked, *cost)
        if folder is not None:
            found.write(folder)
            replace_file(folder / PAGE, page_of(found).encode())
        return found


Series = tuple[str, list[tuple[float, float, float]]]

MOST_SITES = 10
"""The largest number of sites whose lines fit on the first page."""


def page_of(advice: Advice) -> str:
    """Return the page."""
    trust, epsilon = advice.subject
    one, about = advice.released(trust, epsilon), (advice.unit, TRUSTS[trust][1])
    sites, trusting = advice.by_site(trust, epsilon), words.names("trusting")
    series = _series(advice)
    return render(
        "advice.html",
        advice=advice,
        verdicts=[advice.verdict(each) for each in TRUSTS],
        next_file=NEXT,
        subject=f"{trusting[trust].lower()}, epsilon {epsilon:g}",
        proven=one and Proven.of(one.statement, *about),
        sites={
            on: lines for on in ("own", "all") if (lines := [one for one in sites if one.on == on])
        },
        most_sites=MOST_SITES,
        shown=_cell,
        kept=KEPT,
        score=advice.judged,
        no_noise=NO_NOISE,
        privacy=one and {"privacy": asked_first(one.statement, about)},
        curves=_curves(advice, series) if series else None,
        curves_text="; ".join(
            f"{advice.judged.name}, {name}: "
            + ", ".join(f"{mean:.3f} at {at:g}" for at, mean, _ in points)
            for name, points in series
        ),
        environment=environment(),
    )


def _cell(figure: Figure, interval: bool = False) -> str:
    between = figure.interval if interval else None
    lacks = ", no interval" if interval and between is None and figure.value is not None else ""
    return (shown(figure.metric, figure.value, between) or "not known") + lacks


def _curves(advice: Advice, series: Sequence[Series]) -> charts.Chart:
    own = advice.alone_mean()
    levels = {
        "without protection": advice.mean(advice.free(FREE)),
        "sites alone, without protection": None if own is None else own.value,
        advice.judged.guessing: advice.judged.guess,
    }
    return charts.lines(
        series,
        levels=[(name, height) for name, height in levels.items() if height is not None],
        across="epsilon: further left is better protected",
        up=advice.judged.name,
        logarithmic=True,
    )


def _series(advice: Advice) -> list[Series]:
    """Return for each kind of trust its points: epsilon, score, and half its interval or nan."""
    found = []
    for trust, name in words.names("trusting").items():
        known = [(each, advice.estimate(advice.at(trust, each))) for each in advice.epsilons]
        points = [
            (each, of.value, of.interval[1] - of.value if of.interval else math.nan)
            for each, of in known
            if of is not None
        ]
        if points:
            found.append((name.lower(), points))
    return found
