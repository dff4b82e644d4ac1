"""The results of `fedldp advise`: scores with intervals, a verdict for each kind of trust, costs.

The rule is in ``KEPT``, ``Advice.state`` and docs/advise.md. Sentences are in the templates
advice.txt and advice.html of ``fedldp.reporting``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from textwrap import wrap
from typing import Any, Literal

import numpy as np

from fedldp.accounting.guarantees import Unit
from fedldp.accounting.proven import Proven, Released, Together, together
from fedldp.algorithms.config import RunConfig
from fedldp.core.formatting import rows_named
from fedldp.core.kinds import ALL_PRIVATE, CHOOSING, HELD_OUT, ROW_NOT_PERSON
from fedldp.data import Dataset
from fedldp.experiments.advising.intervals import (
    DRAWS,
    EVERYBODY,
    Estimate,
    HeldPeople,
    Part,
    weighted,
)
from fedldp.experiments.advising.plan import (
    CLIPPED,
    FREE,
    LARGER,
    TABLE,
    TRUSTS,
    WHOLE,
    AdviceRequest,
    Judged,
    alone,
    alone_name,
    judged,
    unit_of,
)
from fedldp.experiments.comparing.comparison import Cell, Comparison, Line, Try
from fedldp.experiments.table import conditions_in_words, doubts_of
from fedldp.reporting import words
from fedldp.reporting.html import phrases
from fedldp.reporting.record import as_json, replace_file
from fedldp.reporting.scores import LESS_IS_BETTER, Figure, TestSet, is_imbalanced
from fedldp.simulation.plan import plan, problem_with, released
from fedldp.simulation.settings import seen_from, to_toml

KEPT = 0.8
"""A viable model keeps at least this share of the way from guessing to no protection."""

_ENDS = {"r2": (-math.inf, 1.0), "mae": (0.0, math.inf), "calibration_gap": (0.0, math.inf)}
"""Between which values a metric lies; the others lie from 0 to 1."""

NEXT = "next.toml"
"""The file in the advice folder that holds the advised run."""

TRAININGS = (1, 4, 12)
"""How often a year a model may be trained again, for the price of a year."""

State = Literal[
    "viable", "not clear", "no gain", "lost", "nothing learned", "refused", "not measured"
]
"""What intervals say of a kind of trust at an epsilon; "lost" is with the settings tried."""


@dataclass(frozen=True)
class Verdict:
    """The verdict on a kind of trust.

    Attributes:
        trust: the kind of trust.
        state: what the intervals say, at this epsilon.
        epsilon: the smallest viable epsilon; if none is viable, the one that is most promising.
        run: the kind of trust whose run has this score: of a viable way, this or a lesser one,
            because what is hidden from anyone is hidden from a trusted server too.
        unlike: larger epsilons at which this kind of trust's own runs are not viable.
        is_final: whether no run is missing on which it rests.
    """

    trust: str
    state: State
    epsilon: float
    run: str
    unlike: Sequence[float] = ()
    is_final: bool = True


@dataclass(frozen=True)
class Beside:
    """Two scores on a part of the test set: of training together, and of what it is compared with.

    Attributes:
        part: the column and its value; no column for a site.
        on: "own" for a site's own people, "all" for everybody; "group" for a group.
        joint: the score with protection.
        other: of a site that trains alone, or of everybody without protection.
        gain: the difference; None if it is not known.
        state: the rule's verdict, if the part has one.
    """

    part: Part
    on: str
    joint: Figure
    other: Figure
    gain: Estimate | None
    state: State | None = None

    @property
    def viable(self) -> bool | None:
        """Whether the verdict is viable; None where the intervals allow both."""
        unknown = (None, "not clear", "not measured")
        return None if self.state in unknown else self.state == "viable"

    @property
    def gain_words(self) -> str:
        """The difference for display; empty if it is not known."""
        metric = self.joint.metric
        return "" if self.gain is None else shown(metric, self.gain.value, self.gain.interval)


@dataclass(frozen=True, repr=False)
class Advice:
    """The result of ``advise``.

    Attributes:
        request: the request for advice.
        data: the table's data.
        comparison: the contestants.
        figures: the measurements, by contestant and epsilon.
        tested: the test set, and its parts.
        out: the folder, or None if nothing was kept.
        seconds: the CPU seconds of all runs.
        together: what all runs, tries included, cost together.
        uncounted: how many other runs in the folder used the same rows; what they cost is unknown.
    """

    request: AdviceRequest
    data: Dataset
    comparison: Comparison
    figures: Mapping[tuple[str, float | None], Line]
    tested: HeldPeople
    out: Path | None
    seconds: float
    together: Sequence[Together] = ()
    uncounted: int = 0

    @property
    def judged(self) -> Judged:
        """By what models are judged."""
        return judged(self.data)

    @property
    def unit(self) -> Unit:
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

    @property
    def delta(self) -> float:
        """The delta of the guarantees."""
        return self.request.delta_for(self.unit)

    def right(self, epsilon: float) -> float:
        """Return the largest possible share of right guesses between two equally likely cases.

        The share is in percent, and is rounded up.

        Source: P. Kairouz, S. Oh, P. Viswanath, "The Composition Theorem for Differential Privacy",
        ICML 2015: if both kinds of error are equal, they are at least (1 - delta)/(1 + e^epsilon).
        """
        return math.ceil(1e4 * (1 - (1 - self.delta) / (1 + math.exp(epsilon)))) / 100

    @property
    def tries_by_rule(self) -> int:
        """How many tries each line has that follows the rule for tables."""
        return len(self.comparison.contestants[CLIPPED].tries)

    # Scores

    def at(self, trust: str, epsilon: float) -> Line:
        """Return the measurements under a kind of trust."""
        return self.figures[TRUSTS[trust][0], epsilon]

    def free(self, name: str) -> Line:
        """Return the measurements without a guarantee."""
        return self.figures[name, None]

    @property
    def alone(self) -> dict[int, Line]:
        """The measurements of sites that train alone, unprotected; none with many clients."""
        if self.unit == "client-run":
            return {}
        return {site: self.free(alone_name(site)) for site in alone(self.data)}

    @property
    def compared(self) -> list[Line]:
        """The sites alone with which training together is compared: all that are not refused."""
        return [each for each in self.alone.values() if each.refused is None]

    def mean(self, of: Line) -> float | None:
        """Return the mean over seeds of the metric that decides; None if no seed has a value."""
        return of.mean(self.judged.metric)

    def estimate(
        self, of: Line, metric: str | None = None, part: Part = EVERYBODY
    ) -> Estimate | None:
        """Return the mean over seeds on a part of the test set, or None if there is none.

        Args:
            of: what was measured.
            metric: the metric; None for the one that decides.
            part: the part.
        """
        metric = metric or self.judged.metric
        values, resamples = [], []
        for run in of.runs:
            scores = self.tested.scores(run, part)
            found = np.full(DRAWS + 1, np.nan) if scores is None else scores[metric]
            value = run["metrics"].get(metric) if part == EVERYBODY else float(found[0])
            if value is None or math.isnan(value):
                return None
            values.append(value)
            resamples.append(found[1:])
        return Estimate.of(values, resamples)

    def alone_mean(
        self,
        metric: str | None = None,
        part: Part = EVERYBODY,
        own: Sequence[Line] | None = None,
    ) -> Estimate | None:
        """Return the mean over sites that train alone; None unless all are measured."""
        those = self.compared if own is None else own
        found = [self.estimate(each, metric, part) for each in those]
        mean = weighted((1 / len(found), each) for each in found)
        values = [each.value for each in found if each is not None]
        return None if mean is None else replace(mean, value=math.fsum(values) / len(values))

    def test_set(self, part: Part = EVERYBODY) -> TestSet:
        """Return what is known of a part of the test set, which has rows."""
        return self.tested.test_set(part, self.data.scores_are_private)

    @property
    def most_frequent(self) -> float | None:
        """The share of the most frequent class in the test set, 0 to 1; None for numbers."""
        return self.test_set().most_frequent

    @property
    def is_imbalanced(self) -> bool:
        """Whether accuracy says little on the test set."""
        return is_imbalanced(self.most_frequent)

    def baseline(self, metric: str) -> float | None:
        """Return the value to beat.

        This is the value for always predicting the most frequent class, or the mean, or the value
        of sites that train alone if theirs is better. For calibration, it is always that of sites
        that train alone.
        """
        own, naming = self.alone_mean(metric), self.test_set().baseline(metric)
        known = [] if own is None else [own.value]
        best = min if metric in LESS_IS_BETTER else max
        return best(known if naming is None else [*known, naming], default=None)

    def figure(self, of: Line, metric: str | None = None, part: Part = EVERYBODY) -> Figure:
        """Return the mean of a metric on a part of the test set, with interval and doubts."""
        metric = metric or self.judged.metric
        if not self.tested.parts[part].any():
            return Figure(metric=metric, value=None, rows="uncovered")
        found = self.estimate(of, metric, part)
        figure = Figure.of(
            metric,
            [] if found is None else [found.value] * len(of.runs),
            self.test_set(part),
            doubts_of(of.runs),
        )
        if found is None:
            return figure
        between = found.interval
        if between is not None:
            least, most = _ENDS.get(metric, (0.0, 1.0))
            between = max(least, between[0]), min(most, between[1])
        return replace(figure, value=found.value, interval=between)

    def difference(self, one: Line, other: Line, part: Part = EVERYBODY) -> Estimate | None:
        """Return how much larger the score of one is; None if one of them is not measured."""
        both = (self.estimate(each, part=part) for each in (one, other))
        return weighted(zip((1, -1), both, strict=True))

    # The rule

    @cached_property
    def learns(self) -> bool | None:
        """Whether a model learns anything without protection; None if this is not known."""
        free = self.free(FREE)
        over = weighted([(1, self.estimate(free))], -self.judged.guess)
        if over is None or over.interval is None:
            return None
        return True if over.sign == 1 else False if free.is_whole else None

    def kept(self, of: Line) -> float | None:
        """Return the share of the way from guessing to no protection that a contestant keeps."""
        free, mean = self.mean(self.free(FREE)), self.mean(of)
        if free is None or mean is None or self.learns is False:
            return None
        return (mean - self.judged.guess) / (free - self.judged.guess)

    def beyond(self, of: Line, part: Part = EVERYBODY) -> Estimate | None:
        """Return by how much the score exceeds ``KEPT`` of the way to no protection."""
        free, start = self.estimate(self.free(FREE), part=part), self.judged.guess * (KEPT - 1)
        return weighted([(1, self.estimate(of, part=part)), (-KEPT, free)], start)

    def gain(
        self, of: Line, part: Part = EVERYBODY, own: Sequence[Line] | None = None
    ) -> Estimate | None:
        """Return by how much the score exceeds that of sites that train alone, in the mean."""
        alone = self.alone_mean(part=part, own=own)
        return weighted([(1, self.estimate(of, part=part)), (-1, alone)])

    def state(
        self,
        trust: str,
        epsilon: float,
        part: Part = EVERYBODY,
        own: Sequence[Line] | None = None,
    ) -> State:
        """Return the rule's verdict on a kind of trust at an epsilon.

        A result is viable if the intervals of two differences are above 0: of its score, the AUC or
        R2, from ``KEPT`` of the way from guessing to a model without protection, and of its score
        from that of sites that train alone. Below 0, the first is "lost", the second "no gain".
        Everything else is not clear, as is every result of one seed, whose interval is not known.

        Args:
            trust: the kind of trust.
            epsilon: the epsilon.
            part: the people on whom it is tested.
            own: the sites with which it is compared; all by default.
        """
        of = self.at(trust, epsilon)
        if of.refused is not None:
            return "refused"
        if self.learns is False:
            return "nothing learned"
        those = self.compared if own is None else own
        needed = [self.beyond(of, part), *([self.gain(of, part, own)] if those else [])]
        if None in needed:
            return "not measured"
        signs = [each.sign for each in needed if each is not None]
        if self.learns is None or not of.settled:
            return "not clear"
        if -1 in signs:
            return "lost" if signs[0] == -1 else "no gain"
        return "viable" if set(signs) == {1} else "not clear"

    def viable(self, trust: str) -> list[float]:
        """Return the epsilons whose own runs are viable under a kind of trust, ascending."""
        return [each for each in self.epsilons if self.state(trust, each) == "viable"]

    def verdict(self, trust: str) -> Verdict:
        """Return the verdict on a kind of trust.

        A run that is viable at an epsilon is viable at every larger one, and under more trust: it
        meets those guarantees too. So a verdict never improves with more noise.
        """
        states = {each: self.state(trust, each) for each in self.epsilons}
        trusts = list(TRUSTS)
        ways = [
            (good[0], -rank, each)
            for rank, each in enumerate(trusts[: trusts.index(trust) + 1])
            if (good := self.viable(each))
        ]
        wanted = [self.free(FREE), *self.alone.values(), *(self.at(trust, e) for e in states)]
        final = all(each.is_whole for each in wanted)
        if ways:
            epsilon, _, run = min(ways)
            done = ("viable", "not measured")
            unlike = [each for each in states if each >= epsilon and states[each] not in done]
            return Verdict(trust, "viable", epsilon, run, unlike, final)
        known: list[State] = [state for state in states.values() if state != "not measured"]
        order: tuple[State, ...] = ("nothing learned", "not clear", "no gain", "lost", "refused")
        found: State = next((each for each in order if each in known), "not measured")
        if known and len(known) < len(states) and found in ("no gain", "lost", "refused"):
            found = "not clear"
        like = [each for each, state in states.items() if state == found]
        measured = [each for each, state in states.items() if state != "not measured"]
        return Verdict(trust, found, (like or measured or self.epsilons)[-1], trust, (), final)

    @property
    def best(self) -> tuple[str, float] | None:
        """The least trust that is viable, with its smallest viable epsilon; None if no trust is."""
        return next(((trust, good[0]) for trust in TRUSTS if (good := self.viable(trust))), None)

    @property
    def subject(self) -> tuple[str, float]:
        """The advised way; without one, the most promising of those measured under most trust."""
        most_first = [self.verdict(each) for each in reversed(list(TRUSTS))]
        known = (each for each in most_first if each.state != "not measured")
        found = next(known, most_first[0])
        return self.best or (found.run, found.epsilon)

    # Sites and groups

    def by_site(self, trust: str, epsilon: float) -> list[Beside]:
        """Return two lines for each site: training together and alone, on its own and all people.

        Where the test set does not say whose site a row is from, there are no lines for own people.
        """
        if self.unit == "client-run":
            return []
        of, found = self.at(trust, epsilon), []
        nobody = Line(name="", seeds=0)
        for site in range(self.sites):
            name, own = self.tested.sites[site], self.alone.get(site, nobody)
            for on, part in (("own", ("", name)), ("all", EVERYBODY)):
                if part in self.tested.parts:
                    state = self.state(trust, epsilon, part, [own]) if own.runs else "not measured"
                    found.append(self._beside(("", name), on, of, own, part, state))
        return found

    def by_group(self, trust: str, epsilon: float) -> list[Beside]:
        """Return a line for each group of ``request.by_columns``: with and without protection.

        The scores are exact, on held-out rows, and no epsilon covers them.
        """
        of, free = self.at(trust, epsilon), self.free(FREE)
        groups = [part for part in self.tested.parts if part[0]]
        return [self._beside(part, "group", of, free, part) for part in groups]

    def _beside(
        self, name: Part, on: str, of: Line, other: Line, part: Part, state: Any = None
    ) -> Beside:
        joint, beside = (self.figure(each, part=part) for each in (of, other))
        return Beside(name, on, joint, beside, self.difference(of, other, part), state)

    # What the rest of the page says

    @property
    def yearly(self) -> list[tuple[int, Proven]]:
        """What training the advised model so often a year costs, on the same people."""
        trust, epsilon = self.subject
        one, who = self.released(trust, epsilon), TRUSTS[trust][1]
        if one is None:
            return []
        return [(n, together([one] * n, self.unit, who, self.data.name).proven) for n in TRAININGS]

    def told(self, macro: str, *given: Any) -> str:
        """Return a macro of the template advice.txt as one paragraph."""
        return " ".join(getattr(self._phrases, macro)(*given).split())

    @cached_property
    def _phrases(self) -> Any:
        named = {"free": FREE, "clipped": CLIPPED, "larger": LARGER, "whole": WHOLE}
        return phrases("advice.txt", advice=self, kept=KEPT, score=self.judged, **named)

    def costs(self) -> list[str]:
        """Return sentences on what each choice costs, from differences between runs."""
        if self.mean(self.free(FREE)) is None:
            return []
        names = ("of_model", "of_clip", "of_noise", "of_trust", "of_few_people", "of_few_sites",
                 "of_imbalance")  # fmt: skip
        return list(filter(None, map(self.told, names)))

    @property
    def advice(self) -> list[str]:
        """The verdicts and the costs, in sentences."""
        verdicts = map(self.verdict, TRUSTS)
        found = [self.told("verdict", each) for each in verdicts]
        more = self.told("so_far"), self.told("of_sites", *self.subject)
        return [*found, *filter(None, more), *self.costs()]

    @property
    def warnings(self) -> list[str]:
        """The warnings that a reader of the results needs."""
        found = [words.line(ALL_PRIVATE), words.line(CHOOSING)]
        if self.data.scores_are_private:
            found.append(words.line(HELD_OUT))
        found += self.facts_in_words()
        if self.request.declares_delta:
            found.append(self.request.delta_in_words(self.unit))
        if self.unit == "record":
            found.append(words.line(ROW_NOT_PERSON))
        found += filter(None, map(self.told, ("imbalanced_test", "uncharged_groups")))
        found += filter(None, [self.told("spreads", *self.request.in_need_of_spreads(self.data))])
        for each in self.figures.values():
            if each.refused is not None:
                found.append(f"{each.full_name}: {each.refused}")
        if missing := self.missing:
            found.append(f"runs are missing of: {rows_named(missing)}")
        return found

    def facts_in_words(self) -> list[str]:
        """Return the conditions of the epsilons, and what all runs cost together."""
        done = [each for each in self.figures.values() if each.runs]
        doubtful = {
            each.full_name: [
                doubt for metric in self.judged.names for doubt in self.figure(each, metric).doubts
            ]
            for each in done
        }
        return [
            *conditions_in_words(done),
            *words.conditions_together(self.together),
            *words.by_rows("doubt", doubtful),
            *words.together_lines(self.together, self.uncounted),
        ]

    @property
    def missing(self) -> list[str]:
        """What lacks some of its runs, or all.

        The same command with the same folder makes them.
        """
        return [each.full_name for each in self.figures.values() if not each.is_whole]

    # Documents

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A mapping for each kind of trust, epsilon and metric, as in the JSON document.

        The rows of the metric that decides have "sites" and "groups" too; "viable" is None where
        the intervals allow both.
        """
        return [
            {
                "trust": trust,
                "adversary": adversary,
                "epsilon": epsilon,
                "metric": metric,
                "mean": of.mean(metric),
                "deviation": of.deviation(metric),
                "baseline": self.baseline(metric),
                "viable": self.state(trust, epsilon) == "viable",
                "conditions": words.facts(of.conditions),
                "figure": words.figure(self.figure(of, metric)),
                **(self._parts(trust, epsilon) if metric == self.judged.metric else {}),
            }
            for trust, (_, adversary) in TRUSTS.items()
            for epsilon in self.epsilons
            for of in [self.at(trust, epsilon)]
            for metric in self.judged.names
        ]

    def _parts(self, trust: str, epsilon: float) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if sites := self.by_site(trust, epsilon):
            found["sites"] = [
                {"name": each.part[1], "alone": words.figure(each.other),
                 "joint": words.figure(each.joint), "on": each.on, "viable": each.viable}
                for each in sites
            ]  # fmt: skip
        if groups := self.by_group(trust, epsilon):
            found["groups"] = [
                {"by": each.part[0], "value": each.part[1], "charged": False,
                 "joint": words.figure(each.joint), "unprotected": words.figure(each.other)}
                for each in groups
            ]  # fmt: skip
        return found

    def summary(self) -> dict[str, Any]:
        """Return the document that ``fedldp advise --json`` prints."""
        return {
            "unit": self.unit,
            "rows": self.rows,
            "together": [words.together_document(each) for each in self.together],
            "complete": not any(each.refused for each in self.figures.values())
            and not self.missing,
            "advice": self.advice,
            "warnings": self.warnings,
        }

    @property
    def heads(self) -> list[str]:
        """The headings of the metric columns in ``groups``."""
        return [*self.judged.names.values(), "way kept"]

    def groups(self) -> list[tuple[str, list[list[str]]]]:
        """Return the tables to display: one for the references, and one for each kind of trust.

        A row begins with its name or its epsilon. Then come the metrics of ``judged``, each with
        its interval; the share of the way from guessing to no protection that the model keeps; and
        the rule's verdict.
        """
        beside = [
            [name, *self._cells(self.free(name)), ""]
            for name in (LARGER, FREE, CLIPPED)
            if (name, None) in self.figures
        ]
        if self.alone_mean() is not None:
            own = ((metric, self.alone_mean(metric)) for metric in self.judged.names)
            cells = [
                shown(metric, each.value, each.interval) if each else "" for metric, each in own
            ]
            beside.append([self.told("alone"), *cells, "", ""])
        cells = [shown(metric, self.test_set().baseline(metric)) for metric in self.judged.names]
        beside.append([self.judged.constant, *cells, "0 %", ""])
        found = [("For comparison, without any guarantee", beside)]
        for trust in TRUSTS:
            rows = [
                [
                    f"{epsilon:g}",
                    *self._cells(self.at(trust, epsilon)),
                    self.told("state", self.state(trust, epsilon)),
                ]
                for epsilon in self.epsilons
            ]
            found.append((words.names("trusting")[trust], rows))
        return found

    def _cells(self, of: Line) -> list[str]:
        figures = [self.figure(of, metric) for metric in self.judged.names]
        kept = self.kept(of)
        return [
            *(shown(each.metric, each.value, each.interval) for each in figures),
            "" if kept is None else f"{100 * kept:.0f} %",
        ]

    def released(self, trust: str, epsilon: float) -> Released | None:
        """Return what a measured run releases, with its statement; None if there is none."""
        config = self._config(trust, epsilon)
        if config is None:
            return None
        problem = problem_with(config, self.data, None)
        return released(config, problem, plan(config, problem).privacy)

    def next_run(self, folder: Path | None = None) -> str | None:
        """Return a file for ``fedldp run`` of the ``subject``; None if it has no run.

        Of a way that is not viable, the file's first lines say so, and why.

        Args:
            folder: where the file will be written; its paths are then relative to this folder.
        """
        cell, chosen = self._cell(*self.subject)
        if chosen is None:
            return None
        # The file keeps the target, so that run, page and card begin with the requested guarantee.
        config = self.comparison.configuration(cell, chosen, 0)
        if folder is not None:
            config = config.changed(**seen_from(folder, config))
        lines = [line for name in ("chosen", "way") for line in wrap(self.told(name), 97)]
        return "\n".join([*(f"# {line}" for line in lines), to_toml(config)])

    def _config(self, trust: str, epsilon: float) -> RunConfig | None:
        cell, chosen = self._cell(trust, epsilon)
        if chosen is None:
            return None
        return self.comparison.maker.calibrated(self.comparison.run(cell, chosen, "measured", 0))

    def _cell(self, trust: str, epsilon: float) -> tuple[Cell, Try | None]:
        of = self.at(trust, epsilon)
        return Cell(TABLE, self.sites, of.name, epsilon), of.chosen

    def write(self, folder: Path) -> None:
        """Write the document and the file of the next run into a folder."""
        replace_file(folder / "results.json", as_json(self.summary()))
        text = self.next_run(folder)
        if text is None:
            (folder / NEXT).unlink(missing_ok=True)
        else:
            replace_file(folder / NEXT, text.encode())


def shown(metric: str, value: float | None, interval: tuple[float, float] | None = None) -> str:
    """Format a value with its interval for display; return an empty string if there is none."""
    if value is None:
        return ""
    unit = " %" if metric in words.SHARES else ""

    def one(found: float) -> str:
        if metric in words.IN_LABELS_UNIT:
            return words.in_labels_unit(found)
        return f"{100 * found:.1f}" if unit else f"{found:.3f}"

    between = "" if interval is None else f" ({one(interval[0])} to {one(interval[1])})"
    return f"{one(value)}{unit}{between}"
