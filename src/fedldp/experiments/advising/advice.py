"""The results of `fedldp advise`: metrics, a verdict for each kind of trust, and the costs.

The rule is in ``KEPT``, ``Advice.state`` and docs/advise.md.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedldp.accounting.proven import Together
from fedldp.accounting.statement import Statement
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.settings import TargetUnit
from fedldp.core.facts import Fact
from fedldp.core.formatting import rounded_count
from fedldp.core.kinds import ALL_PRIVATE, CHOOSING, HELD_OUT, ROW_NOT_PERSON
from fedldp.data import Dataset
from fedldp.experiments.advising.plan import (
    CLIPPED,
    FREE,
    LARGER,
    METRIC,
    TABLE,
    TRUSTS,
    WHOLE,
    AdviceRequest,
    BreadthFirst,
    alone,
    alone_name,
    unit_of,
)
from fedldp.experiments.comparing.cells import Cell, Try
from fedldp.experiments.comparing.compared import (
    conditions_in_words,
    cost_together,
    doubts_of,
)
from fedldp.experiments.comparing.comparison import Comparison
from fedldp.experiments.runs import Row
from fedldp.experiments.store import RunStore
from fedldp.experiments.table import deviation_of, mean_of
from fedldp.reporting import words
from fedldp.reporting.record import as_json, replace_file
from fedldp.reporting.scores import Figure, TestSet, auc_deviation, is_imbalanced, most_frequent
from fedldp.simulation.plan import plan, problem_with
from fedldp.simulation.settings import seen_from, to_toml

METRICS = {
    "auc": "AUC", "accuracy": "accuracy", "balanced_accuracy": "balanced accuracy",
    "calibration_error": "calibration error",
}  # fmt: skip

KEPT = 0.8
"""A viable model keeps at least this share of the way from guessing to no protection, in AUC."""

GUESS = 0.5
"""The AUC of random guessing, or of always predicting the most frequent class."""

NEXT = "next.toml"
"""The file in the advice folder that holds the advised run."""

SMALL = 0.01
"""A difference in AUC up to this value is not called a cost."""

State = Literal[
    "viable", "no gain", "lost", "not clear yet", "nothing learned", "refused", "not measured"
]

TRUST_WORDS = {
    "none": "Trust in nobody",
    "sum": "Trust that a server sees only sums",
    "central": "Trust in one server",
}
UNITS = {"person": "one person", "record": "one row", "client-run": "one client as a whole"}


@dataclass(frozen=True)
class Measured:
    """The measurements of one contestant at one epsilon.

    Attributes:
        name: the contestant's name.
        epsilon: None for a contestant without a guarantee.
        runs: the measured runs, with the chosen hyperparameters.
        refused: why there are no runs, or None.
        seeds: the number of seeds to measure.
        conditions: what its epsilon rests on, and the warnings; None if that is not known.
        settled: whether the hyperparameters are chosen; if not, the run is a first answer, with
            those that usually do well.
    """

    name: str
    epsilon: float | None
    runs: Sequence[Row]
    refused: str | None
    seeds: int
    conditions: tuple[Fact, ...] | None = ()
    settled: bool = True

    def values(self, metric: str) -> list[float]:
        """Return the values of a metric, one per seed."""
        found = [run["metrics"].get(metric) for run in self.runs]
        return [each for each in found if each is not None]

    def mean(self, metric: str = METRIC) -> float | None:
        """Return the mean over seeds; None if no seed has a value."""
        return mean_of(self.values(metric))

    def deviation(self, metric: str = METRIC) -> float | None:
        """Return the standard deviation over seeds (n - 1); None for fewer than two seeds."""
        return deviation_of(self.values(metric))

    @property
    def chosen(self) -> Try | None:
        """The chosen hyperparameters."""
        return self.runs[0]["try"] if self.runs else None

    @property
    def is_whole(self) -> bool:
        """Whether all runs are measured."""
        return self.refused is not None or (self.settled and len(self.runs) >= self.seeds)


@dataclass(frozen=True, repr=False)
class Advice:
    """The result of ``advise``.

    Attributes:
        request: the request for advice.
        data: the table's data.
        comparison: the contestants.
        figures: the measurements, by contestant and epsilon.
        out: the folder, or None if nothing was kept.
        seconds: the CPU seconds of all runs.
        together: what all runs, tries included, cost together.
        uncounted: how many other runs in the folder used the same rows; what they cost is unknown.
    """

    request: AdviceRequest
    data: Dataset
    comparison: Comparison
    figures: Mapping[tuple[str, float | None], Measured]
    out: Path | None
    seconds: float
    together: Sequence[Together] = ()
    uncounted: int = 0

    @property
    def unit(self) -> TargetUnit:
        """Who is protected."""
        return unit_of(self.data)

    @property
    def sites(self) -> int:
        """How many sites, or clients, there are."""
        return len(self.data.clients or ())

    @property
    def epsilons(self) -> tuple[float, ...]:
        """The epsilons, ascending."""
        return self.request.epsilons

    # Figures

    def at(self, trust: str, epsilon: float) -> Measured:
        """Return the measurements under a kind of trust."""
        return self.figures[TRUSTS[trust][0], epsilon]

    def free(self, name: str) -> Measured:
        """Return the measurements without a guarantee."""
        return self.figures[name, None]

    @property
    def alone(self) -> list[Measured]:
        """The measurements of sites that train alone, unprotected; empty with many clients."""
        if self.unit == "client-run":
            return []
        return [self.free(alone_name(site)) for site in alone(self.data)]

    def alone_mean(self, metric: str = METRIC) -> float | None:
        """Return the mean over the sites that train alone; None unless all are measured."""
        found = [figure.mean(metric) for figure in self.alone if figure.refused is None]
        known = [each for each in found if each is not None]
        return statistics.fmean(known) if known and len(known) == len(found) else None

    @cached_property
    def most_frequent(self) -> float:
        """The share of the most frequent class in the test set, 0 to 1."""
        return most_frequent(self._counts)

    @property
    def chance(self) -> float:
        """An upper bound on the standard deviation of a random ranking's AUC on this test set."""
        return auc_deviation(self._counts)

    @property
    def _counts(self) -> Any:
        return np.bincount(self.data.test.labels, minlength=self.data.num_classes)

    def baseline(self, metric: str) -> float | None:
        """Return the value to beat.

        This is the value for always predicting the most frequent class, or the value of sites that
        train alone if theirs is better. For the calibration error, it is always that of sites that
        train alone.
        """
        own = self.alone_mean(metric)
        if metric == "calibration_error":
            return own
        classes = self.data.num_classes
        naming = {"auc": GUESS, "accuracy": self.most_frequent, "balanced_accuracy": 1 / classes}
        return naming[metric] if own is None else max(own, naming[metric])

    def figure(self, measured: Measured, metric: str = METRIC) -> Figure:
        """Return the mean of a metric with its baseline and doubts."""
        return Figure.of(
            metric,
            measured.values(metric),
            TestSet.of(self._counts, self.data.scores_are_private),
            doubts_of(measured.runs),
            calibration_error=measured.mean("calibration_error"),
        )

    # The rule

    @property
    def learns(self) -> bool | None:
        """Whether a model learns anything without protection; None if this is not measured."""
        free = self.free(FREE).mean()
        return None if free is None else free > GUESS + 2 * self.chance

    def kept(self, figure: Measured) -> float | None:
        """Return the share of the way from guessing to no protection that a contestant keeps."""
        free, mean = self.free(FREE).mean(), figure.mean()
        if free is None or mean is None or not self.learns:
            return None
        return (mean - GUESS) / (free - GUESS)

    def state(self, trust: str, epsilon: float) -> State:
        """Return the rule's verdict on a kind of trust at an epsilon.

        A result is viable if it keeps ``KEPT`` of the way from guessing to a model without
        protection, and if it beats a site that trains alone by two standard errors over the seeds.

        While runs are missing, the rule must hold for every value in the interval of the runs so
        far; if it holds for some of them only, the result is not clear yet.
        """
        figure = self.at(trust, epsilon)
        if figure.refused is not None:
            return "refused"
        kept = self.kept(figure)
        if self.learns is False:
            return "nothing learned"
        if kept is None or not self._sites_known:
            return "not measured"
        mean, error = figure.mean(), self._error(figure)
        assert mean is not None
        if figure.is_whole and kept < KEPT:
            return "lost"
        if not figure.is_whole:
            free = self.free(FREE).mean() or 1.0
            needed = GUESS + KEPT * (free - GUESS)
            if mean + error < needed:
                return "lost"
            if mean - error < needed:
                return "not clear yet"
        own = self.alone_mean()
        if own is None or mean - error > own:
            return "viable"
        return "no gain" if figure.is_whole or mean + error <= own else "not clear yet"

    def _error(self, figure: Measured) -> float:
        """Return two standard errors over the seeds; for one seed, those of the test set."""
        deviation = figure.deviation()
        if deviation is None:
            return 2 * self.chance
        return 2 * deviation / math.sqrt(len(figure.runs))

    @property
    def _sites_known(self) -> bool:
        return all(figure.runs or figure.refused is not None for figure in self.alone)

    def viable(self, trust: str) -> list[float]:
        """Return the epsilons that are viable under a kind of trust, ascending."""
        return [each for each in self.epsilons if self.state(trust, each) == "viable"]

    def verdict(self, trust: str) -> tuple[str, str]:
        """Return the verdict on a kind of trust, as a short label and as full sentences."""
        word, text = self._verdict(trust)
        return word, text + self._same_noise(trust) + self._so_far(trust)

    def _so_far(self, trust: str) -> str:
        """Return a sentence if runs are missing on which a verdict rests."""
        wanted = [self.free(FREE), *self.alone, *(self.at(trust, e) for e in self.epsilons)]
        if all(figure.is_whole for figure in wanted):
            return ""
        return (
            " This is what the runs so far say, some of them from one seed or from settings that "
            "are not chosen yet: the same command continues. Whoever stops it because she likes a "
            "page chooses by private scores."
        )

    def _same_noise(self, trust: str) -> str:
        """Return a sentence if the verdicts for sums and a trusted server differ at equal noise."""
        two = ("sum", "central")
        if trust not in two or self.unit == "client-run" or not self.learns:
            return ""
        states = [[self.state(each, epsilon) for epsilon in self.epsilons] for each in two]
        if {"not measured", "not clear yet", "refused"} & {*states[0], *states[1]}:
            return ""  # runs that are missing may explain the difference
        if self.viable("sum") == self.viable("central"):
            return ""
        return (
            " Sums and one trusted server have noise of the same size here, so their verdicts "
            "differ only by chance."
        )

    def _verdict(self, trust: str) -> tuple[str, str]:
        found = {each: self.state(trust, each) for each in self.epsilons}
        states = {each: state for each, state in found.items() if state != "not measured"}
        free, own = self.free(FREE).mean(), self.alone_mean()
        if self.learns is False:
            assert free is not None
            return "not viable", (
                f"Even without protection the AUC is {free:.3f}, no better than guessing as far as "
                "this test set can tell. Protection cannot make it worse: check the columns and "
                "the labels first."
            )
        if good := self.viable(trust):
            first = good[0]
            above = [each for each in states if each >= first]
            gaps = [each for each in above if each not in good]
            return f"viable from epsilon {first:g}", (
                (f"It is not viable at {_epsilons(gaps)}. " if gaps else "")
                + self._reached(trust, first)
                + (
                    ""
                    if own is None
                    else f" A site that trains alone, without protection, has {own:.3f}."
                )
                + self._doubted(trust, first)
            )
        measured = [each for each, state in states.items() if state != "refused"]
        if len(states) < len(found) and not measured:
            return "not measured yet", "There is no run yet, or none to compare it with."
        if len(states) < len(found) or "not clear yet" in states.values():
            return "not clear yet", self._reached(trust, measured[-1])
        if set(states.values()) == {"refused"}:
            return "not viable", f"Refused: {self.at(trust, self.epsilons[0]).refused}."
        last = measured[-1]
        if (gains := [each for each in measured if states[each] == "no gain"]) and own is not None:
            last = gains[-1]
            ahead = (self.at(trust, last).mean() or 0.0) > own
            return "not viable: nothing gained", (
                f"{self._reached(trust, last)} But a site that trains alone and keeps its model "
                f"has {own:.3f} without any protection"
                + (
                    ", and the noise alone could explain the difference"
                    if ahead
                    else ": nothing is gained by taking part"
                )
                + ". If a site gives its own model away, that model also needs noise, and would be "
                "the fair comparison; it was not measured here."
            )
        return "not viable", (
            f"{self._reached(trust, last)} The rule requires {100 * KEPT:.0f} %, and no smaller "
            "epsilon reached it."
        )

    def _doubted(self, trust: str, epsilon: float) -> str:
        """Return a sentence if the gain may be due to chance on a test set of this size."""
        mean, own = self.at(trust, epsilon).mean(), self.alone_mean()
        if mean is None or own is None or mean - own > self.chance:
            return ""
        return (
            f" The gain over that site is only {mean - own:.3f}, which may be chance on a test set "
            f"of this size ({self.chance:.3f}): confirm it on more rows before you rely on it."
        )

    def _reached(self, trust: str, epsilon: float) -> str:
        figure, free = self.at(trust, epsilon), self.free(FREE).mean()
        mean, kept = figure.mean(), self.kept(figure)
        assert mean is not None
        assert free is not None
        assert kept is not None
        return (
            f"At epsilon {epsilon:g} the AUC is {mean:.3f}; guessing has {GUESS}, and a model "
            f"without protection {free:.3f}: this keeps {_share(kept)} of the way from guessing to "
            "no protection."
        )

    @property
    def best(self) -> tuple[str, float] | None:
        """The least trust that is viable, with its smallest viable epsilon; None if no trust is."""
        return next(((trust, good[0]) for trust in TRUSTS if (good := self.viable(trust))), None)

    # In words

    def costs(self) -> list[str]:
        """Return sentences on what each choice costs, from differences between runs."""
        found: list[str] = []
        free, clipped = self.free(FREE).mean(), self.free(CLIPPED).mean()
        larger = self.free(LARGER).mean()
        if free is None:
            return found
        if larger is not None:
            gain = larger - free
            found.append(
                f"The model: without protection the linear model has AUC {free:.3f} and a small "
                f"neural network {larger:.3f}. "
                + (
                    f"So the linear model costs {gain:.3f}, before any protection."
                    if gain > SMALL
                    else "So the simple model costs nothing."
                )
            )
        if clipped is not None:
            found.append(
                f"The clip, which bounds what {UNITS[self.unit]} can contribute: with the clip and "
                f"without noise the AUC is {clipped:.3f}. {_cost('The clip', free - clipped)}"
            )
            parts = []
            for trust in TRUSTS:
                known = [
                    f"{clipped - mean:.3f} at {epsilon:g}"
                    for epsilon in self.epsilons
                    if (mean := self.at(trust, epsilon).mean()) is not None
                ]
                if known:
                    parts.append(f"{TRUST_WORDS[trust].lower()}: {', '.join(known)}")
            if parts:
                found.append(f"The noise, as a loss of AUC at each epsilon: {'; '.join(parts)}.")
        found += self._of_trust()
        if is_imbalanced(self.most_frequent):
            balanced = self.free(FREE).mean("balanced_accuracy")
            assert balanced is not None
            found.append(
                f"Imbalance: {_share(self.most_frequent)} of the test set is one class, and always "
                "predicting that class has this accuracy. So the verdicts use the AUC. Without "
                f"protection the balanced accuracy is {_share(balanced)}"
                + (f": {self._of_rare()}" if balanced < 0.65 else ".")
            )
        return found

    def _of_rare(self) -> str:
        """Return what helps a model to predict rare classes, and what that costs."""
        count = self.data.num_classes
        text = "the model seldom predicts rare classes, and noise is not the reason. "
        if count == 2:
            second = "1" if self.data.classes is None else self.data.classes[1]
            text += (
                "After training, a threshold helps and does not change the AUC: with --threshold "
                f"P, fedldp evaluate and predict choose {second} if its probability is at least P; "
                "begin with the published share of that class. "
            )
        text += (
            f"In training, class_weights help: 1/({count} p) for each class with a published share "
            "p. "
        )
        if self.unit != "client-run":
            text += (
                "If no shares are published, class_count_rounds = 2 counts the classes under the "
                "same epsilon. "
            )
        return text + (
            "Never compute a share or a threshold from these rows: that would be a release that no "
            "epsilon covers."
        )

    def _of_trust(self) -> list[str]:
        """Return the cost of trusting nobody, and the cost of hiding a whole site."""
        found = []
        middle = self.epsilons[len(self.epsilons) // 2]
        none, central = (self.at(trust, middle).mean() for trust in ("none", "central"))
        if none is not None and central is not None:
            who = (
                f"each of the {self.sites} sites adds all the noise that its own people need"
                if self.unit != "client-run"
                else f"each of the {self.sites} clients adds its own noise"
            )
            found.append(
                f"Trust: at epsilon {middle:g} the AUC is {none:.3f} if nobody is trusted, and "
                f"{central:.3f} if one server is trusted. "
                f"{_cost('Trusting nobody', central - none)}"
                + (f" The reason: {who}." if central - none > SMALL else "")
            )
        found += self._of_sums()
        whole = self.figures.get((WHOLE, self.epsilons[-1]))
        if whole is not None and (mean := whole.mean()) is not None:
            kept = self.kept(whole)
            told = "" if kept is None else f", {_share(kept)} of the way"
            found.append(
                f"Few sites: hiding one of {self.sites} sites as a whole was tried with the most "
                f"trust and the largest epsilon, {self.epsilons[-1]:g}: the AUC is "
                f"{mean:.3f}{told}. The other verdicts do not hide what is true of most people at "
                "a site."
            )
        return found

    def _of_sums(self) -> list[str]:
        """Return why a trusted server may be no better than sums, or worse."""
        gaps = {
            epsilon: behind - central
            for epsilon in self.epsilons
            if (behind := self.at("sum", epsilon).mean()) is not None
            and (central := self.at("central", epsilon).mean()) is not None
        }
        if not gaps or self.unit == "client-run":
            return []
        worst = max(gaps, key=lambda epsilon: gaps[epsilon])
        return [
            "Sums or one server: at the same epsilon the sum over all sites has noise of the same "
            "size either way, because the sites' shares add up to the noise that one server would "
            "add. Only the random numbers differ, and therefore possibly the chosen tries. A "
            "difference between these two is therefore chance"
            + (
                f", even where the trusted server is behind, by {gaps[worst]:.3f} at epsilon "
                f"{worst:g}."
                if gaps[worst] > 0
                else "."
            )
        ]

    @property
    def advice(self) -> list[str]:
        """The verdicts and the costs, in sentences."""
        found = []
        for trust in TRUSTS:
            word, text = self.verdict(trust)
            found.append(f"{TRUST_WORDS[trust]}: {word}. {text}")
        return [*found, *self.costs()]

    @property
    def warnings(self) -> list[str]:
        """The warnings that a reader of the results needs."""
        found = [
            words.line(ALL_PRIVATE),
            words.line(CHOOSING),
        ]
        if self.data.scores_are_private:
            found.append(words.line(HELD_OUT))
        found += self.facts_in_words()
        if self.request.declares_delta:
            found.append(self.request.delta_in_words(self.unit))
        if self.unit == "record":
            found.append(words.line(ROW_NOT_PERSON))
        if is_imbalanced(self.most_frequent):
            found.append(
                f"one class makes up {100 * self.most_frequent:.0f} % of the test set: accuracy "
                "says little"
            )
        found.append(
            f"on this test set of up to {rounded_count(len(self.data.test)):,} rows a random order "
            f"has an AUC of 0.5 ± {self.chance:.3f}: differences of that size may be chance"
        )
        refused = [figure for figure in self.figures.values() if figure.refused is not None]
        for figure in refused:
            at = "" if figure.epsilon is None else f" at epsilon {figure.epsilon:g}"
            found.append(f"{figure.name}{at}: {figure.refused}")
        if missing := self.missing:
            found.append(f"not measured yet: {', '.join(missing)}")
        return found

    def facts_in_words(self) -> list[str]:
        """Return the conditions of the epsilons, and what all runs cost together."""
        known = [(f.name, f.epsilon, f.conditions) for f in self.figures.values() if f.runs]
        doubtful = {
            f.name + ("" if f.epsilon is None else f" at epsilon {f.epsilon:g}"): [
                doubt for metric in METRICS for doubt in self.figure(f, metric).doubts
            ]
            for f in self.figures.values()
            if f.runs
        }
        return [
            *conditions_in_words(known),
            *words.conditions_together(self.together),
            *words.by_rows("doubt", doubtful),
            *words.together_lines(self.together, self.uncounted),
        ]

    @property
    def missing(self) -> list[str]:
        """The runs that have not been measured.

        The same command with the same folder measures them.
        """
        return [
            figure.name + ("" if figure.epsilon is None else f" at epsilon {figure.epsilon:g}")
            for figure in self.figures.values()
            if not figure.is_whole
        ]

    # Documents

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A mapping for each kind of trust, epsilon and metric, as in the JSON document."""
        return [
            {
                "trust": trust,
                "adversary": adversary,
                "epsilon": epsilon,
                "metric": metric,
                "mean": self.at(trust, epsilon).mean(metric),
                "deviation": self.at(trust, epsilon).deviation(metric),
                "baseline": self.baseline(metric),
                "viable": self.state(trust, epsilon) == "viable",
                "conditions": None if rests_on is None else words.facts(rests_on),
                "figure": words.figure(self.figure(self.at(trust, epsilon), metric)),
            }
            for trust, (_, adversary) in TRUSTS.items()
            for epsilon in self.epsilons
            for rests_on in [self.at(trust, epsilon).conditions]
            for metric in METRICS
        ]

    def summary(self) -> dict[str, Any]:
        """Return the document that ``fedldp advise --json`` prints."""
        return {
            "unit": self.unit,
            "rows": self.rows,
            "together": [words.together_document(each) for each in self.together],
            "complete": all(
                figure.settled and len(figure.runs) >= figure.seeds
                for figure in self.figures.values()
            ),
            "advice": self.advice,
            "warnings": self.warnings,
        }

    @property
    def heads(self) -> list[str]:
        """The headings of the metric columns in ``groups``."""
        return [*METRICS.values(), "way kept"]

    def groups(self) -> list[tuple[str, list[list[str]]]]:
        """Return the tables to display: one for the references, and one for each kind of trust.

        A row begins with its name or its epsilon. Then come the metrics in ``METRICS``, each with
        its deviation; the share of the way from guessing to no protection that the model keeps; and
        the rule's verdict.
        """
        beside = [
            [name, *self._cells(self.free(name)), self._kept_words(self.free(name)), ""]
            for name in (LARGER, FREE, CLIPPED)
        ]
        own = {metric: self.alone_mean(metric) for metric in METRICS}
        if own[METRIC] is not None:
            cells = [shown(metric, value) for metric, value in own.items()]
            beside.append([f"each site alone, no protection (mean of {len(self.alone)})", *cells,
                           "", ""])  # fmt: skip
        naming = {**dict.fromkeys(METRICS), "auc": GUESS, "accuracy": self.most_frequent,
                  "balanced_accuracy": 1 / self.data.num_classes}  # fmt: skip
        cells = [shown(metric, value) for metric, value in naming.items()]
        beside.append(["always the most frequent class", *cells, "0 %", ""])
        found = [("For comparison, without any guarantee", beside)]
        for trust in TRUSTS:
            rows = [
                [
                    f"{epsilon:g}",
                    *self._cells(self.at(trust, epsilon)),
                    self._kept_words(self.at(trust, epsilon)),
                    self.state(trust, epsilon),
                ]
                for epsilon in self.epsilons
            ]
            found.append((TRUST_WORDS[trust], rows))
        return found

    def _cells(self, figure: Measured) -> list[str]:
        return [shown(metric, figure.mean(metric), figure.deviation(metric)) for metric in METRICS]

    def _kept_words(self, figure: Measured) -> str:
        kept = self.kept(figure)
        return "" if kept is None else _share(kept)

    def statement(self, trust: str, epsilon: float) -> Statement | None:
        """Return the statement of a measured run; None if there is none."""
        config = self._config(trust, epsilon)
        if config is None:
            return None
        return plan(config, problem_with(config, self.data, None)).privacy

    def next_run(self, folder: Path | None = None) -> str | None:
        """Return a file for ``fedldp run`` under the least trust that is viable, or None.

        Args:
            folder: where the file will be written; its paths are then relative to this folder.
        """
        if self.best is None:
            return None
        trust, epsilon = self.best
        figure = self.at(trust, epsilon)
        assert figure.chosen is not None
        # The file keeps the target, so that run, page and card begin with the requested guarantee.
        config = self.comparison.configuration(
            Cell(TABLE, self.sites, figure.name, epsilon), figure.chosen, 0
        )
        if folder is not None:
            config = config.changed(**seen_from(folder, config))
        return (
            "# Chosen by fedldp advise from scores on private rows: this choice is a release that "
            f"no epsilon covers.\n# {TRUST_WORDS[trust]}: epsilon {epsilon:g}.\n{to_toml(config)}"
        )

    def _config(self, trust: str, epsilon: float) -> RunConfig | None:
        figure = self.at(trust, epsilon)
        if figure.chosen is None:
            return None
        cell = Cell(TABLE, self.sites, figure.name, epsilon)
        run = self.comparison.run(cell, figure.chosen, "measured", 0)
        return self.comparison.maker.calibrated(run)

    def write(self, folder: Path) -> None:
        """Write the document and the advised run into a folder."""
        replace_file(folder / "results.json", as_json(self.summary()))
        text = self.next_run(folder)
        if text is None:
            (folder / NEXT).unlink(missing_ok=True)
        else:
            replace_file(folder / NEXT, text.encode())


def advice_of(
    request: AdviceRequest,
    plan: BreadthFirst,
    data: Dataset,
    store: RunStore,
    out: Path | None,
) -> Advice:
    """Return the advice that follows from the rows so far.

    Args:
        request: the request for advice.
        plan: the request's contestants, and their cells.
        data: the table's data.
        store: the rows; rows of other requests count only in what all runs cost together.
        out: the folder.

    Raises:
        ComparisonError: a run's statement has a larger epsilon or delta than its label.
    """
    comparison, figures, worked = plan.comparison, {}, 0.0
    for cell in plan.cells:
        found, epsilon = comparison.result(cell, store.rows, store.failed), cell.epsilon or None
        runs, conditions = found.runs, found.conditions
        first = store.rows.get(plan.first(cell).digest)
        settled = bool(runs) or first is None or first["accuracy"] is None
        if first is not None and first not in runs:
            worked += first["cpu_seconds"]
            comparison.check(cell, first)
        if first is not None and not settled and found.refused is None:
            runs, conditions = [first], comparison.conditions(cell, [first])
        figures[cell.contestant, epsilon] = Measured(
            cell.contestant,
            epsilon,
            runs,
            found.refused,
            len(comparison.seeds_of(cell)),
            conditions,
            settled,
        )
        worked += found.cpu_seconds
    shown = [(unit_of(data), adversary) for _, adversary in TRUSTS.values()]
    cost = cost_together(comparison, store.rows.values(), shown, data.name)
    return Advice(request, data, comparison, figures, out, worked, *cost)


def document_of(request: AdviceRequest, data: Dataset) -> dict[str, Any]:
    """Return the record of the request in its folder, with a shareable description of the data."""
    return {**request.document(), "own_data": data.own_data}


def shown(metric: str, mean: float | None, deviation: float | None = None) -> str:
    """Format a value with its deviation for display; return an empty string if there is none."""
    if mean is None:
        return ""
    if metric in ("accuracy", "balanced_accuracy"):
        spread = "" if deviation is None else f" ± {100 * deviation:.1f}"
        return f"{100 * mean:.1f} %{spread}"
    return f"{mean:.3f}" + ("" if deviation is None else f" ± {deviation:.3f}")


def _share(value: float) -> str:
    return f"{100 * value:.0f} %"


def _cost(what: str, loss: float) -> str:
    if loss > SMALL:
        return f"{what} costs {loss:.3f}."
    return f"{what} costs less than {SMALL:g}."


def _epsilons(values: Sequence[float]) -> str:
    words = [f"{value:g}" for value in values]
    return "epsilon " + (
        words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
    )
