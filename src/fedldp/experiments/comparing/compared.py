"""``fedldp.compare``: from its arguments to rows by contestant and epsilon, tables, a chart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fedldp.accounting.guarantees import HOUSE
from fedldp.algorithms.systems import whose_word
from fedldp.core.errors import ConfigError
from fedldp.core.formatting import number
from fedldp.core.kinds import (
    BEST_OF_EPSILON,
    EPSILON_COMPARED,
    NOT_PROVEN_HERE,
    ONLY_IDEALISED,
    SCORES_LOGGED,
)
from fedldp.data import Dataset
from fedldp.experiments.comparing.comparison import Cells, Line
from fedldp.experiments.comparing.design import Design, Recipe, design_of
from fedldp.experiments.engine import (
    Means,
    carried_out,
)
from fedldp.experiments.proving import GuaranteeKind
from fedldp.experiments.store import RunStore
from fedldp.experiments.table import Course, Group, RunTable, draw_courses, half_width
from fedldp.reporting import words
from fedldp.reporting.html import render
from fedldp.reporting.record import as_json, replace_file
from fedldp.reporting.scores import LESS_IS_BETTER, TestSet
from fedldp.simulation.given import Data, given_data


@dataclass(frozen=True)
class Behind:
    """How far a contestant is from the best one of its epsilon, paired by seed.

    Attributes:
        best: the best contestant.
        difference: the mean over common seeds of its score less that of the best.
        interval: the 95 % interval of the difference; None for fewer than two common seeds.
        seeds: the number of common seeds.
    """

    best: str
    difference: float
    interval: tuple[float, float] | None
    seeds: int

    @property
    def is_close(self) -> bool:
        """Whether the interval contains 0: the contestant cannot be told apart from the best."""
        return self.interval is not None and self.interval[0] <= 0 <= self.interval[1]


def interval_of(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % interval of a mean, by Student's t; None for fewer than two values."""
    half = half_width(values)
    return None if half is None else (float(np.mean(values)) - half, float(np.mean(values)) + half)


