"""The terminal's output, statements and results, and a statement that displays itself."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from html import escape as escape_html
from typing import Any, Self

from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from fedldp.accounting.guarantees import HOUSE, Guarantee
from fedldp.accounting.statement import Claim, Statement
from fedldp.algorithms.config import RunConfig
from fedldp.core.facts import Doubt, NoGuarantee, in_order
from fedldp.core.formatting import number
from fedldp.core.kinds import SIMULATED
from fedldp.reporting import words
from fedldp.reporting.scores import is_imbalanced
from fedldp.reporting.words import ADVERSARIES, UNITS


def print_statement(console: Console, privacy: Statement, setting: str | None = None) -> None:
    """Print a privacy statement: the claim, the table of guarantees, what they mean, warnings.

    Args:
        console: where to print.
        privacy: the statement.
        setting: the budget that was set and what it covers, if there is one.
    """
    if setting is not None:
        console.print(f"setting    {setting}", highlight=False, soft_wrap=True)
    console.print(f"claim      {claim_text(privacy.claim)}", highlight=False, soft_wrap=True)
    print_table(console, statement_heads(privacy), statement_rows(privacy))
    console.print(explain(privacy), highlight=False)
    for warning in privacy.warnings:
        text = words.line(warning)
        console.print(f"warning    {text}", highlight=False, soft_wrap=True, markup=False)


_LONGEST = 24
"""Longer words, such as addresses of own code, may be broken; units and numbers are shorter."""


def print_table(console: Console, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table in which no word is cut, without its lines if the terminal is narrow.

    In a terminal that is narrower still, print each row as a list.
    """
    columns = list(zip(head, *rows, strict=True))
    most = [max(map(cell_len, column)) for column in columns]
    least = [
        min(_LONGEST, max((cell_len(word) for cell in column for word in cell.split()), default=0))
        for column in columns
    ]
    lined, plain = 3 * len(columns) + 1, 2 * (len(columns) - 1)
    between = lined if sum(least) + lined <= console.width else plain
    left = console.width - between - sum(least)
    if left < 0:
        for row in rows:
            parts = (f"{name}: {cell}" for name, cell in zip(head, row, strict=True) if cell)
            console.print("; ".join(parts), highlight=False, markup=False, overflow="fold")
        return
    widths = list(least)
    for each in sorted(range(len(columns)), key=lambda each: most[each] - least[each]):
        widths[each] += min(left, most[each] - least[each])
        left -= widths[each] - least[each]
    cells = (Column(escape(n), width=w, overflow="fold") for n, w in zip(head, widths, strict=True))
    look = {} if between == lined else {"box": None, "padding": (0, 2, 0, 0), "pad_edge": False}
    table = Table(*cells, **look)  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*map(escape, row))
    console.print(table)


def warnings_of(summary: Mapping[str, Any]) -> list[str]:
    """Return all warnings about a run: first about its privacy, then about its metrics."""
    warnings = Statement.from_json(summary["privacy"]).warnings
    return [
        *map(words.line, warnings),
        *(words.line(Doubt.from_json(each)) for each in summary["doubts"]),
    ]


