"""What the terminal shows: statements and results."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from fedldp.accounting.guarantees import HOUSE, IDEALISED
from fedldp.accounting.statement import AT_SITES, stated_by
from fedldp.algorithms.config import RunConfig
from fedldp.core.formatting import number
from fedldp.reporting.scores import is_imbalanced

Rows = list[dict[str, Any]]


def print_statement(console: Console, privacy: dict[str, Any], setting: str | None = None) -> None:
    """Print a privacy statement: the claim, the table of guarantees, what they mean, warnings.

    Args:
        console: where.
        privacy: the statement.
        setting: the budget that was set, and what it is about, where there is one.
    """
    if setting is not None:
        console.print(f"setting    {setting}", highlight=False, soft_wrap=True)
    console.print(f"claim      {claim_text(privacy['claim'])}", highlight=False, soft_wrap=True)
    table = Table(*statement_heads(privacy))
    for row in statement_rows(privacy):
        table.add_row(*row)
    console.print(table)
    console.print(explain(privacy), highlight=False)
    for warning in privacy["warnings"]:
        console.print(f"warning    {warning}", highlight=False, soft_wrap=True)


def statement_heads(privacy: dict[str, Any]) -> tuple[str, ...]:
    """Return the heads of the table of guarantees.

    Of a user's own code it says whose word a line is, where others have their lower bound: there is
    none of such code.
    """
    last = "stated by" if own_words(privacy) else "true epsilon is at least"
    return ("protected", "against", "epsilon", "delta", last)


def own_words(privacy: Mapping[str, Any]) -> list[str]:
    """Return the addresses of the user's own code on whose word lines of a statement rest."""
    found = dict.fromkeys(stated_by(line) for line in privacy["guarantees"])
    return [by for by in found if by != HOUSE]


def standing(line: Mapping[str, Any]) -> str:
    """Return whether a line with an epsilon is proven, or on whose word it rests."""
    by = stated_by(line)
    return "proven" if by == HOUSE else f"stated by {by}"