@dataclass(frozen=True, repr=False, kw_only=True)
class Compared(RunTable[Line]):
    """The result of ``fedldp.compare``: a row per contestant and epsilon; see ``RunTable``.

    Attributes:
        guarantee: the unit, the adversary and delta.
        metric: the metric of the scores.
    """

    ticks_at_points: ClassVar[bool] = True
    guarantee: GuaranteeKind
    metric: str

    @property
    def first(self) -> str:
        """The metric of the scores."""
        return self.metric

    @property
    def _name(self) -> str:
        return words.names("metric")[self.metric]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A mapping per contestant and epsilon, as in the JSON document.

        The keys: "name"; "epsilon", for which the budget was solved (None for a reference); "mean"
        and "deviation" (n - 1) over the number of "seeds"; "settings", the chosen settings;
        "interval", the 95 % interval of the mean; "behind", how far it is from the "best" of its
        epsilon, paired by seed ("difference", its 95 % "interval", "seeds"), None for the best
        itself; "as_it_is", whether it was measured without tuning;
        "proven", the epsilon that the statement proves: None if the statement proves nothing, or if
        only the user's own code, which "stated_by" then names, states the epsilon; "idealised",
        whether the epsilon holds only for real numbers; "conditions", what it rests on, and
        warnings; "refused", why there is no mean, or None.
        """
        return [
            {
                "name": line.name,
                "epsilon": line.epsilon,
                "mean": line.mean(self.metric),
                "deviation": line.deviation(self.metric),
                "seeds": self._seeds(line),
                "settings": line.settings,
                "proven": line.proven_here,
                "idealised": line.idealised,
                "stated_by": line.stated_by,
                "conditions": words.facts(line.conditions),
                "figure": words.figure(line.figure(self.metric)),
                "interval": interval_of(line.values(self.metric)),
                "behind": None if (found := self.behind(line)) is None else asdict(found),
                "as_it_is": line.as_it_is,
                "refused": line.refused,
            }
            for line in self.groups
        ]

    def best(self, epsilon: float | None) -> Line | None:
        """Return the line with the best mean at an epsilon; None if there is none, or no choice."""
        here = [line for line in self.groups if line.epsilon == epsilon and self._seeds(line)]
        if epsilon is None or len(here) < 2:
            return None
        sign = -1 if self.metric in LESS_IS_BETTER else 1
        return max(here, key=lambda line: sign * (line.mean(self.metric) or 0.0))

    def behind(self, line: Line) -> Behind | None:
        """Return how far a line is from the best of its epsilon; None for the best itself."""
        best = self.best(line.epsilon)
        if best is None or best is line:
            return None
        one, other = line.by_seed(self.metric), best.by_seed(self.metric)
        found = [one[seed] - other[seed] for seed in one if seed in other]
        if not found:
            return None
        return Behind(best.name, float(np.mean(found)), interval_of(found), len(found))

    def _has_fewer_seeds(self, line: Line) -> bool:
        """Return whether a line has scores for fewer seeds than another line."""
        return 0 < self._seeds(line) < max(map(self._seeds, self.groups))

    def _seeds(self, line: Line) -> int:
        """Return the number of seeds that have a score."""
        return len(line.values(self.metric))

    def summary(self) -> dict[str, Any]:
        """Return the document that ``fedldp compare --json`` prints."""
        kind = self.guarantee
        return {
            "guarantee": {"unit": kind.unit, "adversary": kind.adversary, "delta": kind.delta},
            "metric": self.metric,
            "rows": self.rows,
            "together": [words.together_document(each) for each in self.together],
            "complete": all(self._seeds(line) >= line.seeds for line in self.groups),
            "warnings": words.facts(self.warnings()),
        }

    @property
    def missing(self) -> list[str]:
        """The runs that have not been measured.

        The same command with the same folder makes them.
        """
        return [
            f"{line.full_name}: {line.seeds - self._seeds(line)} of {line.seeds} seeds"
            for line in self.groups
            if self._is_missing(line)
        ]

    def _is_missing(self, line: Line) -> bool:
        return line.refused is None and self._seeds(line) < line.seeds

    @property
    def refused(self) -> list[Line]:
        """The rows that have no scores because their runs were refused."""
        return [line for line in self.groups if line.refused is not None]

    def notes(self) -> list[str]:
        """Return, in sentences, what a reader of the numbers must know."""
        kind, name = self.guarantee, self._name
        found = [
            f"{name} is a mean over seeds, with the standard deviation across seeds"
            + ("; lower is better" if self.metric in LESS_IS_BETTER else ""),
            words.line(
                EPSILON_COMPARED(unit=kind.unit, adversary=kind.adversary, delta=kind.delta)
            ),
        ]
        if fewer := dict.fromkeys(line.name for line in self.groups if line.is_marked):
            most = max(line.of_tries for line in self.groups)
            found.append(f"* fewer than {most} tries: {', '.join(fewer)}")
        if untuned := dict.fromkeys(line.name for line in self.groups if line.as_it_is):
            found.append(f"as it is, not tuned: {', '.join(untuned)}")
        found += self._told_apart()
        if ideal := dict.fromkeys(line.name for line in self.groups if line.idealised):
            found.append(words.line(ONLY_IDEALISED(of=tuple(ideal))))
        own = dict.fromkeys(line.stated_by for line in self.groups if line.stated_by != HOUSE)
        if own:
            found.append(words.line(NOT_PROVEN_HERE(of=tuple(own))))
        found += [*self.facts_in_words(), *map(words.line, self.warnings())]
        if missing := self.missing:
            found.append(f"not measured yet: {'; '.join(missing)}")
        return found

    def _told_apart(self) -> Iterator[str]:
        """Yield, for each epsilon, which contestant is best, and which may be as good."""
        for epsilon in dict.fromkeys(line.epsilon for line in self.groups if line.epsilon):
            best = self.best(epsilon)
            if best is None:
                continue
            behind = {
                line.name: self.behind(line) for line in self.groups if line.epsilon == epsilon
            }
            close = tuple(name for name, each in behind.items() if each and each.is_close)
            yield words.line(BEST_OF_EPSILON(epsilon=epsilon, best=best.name, close=close))

    def shown(self) -> tuple[list[str], list[list[str]]]:
        """Return the table to display: its column headings and its rows."""
        head = ["contestant", "epsilon", self._name, "seeds", "tries",
                "CPU s", "of its statement", "idealised", "stated by", "chosen"]  # fmt: skip
        rows = [
            [
                line.name,
                "none" if line.epsilon is None else f"{line.epsilon:g}",
                "refused" if line.refused is not None else line.shown(self.metric) or "-",
                f"{self._seeds(line)}" + (f" of {line.seeds}" if self._is_missing(line) else ""),
                ("as it is" if line.as_it_is else f"{line.tries}") + " *" * line.is_marked,
                f"{round(line.cpu_seconds, 1):,.0f}",
                "" if line.stated is None and self._is_missing(line) else number(line.stated),
                "yes" if line.idealised else "no",
                line.stated_by,
                line.refused or ", ".join(f"{k} {_short(v)}" for k, v in line.settings.items()),
            ]
            for line in self.groups
        ]
        return head, rows

    def to_records(self) -> list[dict[str, Any]]:
        """Return the rows as flat mappings, with tries and CPU seconds.

        "proven_epsilon" is None if nothing is proven, and "stated_epsilon" if nothing is stated.
        """
        kind = self.guarantee
        return [
            {
                "name": line.name,
                "epsilon": line.epsilon,
                self.metric: line.mean(self.metric),
                "deviation": line.deviation(self.metric),
                "seeds": self._seeds(line),
                "of_seeds": line.seeds,
                "tries": line.tries,
                "of_tries": line.of_tries,
                "as_it_is": line.as_it_is,
                "cpu_seconds": round(line.cpu_seconds, 1),
                "proven_epsilon": line.proven_here,
                "stated_epsilon": line.stated,
                "unit": kind.unit,
                "adversary": kind.adversary,
                "delta": kind.delta,
                "idealised": line.idealised,
                "stated_by": line.stated_by,
                "baseline": line.figure(self.metric).baseline,
                "settings": line.settings,
                "refused": line.refused,
            }
            for line in self.groups
        ]

    def to_latex(self) -> str:
        """Return a LaTeX table: a row per contestant, a column per epsilon.

        The table needs no LaTeX package. The best of each epsilon is bold, and whatever cannot be
        told apart from it. A second table has the differences from the best, paired by seed. A star
        marks fewer tries, a circle what was not tuned, a section sign fewer seeds, a dagger
        idealised arithmetic.
        """
        epsilons = list(dict.fromkeys(line.epsilon for line in self.groups if line.epsilon))
        rows = []
        for name in dict.fromkeys(line.name for line in self.groups):
            at = {line.epsilon: line for line in self.groups if line.name == name}
            # A reference has the same values at every epsilon.
            rows.append((name, [at.get(each) or at[None] for each in epsilons] or [*at.values()]))
        scale, decimals = (100, 2) if self.metric in words.SHARES else (1, 4)
        done = (line.figure(self.metric) for line in self.groups if line.runs)
        return render(
            "compare.tex",
            of=self,
            title=self._name + (" in \\%" if scale > 1 else ""),
            epsilons=epsilons,
            rows=rows,
            seeds=self._seeds,
            most=max(map(self._seeds, self.groups)),
            fewer=self._has_fewer_seeds,
            few=sorted({self._seeds(line) for line in self.groups if self._has_fewer_seeds(line)}),
            paired=any(self.behind(line) is not None for line in self.groups),
            scale=scale,
            decimals=decimals,
            not_better="".join(dict.fromkeys(map(words.not_better, done))),
            tex=_escaped,
        )

    def _courses(self, epsilon: float | None) -> Iterator[Course]:
        """Yield the score by round of each line at an epsilon, and of each reference."""
        for line in self.groups:
            if line.epsilon not in (epsilon, None) or not line.runs:
                continue
            if all(self.metric in row.get("by_round", ()) for row in line.runs):
                found = np.array([row["by_round"][self.metric] for row in line.runs])
                count, rounds = found.shape
                deviation = found.std(0, ddof=1) if count > 1 else np.zeros(rounds)
                name = line.name + (" (no guarantee)" if line.epsilon is None else "")
                yield name, range(1, rounds + 1), found.mean(0), deviation

    @property
    def has_rounds(self) -> bool:
        """Whether there are scores by round to draw."""
        return any(any(self._courses(line.epsilon)) for line in self.groups)

    def plot_rounds(self, path: Path | str | None = None) -> Any:
        """Draw the score by round, one panel for each epsilon; see ``plot``.

        Bands are one standard deviation over seeds; a reference is in every panel.

        Raises:
            ConfigError: Matplotlib is not installed, the file extension is unknown, or the runs
                have no scores by round in this metric.
            RunError: the file cannot be written.
        """
        if not self.has_rounds:
            raise ConfigError(f"chart: no run has its {self._name} by round")
        known = dict.fromkeys(line.epsilon for line in self.groups if line.epsilon)
        panels = [(f"epsilon {each:g}", list(self._courses(each))) for each in known]
        panels = panels or [("no guarantee", list(self._courses(None)))]
        scale, unit = (100, " in %") if self.metric in words.SHARES else (1, "")
        label = f"{self._name}{unit}"
        return draw_courses(panels, scale, label, self.facts_in_words(), path)

    def points(self) -> Iterator[tuple[Group, str, float | None]]:
        """Yield what the chart shows; a contestant's name has marks for caveats of its points."""
        for line in self.groups:
            own = [each for each in self.groups if each.name == line.name and each.runs]
            by = dict.fromkeys(each.stated_by for each in own if each.stated_by != HOUSE)
            name = line.name + (" *" if any(each.is_marked for each in own) else "")
            name += " (as it is)" if line.as_it_is else ""
            name += " (idealised arithmetic)" if any(each.idealised for each in own) else ""
            name += f" (stated by {', '.join(by)})" if by else ""
            yield line, name + (" (no guarantee)" if line.epsilon is None else ""), line.epsilon

    def axis(self) -> str:
        """Return the label of the chart's axis of epsilons, and how many seeds a point has."""
        kind = self.guarantee
        counts: dict[int, dict[str, None]] = {}
        for line in self.groups:
            if count := self._seeds(line):
                at = "no guarantee" if line.epsilon is None else f"{line.epsilon:g}"
                counts.setdefault(count, {})[at] = None
        told = [
            ("one seed" if count == 1 else f"{count} seeds") + (f" at {', '.join(at)}" * several)
            for several in [len(counts) > 1]
            for count, at in counts.items()
        ]
        fewer = "* fewer tries; " if any(line.is_marked for line in self.groups) else ""
        label = words.axis([(kind.unit, kind.adversary)], [kind.delta])
        return f"{label}\n{fewer}means over {', '.join(told)}"

    def write(self, folder: Path) -> None:
        """Write the tables into a folder."""
        replace_file(folder / "results.json", as_json(self.summary()))
        for name, text in (
            ("table.txt", self.to_text()),
            ("table.csv", self.to_csv()),
            ("table.tex", self.to_latex()),
        ):
            replace_file(folder / name, text.encode())

    def __repr__(self) -> str:
        """Return the number of rows, and where the result is kept."""
        names = len({line.name for line in self.groups})
        missing = f", {len(self.missing)} not measured yet" if self.missing else ""
        where = "" if self.out is None else f", out={str(self.out)!r}"
        return f"Compared({names} contestants, {len(self.groups)} rows{missing}{where})"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


