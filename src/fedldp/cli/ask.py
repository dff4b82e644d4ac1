"""The command line: fedldp ask."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fedldp.cli._common import say_settings
from fedldp.cli.options import Answer, DataDir, Settings
from fedldp.core.kinds import ASKED_ALONE

if TYPE_CHECKING:
    from fedldp.reporting.text import Terminal


def ask(
    questions: Path,
    table: Path | None = None,
    *,
    model: Path | None = None,
    set_: Settings = None,
    account: bool = False,
    data_dir: DataDir = None,
) -> Answer:
    """Ask the people of a table privately: class shares, columns, or how good a model is.

    Help:
        questions (FILE.toml): the questions, as settings
        table (TABLE): the table [default: dataset in FILE]
        model (RUN_DIR): the run whose model an evaluation is about
        account: say how wide the intervals will be, and ask nobody
    """
    from fedldp.reporting import words
    from fedldp.reporting.scores import answers_of
    from fedldp.simulation.asking import config_to_ask, settings_from
    from fedldp.simulation.engine import simulate
    from fedldp.simulation.plan import plan, problem_of

    config = config_to_ask(questions, table, model, set_ or [])
    metrics: dict[str, float] = {}
    classes: list[str] = []
    if account:
        privacy = plan(config, problem_of(config, data_dir)).privacy
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
