"""The run folder: what a run writes, and how it is restored after an interruption.

config.json        the resolved configuration
environment.json   when and in which folder the run began, with versions and hardware
privacy.json       the statement, written before training starts
metrics.jsonl      one line for each round, only ever appended to
schema.json        names of classes and features, and the shape of an example, written before
                   training starts
checkpoint         the server's state after the last complete round, that round's record, and what
                   every client's ledger holds; bound to config.json and to the earlier lines of
                   metrics.jsonl, and replaced atomically. It holds the model of an unfinished run
own_data.json      exact row counts of the user's own data, until the run has finished
clients/           what clients keep for later rounds, if anything
model.safetensors  the final weights
summary.json       the result, as `fedldp run --json` prints it: the run is finished
report.html        the result as a web page
card/              what `fedldp card` makes for publication
lock               held by the process that is carrying out the run
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shlex
import shutil
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from fedldp.algorithms.problem import Problem
from fedldp.core.errors import FedldpError, RunError, os_errors
from fedldp.core.locks import LOCK, missing_folders, remove_empty, sync
from fedldp.ledgers.budget import Budget
from fedldp.ledgers.columns import MemoryLedger
from fedldp.ledgers.protocol import DIGEST_BYTES
from fedldp.protocol.roles import State
from fedldp.protocol.server_loop import Round
from fedldp.protocol.wire import pack_arrays, read_arrays

MODEL = "model.safetensors"
_OWN_DATA = "own_data.json"
_COUNTS = ("num_examples", "people")
_STATE = "state/"
_DOCUMENT = "document"


class RunFolder:
    """A run's folder on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._metrics = _Lines(path / "metrics.jsonl")

    @classmethod
    def create(cls, path: Path, config: Mapping[str, Any], privacy: Mapping[str, Any]) -> RunFolder:
        """Write what is known before training into a new folder, which the caller owns.

        Raises:
            RunError: the folder cannot be written.
        """
        folder = cls(path)
        try:
            folder.write_json("config.json", config)
            folder.digest  # noqa: B018 (it is cached)
            folder.describe(privacy)
        except BaseException:
            folder.discard()
            raise
        return folder

    def describe(self, privacy: Mapping[str, Any]) -> None:
        """Write what is also known before training: the environment and the privacy statement."""
        # A resumed run keeps the record of the machine on which it began.
        if not (self.path / "environment.json").exists():
            self.write_json("environment.json", {**environment(), **self.start()})
        self.write_json("privacy.json", privacy)

    def start(self) -> dict[str, str]:
        """Return environment.json's entry for the working folder: its path from the run folder."""
        # The path is relative, so that a run folder inside the working folder can be shared without
        # naming any of its owner's folders.
        return {"started_in": os.path.relpath(Path.cwd().resolve(), self.path.resolve())}

    def started_in(self) -> Path | None:
        """Return the folder in which the run was started, or None if that is not recorded."""
        try:
            found = self.read_json("environment.json").get("started_in")
        except RunError:
            return None
        return self.path.resolve() / found if isinstance(found, str) else None

    def discard(self) -> None:
        """Remove everything the run wrote, because it ended before its first round was complete.

        The folder itself stays, with its lock; its owner removes it.
        """
        for entry in self.path.glob("*"):
            if entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)
            elif entry.name != LOCK:
                entry.unlink()

    def write_json(self, name: str, content: Mapping[str, Any], *, synced: bool = True) -> None:
        """Write ``content`` atomically; see ``replace_file``."""
        replace_file(self.path / name, as_json(content), synced=synced)

    def read_json(self, name: str) -> dict[str, Any]:
        """Return what ``write_json`` wrote.

        Raises:
            RunError: the file is missing or damaged.
        """
        found: dict[str, Any] = read_as(self.path / name, dict[str, Any])
        return found

    def read_config(self) -> dict[str, Any]:
        """Return the document from which the run started: "recipe", "config" and "own_data".

        Raises:
            RunError: this is not a run folder, or its config.json is damaged.
        """
        check_run_folder(self.path)
        document = self.read_json("config.json")
        whole = {"recipe", "config", "own_data"} <= set(document)
        if not whole or not isinstance(document["config"], dict):
            raise _damaged(self.path / "config.json", "it is not that of a run")
        return document

    def keep_own_data(self, exact: str | None, problem: Problem) -> None:
        """Record what identifies the user's own data, in case the run is resumed; see ``is_of``."""
        if exact is not None:
            counts = {name: getattr(problem, name) for name in _COUNTS}
            self.write_json(_OWN_DATA, {"own_data": exact, **counts})

    def own_counts(self) -> dict[str, Any]:
        """Return the exact counts of the user's own data, as fields of ``Problem``.

        They are empty if the data are public, or the run has finished.
        """
        if not (self.path / _OWN_DATA).exists():
            return {}
        found = self.read_json(_OWN_DATA)
        return {name: found[name] for name in _COUNTS if name in found}

    def forget_own_data(self) -> None:
        """Remove the record of ``keep_own_data``; a finished run's folder has no exact count."""
        (self.path / _OWN_DATA).unlink(missing_ok=True)

    def is_of(self, told: str | None, exact: str | None) -> bool:
        """Return whether the run began with these data.

        Args:
            told: the shareable description of the data, with rounded counts.
            exact: the private description, with exact counts.
        """
        if self.read_config()["own_data"] != told:
            return False
        noted = (self.path / _OWN_DATA).exists()
        return not noted or self.read_json(_OWN_DATA).get("own_data") == exact

    def write_round(
        self, state: State, rounds: Sequence[Round], ledger: MemoryLedger, *, together: int = 1
    ) -> None:
        """Record a complete round: the checkpoint, and the round's line in metrics.jsonl.

        Args:
            state: the server's state after the round.
            rounds: all complete rounds, of which only new ones are written.
            ledger: what every client released.
            together: the lines of how many rounds are synced together; the checkpoint has the
                others too.
        """
        arrays = {"weights": state.weights}
        arrays |= {_STATE + name: value for name, value in state.arrays.items()}
        new = rounds[self._metrics.count :]
        document = {
            "config": self.digest,
            "earlier": self._metrics.noted(),
            "rounds": [vars(r) for r in new],
            "ledger": ledger.to_record(),
        }
        packed = zlib.compress(json.dumps(document).encode(), level=1)
        arrays[_DOCUMENT] = np.frombuffer(packed, np.uint8)
        content = pack_arrays(arrays)
        replace_file(self.path / "checkpoint", content + hashlib.sha256(content).digest())
        self.write_metrics(rounds, synced=len(new) >= together)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of config.json, in hexadecimal, which binds a checkpoint to its run.

        The digest is computed only once, when first needed, so that a change to the file during the
        run is detected when the run is resumed.
        """
        path = self.path / "config.json"
        with os_errors(str(path), "check the folder", RunError):
            return hashlib.sha256(path.read_bytes()).hexdigest()

    def write_metrics(self, rounds: Sequence[Round], *, synced: bool = True) -> None:
        """Append the lines of rounds that are not synced yet.

        After a kill or a power cut, the rounds in the checkpoint count.
        """
        new = rounds[self._metrics.count :]
        self._metrics.append([json.dumps(vars(r), allow_nan=False) for r in new], synced=synced)

    def read_checkpoint(
        self, budgets: Sequence[Budget] = ()
    ) -> tuple[State, list[Round], MemoryLedger] | None:
        """Return what ``write_round`` wrote last, or None if it wrote nothing.

        Args:
            budgets: the budgets of every client's ledger.

        Raises:
            RunError: the checkpoint is damaged, belongs to another configuration, or belongs to
                other lines of earlier rounds than those in metrics.jsonl.
        """
        path = self.path / "checkpoint"
        if not path.exists():
            return None
        try:
            whole = path.read_bytes()
            content, digest = whole[:-DIGEST_BYTES], whole[-DIGEST_BYTES:]
            if hashlib.sha256(content).digest() != digest:
                raise RunError("its bytes have changed")
            arrays = dict(read_arrays(content))
            document = json.loads(zlib.decompress(arrays.pop(_DOCUMENT).tobytes()))
            earlier = map(json.loads, self._metrics.restore(document["earlier"]))
            rounds = [Round(**r) for r in (*earlier, *document["rounds"])]
            state = State(
                round=(rounds[-1].round if rounds else 0) + 1,
                weights=arrays.pop("weights"),
                arrays={name.removeprefix(_STATE): value for name, value in arrays.items()},
            )
            ledger = MemoryLedger.from_record(document["ledger"], budgets)
        except (
            KeyError, ValueError, TypeError, AttributeError, OSError, zlib.error, FedldpError
        ) as error:  # fmt: skip
            raise RunError(f"{path} is damaged ({error}): start the run again") from error
        if document["config"] != self.digest:
            raise RunError(
                f"{path}: it belongs to another configuration, so config.json has been "
                "changed; restore that file, or start the run again"
            )
        return state, rounds, ledger

    def write_model(self, weights: Mapping[str, NDArray[Any]]) -> None:
        """Write the whole model's weights by name."""
        from safetensors.numpy import save  # here, because most commands write no model

        replace_file(self.path / MODEL, save(dict(weights)))

    @property
    def has_model(self) -> bool:
        """Whether the folder has the whole model's weights in a file of their own."""
        return (self.path / MODEL).is_file()

    def read_model(self) -> dict[str, NDArray[Any]]:
        """Return what ``write_model`` wrote.

        Raises:
            RunError: the file is missing or damaged.
        """
        from safetensors import SafetensorError
        from safetensors.numpy import load

        path = self.path / MODEL
        with os_errors(str(path), "check the folder", RunError):
            content = path.read_bytes()
        try:
            return load(content)
        except (SafetensorError, ValueError) as error:
            raise RunError(f"{path} is damaged: start the run again") from error