_SPECIAL = {"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}",
            "±": "$\\pm$"} | {each: f"\\{each}" for each in "&%$#_{}"}  # fmt: skip


def _escaped(text: str) -> str:
    return "".join(_SPECIAL.get(letter, letter) for letter in text)


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


class CompareExperiment(Cells[Compared]):
    """The runs of ``compare``, as an experiment.

    Args:
        design: what is compared.
        given: the data, if they are given.
        means: how it is carried out.
    """

    kind = "compare"
    designed_by = Design
    grows = ("entries",)
    free = ("epsilons", "metric", "seeds", "tries")
    design: Design

    def __init__(self, design: Design, given: Dataset | None, means: Means) -> None:
        data = means.shared(design.load, given)
        comparison = design.comparison(data, means.data_dir)  # refuses incompatible settings
        cells = design.cells(comparison)
        super().__init__(comparison, cells, design, given)
        self.dataset = data()
        self.configs = [entry.config for entry in design.entries.values()]
        # Refuses data of which nobody can be held out.
        for run in [run for cell in cells for run in comparison.tries(cell)][:1]:
            self.maker.data_for(run)

    def before(self, left: int, at_once: int, folder: Path | None) -> Iterator[str]:
        """Yield what must be said of private scores."""
        if not self.dataset.is_public:
            yield f"note: {words.line(SCORES_LOGGED)}"

    def view(self, store: RunStore, folder: Path | None) -> Compared:
        """Return what the rows so far say, and write it.

        Raises:
            ComparisonError: a run's statement has a larger epsilon or delta than its label.
        """
        data, kind = self.dataset, self.design.guarantee
        on = TestSet.of(np.bincount(data.test.labels), data.scores_are_private)
        lines = [
            replace(
                self.comparison.result(cell, store.rows, store.failed),
                on=on,
                of_tries=self.design.tries,
                author=whose_word(self.design.entries[cell.contestant].config),
            )
            for cell in sorted(self.cells, key=lambda cell: cell.epsilon)
        ]
        together, uncounted = self.cost(store, [(kind.unit, kind.adversary)])
        found = Compared(
            guarantee=kind,
            metric=self.design.metric,
            groups=lines,
            out=folder,
            private_choice=not data.is_public,
            private_scores=data.scores_are_private,
            score_releases={
                name: tuple(told)
                for name, entry in self.design.entries.items()
                if (told := entry.config.composition.local.private_scores)
            },
            together=together,
            uncounted=uncounted,
        )
        if folder is not None:
            found.write(folder)
        return found
