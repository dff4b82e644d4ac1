"""The command line: fedldp account."""

from __future__ import annotations

from typing import Annotated

import typer

from fedldp.cli._common import print_json
from fedldp.cli.options import DataDir, Json, Settings, recipe_names
from fedldp.core.errors import ConfigError


def account(
    recipe: Annotated[
        str, typer.Argument(autocompletion=recipe_names, help="a recipe's name or a .toml file")
    ] = "quickstart",
    set_: Settings = None,
    delta: Annotated[
        float | None, typer.Option(help="delta for the lines with approximate guarantees")
    ] = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Report what a run would protect, without training or reading built-in data sets."""
    from dataclasses import replace

    from rich.console import Console

    from fedldp.core.kinds import SIMULATED
    from fedldp.core.numbers import SMALLEST_DELTA
    from fedldp.reporting import lines, text, words
    from fedldp.simulation.plan import plan, problem_of
    from fedldp.simulation.settings import resolve

    if delta is not None and delta != 0 and not SMALLEST_DELTA <= delta < 1:
        raise ConfigError(
            f"delta = {delta}: give 0, or a number that is at least {SMALLEST_DELTA:g} and less "
            "than 1"
        )
    config = resolve(recipe, set_ or [])
    planned = plan(config, problem_of(config, data_dir), delta=delta)
    if as_json:
        print_json(words.document(planned.privacy))
    else:
        warnings = tuple(each for each in planned.privacy.warnings if each != SIMULATED)
        told = replace(planned.privacy, warnings=warnings)  # this command simulates nothing
        setting = planned.config.epsilon_in_words(planned.privacy.guarantees)
        asked = lines.asked_for(planned.config.model_dump())
        text.print_statement(Console(), lines.asked_first(told, asked), setting)
