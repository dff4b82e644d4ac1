"""Words: the only place where a fact becomes a sentence.

The templates are data: ``words.toml`` here has those of the kinds in ``core.kinds``, and the file
of the same name in a paper's folder those of the paper's own kinds. Words are output only: nothing
that is signed, hashed, compared or read back contains them, so any of them may change.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Any

from fedldp.accounting.guarantees import HOUSE, Guarantee
from fedldp.accounting.proven import Together
from fedldp.accounting.statement import Statement, delta_to_take, revealed
from fedldp.core.errors import ConfigError
from fedldp.core.facts import Fact, in_order
from fedldp.core.formatting import number
from fedldp.core.kinds import AT_SITES, TAKES_PART
from fedldp.core.registry import paper_folders
from fedldp.ledgers.budget import Budget

if TYPE_CHECKING:
    from fedldp.reporting.scores import Figure

FILE = "words.toml"

UNITS = {
    "weight": "from one weight of one report",
    "record": "about one training example",
    "person": "about all data of one person",
    "client-round": "from all that one client sends in a round",
    "client-run": "from all that one client sends in the run",
}
"""What is protected, for each unit."""

WHOLE = {
    "weight": "a weight",
    "record": "a record",
    "person": "a person",
    "client-round": "a client's round",
    "client-run": "a client's whole run",
}
"""The name of each unit."""

ADVERSARIES = {
    "server": "A server that can link a client's messages",
    "shuffled-server": "A server behind an honest shuffler",
    "summing-server": "A server that sees only sums",
    "downlink": "Anyone who sees only the broadcasts",
}
"""Who attacks, for each adversary, in the order of every output."""

_MANY = {"record": "records", "person": "people", "client": "clients"}


def _as_far(of: Mapping[str, Any]) -> dict[str, str]:
    """Return a doubt's numbers in words."""
    told = f"{'at most ' if of['rounded'] else ''}{of['examples']:,}"
    shares = {
        "percent": of.get("accuracy"),
        "often": of.get("most_frequent"),
        "balanced": of.get("balanced_accuracy"),
        "guessing": 1 / of["classes"] if "classes" in of else None,
    }
    found = {name: f"{100 * share:.2f} %" for name, share in shares.items() if share is not None}
    return found | {"as_far": f"as far as {told} examples can tell"}


