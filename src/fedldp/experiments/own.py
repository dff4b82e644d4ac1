"""What is a user's own in an experiment: code files, with what they import, and private data.

A folder keeps a copy of the code, so that it can be run again wherever it is moved. Of private data
it keeps an HMAC, whose key stays in the user's configuration folder: folders are shared, and a
plain digest would confirm a guess of what the data are.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import hmac
import os
import secrets  # noqa: TID251  # the key of the HMAC of private data
import shlex
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.features import file_of
from fedldp.core.errors import RunError, os_errors
from fedldp.core.registry import file_of_module, is_address
from fedldp.data import Dataset, is_own_file
from fedldp.experiments.store import Document
from fedldp.reporting.record import as_json, environment, replace_file

Files = Mapping[str, Path]
"""Files by their paths below the folder that they are imported from."""

_KEY_BYTES = 32


def code_files(config: RunConfig) -> dict[str, Path]:
    """Return the files of the user's own code and features that a configuration names.

    With a file of code come the files below the same folder that it imports.
    """
    found: dict[str, Path] = {}
    for name, value in config.model_dump().items():
        if not isinstance(value, str) or name == "partition":
            continue
        features = file_of(value)
        if features is not None:
            if Path(features).is_file():
                found[Path(features).name] = Path(features)
        elif is_address(value):
            place = file_of_module(value)
            if place is not None and place.is_file():
                found |= _with_imports(value.partition(":")[0], place)
    return found


def code_digest(files: Files) -> str:
    """Return a digest of files of own code; empty if there are none."""
    found = [files[name].read_bytes() for name in sorted(files)]
    return hashlib.sha256(b"\0".join(found)).hexdigest()[:16] if found else ""


def code_of(config: RunConfig) -> str:
    """Return a digest of a configuration's own code and features; empty if it has none."""
    return code_digest(code_files(config))


def _with_imports(name: str, file: Path) -> dict[str, Path]:
    """Return a module's file, and the files below its folder that it imports, directly or not."""
    levels = len(name.split(".")) + (file.name == "__init__.py")
    root, found, left = file.parents[levels - 1], dict[str, Path](), [file]
    installed = {sysconfig.get_path(kind) for kind in ("purelib", "platlib", "stdlib")}
    alone = str(root) in installed  # then only the package itself is the user's own
    while left:
        place = left.pop()
        key = place.relative_to(root).as_posix()
        if key in found or (alone and key.partition("/")[0] != name.partition(".")[0]):
            continue
        found[key] = place
        for other in _imports(place, root):
            parts = other.split(".")
            for length in range(1, len(parts) + 1):
                below = root.joinpath(*parts[:length])
                files = (below.with_suffix(".py"), below / "__init__.py")
                left += [each for each in files if each.is_file()]
    return found


def _imports(file: Path, root: Path) -> Iterator[str]:
    """Yield the dotted names that a file imports, as seen from ``root``."""
    package = file.relative_to(root).parent.parts
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            start = ".".join([*above, *filter(None, [node.module])])
            yield from (f"{start}.{each.name}".lstrip(".") for each in node.names)


# Data


def sum_of(data: Dataset) -> bytes | None:
    """Return a digest of private data, which must not be kept as it is; None for public data."""
    if data.is_public:
        return None
    found = hashlib.sha256()
    for examples in (data.train, data.test):
        for array in (examples.features, examples.labels, examples.people):
            found.update(b"none" if array is None else np.ascontiguousarray(array).tobytes())
    found.update(data.owners.tobytes())
    return found.digest()


def sum_of_tables(configs: Iterable[RunConfig]) -> bytes | None:
    """Return a digest of the user's own tables that configurations name; None if they name none."""
    names = {
        text
        for config in configs
        for text in (config.dataset, config.test_file)
        if text is not None and is_own_file(text)
    }
    files = [path for path in (Path(name).expanduser() for name in names) if path.is_file()]
    if not files:
        return None
    # Not in the order of their paths, which differ with the folder that they are seen from.
    each = sorted(hashlib.sha256(path.read_bytes()).digest() for path in files)
    return hashlib.sha256(b"".join(each)).digest()


