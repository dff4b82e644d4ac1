"""Words: the only place where a fact becomes a sentence.

The templates are data: ``words.toml`` here has those of the kinds in ``core.kinds``, and the file
of the same name in a paper's folder those of the paper's own kinds. Words are output only: nothing
that is signed, hashed, compared or read back contains them, so any of them may change.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Any

from fedldp.accounting.guarantees import HOUSE, Guarantee
from fedldp.accounting.proven import Proven, Together
from fedldp.accounting.statement import Claim, Statement, delta_to_take, revealed
from fedldp.core.errors import ConfigError
from fedldp.core.facts import Fact, in_order
from fedldp.core.formatting import named_at, number, rows_named, with_class_name
from fedldp.core.kinds import AT_SITES, SIMULATED, TAKES_PART
from fedldp.core.registry import paper_folders
from fedldp.ledgers.budget import Budget
from fedldp.protocol.roles import PRIVATELY
from fedldp.reporting.lines import (
    Pair,
    asked_for,
    behind_sums,
    best_lines,
    first_line,
    headline,
    own_words,
)
from fedldp.training.answers import private_figures

if TYPE_CHECKING:
    from fedldp.reporting.scores import Figure

FILE = "words.toml"
NAMES = "names"


def examples(of: Mapping[str, Any]) -> str:
    """Return on how many examples a model was tested; see ``scores.told_count``."""
    return f"{'at most ' if of['rounded'] else ''}{of['examples']:,} examples"


def _as_far(of: Mapping[str, Any]) -> dict[str, Any]:
    return {"as_far": f"as far as {examples(of)} can tell", "guessing": 1 / of.get("classes", 1)}


def _part(share: str) -> str:
    return "the whole budget" if share == "1" else f"{share} of the budget (counted in mu^2)"


_COMPUTED: dict[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {
    "at-no-more-sites": lambda of: {"so_many": _counted(of["sites"], "site")},
    "takes-part-at-most": lambda of: {"so_many": _counted(of["rounds"], "round")},
    "delta-for-so-many": lambda of: {
        "revealed": revealed(of["delta"], of["count"]),
        "take": delta_to_take(of["count"]),
    },
    "spent": lambda of: {"amount": Budget(of["kind"], math.inf, of["unit"]).amount(of["spent"])},
    "cannot-pay": lambda of: {
        "amount": Budget(of["kind"], math.inf, of["unit"]).amount(
            math.inf if of["cost"] is None else of["cost"]
        ),
        "rest": number(of["left"], up=False),
    },
    "not-above-chance": _as_far,
    "not-above-most-frequent": _as_far,
    "not-above-guessing": _as_far,
    "not-above-mean": _as_far,
    "not-of-client": lambda of: {"about": about(of["unit"], of["adversary"])},
    "stage": lambda of: {"part": _part(of["share"])},
}
"""Values that templates show besides a fact's own."""


@cache
def _words() -> dict[str, dict[str, Any]]:
    places = [Path(__file__).with_name(FILE), *map(Path, paper_folders(FILE))]
    found: dict[str, dict[str, Any]] = {}
    for place in places:
        found |= tomllib.loads(place.read_text(encoding="utf-8"))
    return found


@cache
def templates() -> dict[str, dict[str, Any]]:
    """Return the words of every kind of the package, by the kind's name."""
    return {kind: entry for kind, entry in _words().items() if kind != NAMES}


def names(of: str) -> Mapping[str, str]:
    """Return words for each unit, adversary or neighbours; ``words.toml`` says which there are."""
    found: Mapping[str, str] = _words()[NAMES][of]
    return found


def line(fact: Fact) -> str:
    """Return a fact as a sentence; one that this version does not know, as it is."""
    return _filled(fact, "line")


def short(fact: Fact) -> str:
    """Return a fact in a few words, for a table or a chart."""
    return _filled(fact, "short")


