"""The terminal's output, statements and results, and a statement that displays itself."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape as escape_html
from typing import Any, Self

from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from fedldp.accounting.statement import Statement
from fedldp.algorithms.config import RunConfig
from fedldp.core.facts import Doubt, Note
from fedldp.core.kinds import HELD_OUT, IMBALANCED_TEST
from fedldp.protocol.server_loop import Round
from fedldp.reporting import words
from fedldp.reporting.lines import asked_first, asked_for
from fedldp.reporting.scores import is_imbalanced
from fedldp.reporting.words import area, percent


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


def in_short(final: Mapping[str, Any]) -> str:
    """Return a model's main scores; AUC and balanced accuracy come first for imbalanced classes."""
    if "mae" in final:
        return f"R2 {area(final['r2']) or 'not defined'}"
    if final["accuracy"] is None:
        return "not tested"
    first = ""
    if final["auc"] is not None and is_imbalanced(final.get("most_frequent")):
        balanced = percent(final["balanced_accuracy"])
        first = f"AUC {area(final['auc'])}, balanced accuracy {balanced}, "
    return f"{first}accuracy {percent(final['accuracy'])}"


def score_lines(final: Mapping[str, Any], on: str, took: str = "") -> Iterator[tuple[str, str]]:
    """Yield what is printed about a model's scores: labels, and the text after each.

    Args:
        final: the scores by name.
        on: the data on which they were measured.
        took: how long that took, or after how many rounds it was, if anything is to be said.
    """
    if "r2" in final:
        told = ", ".join(f"{name} {value}" for name, value in words.scores(final)[1:])
        yield "R2", f"{area(final['r2'])} on {on}, {told}{f', {took}' if took else ''}"
        return
    often = final["most_frequent"]
    leads = final["brier"] is not None and is_imbalanced(often)
    accuracy = "not tested"
    if final["accuracy"] is not None:
        accuracy = f"{percent(final['accuracy'])} on {on}"
    if final.get("loss") is not None:
        accuracy += f", loss {final['loss']:.4f}"
    accuracy += f", {took}" if took else ""
    if often is not None:
        accuracy += f"; always predicting the most frequent class: {percent(often)}"
    if not leads:
        yield "accuracy", accuracy
    if final["brier"] is not None:
        yield (
            "AUC",
            f"{area(final['auc']) or 'not defined'} on {on}, balanced accuracy "
            f"{percent(final['balanced_accuracy'])}",
        )
        if leads:
            why = words.line(IMBALANCED_TEST(most_frequent=often))
            yield "", f"AUC and balanced accuracy come first: {why}."
        yield (
            "",
            f"Average precision {area(final['average_precision']) or 'not defined'}, Brier score "
            f"{area(final['brier'])}, calibration error "
            f"{area(final['calibration_error']) or 'unknown'}.",
        )
    if leads:
        yield "accuracy", accuracy


def round_rows(
    rounds: Iterable[Mapping[str, Any]], *, figures: bool
) -> tuple[list[str], list[list[str]]]:
    """Return the table of a run's rounds: its headings and its rows.

    Args:
        rounds: what is recorded of each round.
        figures: whether to show AUC and balanced accuracy.
    """
    shown: dict[str, tuple[str, Callable[[float | None], str]]] = {
        "accuracy": ("accuracy", percent), "loss": ("loss", area)
    }  # fmt: skip
    if figures:
        of_figures = {"auc": ("AUC", area), "balanced_accuracy": ("balanced accuracy", percent)}
        shown = of_figures | shown
    rounds = list(rounds)
    if any("r2" in record for record in rounds):
        shown = {
            "r2": ("R2", area),
            "mae": ("mean absolute error", words.in_labels_unit),
            "loss": ("loss", area),
        }
    names = [head for head, _ in shown.values()]
    return ["round", "clients", *names, "uplink bits per client", "seconds"], [
        [
            str(record["round"]),
            f"{record['clients']:,}",
            *(text(record.get(key)) for key, (_, text) in shown.items()),
            f"{record['uplink_bits_per_client']:,.0f}",
            f"{record['seconds']:.2f}",
        ]
        for record in rounds
    ]


