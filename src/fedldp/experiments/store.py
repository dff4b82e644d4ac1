"""The folder of an experiment: what was planned, and a row for each run that ended.

sweep.json, compare.json or advise.json    the experiment's settings
results.jsonl                              a line for each run, as soon as it has ended
lock                                       held by the process that is carrying out the experiment
and the tables, pages, charts and run folders of each kind of experiment
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedldp.core.errors import RunError
from fedldp.core.locks import OwnedFolder, owned
from fedldp.experiments.making import summary_of
from fedldp.experiments.runs import PlannedRun, Row
from fedldp.reporting.record import as_json, check_new, replace_file

RESULTS = "results.jsonl"

Document = Mapping[str, Any]
"""An experiment's settings, as its folder keeps them."""

WORDS = {"sweep": "sweep", "compare": "comparison", "advise": "advice"}
"""What an experiment of each kind is called."""


class RunStore:
    """The rows of an experiment; each run that ends adds a line to a file.

    Attributes:
        path: the file's path.
        rows: the rows by digest.
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
            whole, _, cut = text.rpartition("\n")
            lines: list[Row] = [json.loads(line) for line in whole.splitlines() if line]
            self.rows = {row["digest"]: row for row in reversed(lines)}  # the first line counts
            if cut:  # the process died while writing this line; its run is repeated
                path.write_text(f"{whole}\n" if whole else "", encoding="utf-8")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(
                f"results = {path}: it cannot be used as a results file ({error}); choose a "
                "different file"
            ) from error
        self.rows = dict(reversed(self.rows.items()))
        for digest, row in list(self.rows.items()):
            if "folder" in row and summary_of(path.parent / row["folder"]) is None:
                del self.rows[digest]  # its folder was removed

    @classmethod
    @contextmanager
    def opened(
        cls,
        out: Path | OwnedFolder | None,
        kind: str,
        document: Document,
        lacks: Callable[[Document], str | None],
    ) -> Iterator[RunStore]:
        """Own an experiment's folder, which may hold a part of the experiment.

        Args:
            out: the folder; None for a temporary folder.
            kind: "sweep", "compare" or "advise".
            document: the experiment's settings.
            lacks: returns what this experiment lacks of the experiment in the folder, given its
                document; None if it lacks nothing.

        Raises:
            RunError: the folder holds something else, or an experiment that this one lacks a part
                of.
            Held: another process owns the folder.
        """

        def check(path: Path) -> None:
            if not (path / f"{kind}.json").exists():
                check_new(path)
                return
            problem = lacks(read_document(path, kind))
            if problem is not None:
                raise RunError(
                    f"out = {out}: the {WORDS[kind]} there {problem}; include everything it has, "
                    "or choose another out"
                )

        with owned(out, "out", WORDS[kind], check) as own:
            store = cls(own.path / RESULTS)
            replace_file(own.path / f"{kind}.json", as_json(document))
            yield store

    @property
    def folder(self) -> Path:
        """The folder of the experiment."""
        return self.path.parent

    def place(self, run: PlannedRun) -> Path | None:
        """Return the folder of a run that keeps it."""
        return None if run.place is None else self.folder / run.place

    def add(self, row: Row) -> None:
        """Add a row.

        Raises:
            RunError: the file cannot be written.
        """
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        except OSError as error:
            raise RunError(
                f"results = {self.path}: {error.strerror}; choose a writable file"
            ) from error
        self.rows[row["digest"]] = row


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
