"""The command line: fedldp advise."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

from fedldp.algorithms.fleet import nearest
from fedldp.algorithms.settings_docs import value_text
from fedldp.cli import options
from fedldp.cli._common import carry_out, say_missing
from fedldp.core.errors import ConfigError
from fedldp.core.facts import Fact
from fedldp.core.kinds import OF_STUDY, OTHER_FLEET
from fedldp.experiments.advising import Advice
from fedldp.experiments.advising import draft as ask
from fedldp.experiments.advising.asking import read_request
from fedldp.experiments.advising.running import AdviseExperiment
from fedldp.experiments.engine import Means
from fedldp.reporting import words
from fedldp.reporting.text import Terminal
from fedldp.simulation.settings import assignment


def advise(
    table: str | None = None,
    *,
    client: str | None = None,
    person: str | None = None,
    label: str | None = None,
    by: str | None = None,
    fleet: str | None = None,
    set_: options.Settings = None,
    draft: Path | None = None,
    how: options.Runs,
) -> options.Answer:
    """Report who can be protected with a table, under which trust model, and at what cost.

    Makes short runs of existing systems at epsilon 0.5 to 8, and unprotected runs for comparison.
    Gives a verdict for each trust model, and a page for a data-protection officer. All results are
    computed from private rows and are not protected. To continue after an interruption, give the
    same command with the same --out.

    Help:
        table (TABLE): a .csv or .parquet file; or a .toml file that names one and declares its
            columns
        client (COLUMN): the column that names each row's client (or site)
        person (COLUMN): the column that names each row's person
        label (COLUMN): the column with the class labels [default: label]
        by (COLUMNS): score groups too, by the values of these columns, such as sex,ward; these
            scores are exact and not charged
        fleet (n=N,per=M): make no runs: show what did best in the study, for many clients: N with
            about M examples each [not with other settings]
        draft (FILE.toml): make no runs: write the questions that only the table's owner can answer
            [not with --set]
    """
    if fleet is not None:
        return _of_fleet(fleet)
    columns = [] if by is None else by.split(",")
    if draft is not None:
        return _draft(str(table), draft, client=client, person=person, label=label, by=columns)

    def made(means: Means) -> AdviseExperiment:
        settings = dict(map(assignment, set_ or [])) | ({"by_columns": columns} if columns else {})
        request = read_request(table, client=client, person=person, label=label, settings=settings)
        return AdviseExperiment(request, None, means, asked=str(table).endswith(".toml"))

    result = carry_out(AdviseExperiment, how, made)
    say_missing(result.missing, result.out)
    return options.Answer(result.summary(), partial(_show, result))


def _draft(table: str, place: Path, **roles: Any) -> options.Answer:
    """Write a table's questions, and show its owner what the rows hold."""
    found = ask(table, place, **roles)

    def show(console: Terminal) -> None:
        console.print_table(*found.shown())
        rows = "this table is read from the rows, for your eyes: nothing of it is in the file"
        console.say("note", rows)
        console.say("file", f"{place}: answer its questions from public knowledge")
        console.say("next", f"fedldp advise {place}")

    document = {"file": str(place), "columns": [each.name for each in found.columns]}
    return options.Answer(document, show)


def fleet_of(text: str) -> tuple[int, int]:
    """Return the number of clients and of each client's examples in "n=100000,per=6".

    Raises:
        ConfigError: the text has another form.
    """
    found = re.fullmatch(r"n=(\d+),per=(\d+)", text.replace(" ", ""))
    if found is None:
        raise ConfigError(f"fleet {text}: write n=100000,per=6, with your own integers")
    return int(found[1]), int(found[2])


def _of_fleet(text: str) -> options.Answer:
    """Return the best compositions of the study's nearest cells."""
    found = nearest(*fleet_of(text))

    def show(console: Terminal) -> None:
        head = ["epsilon holds", "epsilon", "accuracy", "measured on", "settings"]
        rows = [
            [
                words.names("against")[each.adversary],
                f"{each.epsilon:g}",
                words.percent(each.accuracy),
                each.where,
                ", ".join(f"{name} = {value_text(value)}" for name, value in each.settings.items()),
            ]
            for each in sorted(found, key=lambda one: (one.adversary, one.epsilon, one.accuracy))
        ]
        console.print_table(head, rows)
        conditions: dict[str, list[Fact]] = {}
        for each in found:
            name = f"a {each.adversary} at epsilon {each.epsilon:g}"
            conditions.setdefault(name, []).extend(each.conditions)
        distinct = {name: list(dict.fromkeys(each)) for name, each in conditions.items()}
        for note in (
            words.line(OF_STUDY),
            *words.by_rows("condition", distinct),
            words.line(OTHER_FLEET),
            "to run one, write its settings into a .toml file with dataset, num_clients and "
            'target, such as target = {unit = "client-run", adversary = "server", epsilon = 4.0}',
        ):
            console.say("note", note)

    more = {"unit": "client-run", "delta": found[0].proven.delta}
    return options.Answer(
        [{**vars(each), **more, "conditions": words.facts(each.conditions)} for each in found], show
    )


def _show(result: Advice, console: Terminal) -> None:
    for title, rows in result.groups():
        first = "epsilon" if rows[0][-1] else "trained"
        console.print_table((first, *result.heads, ""), rows, title)
    for text in result.advice:
        console.say("advice", text)
    for text in result.warnings:
        console.say("warning", text)
    place = result.out
    assert place is not None
    console.say("page", str(place / "advice.html"))
    file = place / "next.toml"
    console.say("next", result.told("next", file if file.exists() else None))