def _filled(fact: Fact, form: str) -> str:
    """Return a fact in one of its forms, without control characters: values may be anybody's."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode()
        for each in _as_stated(fact, form)
    )


def _as_stated(fact: Fact, form: str) -> str:
    entry = templates().get(fact.kind)
    if entry is not None:
        try:
            return _with_words(fact, entry, form)
        except (LookupError, ArithmeticError, AttributeError, TypeError, ValueError, ConfigError):
            pass  # a value of a newer version, or of somebody's own document
    values = fact.to_json()["values"]
    return f"{fact.kind}: {json.dumps(values)}" if values else fact.kind


def _with_words(fact: Fact, entry: Mapping[str, Any], form: str) -> str:
    values = fact.values
    if fact.kind in _COMPUTED:
        values |= _COMPUTED[fact.kind](values)
    if form in entry:
        return filled(entry[form], values)
    for each in entry.get("when", [entry]):
        if all(fits(values[name], fixed) for name, fixed in each.items() if name != "line"):
            return filled(each["line"], values)
    raise LookupError(f"{FILE} has no words for {fact.kind} with {values}")


def fits(value: Any, fixed: Any) -> bool:
    """Return whether a value is the one that words are for; "none" is None, which TOML lacks."""
    value = list(value) if isinstance(value, tuple) else value
    return bool(fixed == "none" if value is None else value == fixed)


def at(values: Mapping[str, Any], path: str) -> Any:
    """Return a value by name; a dot leads to a value of a value, and of None only to None."""
    first, *rest = path.split(".")
    found = values[first]
    for name in rest:
        if found is not None:
            found = found.get(name) if isinstance(found, Mapping) else getattr(found, name)
    return found


def filled(template: str, values: Mapping[str, Any]) -> str:
    """Fill a template.

    Besides what ``str.format`` knows, ``{x:n}`` shows an epsilon, ``{x:p}`` a share in percent,
    ``{x:upN}`` a number rounded up to N digits, ``{x:r}`` a number in full, ``{x!s}`` facts, names
    or numbers joined by "and", ``{x!s:JOINER}`` by something else, ``{x!x}`` each of them after a
    semicolon, ``{x!t}`` a text as it is, and ``{x:TABLE}`` what a table of ``names`` has for it.
    """
    found = ""
    for text, name, spec, how in Formatter().parse(template):
        found += text + ("" if name is None else _shown(at(values, name), spec or "", how))
    return found


def _shown(value: Any, spec: str, how: str | None) -> str:
    if how in ("s", "x"):
        parts = map(_told, value if isinstance(value, list | tuple) else [value])
        return (spec or " and ").join(parts) if how == "s" else "".join(f"; {p}" for p in parts)
    if how == "t":
        return str(value)
    if spec == "r":
        return repr(value)
    if spec in ("n", "p"):
        return number(value) if spec == "n" else percent(value)
    if spec in _words()[NAMES]:
        return names(spec)[value]
    if spec.startswith("up"):
        digits = int(spec.removeprefix("up"))
        return f"{math.ceil(value * 10**digits) / 10**digits:,.{digits}f}"
    return format(value, spec)


def _told(each: Any) -> str:
    if isinstance(each, Fact):
        return line(each)
    return f"{each:g}" if isinstance(each, float) else str(each)


def method_of(guarantee: Guarantee) -> str:
    """Return how a line's epsilon was computed, or why there is none."""
    if guarantee.reason is not None:
        return f"none: {line(guarantee.reason)}"
    assert guarantee.method is not None
    return line(guarantee.method)


def assumptions_of(guarantee: Guarantee) -> list[str]:
    """Return what a line relies on, in the order of every output."""
    return [line(each) for each in in_order(guarantee.assumptions)]


def amount(of: Guarantee | Proven) -> str:
    """Return an epsilon with its delta; "no guarantee" if nothing is proven."""
    if of.epsilon is None:
        return "no guarantee"
    return number(of.epsilon) + (f" (delta {of.delta!r})" if of.delta else "")


def size(of: Guarantee | Proven) -> str:
    """Return an epsilon for a table: with its delta, and marked if idealised or not proven."""
    if of.epsilon is None:
        return amount(of)
    return amount(of) + (", idealised" if of.is_idealised else "") + _by(of)


def standing(of: Guarantee | Proven) -> str:
    """Return whether an epsilon is proven, or who states it."""
    return "proven" if of.stated_by == HOUSE else f"stated by {of.stated_by}"


