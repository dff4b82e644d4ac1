"""Public files from which features are computed; their digests are public, too."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from fedldp.core.errors import ConfigError
from fedldp.data.folder import resolve_data_dir


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
