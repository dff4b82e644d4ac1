"""The command line: fedldp ask."""

from __future__ import annotations

from pathlib import Path

from fedldp.cli._common import say_settings
from fedldp.cli.options import Answer, DataDir, Positive, Settings
from fedldp.core.kinds import ASKED_ALONE
from fedldp.reporting import words
from fedldp.reporting.scores import answers_of
from fedldp.reporting.text import Terminal
from fedldp.simulation.asking import config_to_ask, problem_to_ask, settings_from
from fedldp.simulation.plan import plan


def ask(
    questions: Path,
    table: Path | None = None,
    *,
    model: Path | None = None,
    set_: Settings = None,
    account: bool = False,
    people: Positive = None,
    data_dir: DataDir = None,
) -> Answer:
    """Ask the people of a table privately: class shares, columns, or how good a model is.

    Help:
        questions (FILE.toml): the questions, as settings
        table (TABLE): the table [default: dataset in FILE]
        model (RUN_DIR): the run whose model an evaluation is about
        account: say how wide the intervals will be, without reading any row
        people: about how many people the table has; public [only with --account]
    """
    from fedldp.simulation.engine import simulate

    config = config_to_ask(questions, table, model, set_ or [], read=not account)
    metrics: dict[str, float] = {}
    classes: list[str] = []
    if account:
        privacy = plan(config, problem_to_ask(config, people, model, data_dir)).privacy
    else:
        result = simulate(config, data_dir=data_dir)
        privacy, metrics, classes = result.privacy, result.metrics, result.schema.class_names

    def show(console: Terminal) -> None:
        unit = words.unit_asked(config.model_dump())
        console.say_answers(words.asked(metrics, classes), unit)
        say_settings(console, config, metrics)
        price = config.epsilon_in_words(privacy.guarantees)
        console.say("price", price or words.lead(config.model_dump(), privacy))
        console.print_statement(privacy)
        console.say("note", words.line(ASKED_ALONE))

    document = {
        "answers": answers_of(metrics),
        "settings": settings_from(config, metrics),
        "privacy": words.document(privacy),
        "warnings": words.facts([ASKED_ALONE]),
    }
    return Answer(document, show)