def _by(of: Guarantee | Proven) -> str:
    return "" if of.stated_by == HOUSE else f", {standing(of)}"


def _epsilon(of: Guarantee | Proven) -> str:
    """Return an epsilon and whom it protects, within a sentence."""
    ideal = " in idealised arithmetic" if of.is_idealised else ""
    facts = of.assumptions if isinstance(of, Guarantee) else of.conditions
    sites = "".join(f", {_filled(each, 'if')}" for each in AT_SITES.among(facts))
    return f"epsilon {amount(of)}{ideal} {names('about')[of.unit]}{sites}"


def size_of(of: Guarantee | Proven) -> str:
    """Return an epsilon, and whom it protects against whom, in one sentence."""
    if of.epsilon is None:
        return f"no guarantee {names('about')[of.unit]} against the {of.adversary}"
    return f"{_epsilon(of)}, against the {of.adversary}{_by(of)}"


def rows(privacy: Statement) -> tuple[list[str], list[list[str]]]:
    """Return the table of guarantees: its headings and its rows.

    If lines are stated by a user's own code, the last column says who states each line. Otherwise
    it has the lower bound, which such code does not have.
    """
    own = bool(own_words(privacy))

    def last(line: Guarantee) -> str:
        if own:
            return "" if line.epsilon is None else line.stated_by
        return "" if line.lower is None else number(line.lower, up=False)

    found = [
        [
            line.unit + (" (idealised)" if line.is_idealised else ""),
            line.adversary,
            number(line.epsilon),
            repr(line.delta) if line.delta else "0",
            last(line),
        ]
        for line in privacy.guarantees
    ]
    told = "stated by" if own else "true epsilon is at least"
    return ["protected", "against", "epsilon", "delta", told], found


def claim_text(claim: Claim | None) -> str:
    """Return the source's claim in words that present it as a claim."""
    if claim is None:
        return "none: no publication claims privacy for this configuration"
    delta = f", delta {claim.delta:g}" if claim.delta else ""
    return f"epsilon {claim.epsilon:g}{delta} per {claim.unit} ({claim.source})"


MEANINGLESS = 20.0
"""At this epsilon, an attacker may be wrong in only one of e^20 (half a billion) cases."""


def explain(privacy: Statement) -> str:
    """Return a statement's guarantees in plain words, and on a line of their own the conditions."""
    best = best_lines(privacy).values()
    sentences = []
    for adversary, lines in _grouped(best, "adversary").items():
        who = names("adversary")[adversary]
        known = [line for line in lines if line.epsilon is not None]
        for by, those in _grouped(known, "stated_by").items():
            whoever = who if by == HOUSE else f"If what {by} states is true, {_small(who)}"
            sentences.append(f"{whoever} learns up to {'; '.join(map(_epsilon, those))}.")
        for reason, those in _grouped((e for e in lines if e.epsilon is None), "reason").items():
            what = ", or ".join(names("about")[line.unit] for line in those)
            sentences.append(
                f"There is no guarantee (epsilon = infinity) on what {_small(who)} learns {what}. "
                f"The reason: {line(reason)}."
            )
    if any(MEANINGLESS < line.size < math.inf for line in best):
        sentences.append(f"An epsilon above {MEANINGLESS:g} gives practically no protection.")
    rests_on = in_order({each for line in best for each in line.assumptions})
    told = f"\nConditions: {'; '.join(map(short, rests_on))}." if rests_on else ""
    return " ".join(sentences) + told


def _grouped(of: Iterable[Guarantee], name: str) -> dict[Any, list[Guarantee]]:
    found: dict[Any, list[Guarantee]] = {}
    for each in of:
        found.setdefault(getattr(each, name), []).append(each)
    return found