_UNBROKEN = 10_000
"""More characters than any row of a table has."""

_LONGEST = 24
"""Longer words, such as addresses of own code, may be broken; units and numbers are shorter."""

_SIGNAL = {
    "update_norm": "norm",
    "bounded_norm": "bounded",
    "clients_clipped": "clipped",
    "signal_norm": "signal",
    "noise_norm": "noise",
    "cosine": "cosine",
}
"""The figures of signal and noise, and what the terminal calls them."""


class Terminal(Console):
    """Prints on stdout, or stderr; into a file or pipe, it breaks no row or sentence.

    Args:
        given: arguments of rich's ``Console``.
    """

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        if "width" not in given and not self.is_terminal:
            self.width = _UNBROKEN

    def put(self, line: str) -> None:
        """Print a line that is not broken, and has no markup."""
        self.print(line, highlight=False, soft_wrap=True, markup=False)

    def say(self, label: str, text: str) -> None:
        """Print a line that begins with a label; see ``put``."""
        self.put(f"{label:10} {text}")

    def say_answers(self, answers: Iterable[str], unit: str, doubts: Iterable[str] = ()) -> None:
        """Print what people answered, whom the statement's line covers, and what is doubtful.

        Args:
            answers: the figures with their intervals; if there are none, nothing is printed.
            unit: whose line covers them, such as "person".
            doubts: what makes them doubtful.
        """
        told = list(answers)
        for place, answer in enumerate(told):
            self.say("" if place else "asked", answer)
        if told:
            self.say("", f"Asked privately, ± 95 % intervals; a {unit}'s line covers them.")
            for doubt in doubts:
                self.say("", f"These are {doubt}.")

    def print_statement(self, privacy: Statement, setting: str | None = None) -> None:
        """Print a privacy statement: the claim, the table of guarantees, what they mean, warnings.

        Args:
            privacy: the statement.
            setting: the budget that was set and what it covers, if there is one.
        """
        if setting is not None:
            self.say("setting", setting)
        self.say("claim", words.claim_text(privacy.claim))
        self.print_table(*words.rows(privacy))
        self.print(words.explain(privacy), highlight=False, markup=False)
        for warning in privacy.warnings:
            self.say("warning", words.line(warning))

    def print_table(
        self,
        head: Sequence[str],
        rows: Sequence[Sequence[str]],
        title: str | None = None,
    ) -> None:
        """Print a table in which no word is cut, without its lines if the terminal is narrow.

        In a terminal that is narrower still, print each row as a list.
        """
        columns = list(zip(head, *rows, strict=True))
        most = [max(map(cell_len, column)) for column in columns]
        least = [
            min(
                _LONGEST,
                max((cell_len(word) for cell in column for word in cell.split()), default=0),
            )
            for column in columns
        ]
        lined, plain = 3 * len(columns) + 1, 2 * (len(columns) - 1)
        between = lined if sum(least) + lined <= self.width else plain
        left = self.width - between - sum(least)
        if left < 0:
            if title is not None:
                self.print(title, highlight=False, markup=False, overflow="fold")
            for row in rows:
                named = zip(head, row, strict=True)
                parts = (f"{name}: {cell}" if name else cell for name, cell in named if cell)
                self.print("; ".join(parts), highlight=False, markup=False, overflow="fold")
            return
        widths = list(least)
        for each in sorted(range(len(columns)), key=lambda each: most[each] - least[each]):
            widths[each] += min(left, most[each] - least[each])
            left -= widths[each] - least[each]
        cells = (
            Column(escape(n), width=w, overflow="fold") for n, w in zip(head, widths, strict=True)
        )
        look = {} if between == lined else {"box": None, "padding": (0, 2, 0, 0), "pad_edge": False}
        table = Table(*cells, title=title, title_justify="left", **look)  # type: ignore[arg-type]
        for row in rows:
            table.add_row(*map(escape, row))
        self.print(table)

    def print_result(
        self,
        summary: dict[str, Any],
        tested_on: str,
        metrics: dict[str, float],
        setting: str | None,
        *,
        classes: Sequence[str] = (),
        stated: bool = False,
        told: bool = False,
    ) -> None:
        """Print a run's final table, its statement, and the path of its folder.

        Args:
            summary: the run's document.
            tested_on: the data on which the run's accuracy was measured.
            metrics: the system's own metrics.
            setting: the budget that was set and what it covers, if there is one.
            classes: the names of the classes, if they have names.
            stated: whether the reader has already seen this statement, before the run.
            told: whether the reader has already seen a line about each round, and needs no table.
        """
        final, asked = summary["final"], asked_for(summary["config"])
        leads = final["brier"] is not None and is_imbalanced(final["most_frequent"])
        if not told:
            self.print_table(*round_rows(summary["rounds"], figures=leads))
        for label, text in score_lines(final, tested_on, f"in {summary['seconds']:.1f} s"):
            self.say(label, text)
        if own := words.own_metrics(metrics):
            self.say("metrics", f"means over rounds: {', '.join(own)}")
        doubts = words.doubts_of_asked(summary["figures"])
        self.say_answers(words.asked(metrics, classes), words.unit_asked(summary["config"]), doubts)
        privacy = asked_first(Statement.from_json(summary["privacy"]), asked)
        if stated:
            self.say("privacy", "as stated above")
            if HELD_OUT in privacy.warnings:  # which belongs beside the scores
                self.say("warning", words.line(HELD_OUT))
        else:
            self.print_statement(privacy)
        self.say("in short", words.lead(summary["config"], privacy))
        # Say what the budget covers: a budget for one weight could be mistaken for the run's.
        if setting is not None:
            self.say("setting", setting)
        if summary["noise"] is not None:
            self.say("noise", words.line(Note.from_json(summary["noise"])))
        for doubt in summary["doubts"]:
            self.say("warning", words.line(Doubt.from_json(doubt)))
        if summary["run_dir"] is not None:
            self.say("run folder", summary["run_dir"])

    def print_signal(self, rounds: Sequence[Round]) -> None:
        """Print each round's figures of signal and noise, if a simulation was asked for them."""
        found = [{each["metric"]: each["value"] for each in record.signal} for record in rounds]
        if not any(found):
            return

        def cell(name: str, value: float | None) -> str:
            return words.value_of(name, value) if value is not None else "-"

        names = [name for name in _SIGNAL if any(name in each for each in found)]
        rows = [
            [str(record.round), *(cell(name, each.get(name)) for name in names)]
            for record, each in zip(rounds, found, strict=True)
        ]
        self.print_table(["round", *(_SIGNAL[name] for name in names)], rows)
        self.say("signal", words.UNCOVERED_SIGNAL)


class Displayed(Statement):
    """A statement that displays itself, in a console and in a notebook."""

    @classmethod
    def of(cls, privacy: Statement) -> Self:
        """Return a statement as one that displays itself."""
        return cls(claim=privacy.claim, guarantees=privacy.guarantees, warnings=privacy.warnings)

    def __repr__(self) -> str:
        text = io.StringIO()
        # Otherwise, in Jupyter, rich would show the lines at once and leave the string empty.
        told = Terminal(file=text, width=100, color_system=None, force_jupyter=False)
        told.print_statement(self)
        return text.getvalue().rstrip()

    def _repr_html_(self) -> str:
        told = (escape_html(words.line(each)) for each in self.warnings)
        return (
            f"<p><b>claim</b> {escape_html(words.claim_text(self.claim))}</p>"
            + html_table(*words.rows(self))
            + f"<p>{escape_html(words.explain(self))}</p>"
            + "".join(f"<p><b>warning</b> {text}</p>" for text in told)
        )


def html_table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table as HTML."""
    top = "".join(f"<th>{escape_html(head)}</th>" for head in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape_html(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
