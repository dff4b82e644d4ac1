"""The published data sets: files, sizes, checksums, addresses and licences.

``sources.toml`` has them.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from fedldp.core.errors import ConfigError


@dataclass(frozen=True)
class PublishedFile:
    """One file as its publisher serves it.

    Attributes:
        name: its name in the data set's folder.
        size: the file's size in bytes.
        sha256: the SHA-256 of its bytes, in hexadecimal.
        addresses: where to download it, in the order to try; empty for a member of an archive.
    """

    name: str
    size: int
    sha256: str
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True)
class PublishedDataset:
    """A data set and the files from which it is read.

    Attributes:
        name: its name in a run's configuration.
        home: the address of its home page.
        licence: the licence, as the publisher states it.
        num_examples: the number of training and test examples together.
        num_train: the number of training examples.
        input_shape: the shape of an example.
        num_classes: the number of classes; labels are 0 to num_classes - 1.
        folder: its folder below the data folder; empty if a library includes the data set.
        files: the files that the loader reads, in order.
        archive: the one download that holds all the files, if they are not served one by one.
        stand_in: a smaller data set, used if it is present and this one is not.
        means: the mean of each channel of the training images in [0, 1]; empty if none are
            published.
        deviations: the standard deviations, in the same form as ``means``.
    """

    name: str
    home: str
    licence: str
    num_examples: int
    num_train: int
    input_shape: tuple[int, ...]
    num_classes: int
    folder: str = ""
    files: tuple[PublishedFile, ...] = ()
    archive: PublishedFile | None = None
    stand_in: PublishedDataset | None = None
    means: tuple[float, ...] = ()
    deviations: tuple[float, ...] = ()

    def addresses(self, file: PublishedFile) -> tuple[str, ...]:
        """The addresses of the file, or of the archive that holds it."""
        return self.archive.addresses if self.archive else file.addresses


_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

SOURCES = TypeAdapter(dict[str, PublishedDataset]).validate_python(
    {name: {"name": name, **table} for name, table in _TABLES.items()}
)
_ALIASES = {"fashion-mnist": "fmnist"}


def find_source(name: str) -> PublishedDataset:
    """Return the built-in data set with this name.

    Raises:
        ConfigError: there is no data set of that name.
    """
    source = SOURCES.get(_ALIASES.get(name, name))
    if source is None:
        raise ConfigError(
            f"dataset is {name!r}, which is unknown; give one of {', '.join(SOURCES)}, or the path "
            "of a .npz or .csv file"
        )
    return source