def lead(config: Mapping[str, Any], privacy: Statement) -> str:
    """Return what a run protects, in the sentences with which its documents begin.

    They are about the requested guarantee, or else about the ``first_line``.
    """
    asked = asked_for(config)
    line = first_line(privacy, asked)
    proven = None if line is None or line.epsilon is None else line
    if asked is not None:
        unit, adversary = asked
        delta = config["target"].get("delta")
        found = f"Asked for: epsilon {number(config['target']['epsilon'])}"
        found += f" (delta {delta!r})" if delta else ""
        found += f" {names('about')[unit]}, against the {adversary}; "
        found += f"{standing(proven)}: {_epsilon(proven)}" if proven else "no guarantee"
    elif proven is None:
        return (
            "No guarantee: nothing is proven, against any adversary, about all that one client "
            "sends in the run, all data of one person, or one training example."
        )
    else:
        by = standing(proven)
        found = f"{by[:1].upper()}{by[1:]}: {_epsilon(proven)}, against the {proven.adversary}"
        found += behind(behind_sums(privacy))
    if proven is None:
        return f"{found}."
    if proven.size > MEANINGLESS:
        found += ", which is practically no protection"
    if SIMULATED in privacy.warnings:
        found += ". This run was simulated and protects nothing itself: the guarantee holds for "
        found += "ideal real numbers" if proven.is_idealised else "a deployment"
    return f"{found}."


def _small(text: str) -> str:
    return text[:1].lower() + text[1:]


def headline_in_words(privacy: Statement, asked: Pair | None = None) -> str:
    """Return the headline's epsilon and delta, what they cover, and who states them."""
    line = headline(privacy, asked)
    if line is None or line.epsilon is None:
        return "no guarantee"
    sums = behind_sums(privacy) if asked is None else None
    return size(line) + about(line.unit, line.adversary) + behind(sums)


def about(unit: str, adversary: str) -> str:
    """Return what an epsilon in a table covers; "" for a client's run against the server."""
    if (unit, adversary) == ("client-run", "server"):
        return ""
    return f" per {unit}" + ("" if adversary == "server" else f", against the {adversary}")


def axis(pairs: Collection[Pair], deltas: Iterable[float], how: str = "") -> str:
    """Return the label of a chart's axis of epsilons.

    Args:
        pairs: what the epsilons protect against whom.
        deltas: their deltas.
        how: "proven", if they all are.
    """
    if not pairs:
        return "no epsilon between 0 and infinity is proven"
    at = " or ".join(f"{delta:g}" for delta in sorted(set(deltas))[:3])
    told = f"{how} epsilon".strip()
    if len(found := set(pairs)) > 1:
        return f"{told}, for a client's whole run unless named otherwise, at delta {at}"
    ((unit, adversary),) = found
    return f"{told} for {names('unit')[unit]}, against the {adversary}, at delta {at}"


def behind(sums: float | None) -> str:
    """Return a smaller epsilon that holds against a server that sees only sums; "" for None."""
    return "" if sums is None else f"; {number(sums)} against the summing-server"


def document(privacy: Statement) -> dict[str, Any]:
    """Return a statement as JSON shows it: its kinds and values, and beside them their words."""
    found = privacy.to_json()
    lines = zip(privacy.guarantees, found["guarantees"], strict=True)
    return found | {
        "guarantees": [
            each
            | {
                "method": shown(guarantee.method),
                "reason": shown(guarantee.reason),
                "assumptions": facts(in_order(guarantee.assumptions)),
                "text": size_of(guarantee),
            }
            for guarantee, each in lines
        ],
        "warnings": facts(privacy.warnings),
    }


def shown(fact: Fact | None) -> dict[str, Any] | None:
    """Return a fact as JSON shows it, with its words; None for None."""
    return None if fact is None else fact.to_json() | {"text": line(fact)}


def facts(of: Iterable[Fact]) -> list[dict[str, Any]]:
    """Return facts as JSON shows them, each with its words."""
    return [each.to_json() | {"text": line(each)} for each in of]


