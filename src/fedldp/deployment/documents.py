"""The documents that parties send each other as files: JSON, identified by a SHA-256 digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from fedldp.core.errors import ConfigError

_Document = TypeVar("_Document", bound=BaseModel)

LARGEST = 1 << 24
"""The largest permitted size of a document's file, in bytes."""


def canonical(document: Mapping[str, Any]) -> bytes:
    """Return a document's canonical bytes, from which its digest is computed.

    Raises:
        ValueError: the document holds NaN or infinity.
    """
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def digest_of(document: Mapping[str, Any]) -> bytes:
    """Return the SHA-256 of a document's canonical bytes: 32 bytes."""
    return hashlib.sha256(canonical(document)).digest()


def for_people(document: Mapping[str, Any]) -> bytes:
    """Return the content of a document's file: its canonical form, indented for people to read."""
    return json.dumps(document, indent=1, sort_keys=True).encode() + b"\n"


def read_file(path: Path, what: str) -> bytes:
    """Return the content of a document's file.

    Args:
        path: the path of the file.
        what: the kind of document, for error messages.

    Raises:
        ConfigError: the file cannot be read, or is too large.
    """
    try:
        if path.stat().st_size > LARGEST:
            raise ConfigError(f"{what} {path}: it has more than {LARGEST} bytes; check the path")
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{what} {path}: {error.strerror}; check the path") from error


def parse(content: bytes, kind: type[_Document]) -> _Document:
    """Return the document in ``content``.

    Raises:
        ConfigError: the document is damaged, of another kind or version, or contains unprintable
            characters.
    """
    try:
        read = json.loads(content)
        canonical(read)  # refuses NaN and infinity, which have no canonical form
        if not _printable(read):
            raise ConfigError("it contains characters that cannot be printed; refuse it")
        return kind.model_validate(read)
    except (ValueError, RecursionError, ValidationError) as error:
        place = ""
        if isinstance(error, ValidationError):
            first = error.errors()[0]
            if (
                isinstance(read, dict)
                and first["type"] == "missing"
                and first["loc"] == _kind(kind)
            ):
                raise ConfigError(
                    f"this is another kind of file: it has no {first['loc'][0]}; check the path"
                ) from error
            place = " at " + ".".join(map(str, first["loc"]))
        raise ConfigError(
            f"it is damaged{place}, or was written by another version of fedldp; ask for it again"
        ) from error


def _kind(document: type[BaseModel]) -> tuple[str]:
    """Return the first key of this kind of document, as a location in pydantic's errors."""
    return (next(iter(document.model_fields)),)


def _printable(value: Any) -> bool:
    """Return whether all strings in a document are printable, so that none can overwrite output."""
    if isinstance(value, dict):
        return all(each.isprintable() and _printable(value[each]) for each in value)
    if isinstance(value, list):
        return all(map(_printable, value))
    return not isinstance(value, str) or value.isprintable()
