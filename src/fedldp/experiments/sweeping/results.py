"""The result of a sweep: its runs, a table of means and deviations, and the refused runs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedldp.accounting.guarantees import HOUSE
from fedldp.accounting.proven import Proven
from fedldp.core.facts import Doubt, Fact, Note
from fedldp.core.formatting import number
from fedldp.core.kinds import (
    DOUBTFUL_RUNS,
    EPSILON_SHOWN,
    HOUSE_PROVES,
    IMBALANCED_TEST,
    NOT_OF_CLIENT,
    NOT_PROVEN_HERE,
    ONLY_IDEALISED,
)
from fedldp.experiments.runs import Row
from fedldp.experiments.table import Group, RunTable, plain
from fedldp.protocol.server_loop import MODEL_SCORES
from fedldp.reporting import words
from fedldp.reporting.record import as_json, replace_file
from fedldp.reporting.scores import FIGURES, is_imbalanced
from fedldp.reporting.words import area

METRICS = (*FIGURES, "most_frequent")
"""The test metrics that a sweep reports for a run besides accuracy and loss. Runs whose labels are
numbers also have ``MODEL_SCORES``."""

_CLIENTS = ("client-round", "client-run")
"""The units whose epsilon covers everything that a client sends, in a round or in the run."""

_BUDGETS = ("epsilon", "target.epsilon")
"""Settings that vary along a line; every combination of the other settings gets its own line."""


@dataclass(frozen=True, kw_only=True)
class Combination(Group):
    """The runs with one combination of settings.

    Attributes:
        settings: the combination, and its "recipe".
        behind_sums: smaller epsilons against a server that sees only sums; see ``reporting.lines``.
    """

    settings: Mapping[str, Any]
    behind_sums: Mapping[Proven, float] = field(default_factory=dict)

    @property
    def of_numbers(self) -> bool:
        """Whether its labels are numbers."""
        return any("mae" in run["metrics"] for run in self.runs)

    @property
    def judged_by(self) -> str:
        """The metric by which its runs are judged: R2 for numbers, the accuracy for classes."""
        return "r2" if self.of_numbers else "accuracy"

    @property
    def is_imbalanced(self) -> bool:
        """Whether most test examples in some run have one class; see ``reporting.scores``."""
        found = (run["metrics"] for run in self.runs)
        return any(
            is_imbalanced(each.get("most_frequent")) and each.get("auc") is not None
            for each in found
        )


@dataclass(frozen=True, repr=False, kw_only=True)
class Sweep(RunTable[Combination]):
    """The result of a sweep; see ``RunTable``.

    Attributes:
        failed: the runs that were refused or ended early: "settings", "seed" and "reason".
        metric: the metric that is shown first and drawn, if one was requested.
        missing: how many runs have not been made yet.
    """

    failed: Sequence[Mapping[str, Any]] = ()
    metric: str | None = None
    missing: int = 0

    @property
    def runs(self) -> list[dict[str, Any]]:
        """A mapping per run: settings, seed, accuracy, loss, epsilon, seconds, run_dir.

        Its "metrics" are "auc", "average_precision", "balanced_accuracy" and "brier" (see
        ``Evaluation``), and "most_frequent", the share of the test set's most frequent class; each
        is None where it is not defined. For labels that are numbers there are also "r2", "mae" and
        "calibration_gap", and the accuracy is None.

        The epsilon belongs to the requested guarantee, or else to the guarantee of the run's
        target. Without either, it covers everything that a client sends in the run, against the
        server; if the statement has no epsilon for that, it covers one "person" or one "record", if
        the statement has an epsilon for one of these. "unit" and "adversary" name what the epsilon
        covers. It holds at the statement's delta; None means infinity, that is, no guarantee. The
        epsilon is proven if "stated_by" is "fedldp"; otherwise "stated_by" is the address of the
        user's own code that states it. If "idealised" is true, the epsilon holds only for noise in
        ideal arithmetic, and not for the numbers that are sent.
        """
        return [
            {
                "settings": dict(run["settings"]),
                **self._scores(run),
                "epsilon": proven.epsilon,
                "unit": proven.unit,
                "adversary": proven.adversary,
                "stated_by": proven.stated_by,
                "idealised": proven.is_idealised,
                "conditions": words.facts(proven.conditions),
                "guarantee": {
                    "unit": proven.unit,
                    "adversary": proven.adversary,
                    "delta": proven.delta,
                },
                **self._made(run),
                "metrics": _metrics(run),
            }
            for _, run, proven in self._each()
        ]

    def _each(self) -> Iterator[tuple[Combination, Row, Proven]]:
        for group in self.groups:
            for run, proven in zip(group.runs, group.each, strict=True):
                yield group, run, proven

    def _scores(self, run: Row) -> dict[str, Any]:
        return {"seed": run["seed"], "accuracy": run["accuracy"], "loss": run["metrics"]["loss"]}

    def _made(self, run: Row) -> dict[str, Any]:
        kept = None if self.out is None else str(self.out / run["folder"])
        return {"seconds": run["seconds"], "run_dir": kept}

    @property
    def table(self) -> list[dict[str, Any]]:
        """A mapping per combination that has a run: settings, mean, deviation, number of seeds.

        These are the mean and the standard deviation (n - 1) over seeds of the accuracy, 0 to 1, or
        of R2 if the labels are numbers.
        "stated_by" names who states the epsilon.
        """
        return [
            {
                "settings": dict(group.settings),
                "mean": group.mean(group.judged_by),
                "deviation": group.deviation(group.judged_by),
                "seeds": len(group.runs),
                "stated_by": group.proven.stated_by,
                "conditions": words.facts(group.conditions),
                "figure": words.figure(group.figure(self.first)),
            }
            for group in self.groups
            if group.proven is not None
        ]

    def summary(self) -> dict[str, Any]:
        """Return the document that ``fedldp sweep --json`` prints."""
        return {
            "runs": self.runs,
            "table": self.table,
            "failed": [dict(each) for each in self.failed],
            "together": [words.together_document(each) for each in self.together],
            "complete": not (self.failed or self.missing),
            "notes": self.notes(),
            "warnings": words.facts(self.warnings()),
        }

    @property
    def first(self) -> str:
        """The metric that is shown first and drawn."""
        return self.metric or ("auc" if self.leads else self._judged_by[0])

    @property
    def _judged_by(self) -> list[str]:
        """By what its runs are judged: accuracy, R2, or both."""
        done = [each for each in self.groups if each.runs]
        return sorted({each.judged_by for each in done}) or ["accuracy"]

    @property
    def _columns(self) -> list[str]:
        """The metrics in the table, besides the loss."""
        found = ["auc", "balanced_accuracy"] if self.leads else []
        found += [self.metric] if self.metric not in (None, "loss") else []
        for metric in self._judged_by:
            found += ["r2", "mae"] if metric == "r2" else [metric]
        return list(dict.fromkeys(found))

    @property
    def leads(self) -> bool:
        """Whether AUC and balanced accuracy come before accuracy."""
        return self.metric is None and any(each.is_imbalanced for each in self.groups)

    def own_words(self) -> list[str]:
        """Return the addresses of the user's own code that states some of the epsilons."""
        found = dict.fromkeys(proven.stated_by for *_, proven in self._each())
        return [by for by in found if by != HOUSE]

    def keys(self) -> list[str]:
        """Return the settings that vary, including the recipe if there are several recipes."""
        keys = list(dict.fromkeys(key for each in self.groups for key in each.settings))
        several = len({each.settings["recipe"] for each in self.groups}) > 1
        return keys if several else [key for key in keys if key != "recipe"]

    def warnings(self) -> list[Fact]:
        """Return warnings on the metrics and on releases that no epsilon in the table covers."""
        found = super().warnings()
        made = [run for _, run, _ in self._each()]
        if doubtful := [run["doubts"][0] for run in made if run.get("doubts")]:
            first = Doubt.from_json(doubtful[0])
            found.append(DOUBTFUL_RUNS(runs=len(doubtful), of=len(made), first=first))
        return found

    def notes(self) -> list[str]:
        """Return, in sentences, what a reader of the numbers must know."""
        *names, last = (words.names("metric")[metric] for metric in self._columns)
        several = f"{', '.join(names)} and {last} are means" if names else f"{last} is a mean"
        found = [f"{several} over seeds, with the standard deviation"]
        if self.leads:
            most = max(each.mean("most_frequent") or 0.0 for each in self.groups)
            found = [
                "AUC and balanced accuracy come first: "
                + words.line(IMBALANCED_TEST(most_frequent=most)),
                *found,
            ]
        return [
            *found,
            *map(words.line, self._about_epsilons()),
            *self.facts_in_words(),
            *map(words.line, self.warnings()),
            *([f"not made yet: {self.missing} runs"] if self.missing else []),
        ]

    def _about_epsilons(self) -> Iterator[Note]:
        """Yield what the column of epsilons shows, and who states them."""
        proven = [each for *_, each in self._each()]
        pairs = {(each.unit, each.adversary) for each in proven}
        ((unit, adversary),) = pairs if len(pairs) == 1 else {("client-run", "server")}
        stated = [each for each in proven if each.epsilon is not None]
        own = self.own_words()
        yield EPSILON_SHOWN(
            unit=unit,
            adversary=adversary,
            deltas=tuple(sorted({each.delta for each in stated})),
            proven=not own,
        )
        marked = dict.fromkeys((s.unit, s.adversary) for s in stated if s.unit not in _CLIENTS)
        for unit, adversary in marked:
            yield NOT_OF_CLIENT(unit=unit, adversary=adversary)
        if own:
            if any(each.stated_by == HOUSE for each in stated):
                yield HOUSE_PROVES
            yield NOT_PROVEN_HERE(of=tuple(own))
        if ideal := dict.fromkeys(
            str(group.settings["recipe"]) for group, _, each in self._each() if each.is_idealised
        ):
            yield ONLY_IDEALISED(of=tuple(ideal))

    def to_records(self) -> list[dict[str, Any]]:
        """Return the runs as flat mappings: a column per setting, then the results.

        "epsilon" is the setting, and "proven_epsilon" is what is proven, infinite if nothing is
        proven. "stated_epsilon" is what "stated_by" states: the same number if "stated_by" is
        "fedldp", and an unproven number if it is the user's own code. Both hold for the numbers
        that are sent, or only in ideal arithmetic if "idealised" is true, and only under the
        "conditions". The scores are to be read beside their "baseline" and "doubts".
        """
        keys = list(dict.fromkeys(key for each in self.groups for key in each.settings))
        figures = {each.name: each.figure(self.first) for each in self.groups}
        known = {name for _, run, _ in self._each() for name in run["metrics"]}
        names = [name for name in (*METRICS, *MODEL_SCORES) if name in known]
        found = []
        for group, run, proven in self._each():
            figure, is_proven = figures[group.name], proven.stated_by == HOUSE
            results = {
                **self._scores(run),
                "proven_epsilon": proven.size if is_proven else math.inf,
                "proven_delta": proven.delta if is_proven else 0.0,
                "unit": proven.unit,
                "adversary": proven.adversary,
                "stated_epsilon": proven.size,
                "stated_delta": proven.delta,
                "stated_by": proven.stated_by,
                "idealised": proven.is_idealised,
                "conditions": "; ".join(map(words.line, proven.conditions)),
                "baseline": figure.baseline,
                "doubts": "; ".join(map(words.line, figure.doubts)),
                **self._made(run),
                **{name: run["metrics"].get(name) for name in names},
            }
            taken = {*results, *METRICS, *MODEL_SCORES}
            settings = {
                f"setting {key}" if key in taken else key: run["settings"].get(key)
                for key in ["recipe", *(key for key in keys if key != "recipe")]
            }
            found.append(settings | results)
        return found

    def points(self) -> Iterator[tuple[Group, str, float | None]]:
        """Yield what the chart shows; a level if nothing is proven, or nothing is sent."""
        for group in self.groups:
            found = group.proven
            if found is None:
                continue
            varied = {k: value for k, value in group.settings.items() if k not in _BUDGETS}
            name = in_words(varied) + words.about(found.unit, found.adversary)
            name += " (idealised arithmetic)" if found.is_idealised else ""
            name += "" if found.stated_by == HOUSE else f" (stated by {found.stated_by})"
            if found.epsilon is None:
                name += " (nothing is proven)"
            elif not found.epsilon:
                name += " (nothing about the data is sent)"
            yield group, name, found.epsilon or None

    def axis(self) -> str:
        """Return the label of the chart's axis of epsilons."""
        found = (each.proven for each in self.groups)
        known = [each for each in found if each is not None and each.epsilon is not None]
        pairs = [(each.unit, each.adversary) for each in known if each.epsilon]
        proven = "proven" if all(each.stated_by == HOUSE for each in known) else ""
        return words.axis(pairs, [each.delta for each in known], proven)

    def write(self, folder: Path) -> None:
        """Write the result to the sweep's folder."""
        replace_file(folder / "results.json", as_json(self.summary()))
        replace_file(folder / "results.csv", self.to_csv().encode())

    def __repr__(self) -> str:
        """Return the number of runs, and the sweep's folder."""
        failed = f", {len(self.failed)} failed" if self.failed else ""
        where = "" if self.out is None else f", out={str(self.out)!r}"
        runs, rows = len(self.runs), len(self.table)
        several = f"{runs} run{'s' * (runs != 1)}, {rows} combination{'s' * (rows != 1)}"
        return f"Sweep({several}{failed}{where})"

    def shown(self) -> tuple[list[str], list[list[str]]]:
        """Return the table to display: its column headings and its rows."""
        keys, own = self.keys(), bool(self.own_words())
        failed = any(each.refused is not None for each in self.groups)
        head = [*keys, *(words.names("metric")[each] for each in self._columns), "seeds", "loss"]
        head += ["epsilon of a run", "stated by"] if own else ["proven epsilon"]
        rows = [
            [
                *(text_of(each.settings.get(key)) for key in keys),
                *(each.shown(metric) for metric in self._columns),
                str(len(each.runs)),
                area(each.mean("loss")),
                _epsilon_text(each),
                *([_by_text(each.proven)] if own else []),
                *([each.refused or ""] if failed else []),
            ]
            for each in self.groups
        ]
        return head + (["failed"] if failed else []), rows


