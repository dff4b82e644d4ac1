"""The command line: fedldp show."""

from __future__ import annotations

import dataclasses
import inspect
from functools import partial
from typing import Any

from fedldp.algorithms.channel import SEEN
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.recipes import Expected, find_recipe
from fedldp.algorithms.settings_docs import describe_settings, value_text
from fedldp.algorithms.systems import find_system, systems
from fedldp.cli.options import Answer, summary_of
from fedldp.core.registry import is_address
from fedldp.reporting.text import Terminal
from fedldp.simulation.settings import epsilon_as_set, resolve


def show(name: str) -> Answer:
    """Show each setting's meaning, type, limits, unit and default.

    Help:
        name: a system or recipe; a .toml file; or your own module:preset
    """
    found = _found(name)
    return Answer(found, partial(_show, found))


def _found(name: str) -> dict[str, Any]:
    """Return the description of the thing called ``name``, as a JSON-ready document."""
    own = is_address(name) and not name.endswith(".toml")
    return _of_system(find_system(name), name) if own or name in systems() else _of_recipe(name)


def _of_system(system: type[RunConfig], name: str) -> dict[str, Any]:
    return {
        "kind": "system",
        "name": name,
        "description": summary_of(inspect.getmodule(system)),
        "settings": [dataclasses.asdict(each) for each in describe_settings(system)],
    }


def _of_recipe(name: str) -> dict[str, Any]:
    config = resolve(name)
    values = config.model_dump()
    document = _of_system(type(config), config.system)
    recipe = None if name.endswith(".toml") else find_recipe(name)
    return {
        "kind": "recipe",
        "name": name,
        "description": "your own configuration" if recipe is None else recipe.description,
        "system": config.system,
        "source": recipe and recipe.source and dataclasses.asdict(recipe.source),
        "expected": recipe and recipe.expected and dataclasses.asdict(recipe.expected),
        "epsilon": epsilon_as_set(config),
        "parts": _parts(config),
        "settings": [{**each, "value": values[each["name"]]} for each in document["settings"]],
    }


def _parts(config: RunConfig) -> dict[str, str]:
    """Return a description of each part of the composition, in the order of the pipeline."""
    parts = config.composition
    slots = {
        "features": parts.features,
        "local update": parts.local,
        "bound": parts.bound_of(0),
        "calibration": parts.calibration,
        "channel": parts.channel,
        "estimate": parts.estimate,
        "participation": parts.participation,
    }
    told = {slot: summary_of(type(part)) for slot, part in slots.items()}
    return told | {"channel": f"The server sees {SEEN[parts.channel.kind]}."}


def _show(found: dict[str, Any], console: Terminal) -> None:
    def line(label: str, text: object) -> None:
        if text is not None:
            console.put(f"{label:13} {text}")

    line(found["kind"], found["name"])
    line("", found["description"] or None)
    line("system", found.get("system"))
    source, expected = found.get("source"), found.get("expected")
    if source is not None:
        line("source", ", ".join(source[key] for key in ("paper", "place", "row", "column")))
    if expected is not None:
        give = f"give or take {100 * expected['tolerance']:.3g}"
        line("expected", f"{Expected(**expected).text} %, {give}")
    line("setting", found.get("epsilon"))
    for slot, what in found.get("parts", {}).items():
        line(slot, what)
    valued = "value" in found["settings"][0]
    rows = []
    for each in found["settings"]:
        details = ", ".join(part for part in (each["type"], each["limits"]) if part)
        cells = [each["name"], *([value_text(each["value"])] if valued else []), each["default"]]
        what = f"{each['meaning']} ({details})" if each["meaning"] else details
        rows.append([*cells, what])
    console.print_table(["setting", *(["value"] if valued else []), "default", "what it is"], rows)
