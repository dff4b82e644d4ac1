"""A sweep's folder: its design and its results.

sweep.json         recipes, settings, grid, seeds; a sweep that continues this one must contain them
results.json       the result, as `fedldp sweep --json` prints it
results.csv        the runs, one per line
chart.svg, .png    accuracy against proven epsilon, where Matplotlib is installed
lock               held by the process that is carrying out the sweep
and a run folder for each run, see ``fedldp.reporting.record``
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedldp.core.errors import ConfigError, FedldpError, RunError
from fedldp.experiments.sweeping.grid import Design, shown
from fedldp.reporting.record import as_json, check_new, replace_file
from fedldp.simulation.settings import from_mapping

VERSION = 1
NAME = "sweep.json"


def check_place(path: Path, design: Design) -> None:
    """Refuse a folder in which this sweep can be neither started nor continued.

    Raises:
        FedldpError: the folder holds something else, or a sweep that this one does not contain.
    """
    if (path / NAME).exists():
        _check_contains(design, read_design(path), path)
    else:
        check_new(path)


def write_design(path: Path, design: Design) -> None:
    """Write a sweep's design into its folder."""
    replace_file(path / NAME, as_json(_document(design)))


def read_design(path: Path) -> Design:
    """Return the design of the sweep in a folder.

    Raises:
        RunError: there is no sweep, or its file is damaged.
    """
    try:
        found = json.loads((path / NAME).read_text(encoding="utf-8"))
    except OSError as error:
        raise RunError(
            f"resume = {path}: there is no {NAME} in it; give a sweep's folder"
        ) from error
    except ValueError as error:
        raise RunError(f"{path / NAME} is damaged: start the sweep again") from error
    try:
        if found["version"] != VERSION:
            raise RunError(
                f"{path / NAME}: a different version of fedldp wrote it; continue with that version"
            )
        return Design(
            bases={name: from_mapping(config) for name, config in found["recipes"].items()},
            settings=found["settings"],
            grid=found["grid"],
            seeds=found["seeds"],
            device=found["device"],
            own_data=found["own_data"],
        )
    except RunError:
        raise
    except (KeyError, TypeError, AttributeError, FedldpError) as error:
        raise RunError(f"{path / NAME} is damaged ({error}): start the sweep again") from error


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


def _document(design: Design) -> dict[str, Any]:
    return {
        "version": VERSION,
        "recipes": {name: config.model_dump() for name, config in design.bases.items()},
        "settings": dict(design.settings),
        "grid": {key: list(values) for key, values in design.grid.items()},
        "seeds": list(design.seeds),
        "device": design.device,
        "own_data": design.own_data,
    }


def _check_contains(new: Design, old: Design, path: Path) -> None:
    """Refuse a design that lacks a part of the sweep in the folder."""
    problem = _lacks(new, old)
    if problem is not None:
        raise RunError(
            f"out = {path}: the sweep there {problem}; include everything it has, or choose "
            "another out"
        )


def _lacks(new: Design, old: Design) -> str | None:
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
    if old.own_data != new.own_data:
        return f"has different data ({old.own_data})"
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
