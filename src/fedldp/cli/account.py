"""The command line: fedldp account."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from fedldp.cli.options import Answer, DataDir, Settings, recipe_names
from fedldp.core.kinds import SIMULATED
from fedldp.core.numbers import check_delta
from fedldp.integrations.loop import composition, planned
from fedldp.protocol.wire import Layout
from fedldp.reporting import lines, words
from fedldp.simulation.plan import plan, problem_of
from fedldp.simulation.settings import assignment, nested, resolve


def account(
    recipe: Annotated[str, typer.Argument(autocompletion=recipe_names)] = "quickstart",
    *,
    set_: Settings = None,
    delta: float | None = None,
    size: Annotated[int | None, typer.Option(min=1)] = None,
    data_dir: DataDir = None,
) -> Answer:
    """Report what a run would protect, without training or reading built-in data sets.

    Help:
        recipe: a recipe's name or a .toml file
        delta: delta for the lines with approximate guarantees
        size: state what a node of your own loop (Flower) releases that sends this many weights; the
            file has the settings of PrivateMod, without data and model
    """
    if delta is not None:
        check_delta(delta)
    if size is None:
        resolved = resolve(recipe, set_ or [])
        found = plan(resolved, problem_of(resolved, data_dir), delta=delta)
        config, privacy = found.config, found.privacy
    else:
        config = composition(recipe, nested(map(assignment, set_ or [])))
        privacy = planned(config, Layout(("weights",), ((size,),)), delta)
    warnings = tuple(each for each in privacy.warnings if each != SIMULATED)
    told = replace(privacy, warnings=warnings)  # this command simulates nothing
    setting = config.epsilon_in_words(privacy.guarantees)
    first = lines.asked_first(told, lines.asked_for(config.model_dump()))
    return Answer(words.document(privacy), lambda console: console.print_statement(first, setting))