def _metrics(run: Row) -> dict[str, Any]:
    found = run["metrics"]
    return {name: found[name] for name in (*METRICS, *MODEL_SCORES) if name in found}


def _epsilon_text(group: Combination) -> str:
    """Return an epsilon for display, rounded up, and what it covers."""
    found = group.proven
    if found is None:
        return ""
    if found.epsilon is None:
        return number(None)
    text = number(found.epsilon) + (f" (delta {found.delta!r})" if found.delta else "")
    text += " idealised" if found.is_idealised else ""
    behind = words.behind(group.behind_sums.get(found))
    return text + words.about(found.unit, found.adversary) + behind


def _by_text(found: Proven | None) -> str:
    return "" if found is None or found.epsilon is None else found.stated_by


def text_of(value: Any) -> str:
    """Return a setting's value in a table; empty if the recipe has no such setting."""
    return "" if value is None else str(plain(value))


def in_words(settings: Mapping[str, Any]) -> str:
    """Return a cell's settings in words."""
    rest = [f"{key}={shown(value)}" for key, value in settings.items() if key != "recipe"]
    return " ".join([str(settings["recipe"]), *rest])


def shown(value: Any) -> str:
    """Return a setting's value as a user writes it."""
    return value if isinstance(value, str) else json.dumps(value)