def by_rows(what: str, of: Mapping[str, Sequence[Fact]]) -> list[str]:
    """Return conditions or doubts of several rows in sentences, those of all rows first.

    What only some epsilons of a name have is told in one sentence for each name.

    Args:
        what: what they are: "condition" or "doubt".
        of: the facts of each row of a table, by the row's name.
    """
    having: dict[str, list[str]] = {}
    rows: dict[tuple[str, bool], list[str]] = {}
    for row in sorted(of, key=lambda row: named_at(row)[1] or 0.0):
        name, epsilon = named_at(row)
        rows.setdefault((name, epsilon is None), []).append(row)
        for fact in of[row]:
            having.setdefault(short(fact), []).append(row)
    told: dict[str, dict[str, list[str]]] = {}
    for text, those in having.items():
        full = [key for key, each in rows.items() if set(each) <= set(those)]
        names = (rows[key][0] if len(rows[key]) == 1 else key[0] for key in full)
        where = "" if len(full) == len(rows) else f" of {', '.join(names)}"
        parts = [
            (key[0], [row for row in rows[key] if row in those]) for key in rows if key not in full
        ]
        for name, at in [(where, "")] * bool(full) + [
            (f" of {name}", rows_named(some).removeprefix(name)) for name, some in parts if some
        ]:
            told.setdefault(name, {}).setdefault(at, []).append(text)
    return [
        f"{what}{where}" + ";".join(f"{at}: {'; '.join(each[at])}" for at in sorted(each, key=bool))
        for where, each in sorted(told.items(), key=lambda each: each[0] != "")
    ]


UNCOVERED_SIGNAL = (
    "These figures come from private rows, and no line of the statement covers them: publish none "
    "of them. Means over clients: the norm of what a client would send, its norm once bounded, in "
    "the mechanism's coordinates, and the share of clients that were clipped. Of a round's mean, "
    "in the model's weights: the norm without noise (signal), the norm of the noise, and the "
    "cosine between the mean with noise and the mean without."
)
"""What is said below the figures of signal and noise of a simulation."""

SHARES = ("accuracy", "balanced_accuracy", "clients_clipped")
"""The metrics that are shown in percent."""

IN_LABELS_UNIT = ("mae", "calibration_gap")
"""The metrics in the unit of labels that are numbers."""


def in_labels_unit(value: float | None, beside: float | None = None) -> str:
    """Return a number in the labels' unit, with four significant digits; "" for None.

    Args:
        value: the number.
        beside: a number with as many decimals, for a deviation.
    """
    if value is None:
        return ""
    size = value if beside is None else beside
    decimals = 3 - math.floor(math.log10(abs(size))) if size else 0
    return f"{value:,.{max(0, decimals)}f}"


def value_of(metric: str, value: float) -> str:
    """Return the value of a metric; a share is in percent."""
    if metric in IN_LABELS_UNIT:
        return in_labels_unit(value)
    return percent(value) if metric in SHARES else f"{value:.4g}"


def percent(accuracy: float | None) -> str:
    """Format an accuracy for display; return an empty string if there was no test."""
    return "" if accuracy is None else f"{100 * accuracy:.2f} %"


def area(share: float | None) -> str:
    """Format an AUC or an average precision for display; return an empty string for None."""
    return "" if share is None else f"{share:.4f}"


def scores(final: Mapping[str, float | None]) -> list[tuple[str, str]]:
    """Return a table of scores; those meaningful for any class balance come first."""
    if "r2" in final:
        names = {"R2": "r2", "mean absolute error": "mae", "calibration gap": "calibration_gap"}
        return [
            (name, (in_labels_unit if key in IN_LABELS_UNIT else area)(final[key]))
            for name, key in names.items()
        ]
    found = {
        "AUC": area(final["auc"]) or "not defined",
        "balanced accuracy": percent(final["balanced_accuracy"]),
        "average precision": area(final["average_precision"]) or "not defined",
        "accuracy": percent(final["accuracy"]),
        "accuracy of always predicting the most frequent class": percent(final["most_frequent"]),
        "calibration error": area(final["calibration_error"]),
        "Brier score": area(final["brier"]),
    }
    of_clients = {
        "F1, the mean over the classes": ("f1_macro", area),
        "accuracy at a client, the mean": ("client_accuracy", percent),
        "accuracy at the worst tenth of clients": ("worst_tenth_accuracy", percent),
    }
    found |= {name: text(final[key]) for name, (key, text) in of_clients.items() if key in final}
    return [(name, value or "not known") for name, value in found.items()]


def own_metrics(metrics: Mapping[str, float]) -> list[str]:
    """Return a system's own metrics, without figures that people were asked for."""
    return [
        f"{name} {mean:.4g}" for name, mean in metrics.items() if not name.startswith(PRIVATELY)
    ]