def statement_rows(privacy: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return the table of guarantees below ``statement_heads``, as texts."""
    own = own_words(privacy)
    return [
        (
            line["unit"] + (" (idealised)" if IDEALISED in line["assumptions"] else ""),
            line["adversary"],
            number(line["epsilon"]),
            repr(line["delta"]) if line["delta"] else "0",
            _by(line) if own else _lower(line),
        )
        for line in privacy["guarantees"]
    ]


def _by(line: Mapping[str, Any]) -> str:
    return "" if line["epsilon"] is None else stated_by(line)


def _lower(line: Mapping[str, Any]) -> str:
    return "" if line["lower"] is None else number(line["lower"], up=False)


def run_title(recipe: str | None, config: Mapping[str, Any]) -> str:
    """Return what a run is called: its recipe alone would not tell whose data it was about."""
    return f"{recipe or config['system']} on {config['dataset']}"


def run_text(name: str, config: RunConfig) -> str:
    """Return what is being run, in one line."""
    clients = f"{config.num_clients:,} clients"
    if config.clients_per_round is not None:
        clients = f"{config.clients_per_round:,} of {clients} a round"
    elif config.answers_once:
        clients += ", each in one round"
    rounds = "1 round" if config.rounds == 1 else f"{config.rounds:,} rounds"
    return f"{name}: {config.system} on {config.dataset}, {clients}, {rounds}, seed {config.seed}"


def claim_text(claim: dict[str, Any] | None) -> str:
    """Return what the source claims, as a claim."""
    if claim is None:
        return "none: no publication claims privacy for this configuration"
    delta = f", delta {claim['delta']:g}" if claim["delta"] else ""
    return f"epsilon {claim['epsilon']:g}{delta} per {claim['unit']} ({claim['source']})"


def percent(accuracy: float | None) -> str:
    """Return an accuracy for people; nothing where there was no test."""
    return "" if accuracy is None else f"{100 * accuracy:.2f} %"


def area(share: float | None) -> str:
    """Return an AUC or an average precision for people; nothing where it is not known."""
    return "" if share is None else f"{share:.4f}"


def imbalance(most_frequent: float) -> str:
    """Return why accuracy says little of a test, in words."""
    return f"{percent(most_frequent)} of the test are of one class, which accuracy rewards"


def explain(privacy: dict[str, Any]) -> str:
    """Return a statement's guarantees in plain words, as one paragraph."""
    best = best_lines(privacy)
    sentences = []
    for adversary in dict.fromkeys(adversary for _, adversary in best):
        lines = [line for (_, against), line in best.items() if against == adversary]
        known = [line for line in lines if line["kind"] != "none"]
        for by in dict.fromkeys(map(stated_by, known)):
            sentences += _known(adversary, [line for line in known if stated_by(line) == by], by)
        sentences += _not_proven(adversary, [line for line in lines if line["kind"] == "none"])
    if any(MEANINGLESS < _size(line) < math.inf for line in best.values()):
        sentences.append(f"An epsilon above {MEANINGLESS:g} is no protection to speak of.")
    return " ".join(sentences)


def best_lines(privacy: Mapping[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the line that says most, by unit and adversary."""
    best: dict[tuple[str, str], dict[str, Any]] = {}
    for line in privacy["guarantees"]:
        key = (line["unit"], line["adversary"])
        if key not in best or _preference(line) < _preference(best[key]):
            best[key] = line
    return best


def headline(
    privacy: Mapping[str, Any], guarantee: tuple[str, str] | None = None
) -> dict[str, Any] | None:
    """Return the line that tables and charts of runs show: that of a unit and an adversary.

    Where no ``guarantee`` is asked for, it is of all that a client sends in its run, against the
    server. Where nothing is known of that, it is of a person, or of a row; and where nothing is
    known of these either, against one who sees less than the server: sums, or broadcasts.
    """
    best = best_lines(privacy)
    if guarantee is not None:
        return best.get(guarantee)
    pairs = [("client-run", "server")] + [
        (unit, adversary)
        for adversary in ("server", "summing-server", "downlink")
        for unit in ("person", "record")
    ]
    known = (best[pair] for pair in pairs if pair in best and best[pair]["epsilon"] is not None)
    return next(known, best.get(pairs[0]))


def behind_sums(privacy: Mapping[str, Any]) -> float | None:
    """Return what a headline of a person, or a row, is against a server that sees only sums.

    None where that is not known, or no less than against the server.
    """
    line = headline(privacy)
    if line is None or line["adversary"] != "server" or line["unit"] not in ("person", "record"):
        return None
    found = best_lines(privacy).get((line["unit"], "summing-server"))
    return None if found is None or _size(found) >= _size(line) else _size(found)


def about(unit: str, adversary: str, behind: float | None = None) -> str:
    """Return of what a headline is, where it is not of a client's run against the server.

    Args:
        unit: of the headline.
        adversary: likewise.
        behind: see ``behind_sums``.
    """
    if (unit, adversary) == ("client-run", "server"):
        return ""
    against = "" if adversary == "server" else f", against the {adversary}"
    less = "" if behind is None else f"; {number(behind)} against the summing-server"
    return f" per {unit}{against}{less}"


def headline_in_words(privacy: Mapping[str, Any]) -> str:
    """Return the headline's epsilon and delta, of what, and on whose word they rest."""
    line = headline(privacy)
    if line is None or line["epsilon"] is None:
        return _in_words(line)
    return _in_words(line) + about(line["unit"], line["adversary"], behind_sums(privacy))


def run_in_words(privacy: dict[str, Any]) -> str:
    """Return what is stated of all that a client sends in its run, against the server.

    Where that is not proven, it says on whose word it rests.
    """
    return _in_words(best_lines(privacy).get(("client-run", "server")))


def _in_words(line: dict[str, Any] | None) -> str:
    if line is None or line["epsilon"] is None:
        return "no guarantee"
    delta = f" (delta {line['delta']!r})" if line["delta"] else ""
    idealised = ", idealised" if IDEALISED in line["assumptions"] else ""
    own = "" if stated_by(line) == HOUSE else f", {standing(line)}"
    return f"{number(line['epsilon'])}{delta}{idealised}{own}"


def _known(adversary: str, lines: Rows, by: str) -> list[str]:
    parts = []
    for line in lines:
        delta = f" (delta {line['delta']!r})" if line["delta"] else ""
        delta += " in idealised arithmetic" if IDEALISED in line["assumptions"] else ""
        parts.append(
            f"epsilon {number(line['epsilon'])}{delta} {_FROM[line['unit']]}{_where(line)}"
        )
    who = _WHO[adversary]
    if by != HOUSE:
        who = f"If what {by} states is true, {who[0].lower()}{who[1:]}"
    return [f"{who} learns up to {'; '.join(parts)}."]


def _not_proven(adversary: str, lines: Rows) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for line in lines:
        reason = line["method"].removeprefix("none: ")
        reasons.setdefault(reason, []).append(_FROM[line["unit"]])
    who = _WHO[adversary][0].lower() + _WHO[adversary][1:]
    return [
        f"There is no guarantee (epsilon = infinity) on what {who} learns {', nor '.join(parts)}. "
        f"The reason: {reason}."
        for reason, parts in reasons.items()
    ]


def _preference(line: dict[str, Any]) -> tuple[bool, float]:
    # What holds for the numbers that are sent comes before what holds for ideal ones.
    return IDEALISED in line["assumptions"], _size(line)


def _size(line: dict[str, Any]) -> float:
    return math.inf if line["epsilon"] is None else float(line["epsilon"])


_FROM = {
    "weight": "from one weight of one report",
    "record": "about one training example",
    "person": "about all that one person has",
    "client-round": "from all that one client sends in a round",
    "client-run": "from all that one client sends in the run",
}


def _where(line: dict[str, Any]) -> str:
    """Return at how many sites a person may be, of a line that says it."""
    sites = (a for a in line["assumptions"] if a.startswith(AT_SITES))
    return "".join(f", if she{each.removeprefix('a person')}" for each in sites)


_WHO = {
    "server": "A server that can link a client's messages",
    "shuffled-server": "A server behind an honest shuffler",
    "summing-server": "A server that sees only sums",
    "downlink": "Whoever sees only the broadcasts",
}
MEANINGLESS = 20.0
"""With such an epsilon an attacker may be wrong once in e^20 cases, half a billion."""


def print_result(
    console: Console,
    summary: dict[str, Any],
    tested_on: str,
    metrics: dict[str, float],
    setting: str | None,
    *,
    stated: bool = False,
) -> None:
    """Print a run's final table, its statement, and where it lies.

    Args:
        console: where.
        summary: the document of the run.
        tested_on: what its accuracy was measured on.
        metrics: the system's own figures.
        setting: the budget that was set, and what it is about, where there is one.
        stated: whether the reader has seen this very statement, before the run.
    """
    final = summary["final"]
    leads = final.get("brier") is not None and is_imbalanced(final["most_frequent"])
    first = ("AUC", "balanced accuracy") if leads else ()
    table = Table("round", "clients", *first, "accuracy", "loss", "uplink bits per client",
                  "seconds")  # fmt: skip
    for record in summary["rounds"]:
        table.add_row(
            str(record["round"]),
            str(record["clients"]),
            *((area(record["auc"]), percent(record["balanced_accuracy"])) if leads else ()),
            percent(record["accuracy"]),
            "" if record["loss"] is None else f"{record['loss']:.4f}",
            f"{record['uplink_bits_per_client']:,.0f}",
            f"{record['seconds']:.2f}",
        )
    console.print(table)
    if leads:
        for text in (
            f"AUC        {area(final['auc']) or 'not defined'} on {tested_on}, balanced accuracy "
            f"{percent(final['balanced_accuracy'])}",
            f"           They come first: {imbalance(final['most_frequent'])}.",
            f"           Average precision {area(final['average_precision']) or 'not defined'}, "
            f"Brier score {final['brier']:.4f}.",
        ):
            console.print(text, highlight=False, soft_wrap=True)
    tested = f"not tested, in {summary['seconds']:.1f} s"
    if final["accuracy"] is not None:
        tested = (
            f"{percent(final['accuracy'])} on {tested_on}, loss {final['loss']:.4f}, in "
            f"{summary['seconds']:.1f} s"
        )
    console.print(f"accuracy   {tested}", highlight=False, soft_wrap=True)
    if metrics:
        parts = ", ".join(f"{name} {mean:.4g}" for name, mean in metrics.items())
        console.print(f"metrics    mean of a round: {parts}", highlight=False, soft_wrap=True)
    if stated:
        # Of a budget for one weight alone a reader would take it that it is the run's.
        budget = "" if setting is None else f": {setting}"
        whole = run_in_words(summary["privacy"])
        line = best_lines(summary["privacy"]).get(("client-run", "server"))
        if line is not None and line["epsilon"] is not None and stated_by(line) == HOUSE:
            whole += f", {standing(line)}"
        person = best_lines(summary["privacy"]).get(("person", "server"))
        if person is not None:
            whole += f"; {_FROM['person']}: {_in_words(person)}"
        console.print(
            f"privacy    as stated above{budget}; epsilon of all that a client sends in the run, "
            f"against the server: {whole}",
            highlight=False,
            soft_wrap=True,
        )
    else:
        print_statement(console, summary["privacy"], setting)
    if summary["run_dir"] is not None:
        console.print(f"run folder {summary['run_dir']}", highlight=False, soft_wrap=True)