class _Lines:
    """A file that is only appended to, so that a step costs the same however long it has grown.

    Attributes:
        path: the file's path.
        count: how many of its lines count; a process that was killed may have left more behind.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.count = path, 0
        self._size, self._digest = 0, hashlib.sha256()

    def noted(self) -> dict[str, Any]:
        """Return what identifies the lines that count."""
        return {"bytes": self._size, "sha256": self._digest.hexdigest()}

    def append(self, lines: Sequence[str], *, synced: bool) -> None:
        """Write ``lines`` after those that count; once synced, they count too.

        Raises:
            RunError: the folder is missing, not writable, or full.
        """
        content = "".join(line + "\n" for line in lines).encode()
        append_file(self.path, self._size, content, synced=synced)
        if synced:
            self._count(content)

    def restore(self, noted: Mapping[str, Any]) -> list[bytes]:
        """Return the lines that counted when ``noted`` was called; from now on they count again.

        Raises:
            RunError: they are not in the file.
        """
        content = self.path.read_bytes()[: noted["bytes"]] if noted["bytes"] else b""
        self.count, self._size, self._digest = 0, 0, hashlib.sha256()
        self._count(content)
        if self.noted() != noted:
            raise RunError(f"{self.path} does not have the lines of the earlier rounds")
        return content.splitlines()

    def _count(self, content: bytes) -> None:
        self.count += content.count(b"\n")
        self._size += len(content)
        self._digest.update(content)


LARGEST_FILE = 64 * 2**20
"""The size in bytes of the largest file that is read; 100,000 rounds take 55e6 bytes."""


def read_text(path: Path) -> str:
    """Return the text of a file in a run folder, which may come from somebody else.

    Raises:
        RunError: it is missing, too large, or no text.
    """
    try:
        if not path.is_file():
            raise RunError(
                f"{path} is missing, so the run folder is incomplete; give another folder"
            )
        if path.stat().st_size > LARGEST_FILE:
            raise RunError(
                f"{path} is larger than {LARGEST_FILE:,} bytes: no run writes a file that large"
            )
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise RunError(f"{path}: {error.strerror}; check the folder") from error
    except UnicodeDecodeError as error:
        raise _damaged(path, "not UTF-8 text") from error


def parsed(path: Path, text: str) -> Any:
    """Return what JSON in a file says, in which every number is finite.

    Raises:
        RunError: it is not JSON.
    """
    try:
        return json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        reason = "not JSON" if isinstance(error, RecursionError) else f"not JSON: {error}"
        raise _damaged(path, reason) from error


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def checked(path: Path, kind: Any, document: Any) -> Any:
    """Return a document of a file as a type that pydantic knows.

    Raises:
        RunError: it is not of this type.
    """
    try:
        return _adapter(kind).validate_python(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "the document"
        raise _damaged(path, f"{place}: {first['msg']}") from error


def read_as(path: Path, kind: Any) -> Any:
    """Return a JSON file as a type that pydantic knows.

    Raises:
        RunError: it is missing or damaged.
    """
    return checked(path, kind, parsed(path, read_text(path)))


def _damaged(path: Path, reason: str) -> RunError:
    return RunError(f"{path} is damaged ({reason}): use another copy, or repeat the run")


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def check_run_folder(path: Path) -> None:
    """Refuse a path that is not the folder of a run.

    Raises:
        RunError: it is not; the message says what to give instead.
    """
    if (path / "sweep.json").is_file():
        raise RunError(
            f"{path}: it is the folder of a sweep; give the folders of its runs: {path}/*/"
        )
    if not (path / "config.json").is_file():
        raise RunError(f"{path}: not a run folder (no config.json); give the folder of a run")


def as_json(content: Mapping[str, Any]) -> bytes:
    """Return a document as JSON in the form of run folders."""
    return (json.dumps(content, indent=2, allow_nan=False) + "\n").encode()


def check_new(path: Path) -> None:
    """Refuse a path that cannot become a new run folder; the check leaves nothing behind.

    A lock alone is nothing: a process that was killed at once leaves it.

    Raises:
        RunError: something other than an empty folder is there, or the path is not writable.
    """
    with os_errors(f"out = {path}", "choose a writable folder", RunError):
        if path.exists() and (
            not path.is_dir() or any(entry.name != LOCK for entry in path.iterdir())
        ):
            begun = (path / "config.json").is_file()
            resume = f", or continue the run in it: {how_to_resume(path)}" if begun else ""
            raise RunError(f"out = {path}: it exists already; choose another folder{resume}")
        made = missing_folders(path)
        path.mkdir(parents=True, exist_ok=True)
        remove_empty(made)


def how_to_resume(path: Path) -> str:
    """Return how to continue the run in a folder, for users of the command line or of Python."""
    return f"fedldp run --resume {shlex.quote(str(path))} (Python: fedldp.resume({str(path)!r}))"


def check_replaceable(path: Path, *begins: bytes, option: str = "out") -> None:
    """Refuse to replace a file of another kind, because it may be somebody's data.

    Args:
        path: the file to write.
        begins: the first bytes of files of the same kind, which may be replaced.
        option: the name of the option that gives the path.

    Raises:
        RunError: the path has something other than such a file, or its folder is missing.
    """
    with os_errors(f"cannot write {path}", "check the file", RunError):
        if not path.parent.is_dir():
            raise RunError(f"cannot write {path}: No such file or directory; check the folder")
        if not path.exists():
            return
        if path.is_file():
            with path.open("rb") as file:
                if file.read(max(map(len, begins))).startswith(begins):
                    return
    raise RunError(f"{option} = {path}: it exists and is another kind of file; choose another file")


def replace_file(path: Path, content: bytes, *, synced: bool = True) -> None:
    """Write ``content`` to ``path`` so that a crash leaves the whole old file or the whole new one.

    Unless it is synced, a power cut may leave the old file or none.

    Raises:
        RunError: the folder is missing, not writable, or full.
    """
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            if synced:
                os.fsync(file.fileno())
        partial.replace(path)
        if synced:
            sync(path.parent)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}; check the folder") from error
    finally:  # Ctrl-C or a full disk leaves no partial file
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def append_file(path: Path, size: int, content: bytes, *, synced: bool = True) -> None:
    """Write ``content`` to ``path`` after its first ``size`` bytes, and remove what follows.

    A crash can leave a part of the content; unless it is synced, a power cut can leave none.

    Raises:
        RunError: the folder is missing, not writable, or full.
    """
    with os_errors(f"cannot write {path}", "check the folder", RunError):
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o666), "wb") as file:
            file.seek(size)
            file.write(content)
            file.truncate()
            file.flush()
            if synced:
                os.fsync(file.fileno())
        if synced and not size:
            sync(path.parent)


def environment() -> dict[str, Any]:
    """Return the time (UTC), versions and hardware, which a reader needs to repeat the run."""
    import torch

    packages = ("fedldp", "torch", "numpy", "scikit-learn", "cryptography")
    cuda = torch.cuda.is_available()
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: version(name) for name in packages},
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if cuda else None,
    }


FILE = "schema.json"


@dataclass(frozen=True, kw_only=True)
class Schema:
    """The public facts about a model's inputs and outputs.

    It contains no client's name, no digest of an example, and no number that was counted in a
    user's own rows, because no guarantee covers such a number.

    Attributes:
        input_shape: the shape of one example.
        num_classes: the number of classes; labels are 0 to num_classes - 1.
        num_examples: the total number of training examples across all clients, if it is public.
        classes: the names of the classes, if they have any.
        features: the names of the features, if they have any.
        rounded: whether counts that are shown beside the model's scores are rounded up, like all
            counts of a user's own rows.
    """

    input_shape: tuple[int, ...]
    num_classes: int
    num_examples: int | None
    classes: tuple[str, ...] | None = None
    features: tuple[str, ...] | None = None
    rounded: bool = False

    def to_document(self) -> dict[str, Any]:
        """Return the schema in the form of a JSON file."""
        return asdict(self)

    @property
    def problem(self) -> Problem:
        """What the run's algorithm must know about the data to build its model again.

        How a model is used does not depend on the number of examples that trained it.
        """
        return Problem(self.input_shape, self.num_classes, self.num_examples or 1)

    @property
    def class_names(self) -> list[str]:
        """The names, or numbers, of all classes; empty if the model predicts numbers."""
        count = self.num_classes if self.num_classes > 1 else 0
        return list(map(self.class_name, range(count)))

    def class_name(self, label: int) -> str:
        """Return the name of a class, or its number if it has no name."""
        return str(label) if self.classes is None else self.classes[label]


def read_schema(folder: Path) -> Schema:
    """Return the schema in a run folder.

    Raises:
        RunError: the schema is missing or damaged.
    """
    if not (folder / FILE).is_file():
        raise RunError(f"{folder}: it has no {FILE}; give the folder of a finished run")
    found = read_as(folder / FILE, dict[str, Any])
    if lacks := {each.name for each in fields(Schema)} - found.keys():
        raise _damaged(folder / FILE, f"it lacks {', '.join(sorted(lacks))}")
    schema: Schema = checked(folder / FILE, Schema, found)
    return schema