def unit_asked(config: Mapping[str, Any]) -> str:
    """Return whose line covers what people answered, given a run's configuration."""
    return "row" if config.get("person_column") is None else "person"


def answer(
    question: str, value: float | None, half: float, interval: Sequence[float] | None
) -> str:
    """Return a private figure with its 95 % interval, or half of one if the figure was not seen."""
    if value is None or interval is None:
        return f"{question} not seen ± {half:.2g}"
    low, high = interval
    if math.isclose(high - value, value - low, rel_tol=1e-6):
        return f"{question} {value:.4g} ± {half:.2g}"
    return f"{question} {value:.4g} ({low:.4g} to {high:.4g})"


def asked(metrics: Mapping[str, float], classes: Sequence[str]) -> list[str]:
    """Return the figures that people were asked for, each with its 95 % interval.

    Args:
        metrics: a system's own metrics.
        classes: the names of the classes; see ``formatting.with_class_name``.
    """
    return [
        answer(with_class_name(each.name, classes), each.value, each.half_width, each.interval)
        for each in private_figures(metrics)
    ]


def doubts_of_asked(figures: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return what makes private figures doubtful, given a run's figures as JSON shows them."""
    found = (each for of in figures if of["rows"] == "covered" for each in of["doubts"])
    return list(dict.fromkeys(each["text"] for each in found))


def baseline(figure: Figure) -> str:
    """Return what a score should be compared with, for a chart; empty if that is not known."""
    if figure.baseline is None:
        return ""
    return f"{names('baseline')[figure.metric]}: {value_of(figure.metric, figure.baseline)}"


def baselines(figures: Iterable[Figure]) -> list[str]:
    """Return in a note what scores should be compared with."""
    known = dict.fromkeys(filter(None, map(baseline, figures)))
    return [f"baseline: {'; '.join(known)}"] if known else []


def not_better(figure: Figure) -> str:
    """Return, for a table, that a score is not better than its baseline; empty if it is."""
    if figure.baseline is None or figure.is_better is not False:
        return ""
    than = "above" if (figure.value or 0.0) <= figure.baseline else "below"  # as less is better
    return f" (not {than} {value_of(figure.metric, figure.baseline)})"


def figure(of: Figure) -> dict[str, Any]:
    """Return a score as JSON shows it."""
    shown = ("metric", "value", "interval", "baseline", "rows")
    return {name: getattr(of, name) for name in shown} | {"doubts": facts(of.doubts)}


def together_line(together: Together) -> str:
    """Return what a set of runs costs, in a sentence."""
    runs, bare = together.runs, together.unprotected
    found = []
    if runs:
        told = f"{_counted(runs, 'run')} used the same rows: together "
        found.append(told + size_of(together.proven))
    if bare:
        found.append(
            f"{_counted(bare, 'run')} on the same rows protect{'s' if bare == 1 else ''} nothing: "
            "publish neither their models nor their scores"
        )
    return "; ".join(found)


def conditions_together(costs: Iterable[Together]) -> list[str]:
    """Return what no row of a table has, but all of its runs together: a client's rounds in all."""
    rounds = dict.fromkeys(
        short(fact) for each in costs for fact in TAKES_PART.among(each.proven.conditions)
    )
    return [f"condition of what runs cost together: {'; '.join(rounds)}"] if rounds else []


def together_lines(costs: Iterable[Together], more: int) -> list[str]:
    """Return what the runs in a folder cost together.

    Args:
        costs: each cost.
        more: how many runs the sums leave out because what they release is unknown.
    """
    found = list(dict.fromkeys(map(together_line, costs)))  # unprotected runs have no unit
    if more:
        found.append(
            f"{_counted(more, 'more run')} in the folder used the same rows, with other settings "
            "or code, or recorded by an older version: what they cost comes on top"
        )
    return found


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def together_document(together: Together) -> dict[str, Any]:
    """Return what a set of runs costs, as JSON shows it."""
    proven, shown = together.proven, ("unit", "adversary", "epsilon", "delta", "stated_by")
    return {
        **{name: getattr(proven, name) for name in shown},
        "conditions": facts(proven.conditions),
        "data": together.data,
        "runs": together.runs,
        "unprotected": together.unprotected,
    }