def sealed(data: bytes) -> dict[str, str]:
    """Return what a folder keeps of private data: an HMAC, and which key made it.

    Raises:
        RunError: the key can be neither read nor made.
    """
    key = _key()
    return {
        "key": hashlib.sha256(key).hexdigest()[:16],
        "hmac": hmac.new(key, data, hashlib.sha256).hexdigest(),
    }


def _key() -> bytes:
    """Return the key, 32 bytes that are the same in all processes; the first one makes them."""
    place = Path(platformdirs.user_config_dir("fedldp")) / "data.key"
    needs = "it must hold the key that tells whether data have changed"
    with os_errors(str(place), needs, RunError):
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not place.exists():
            # Nobody ever sees a part of the key: an HMAC with an empty key is a plain digest.
            with tempfile.NamedTemporaryFile(dir=place.parent) as new:  # noqa: TID251  # beside the file
                new.write(secrets.token_bytes(_KEY_BYTES))
                new.flush()
                os.fsync(new.fileno())
                with contextlib.suppress(FileExistsError):
                    os.link(new.name, place)
        found = place.read_bytes()
    if len(found) != _KEY_BYTES:
        raise RunError(
            f"{place}: it is damaged; restore it from a copy, or remove it, and confirm with "
            "--same-data (Python: same_data=True) that the data of your folders have not changed"
        )
    return found


# Both


@dataclass(frozen=True)
class Own:
    """What is the user's own in an experiment.

    Attributes:
        data: a digest of private data, see ``sum_of``; None for public data.
        code: files of own code, by the digest of the files of a configuration.
        same_data: whether the user confirms that the data are the same, where nobody can tell.
    """

    data: bytes | None = None
    code: Mapping[str, Files] = field(default_factory=dict)
    same_data: bool = False

    @classmethod
    def of(cls, configs: Sequence[RunConfig], given: Dataset | None, same_data: bool) -> Own:
        """Return what is the user's own in an experiment.

        Args:
            configs: the configurations whose code and tables it uses.
            given: its data, if they are given.
            same_data: see the attribute.
        """
        data = sum_of_tables(configs) if given is None else sum_of(given)
        files = [code_files(config) for config in configs]
        return cls(data, {code_digest(each): each for each in files if each}, same_data)

    def problem(self, old: Mapping[str, str] | None) -> str | None:
        """Return why the data may not be those of a folder, from what it keeps of them, or None."""
        if self.data is None:
            return None
        new = sealed(self.data)
        if old is not None and old["key"] == new["key"]:
            same = old["hmac"] == new["hmac"]
            return None if same else "its data have changed since; choose another out"
        if self.same_data:
            return None
        return (
            "nobody can tell whether its data are still the same, because this user and this "
            "machine lack the key that was used; if you know that they are, give --same-data "
            "(Python: same_data=True)"
        )

    def write(self, file: Path, document: Document) -> None:
        """Write an experiment's settings into its folder, with copies of own code."""
        replace_file(file, as_json({**document, **self._head(file.parent)}))
        for code, files in self.code.items():
            for name, source in files.items():
                copy = file.parent / "own" / code / name
                copy.parent.mkdir(parents=True, exist_ok=True)
                replace_file(copy, source.read_bytes())

    def _head(self, folder: Path) -> dict[str, Any]:
        """Return what a folder keeps of this, and of the command."""
        typed = Path(sys.argv[0]).name == "fedldp"
        return {
            "command": shlex.join(["fedldp", *sys.argv[1:]]) if typed else None,
            "started_in": os.path.relpath(Path.cwd().resolve(), folder.resolve()),
            "versions": environment()["packages"],
            "data": None if self.data is None else sealed(self.data),
            "own": sorted(self.code),
        }
