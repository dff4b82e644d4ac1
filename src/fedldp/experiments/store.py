"""The folder of an experiment: what was planned, and a row for each run that ended.

sweep.json, compare.json or advise.json    the experiment's settings, the command, versions, an HMAC
                                           of private data, and which own code it used
own/DIGEST/                                the files of own code; edited files get another folder
results.jsonl                              a line for each run, as soon as it has ended
lock                                       held by the process that is carrying out the experiment
and the tables, pages, charts and run folders of each kind of experiment
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import PlainSerializer, PlainValidator, TypeAdapter, ValidationError

from fedldp.algorithms.config import RunConfig
from fedldp.core.errors import DataMissing, FedldpError, RunError, os_errors
from fedldp.data import is_own_file
from fedldp.experiments.making import whole
from fedldp.experiments.runs import PlannedRun, Row
from fedldp.simulation.settings import from_mapping

RESULTS = "results.jsonl"

Document = Mapping[str, Any]
"""An experiment's settings, as its folder keeps them."""

WORDS = {
    "sweep": "sweep",
    "compare": "comparison",
    "advise": "advice",
    "reproduce": "reproduction",
}
"""What an experiment of each kind is called."""

Config = Annotated[
    RunConfig,
    PlainValidator(lambda given: from_mapping(given) if isinstance(given, Mapping) else given),
    PlainSerializer(lambda config: config.model_dump(mode="json")),
]
"""A configuration in a record of settings that a folder keeps."""

D = TypeVar("D")


def document_of(design: object) -> dict[str, Any]:
    """Return a record of settings, a dataclass, as a folder keeps it; see ``design_from``."""
    found: dict[str, Any] = TypeAdapter(type(design)).dump_python(design, mode="json")
    return found


def design_from(kind: type[D], found: Document, file: str) -> D:
    """Return the record of settings that ``document_of`` made a document of.

    Args:
        kind: the record's class.
        found: the document.
        file: the document's name, without its ending.

    Raises:
        RunError: it is damaged, or has a model that was given in Python.
    """
    try:
        return TypeAdapter(kind).validate_python(found)
    except (ValidationError, FedldpError) as error:
        why = " ".join(str(error).split())
        raise RunError(f"{file}.json is damaged ({why}): choose another folder") from error


def lacking(old: Document, new: Document, grows: Collection[str]) -> str | None:
    """Return what a document lacks of an older one, in words that follow its name; None if nothing.

    Args:
        old: the older document.
        new: the document.
        grows: the settings that may have more values or names than before.
    """
    for key, was in old.items():
        now: Any = new.get(key)
        if was == now:
            continue
        if key not in grows or type(was) is not type(now):
            return f"differs in its {key} ({_told(was)})"
        if isinstance(was, list):
            was, now = {key: was}, {key: now}
        for name, each in was.items():
            if name not in now:
                return f"also has {name}"
            if isinstance(each, list):
                if missing := [_told(value) for value in each if value not in now[name]]:
                    return f"also has {name}={','.join(missing)}"
            elif each != now[name]:
                return f"has different settings of {name}"
    return None


def _told(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={_told(each)}" for name, each in value.items()) or "none"
    return value if isinstance(value, str) else json.dumps(value)


_HEAD = ("command", "started_in", "versions", "data", "own")
"""What a folder keeps besides an experiment's settings."""


class RunStore:
    """The rows of an experiment; each run that ends adds a line to a file.

    Attributes:
        path: the file's path.
        rows: the rows by digest, with the numbers that runs keep in folders of their own.
        failed: why runs could not be made, by digest; these are not kept.
    """

    def __init__(self, path: Path) -> None:
        """Read the file, if it exists; an incomplete last line is removed.

        Raises:
            RunError: it cannot be read, or is not a results file.
        """
        self.path = path
        self.failed: dict[str, Exception] = {}
        try:
            text = path.read_text(encoding="utf-8") if path.exists() else ""
            complete, _, cut = text.rpartition("\n")
            lines: list[Row] = [json.loads(line) for line in complete.splitlines() if line]
            self.rows = {row["digest"]: row for row in reversed(lines)}  # the first line counts
            if cut:  # the process died while writing this line; its run is repeated
                path.write_text(f"{complete}\n" if complete else "", encoding="utf-8")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(
                f"results = {path}: it cannot be used as a results file ({error}); choose a "
                "different file"
            ) from error
        found = [whole(row, path.parent) for row in reversed(self.rows.values())]
        self.rows = {row["digest"]: row for row in found if row is not None}

    @property
    def folder(self) -> Path:
        """The folder of the experiment."""
        return self.path.parent

    def place(self, run: PlannedRun) -> Path | None:
        """Return the folder of a run that keeps it."""
        return None if run.place is None else self.folder / run.place

    def add(self, row: Row) -> Row:
        """Add a row, and return it with the numbers that its run keeps in its own folder.

        Raises:
            RunError: the file cannot be written.
        """
        writing = os_errors(f"results = {self.path}", "choose a writable file", RunError)
        with writing, self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        found = self.rows[row["digest"]] = whole(row, self.folder) or row
        return found


def settings_in(path: Path, document: Document, *, needed: bool = False) -> dict[str, Any]:
    """Return the settings of a document, with paths of tables as seen from the current folder.

    A table is searched for where the command was started, as seen from its folder, and then in the
    current folder: so a folder may be moved with its table, or without it.

    Args:
        path: the folder.
        document: what its file holds.
        needed: whether tables must be there.

    Raises:
        DataMissing: a table that is needed is in neither place.
    """
    base = path / document.get("started_in", os.path.relpath(Path.cwd(), path))
    found = {key: value for key, value in document.items() if key not in _HEAD}
    return found if base.resolve() == Path.cwd().resolve() else _located(found, base, needed)


def _located(value: Any, base: Path, needed: bool) -> Any:
    if isinstance(value, list):
        return [_located(each, base, needed) for each in value]
    if not isinstance(value, dict):
        return value
    found = {key: _located(each, base, needed) for key, each in value.items()}
    for key in ("dataset", "test_file"):
        text = found.get(key)
        if not isinstance(text, str) or not is_own_file(text):
            continue
        there, here = (base / text).resolve(), Path(text).expanduser()
        if here.is_absolute() or (here.is_file() and not there.is_file()):
            continue
        if needed and not there.is_file():
            raise DataMissing(
                f"there is no file {text} here, or in {base.resolve()}",
                f"start this in the folder that has {text}",
            )
        found[key] = os.path.relpath(there)
    return found


def read_document(path: Path, kind: str) -> dict[str, Any]:
    """Return the settings of the experiment in a folder.

    Raises:
        RunError: there is no such experiment, or its file is damaged.
    """
    file = path / f"{kind}.json"
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise RunError(
            f"resume = {path}: there is no {file.name} in it; give the folder of a {kind}"
        ) from error
    except ValueError as error:
        raise RunError(f"{file} is damaged: choose another folder") from error
    if not isinstance(found, dict):
        raise RunError(f"{file} is damaged: choose another folder")
    return found
