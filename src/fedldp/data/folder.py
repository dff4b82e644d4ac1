"""The data folder: its location, the published files in it, and files that users declare public."""

from __future__ import annotations

import hashlib
import os
import shlex
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Literal

import platformdirs

from fedldp.core.errors import ConfigError, DataError, DataMissing
from fedldp.data.sources import SOURCES, PublishedDataset, PublishedFile, find_source

Status = Literal["ok", "missing", "damaged"]


def resolve_data_dir(data_dir: str | Path | None) -> Path:
    """Choose the data folder: the argument, else $FEDLDP_DATA, else the user's cache folder."""
    if data_dir is not None:
        return Path(data_dir).expanduser()
    variable = os.environ.get("FEDLDP_DATA")
    if variable:
        return Path(variable).expanduser()
    return Path(platformdirs.user_cache_dir("fedldp"))


def verify(name: str | None = None, data_dir: Path | None = None) -> dict[Path, Status]:
    """Compare files with their published sizes and SHA-256 checksums, without the network.

    Args:
        name: a built-in data set, or None for all of them.
        data_dir: the data folder; see resolve_data_dir.

    Returns:
        One status for each file. The file of a stand-in is included only if it is present.

    Raises:
        ConfigError: there is no data set of that name.
    """
    root = resolve_data_dir(data_dir)
    found: dict[Path, Status] = {}  # keyed by path, because data sets share files
    for source in [find_source(name)] if name is not None else SOURCES.values():
        for each in filter(None, (source, source.stand_in)):
            for file in each.files:
                path = root / each.folder / file.name
                if path not in found and (each is source or path.is_file()):
                    found[path] = checksum_status(path, file)
    return found


def size_status(path: Path, file: PublishedFile) -> Status:
    """Judge a file by its size, which reveals a truncated file at no cost."""
    if not path.is_file():
        return "missing"
    return "ok" if path.stat().st_size == file.size else "damaged"


def checksum_status(path: Path, file: PublishedFile) -> Status:
    """Judge a file by its size and its SHA-256."""
    status = size_status(path, file)
    if status == "ok":
        with path.open("rb") as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() != file.sha256:
                return "damaged"
    return status


def in_use(source: PublishedDataset, root: Path) -> PublishedDataset:
    """Return the source, or its stand-in if only the stand-in's files are present."""
    stand_in = source.stand_in
    if stand_in is None or not _all_missing(source, root) or _all_missing(stand_in, root):
        return source
    return stand_in


def is_present(source: PublishedDataset, root: Path) -> bool:
    """Whether all files are there with the published sizes."""
    return all(size_status(root / source.folder / file.name, file) == "ok" for file in source.files)


def locate(source: PublishedDataset, root: Path) -> tuple[PublishedDataset, list[Path]]:
    """Return the data set in use and the paths of its files, in order.

    Raises:
        DataMissing: a file is missing; the message says where it belongs and how to get it.
        DataError: a file does not have the published size.
    """
    used = in_use(source, root)
    folder = root / used.folder
    for file in used.files:
        path = folder / file.name
        status = size_status(path, file)
        if status == "missing":
            raise DataMissing(
                f"{file.name} is not in {folder}",
                f"get it from {used.addresses(file)[0]} with: {fetch_command(source.name, root)}",
            )
        if status == "damaged":
            raise DataError(
                f"{file.name} in {folder} is damaged: {path.stat().st_size:,} bytes instead of "
                f"{file.size:,}; replace it with: {fetch_command(source.name, root)}"
            )
    return used, [folder / file.name for file in used.files]


def fetch_command(name: str, root: Path) -> str:
    """Return the command that fetches a data set into the data folder ``root``."""
    command = f"fedldp data fetch {name}"
    if root == resolve_data_dir(None):
        return command
    return f"{command} --data-dir {shlex.quote(str(root))}"


def _all_missing(source: PublishedDataset, root: Path) -> bool:
    return not any((root / source.folder / file.name).exists() for file in source.files)


@dataclass(frozen=True)
class PublicFile:
    """A file that its user declares public.

    Attributes:
        name: the name in the setting.
        content: the file's bytes.
        digest: the SHA-256 of these bytes, 64 hexadecimal digits; files with the same name and
            digest are equal.
    """

    name: str
    content: bytes = field(repr=False, compare=False)
    digest: str


def read_public(name: str, setting: str, data_dir: Path | None) -> PublicFile:
    """Return the file called ``name`` in the current folder, or else in the data folder.

    Args:
        name: a path.
        setting: the setting with its value, for error messages.
        data_dir: the data folder; see ``resolve_data_dir``.

    Raises:
        ConfigError: there is no such file, or it cannot be read.
    """
    given, folder = Path(name).expanduser(), resolve_data_dir(data_dir)
    for path in (given, folder / given):
        if path.is_file():
            try:
                found = path.stat()
                return _read(name, path.resolve(), found.st_mtime_ns, found.st_size)
            except OSError as error:
                raise ConfigError(f"{setting}: {path}: {error.strerror}; check the file") from None
    raise ConfigError(
        f"{setting}: there is no file {name} in the current folder or in the data folder, "
        f"{folder}; put it there"
    )


@lru_cache(maxsize=8)
def _read(name: str, path: Path, changed: int, size: int) -> PublicFile:
    content = path.read_bytes()
    return PublicFile(name, content, hashlib.sha256(content).hexdigest())
