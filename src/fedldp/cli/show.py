"""The command line: fedldp show."""

from __future__ import annotations

import dataclasses
import inspect
from functools import partial
from typing import TYPE_CHECKING, Any

from fedldp.cli._common import summary_of
from fedldp.cli.options import Answer, described
from fedldp.core.errors import ConfigError

if TYPE_CHECKING:
    from fedldp.algorithms.config import RunConfig
    from fedldp.mechanisms import Mechanism
    from fedldp.reporting.text import Terminal

_SHAPES = {"digits": (1, 8, 8), "MNIST": (1, 28, 28), "CIFAR-10": (3, 32, 32)}


def show(name: str) -> Answer:
    """Show each setting's meaning, type, limits, unit and default.

    Help:
        name: a system, recipe, mechanism or model; a .toml file; or module:Class
    """
    found = _found(name)
    return Answer(found, partial(_show, found))


def _found(name: str) -> dict[str, Any]:
    """Return the description of the thing called ``name``, as a JSON-ready document."""
    from fedldp.algorithms.config import RunConfig
    from fedldp.algorithms.systems import find_system, systems
    from fedldp.core.registry import is_address, load
    from fedldp.mechanisms import Mechanism, find_mechanism, mechanisms
    from fedldp.models import models

    own = load(name, "show") if is_address(name) else None
    kind = own if isinstance(own, type) else type(None)
    if name in systems() or issubclass(kind, RunConfig):
        return _of_system(find_system(name), name)
    if name in mechanisms() or issubclass(kind, Mechanism):
        return _of_mechanism(find_mechanism(name), name)
    if name in models() or own is not None:
        return _of_model(name)
    return _of_recipe(name)


def _of_system(system: type[RunConfig], name: str) -> dict[str, Any]:
    from fedldp.algorithms.settings_docs import describe_settings

    return {
        "kind": "system",
        "name": name,
        "description": summary_of(inspect.getmodule(system)),
        "settings": [dataclasses.asdict(each) for each in describe_settings(system)],
    }


def _of_recipe(name: str) -> dict[str, Any]:
    from fedldp.algorithms.recipes import find_recipe, recipe_names
    from fedldp.simulation.settings import epsilon_as_set, resolve

    try:
        config = resolve(name)
    except ConfigError as error:
        if name.endswith(".toml") or name in recipe_names():
            raise
        raise ConfigError(
            f"show {name}: no system, recipe, mechanism or model has this name; see `fedldp list`"
        ) from error
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
    from fedldp.algorithms.channel import SEEN

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


def _of_mechanism(mechanism: type[Mechanism], name: str) -> dict[str, Any]:
    from fedldp.mechanisms import BitMechanism

    meanings = described(mechanism, "Attributes|Args")
    bits = issubclass(mechanism, BitMechanism)
    return {
        "kind": "mechanism",
        "name": name,
        "description": summary_of(inspect.getmodule(mechanism)),
        "epsilon_unit": mechanism.epsilon_unit,
        "report": "one bit for each weight" if bits else "one message for the whole vector",
        "settings": [
            {
                "name": each.name,
                "meaning": meanings.get(each.name, ("", ""))[1],
                "type": each.type
                if isinstance(each.type, str)
                else inspect.formatannotation(each.type),
                "default": "required" if each.default is dataclasses.MISSING else str(each.default),
                "limits": None,
            }
            for each in dataclasses.fields(mechanism)  # type: ignore[arg-type]
            if each.init
        ],
    }


def _of_model(name: str) -> dict[str, Any]:
    from fedldp.models import find_model, layout_of

    builder = find_model(name)
    sizes: dict[str, int | None] = {}
    for dataset, shape in _SHAPES.items():
        try:
            sizes[dataset] = layout_of(name, shape, 10).size
        except ConfigError:
            sizes[dataset] = None  # a model may refuse a shape
    return {
        "kind": "model",
        "name": name,
        "description": summary_of(builder),
        "weights": sizes,
        "settings": [],
    }


def _show(found: dict[str, Any], console: Terminal) -> None:
    from fedldp.algorithms.recipes import Expected
    from fedldp.algorithms.settings_docs import value_text

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
    line("epsilon", found.get("epsilon_unit") and f"per {found['epsilon_unit']}")
    line("report", found.get("report"))
    for dataset, size in found.get("weights", {}).items():
        line("weights", f"{size:,} for {dataset}" if size else f"does not fit {dataset}")
    for slot, what in found.get("parts", {}).items():
        line(slot, what)
    if not found["settings"]:
        return
    valued = "value" in found["settings"][0]
    rows = []
    for each in found["settings"]:
        details = ", ".join(part for part in (each["type"], each["limits"]) if part)
        cells = [each["name"], *([value_text(each["value"])] if valued else []), each["default"]]
        what = f"{each['meaning']} ({details})" if each["meaning"] else details
        rows.append([*cells, what])
    console.print_table(["setting", *(["value"] if valued else []), "default", "what it is"], rows)
