"""``fedldp.compare``: a comparison, from the user's arguments to its tables and its chart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedldp.core.kinds import SCORES_LOGGED
from fedldp.data import Dataset, is_table
from fedldp.experiments.comparing.compared import Compared, compared
from fedldp.experiments.comparing.comparison import Cell, Cells, Comparison
from fedldp.experiments.comparing.design import Design, Recipe, design_of
from fedldp.experiments.kept import (
    KeptExperiment,
    View,
    carried_out,
    of_given_data,
    settings_of,
)
from fedldp.experiments.runs import PlannedRun, Row, Shared
from fedldp.experiments.scheduling import Means
from fedldp.experiments.store import Document, RunStore, design_from, document_of
from fedldp.reporting import words
from fedldp.simulation.given import Data, given_data


def compare(
    contestants: Recipe | Iterable[Recipe] | Mapping[str, Recipe],
    *,
    guarantee: str | None = None,
    epsilon: float | Iterable[float] | None = None,
    delta: float | None = None,
    metric: str | None = None,
    budget: str | float | None = None,
    tries: int | None = None,
    seeds: str | Iterable[int] | None = None,
    out: Path | str | None = None,
    dataset: Data | None = None,
    test: Any = None,
    data_dir: Path | str | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    say: Callable[[str], None] = lambda line: None,
    same_data: bool = False,
    **settings: Any,
) -> Compared:
    """Compare recipes at an equal guarantee and with equal effort spent on their hyperparameters.

    Every recipe is calibrated to the same epsilon, and the statement of each of its runs is read to
    check that epsilon. Every recipe has the same number of tries: values around its own learning
    rate, clip and rounds, or the tries in its grid in a compare file. The tries are scored on
    clients (or people) that do not take part in training, and on a seed that is not measured; the
    chosen try is then measured on the test set.

    Args:
        contestants: recipes' names, .toml files and configurations, or a mapping from names to
            these; or a compare file (docs/compare.md), whose values the other arguments replace.
        guarantee: "UNIT:ADVERSARY", such as "client-run:server"; by default the guarantee of the
            contestants' targets, if they agree on one.
        epsilon: one or more epsilons of the guarantee.
        delta: the largest delta of the guarantee; 1e-5 by default.
        metric: accuracy, loss, auc, average_precision, balanced_accuracy, brier, f1_macro,
            client_accuracy or worst_tenth_accuracy; for labels that
            are numbers, r2 or loss. The default is the first of these.
        budget: no run begins after this time, which is given in seconds or as in "20m"; the result
            then says what is missing, and the same call with the same ``out`` completes it.
        tries: the number of candidate hyperparameters per contestant; 8 by default. 1 measures
            every contestant as it is.
        seeds: the seeds to measure; by default three, and ten at an epsilon of 1 or less.
        out: the folder. If it already holds this comparison, or a part of it, that comparison is
            continued. With None, nothing is kept.
        dataset: the data, in any form that ``fedldp.run`` takes; by default those that the recipes
            name.
        test: the examples to test on, in any form that ``fedldp.run`` takes.
        data_dir: the data folder.
        workers: the number of runs at once, each in a separate process; None for one per core. With
            1, runs take place in this process.
        cluster: "auto" or the address of a Ray cluster; each of its CPUs then carries out one run
            at a time, instead of ``workers``; see docs/sweep.md.
        say: called with a line about every run.
        same_data: whether private data are those of the folder, where nobody can tell.
        settings: changes to all recipes that have these settings.

    Raises:
        ComparisonError: a run's statement has a larger epsilon or delta than it was calibrated to.
        FedldpError: an argument is wrong, contestants differ in data, clients or partition, or
            ``out`` holds something else.

    >>> import fedldp
    >>> found = fedldp.compare(["quickstart", "composed-digits"], epsilon=8, tries=2,
    ...     guarantee="client-run:server", seeds=[0], workers=1, rounds=2, num_clients=100)
    >>> [(row["name"], row["seeds"], row["proven"] <= 8) for row in found.rows]
    [('quickstart', 1, True), ('composed-digits', 1, True)]
    """
    of_data, given = given_data(dataset, test, tested=True)
    settings = {**of_data, **settings}
    design = design_of(
        contestants, settings, guarantee=guarantee, epsilon=epsilon, delta=delta, metric=metric,
        tries=tries, seeds=seeds,
    )  # fmt: skip
    means = Means.of(
        out, data_dir, budget, workers=workers, cluster=cluster, say=say, same_data=same_data
    )
    return carried_out(CompareExperiment(design, given, means), means)


class OfComparison(Cells, KeptExperiment[View]):
    """What experiments about the contestants of a comparison share; see ``KeptExperiment``.

    Args:
        design: its settings.
        comparison: the contestants.
        cells: what is measured of them.
        load: returns their data.
        given: these, if they are given.
    """

    def __init__(
        self,
        design: object,
        comparison: Comparison,
        cells: Sequence[Cell],
        load: Shared,
        given: Dataset | None,
    ) -> None:
        super().__init__(comparison, cells)
        self.design = design
        self.maker = comparison.maker
        self.dataset = load()
        self.given = given

    def document(self) -> Document:
        """Return its settings, with a description of the data that may be shared."""
        return {**document_of(self.design), "own_data": self.dataset.own_data}

    def read_again(self, old: Document) -> Document:
        """Return an older document with the settings that there are now."""
        return {**old, **document_of(design_from(type(self.design), old, self.kind))}

    def planned(self, row: Row) -> PlannedRun | None:
        """Return the run that the contestants would make now of a row's labels."""
        return self.comparison.planned(row)

    def check(self, row: Row) -> None:
        """Refuse a row that does not prove its label's guarantee."""
        self.comparison.check(Cell(**row["cell"]), row)


class CompareExperiment(OfComparison[Compared]):
    """The runs of ``compare``, as an experiment.

    Args:
        design: what is compared.
        given: the data, if they are given.
        means: how it is carried out.
    """

    kind = "compare"
    grows = ("entries",)
    free = ("epsilons", "metric", "seeds", "tries")

    def __init__(self, design: Design, given: Dataset | None, means: Means) -> None:
        data = means.shared(design.load, given)
        comparison = design.comparison(data, means.data_dir)  # refuses incompatible settings
        cells = design.cells(comparison)
        super().__init__(design, comparison, cells, data, given)
        self._design = design
        self.configs = [entry.config for entry in design.entries.values()]
        # Refuses data of which nobody can be held out.
        for run in [run for cell in cells for run in comparison.tries(cell)][:1]:
            self.maker.data_for(run)

    def before(self, left: int, at_once: int, folder: Path | None) -> Iterator[str]:
        """Yield what must be said of private scores."""
        if not self.dataset.is_public:
            yield f"note: {words.line(SCORES_LOGGED)}"

    def view(self, store: RunStore, folder: Path | None) -> Compared:
        """Return what the rows so far say, and write it."""
        found = compared(self._design, self.comparison, store, self.dataset, folder)
        if folder is not None:
            found.write(folder)
        return found


def comparison_in(folder: Path, means: Means) -> CompareExperiment:
    """Return the comparison in a folder, as it would be made now.

    Raises:
        RunError: there is none, or it used data or models given in Python.
    """
    found = settings_of(folder, "compare")
    design = design_from(Design, found, "compare")
    if found.get("own_data") is not None and not is_table(design.first.dataset):
        raise of_given_data(folder, "compare")
    return CompareExperiment(design, None, means)
