"""The record of a sweep in its folder, and what a sweep that continues it must contain."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedldp.core.errors import ConfigError, FedldpError, RunError
from fedldp.experiments.store import Document, read_document, settings_in
from fedldp.experiments.sweeping.grid import Design, shown
from fedldp.simulation.settings import from_mapping


def read_design(path: Path) -> Design:
    """Return the design of the sweep in a folder.

    Raises:
        RunError: there is no sweep, its file is damaged, or it used data given in Python.
    """
    found = design_from(settings_in(path, read_document(path, "sweep")))
    if found.own_data is not None:
        raise RunError(
            f"resume = {path}: that sweep used data given in Python; continue it in Python with "
            "the same data: fedldp.sweep(..., dataset=...)"
        )
    return found


def design_from(found: Document) -> Design:
    """Return the design that a sweep's document has.

    Raises:
        RunError: it is damaged.
    """
    try:
        return Design(
            bases={name: from_mapping(config) for name, config in found["recipes"].items()},
            settings=found["settings"],
            grid=found["grid"],
            seeds=found["seeds"],
            device=found["device"],
            own_data=found["own_data"],
        )
    except (KeyError, TypeError, AttributeError, FedldpError) as error:
        raise RunError(f"sweep.json is damaged ({error}): choose another folder") from error


def check_plain(name: str, value: Any) -> None:
    """Refuse a value that cannot be stored in a file.

    Raises:
        ConfigError: it does not consist of numbers, strings, lists and mappings.
    """
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{name} = {value}: a sweep writes its settings to a file; give a number, a string or "
            "a list"
        ) from error


def document_of(design: Design) -> dict[str, Any]:
    """Return the record of a sweep for its folder."""
    return {
        "recipes": {name: config.model_dump() for name, config in design.bases.items()},
        "settings": dict(design.settings),
        "grid": {key: list(values) for key, values in design.grid.items()},
        "seeds": list(design.seeds),
        "device": design.device,
        "own_data": design.own_data,
    }


def lacks(new: Design, old: Design) -> str | None:
    """Return which part of an old sweep a new one lacks, or None."""
    if old.own_data != new.own_data:
        return f"has different data ({old.own_data})"
    for name, config in old.bases.items():
        if name not in new.bases:
            return f"also has recipe {name}"
        if not _same(new.bases[name].model_dump(), config.model_dump()):
            return f"was made with different settings of {name}"
    for what, one, other in (
        ("settings", old.settings, new.settings),
        ("device", old.device, new.device),
    ):
        if not _same(one, other):
            return f"differs in its {what} ({_text(one)})"
    if set(old.grid) != set(new.grid):
        return f"varies {', '.join(old.grid) or 'no setting'}"
    for key, values in old.grid.items():
        if missing := _without(values, new.grid[key]):
            return f"also has {key}={','.join(map(shown, missing))}"
    if missing := _without(old.seeds, new.seeds):
        return f"also has seed {', '.join(map(str, missing))}"
    return None


def _same(one: Any, other: Any) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k}={shown(v)}" for k, v in value.items()) or "none"
    return str(value)


def _without(values: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    known = [json.dumps(value) for value in others]
    return [value for value in values if json.dumps(value) not in known]