_COMPUTED: dict[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {
    "at-no-more-sites": lambda of: {"so_many": _counted(of["sites"], "site")},
    "delta-for-so-many": lambda of: {
        "many": _MANY[of["of"]],
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
    "imbalanced": lambda of: {"often": f"{100 * of['most_frequent']:.2f} %"},
    "epsilon-shown": lambda of: {
        "whom": f"the unit {of['unit']}, against the adversary {of['adversary']}"
        if about(of["unit"], of["adversary"])
        else "all that a client sends in the run, against the server",
        "at": f", at delta {' or '.join(f'{each:g}' for each in of['deltas'])}"
        if of["deltas"]
        else "",
    },
    "epsilon-compared": lambda of: {"what": WHOLE[of["unit"]]},
    "not-of-client": lambda of: {"about": about(of["unit"], of["adversary"])},
    "class-count-rounds": lambda of: {"share": f"{100 * of['counted'] / of['of']:.2g} %"},
}
"""Values that templates show besides a fact's own."""


@cache
def templates() -> dict[str, dict[str, Any]]:
    """Return the words of every kind of the package, by the kind's name."""
    places = [Path(__file__).with_name(FILE), *map(Path, paper_folders(FILE))]
    found: dict[str, dict[str, Any]] = {}
    for place in places:
        found |= tomllib.loads(place.read_text(encoding="utf-8"))
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
        return _with_values(entry[form], values)
    for each in entry.get("when", [entry]):
        if all(_is(values[name], fixed) for name, fixed in each.items() if name != "line"):
            return _with_values(each["line"], values)
    raise LookupError(f"{FILE} has no words for {fact.kind} with {values}")


def _is(value: Any, fixed: Any) -> bool:
    return bool(fixed == "none" if value is None else value == fixed)  # TOML has no None


def _with_values(template: str, values: Mapping[str, Any]) -> str:
    """Fill a template.

    Besides what ``str.format`` knows, ``{x:n}`` shows an epsilon, ``{x:upN}`` a number rounded up
    to N digits, ``{x:r}`` a number in full, ``{x!s}`` names and ``{x!r}`` facts joined by "and",
    ``{x!s:JOINER}`` and ``{x!r:JOINER}`` by something else, and ``{x!t}`` a text as it is.
    """
    found = ""
    for text, name, spec, how in Formatter().parse(template):
        found += text + ("" if name is None else _shown(values[name], spec or "", how))
    return found


def _shown(value: Any, spec: str, how: str | None) -> str:
    if how in ("r", "s"):
        parts = map(line, value if isinstance(value, tuple) else (value,)) if how == "r" else value
        return (spec or " and ").join(parts)
    if how == "t":
        return str(value)
    if spec == "r":
        return repr(value)
    if spec == "n":
        return number(value)
    if spec.startswith("up"):
        digits = int(spec.removeprefix("up"))
        return f"{math.ceil(value * 10**digits) / 10**digits:,.{digits}f}"
    return format(value, spec)


def method_of(guarantee: Guarantee) -> str:
    """Return how a line's epsilon was computed, or why there is none."""
    if guarantee.reason is not None:
        return f"none: {line(guarantee.reason)}"
    assert guarantee.method is not None
    return line(guarantee.method)


def assumptions_of(guarantee: Guarantee) -> list[str]:
    """Return what a line relies on, in the order of every output."""
    return [line(each) for each in in_order(guarantee.assumptions)]


def sites_of(guarantee: Guarantee) -> str:
    """Return at how many sites a person may have rows, from a line that states the number."""
    return "".join(f", {_filled(each, 'if')}" for each in AT_SITES.among(guarantee.assumptions))


def size_of(guarantee: Guarantee) -> str:
    """Return a line's epsilon and delta, and whom it protects against whom, in one sentence."""
    who = guarantee.adversary
    if guarantee.epsilon is None:
        return f"no guarantee {UNITS[guarantee.unit]} against the {who}"
    delta = f" (delta {guarantee.delta!r})" if guarantee.delta else ""
    by = "" if guarantee.stated_by == HOUSE else f", as {guarantee.stated_by} states"
    size = f"epsilon {number(guarantee.epsilon)}{delta}"
    return f"{size} {UNITS[guarantee.unit]}{sites_of(guarantee)}, against the {who}{by}"


def about(unit: str, adversary: str) -> str:
    """Return what an epsilon in a table covers; "" for a client's run against the server."""
    if (unit, adversary) == ("client-run", "server"):
        return ""
    return f" per {unit}" + ("" if adversary == "server" else f", against the {adversary}")


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


def conditions(of: Mapping[str, Sequence[Fact]]) -> list[str]:
    """Return the conditions of several epsilons in sentences, those of all of them first.

    Args:
        of: the conditions of each row of a table, by the row's name.
    """
    return _by_rows("condition", of)


def doubts(of: Mapping[str, Sequence[Fact]]) -> list[str]:
    """Return the doubts about several scores in sentences; see ``conditions``."""
    return _by_rows("doubt", of)


def _by_rows(what: str, of: Mapping[str, Sequence[Fact]]) -> list[str]:
    found: dict[str, dict[str, None]] = {}
    for name, each in of.items():
        for fact in each:
            found.setdefault(short(fact), {})[name] = None
    told = [f"{what}: {text}" for text, names in found.items() if len(names) == len(of)]
    few: dict[str, list[str]] = {}
    for text, names in found.items():
        if len(names) < len(of):
            few.setdefault(", ".join(names), []).append(text)
    return ["; ".join(told)] * bool(told) + [
        f"{what} of {names}: {'; '.join(those)}" for names, those in few.items()
    ]


SHARES = ("accuracy", "balanced_accuracy")
"""The metrics that are shown in percent."""

_GUESSES = {
    "accuracy": "always the most frequent class",
    "balanced_accuracy": "guessing",
    "auc": "a random order",
}
"""What has the baseline of each metric."""


def value_of(metric: str, value: float) -> str:
    """Return the value of a metric; a share is in percent."""
    return f"{100 * value:.2f} %" if metric in SHARES else f"{value:.4g}"


def baseline(figure: Figure) -> str:
    """Return what a score should be compared with, for a chart; empty if that is not known."""
    if figure.baseline is None:
        return ""
    return f"{_GUESSES[figure.metric]}: {value_of(figure.metric, figure.baseline)}"


def baselines(figures: Iterable[Figure]) -> list[str]:
    """Return in a note what scores should be compared with."""
    known = dict.fromkeys(filter(None, map(baseline, figures)))
    return [f"baseline: {'; '.join(known)}"] if known else []


def not_above(figure: Figure) -> str:
    """Return, for a table, that a score is not above its baseline; empty if it is."""
    if figure.baseline is None or figure.is_above is not False:
        return ""
    return f" (not above {value_of(figure.metric, figure.baseline)})"


def figure(of: Figure) -> dict[str, Any]:
    """Return a score as JSON shows it."""
    return {
        "metric": of.metric,
        "value": of.value,
        "interval": of.interval,
        "baseline": of.baseline,
        "rows": of.rows,
        "doubts": facts(of.doubts),
    }


def together_line(together: Together) -> str:
    """Return what a set of runs costs, in a sentence."""
    proven, runs, bare = together.proven, together.runs, together.unprotected
    found = []
    if runs:
        delta = f" (delta {proven.delta!r})" if proven.delta else ""
        by = "" if proven.stated_by == HOUSE else f", as {proven.stated_by} states"
        by += ", idealised" if proven.is_idealised else ""
        found.append(
            f"{_counted(runs, 'run')} used the same rows: together epsilon "
            f"{number(proven.epsilon)}{delta} {UNITS[proven.unit]}, against the "
            f"{proven.adversary}{by}"
        )
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


def uncounted(runs: int) -> str:
    """Return how many runs a sum leaves out because what they release is unknown."""
    return (
        f"{_counted(runs, 'more run')} in the folder used the same rows, with other settings or "
        "code, or recorded by an older version: what they cost comes on top"
    )


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def together_document(together: Together) -> dict[str, Any]:
    """Return what a set of runs costs, as JSON shows it."""
    proven = together.proven
    return {
        "unit": proven.unit,
        "adversary": proven.adversary,
        "epsilon": proven.epsilon,
        "delta": proven.delta,
        "stated_by": proven.stated_by,
        "conditions": facts(proven.conditions),
        "data": together.data,
        "runs": together.runs,
        "unprotected": together.unprotected,
    }