def asked_for(config: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the unit and the adversary of a run's target; None without a complete target.

    Args:
        config: the run's configuration; if read from a folder, somebody else may have written it.
    """
    target = config.get("target")
    if not isinstance(target, dict):
        return None
    sizes = [target.get("epsilon"), target.get("delta", 0.0)]
    if any(isinstance(each, bool) or not isinstance(each, int | float) for each in sizes):
        return None
    if not (0 < sizes[0] < math.inf and 0 <= sizes[1] < 1):
        return None
    unit, adversary = str(target.get("unit")), str(target.get("adversary"))
    return (unit, adversary) if unit in UNITS and adversary in ADVERSARIES else None


def asked_first(privacy: Statement, asked: tuple[str, str] | None) -> Statement:
    """Return a statement that begins with the lines of the requested guarantee."""
    lines = sorted(privacy.guarantees, key=lambda line: (line.unit, line.adversary) != asked)
    return replace(privacy, guarantees=tuple(lines))


def headline_first(privacy: Statement, asked: tuple[str, str] | None) -> Statement:
    """Return a statement that begins with its ``first_line``."""
    line = first_line(privacy, asked)
    if line is None:
        return asked_first(privacy, asked)
    found = asked_first(privacy, (line.unit, line.adversary))
    lines = sorted(found.guarantees, key=lambda each: each is not line)
    return replace(found, guarantees=tuple(lines))


def guarantee_in_words(config: Mapping[str, Any], privacy: Statement) -> list[str]:
    """Return what a run protects, in sentences; the run's documents begin with the first sentence.

    The first sentence states the requested guarantee, or else the ``first_line``. The other
    sentences say what holds for the same unit against other adversaries, and what is not protected.
    """
    asked = asked_for(config)
    line, best = first_line(privacy, asked), best_lines(privacy)
    if asked is not None:
        unit, adversary = asked
        found = [f"Asked for: {asked_in_words(config, privacy)}."]
        if SIMULATED in privacy.warnings and line is not None and line.epsilon is not None:
            found.append(
                "This run was simulated and protects nothing itself: the guarantee holds for "
                + ("ideal real numbers." if line.is_idealised else "a deployment.")
            )
    else:
        if line is None or line.epsilon is None:
            return [
                "No guarantee: nothing is proven, against any adversary, about all that one "
                "client sends in the run, all data of one person, or one training example."
            ]
        of = ""
        if line.is_idealised:
            of = ", for ideal real numbers, not for the numbers that a computer sends"
        elif SIMULATED in privacy.warnings:
            of = ", for a deployment with these settings"
        unit, adversary = line.unit, line.adversary
        found = [f"{_begun(standing(line))}{of}: {_about_whom(line)}."]
    for other, who in ADVERSARIES.items():
        known = best.get((unit, other))
        if other == adversary or (known is None and other != "server"):
            continue
        found.append(f"Against {_small(who)}: {_size_in_words(known)}.")
    whole = first_line(privacy)
    if unit in ("weight", "client-round") and whole is not None and whole.epsilon is not None:
        found.append(f"Over the whole run: {_about_whom(whole)}.")
    client = best.get(("client-run", "server"))
    if unit in ("person", "record") and (client is None or client.epsilon is None):
        found.append("A client as a whole is not protected.")
    return found


def _about_whom(line: Guarantee) -> str:
    who = _small(ADVERSARIES[line.adversary])
    delta = f" (delta {line.delta!r})" if line.delta else ""
    size = f"epsilon {number(line.epsilon)}{delta}"
    return f"{size} {UNITS[line.unit]}{words.sites_of(line)}, against {who}{_much(line)}"


def _size_in_words(line: Guarantee | None) -> str:
    if line is None or line.epsilon is None:
        return "no guarantee"
    return f"epsilon {_in_words(line)}{_much(line)}"


def _much(line: Guarantee) -> str:
    return ", which is practically no protection" if _size(line) > MEANINGLESS else ""


def _begun(text: str) -> str:
    return text[:1].upper() + text[1:]


def _small(text: str) -> str:
    return text[:1].lower() + text[1:]


def asked_in_words(config: Mapping[str, Any], privacy: Statement) -> str | None:
    """Return the requested guarantee and what is stated about it; None without a target."""
    asked = asked_for(config)
    if asked is None:
        return None
    line, target = headline(privacy, asked), config["target"]
    delta = f" (delta {target['delta']!r})" if target.get("delta") else ""
    found = _in_words(line, by=False)
    if line is not None and line.epsilon is not None:
        found = f"{standing(line)}: epsilon {found}"
    return (
        f"epsilon {number(target['epsilon'])}{delta} {UNITS[asked[0]]}, against the {asked[1]}; "
        f"{found}"
    )


def statement_heads(privacy: Statement) -> tuple[str, ...]:
    """Return the headings of the table of guarantees.

    If lines are stated by a user's own code, the last column says who states each line. Otherwise
    it has the lower bound, which such code does not have.
    """
    last = "stated by" if own_words(privacy) else "true epsilon is at least"
    return ("protected", "against", "epsilon", "delta", last)


def own_words(privacy: Statement) -> list[str]:
    """Return the addresses ("module:name") of the user's own code that states some lines."""
    found = dict.fromkeys(line.stated_by for line in privacy.guarantees)
    return [by for by in found if by != HOUSE]


def standing(line: Guarantee) -> str:
    """Return whether a line with an epsilon is proven, or who states it."""
    by = line.stated_by
    return "proven" if by == HOUSE else f"stated by {by}"


def statement_rows(privacy: Statement) -> list[tuple[str, ...]]:
    """Return the rows of the table of guarantees, in the columns of ``statement_heads``."""
    own = own_words(privacy)
    return [
        (
            line.unit + (" (idealised)" if line.is_idealised else ""),
            line.adversary,
            number(line.epsilon),
            repr(line.delta) if line.delta else "0",
            _by(line) if own else _lower(line),
        )
        for line in privacy.guarantees
    ]


def _by(line: Guarantee) -> str:
    return "" if line.epsilon is None else line.stated_by


def _lower(line: Guarantee) -> str:
    return "" if line.lower is None else number(line.lower, up=False)


def run_title(recipe: str | None, config: Mapping[str, Any]) -> str:
    """Return the title of a run; it names the data, because the recipe's name may not do so."""
    return f"{recipe or config['system']} on {config['dataset']}"


def run_text(name: str, config: RunConfig) -> str:
    """Return a description of what is being run, in one line."""
    clients = f"{config.num_clients:,} clients"
    if config.clients_per_round is not None:
        clients = f"{config.clients_per_round:,} of {clients} a round"
    elif config.answers_once:
        clients += ", each in one round"
    rounds = "1 round" if config.rounds == 1 else f"{config.rounds:,} rounds"
    return f"{name}: {config.system} on {config.dataset}, {clients}, {rounds}, seed {config.seed}"


NO_CLAIM = "no publication claims privacy for this configuration"


def claim_text(claim: Claim | None) -> str:
    """Return the source's claim in words that present it as a claim."""
    if claim is None:
        return f"none: {NO_CLAIM}"
    delta = f", delta {claim.delta:g}" if claim.delta else ""
    return f"epsilon {claim.epsilon:g}{delta} per {claim.unit} ({claim.source})"


def percent(accuracy: float | None) -> str:
    """Format an accuracy for display; return an empty string if there was no test."""
    return "" if accuracy is None else f"{100 * accuracy:.2f} %"


def area(share: float | None) -> str:
    """Format an AUC or an average precision for display; return an empty string for None."""
    return "" if share is None else f"{share:.4f}"


def imbalance(most_frequent: float) -> str:
    """Return in words why accuracy says little on an imbalanced test set."""
    return (
        f"{percent(most_frequent)} of the test set is one class, so always predicting that class "
        "already has a high accuracy"
    )


def explain(privacy: Statement) -> str:
    """Return a statement's guarantees in plain words, and on a line of their own the conditions."""
    best = best_lines(privacy)
    sentences = []
    for adversary in dict.fromkeys(adversary for _, adversary in best):
        lines = [line for (_, against), line in best.items() if against == adversary]
        known = [line for line in lines if line.kind != "none"]
        for by in dict.fromkeys(line.stated_by for line in known):
            sentences += _known(adversary, [line for line in known if line.stated_by == by], by)
        sentences += _not_proven(adversary, [line for line in lines if line.kind == "none"])
    if any(MEANINGLESS < _size(line) < math.inf for line in best.values()):
        sentences.append(f"An epsilon above {MEANINGLESS:g} gives practically no protection.")
    rests_on = in_order({each for line in best.values() for each in line.assumptions})
    told = f"\nConditions: {'; '.join(map(words.short, rests_on))}." if rests_on else ""
    return " ".join(sentences) + told


def best_lines(privacy: Statement) -> dict[tuple[str, str], Guarantee]:
    """Return the strongest line for each unit and adversary."""
    best: dict[tuple[str, str], Guarantee] = {}
    for line in privacy.guarantees:
        key = (line.unit, line.adversary)
        if key not in best or _preference(line) < _preference(best[key]):
            best[key] = line
    return best


def headline(privacy: Statement, guarantee: tuple[str, str] | None = None) -> Guarantee | None:
    """Return the line that tables and charts of runs show, for one unit and adversary.

    If no ``guarantee`` is requested, the line covers everything that a client sends in its run,
    with the server as the adversary. If nothing is known about that, the line covers a person, or a
    row. If nothing is known about these against the server either, the adversary is one who sees
    less than the server: only sums, or only broadcasts.
    """
    best = best_lines(privacy)
    if guarantee is not None:
        return best.get(guarantee)
    pairs = [("client-run", "server")] + [
        (unit, adversary)
        for adversary in ("server", "summing-server", "downlink")
        for unit in ("person", "record")
    ]
    known = (best[pair] for pair in pairs if pair in best and best[pair].epsilon is not None)
    return next(known, best.get(pairs[0]))


def first_line(privacy: Statement, asked: tuple[str, str] | None = None) -> Guarantee | None:
    """Return the line with which the documents of a run begin: the headline.

    If nothing is known about the headline, the line covers everything that a client sends in its
    run, with an adversary who sees less than the server.
    """
    line, best = headline(privacy, asked), best_lines(privacy)
    if asked is not None or (line is not None and line.epsilon is not None):
        return line
    others = (best.get(("client-run", adversary)) for adversary in ADVERSARIES)
    return next((each for each in others if each and each.epsilon is not None), line)


def behind_sums(privacy: Statement) -> float | None:
    """Return a person's or a row's headline epsilon against a server that sees only sums.

    Return None if this epsilon is not known, or not smaller than the epsilon against the server.
    """
    line = headline(privacy)
    if line is None or line.adversary != "server" or line.unit not in ("person", "record"):
        return None
    found = best_lines(privacy).get((line.unit, "summing-server"))
    return None if found is None or _size(found) >= _size(line) else _size(found)


def headline_in_words(privacy: Statement, guarantee: tuple[str, str] | None = None) -> str:
    """Return the headline's epsilon and delta, what they cover, and who states them."""
    line = headline(privacy, guarantee)
    if line is None or line.epsilon is None:
        return _in_words(line)
    behind = behind_sums(privacy) if guarantee is None else None
    return _in_words(line) + words.about(line.unit, line.adversary) + words.behind(behind)


def run_in_words(privacy: Statement) -> str:
    """Return what is stated about everything that a client sends in its run, against the server.

    If that is not proven, the text says who states it.
    """
    return _in_words(best_lines(privacy).get(("client-run", "server")))


def _in_words(line: Guarantee | None, *, by: bool = True) -> str:
    if line is None or line.epsilon is None:
        return "no guarantee"
    delta = f" (delta {line.delta!r})" if line.delta else ""
    idealised = ", idealised" if line.is_idealised else ""
    own = f", {standing(line)}" if by and line.stated_by != HOUSE else ""
    return f"{number(line.epsilon)}{delta}{idealised}{own}"


def _known(adversary: str, lines: list[Guarantee], by: str) -> list[str]:
    parts = []
    for line in lines:
        delta = f" (delta {line.delta!r})" if line.delta else ""
        delta += " in idealised arithmetic" if line.is_idealised else ""
        parts.append(
            f"epsilon {number(line.epsilon)}{delta} {UNITS[line.unit]}{words.sites_of(line)}"
        )
    who = ADVERSARIES[adversary]
    if by != HOUSE:
        who = f"If what {by} states is true, {who[0].lower()}{who[1:]}"
    return [f"{who} learns up to {'; '.join(parts)}."]


def _not_proven(adversary: str, lines: list[Guarantee]) -> list[str]:
    reasons: dict[NoGuarantee | None, list[str]] = {}
    for line in lines:
        reasons.setdefault(line.reason, []).append(UNITS[line.unit])
    who = _small(ADVERSARIES[adversary])
    return [
        f"There is no guarantee (epsilon = infinity) on what {who} learns {', or '.join(parts)}. "
        f"The reason: {words.line(reason)}."
        for reason, parts in reasons.items()
        if reason is not None
    ]


def _preference(line: Guarantee) -> tuple[bool, float]:
    # Lines about the numbers that are really sent come before lines that assume real arithmetic.
    return line.is_idealised, _size(line)


def _size(line: Guarantee) -> float:
    return math.inf if line.epsilon is None else float(line.epsilon)


MEANINGLESS = 20.0
"""At this epsilon, an attacker may be wrong in only one of e^20 (half a billion) cases."""


def print_result(
    console: Console,
    summary: dict[str, Any],
    tested_on: str,
    metrics: dict[str, float],
    setting: str | None,
    *,
    stated: bool = False,
) -> None:
    """Print a run's final table, its statement, and the path of its folder.

    Args:
        console: where to print.
        summary: the run's document.
        tested_on: the data on which the run's accuracy was measured.
        metrics: the system's own metrics.
        setting: the budget that was set and what it covers, if there is one.
        stated: whether the reader has already seen this statement, before the run.
    """
    final, often = summary["final"], summary["final"]["most_frequent"]
    figures = final.get("brier") is not None
    leads = figures and is_imbalanced(often)
    first = ("AUC", "balanced accuracy") if leads else ()
    head = ["round", "clients", *first, "accuracy", "loss", "uplink bits per client", "seconds"]
    rows = [
        (
            str(record["round"]),
            str(record["clients"]),
            *((area(record["auc"]), percent(record["balanced_accuracy"])) if leads else ()),
            percent(record["accuracy"]),
            "" if record["loss"] is None else f"{record['loss']:.4f}",
            f"{record['uplink_bits_per_client']:,.0f}",
            f"{record['seconds']:.2f}",
        )
        for record in summary["rounds"]
    ]
    print_table(console, head, rows)
    ranking = (
        f"AUC        {area(final.get('auc')) or 'not defined'} on {tested_on}, balanced accuracy "
        f"{percent(final.get('balanced_accuracy'))}",
        *(
            (f"           AUC and balanced accuracy come first: {imbalance(often)}.",)
            if leads
            else ()
        ),
        f"           Average precision {area(final.get('average_precision')) or 'not defined'}, "
        f"Brier score {area(final.get('brier'))}, calibration error "
        f"{area(final.get('calibration_error')) or 'unknown'}.",
    )
    for text in ranking if leads else ():
        console.print(text, highlight=False, soft_wrap=True)
    tested = f"not tested, in {summary['seconds']:.1f} s"
    if final["accuracy"] is not None:
        tested = (
            f"{percent(final['accuracy'])} on {tested_on}, loss {final['loss']:.4f}, in "
            f"{summary['seconds']:.1f} s"
        )
    if often is not None:
        tested += f"; always predicting the most frequent class: {percent(often)}"
    console.print(f"accuracy   {tested}", highlight=False, soft_wrap=True)
    for text in ranking if figures and not leads else ():
        console.print(text, highlight=False, soft_wrap=True)
    if metrics:
        parts = ", ".join(f"{name} {mean:.4g}" for name, mean in metrics.items())
        console.print(f"metrics    means over rounds: {parts}", highlight=False, soft_wrap=True)
    asked = asked_for(summary["config"])
    privacy = asked_first(Statement.from_json(summary["privacy"]), asked)
    if (told := asked_in_words(summary["config"], privacy)) is not None:
        console.print(f"asked for  {told}", highlight=False, soft_wrap=True)
    if stated:
        # Say what the budget covers: a budget for one weight could be mistaken for the run's.
        budget = "" if setting is None else f": {setting}"
        whole = run_in_words(privacy)
        line = best_lines(privacy).get(("client-run", "server"))
        if line is not None and line.epsilon is not None and line.stated_by == HOUSE:
            whole += f", {standing(line)}"
        person = best_lines(privacy).get(("person", "server"))
        if person is not None and asked != ("person", "server"):
            whole += f"; {UNITS['person']}: {_in_words(person)}"
        console.print(
            f"privacy    as stated above{budget}; epsilon for all that a client sends in the run, "
            f"against the server: {whole}",
            highlight=False,
            soft_wrap=True,
        )
    else:
        print_statement(console, privacy, setting)
    for doubt in summary["doubts"]:
        text = words.line(Doubt.from_json(doubt))
        console.print(f"warning    {text}", highlight=False, soft_wrap=True, markup=False)
    if summary["run_dir"] is not None:
        console.print(f"run folder {summary['run_dir']}", highlight=False, soft_wrap=True)


class Displayed(Statement):
    """A statement that displays itself, in a console and in a notebook."""

    @classmethod
    def of(cls, privacy: Statement) -> Self:
        """Return a statement as one that displays itself."""
        return cls(claim=privacy.claim, guarantees=privacy.guarantees, warnings=privacy.warnings)

    def __repr__(self) -> str:
        from rich.console import Console

        text = io.StringIO()
        # Otherwise, in Jupyter, rich would show the lines at once and leave the string empty.
        print_statement(Console(file=text, width=100, color_system=None, force_jupyter=False), self)
        return text.getvalue().rstrip()

    def _repr_html_(self) -> str:
        told = (escape_html(words.line(each)) for each in self.warnings)
        return (
            f"<p><b>claim</b> {escape_html(claim_text(self.claim))}</p>"
            + html_table(statement_heads(self), statement_rows(self))
            + f"<p>{escape_html(explain(self))}</p>"
            + "".join(f"<p><b>warning</b> {text}</p>" for text in told)
        )


def html_table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table as HTML."""
    top = "".join(f"<th>{escape_html(head)}</th>" for head in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape_html(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
