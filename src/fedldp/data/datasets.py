"""Data sets by name: the built-in benchmarks with their parsers, and a user's own files."""

from __future__ import annotations

import gzip
import math
import os
import pickle
import struct
import tomllib
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import ConfigError, DataError
from fedldp.data.columns import Columns
from fedldp.data.custom import is_own_file, load_file
from fedldp.data.examples import Dataset, Examples, split
from fedldp.data.folder import in_use, is_present, locate, resolve_data_dir
from fedldp.data.sources import SOURCES, PublishedDataset, find_source
from fedldp.data.tables import reading

# If no split is published, the split made here is part of the benchmark's definition, so it is the
# same in all runs.
_FIXED_SPLIT_SEED = 0
_TEST_SHARE = 0.2


def list_datasets(data_dir: Path | None = None) -> list[dict[str, Any]]:
    """Describe every built-in data set without loading it; files are checked by their size.

    Returns:
        For each the name that ``load_dataset`` takes; the number of training and test "examples"
        together, in the files that would be loaded now; the "input_shape" of one; the number of
        "classes"; the address of its home page, "source"; the "license", as the publisher states
        it; whether it is "present", so that no download is needed; and the "folder" of its files,
        None if the data set comes with this package.
    """
    root = resolve_data_dir(data_dir)
    used = {name: in_use(source, root) for name, source in SOURCES.items()}
    return [
        {
            "name": name,
            "examples": each.num_examples,
            "input_shape": list(each.input_shape),
            "classes": each.num_classes,
            "source": each.home,
            "license": each.licence,
            "present": is_present(each, root),
            "folder": str(root / each.folder) if each.files else None,
        }
        for name, each in used.items()
    ]


def load_dataset(
    name: str,
    *,
    data_dir: Path | None = None,
    columns: Columns = Columns(),  # noqa: B008 (it is frozen)
    test_file: str | None = None,
    seed: int = 0,
    test_share: float = 0.2,
    standardise: bool = False,
) -> Dataset:
    """Load a data set from memory or disk, without the network.

    Images are float32 in [0, 1] of shape (C, H, W). Splits are the published ones. The digits and
    covertype have none; they are split 80 to 20, stratified by label, in the same way in every run.
    If the full Covertype is missing and its 16 % subset is present, the subset is loaded under its
    own name, because results on the two are not comparable.

    Args:
        name: digits, mnist, fmnist (or fashion-mnist), cifar10, cifar100 (by its 100 fine labels),
            svhn, svhn-extra (its extra set, in place of its training set), covertype or adult; or
            the path of the user's own .npz, .csv or .parquet file.
        data_dir: the data folder; see resolve_data_dir.
        columns: the columns of a .csv or .parquet file.
        test_file: a second file with the same columns, to test on.
        seed: the seed for splitting a user's own file that has no test set; it affects nothing
            else.
        test_share: the share that is then split off; 0 for no test set.
        standardise: shift and scale images by the published means and deviations of the data set.
            These are public constants; constants measured on clients' data would be a release.

    Raises:
        ConfigError: there is no data set of that name, or a setting is out of range.
        DataMissing: a file is missing; the message says which, and how to get it.
        DataError: a file is damaged or malformed; the message says which.

    >>> data = load_dataset("digits")
    >>> len(data.train), len(data.test), data.input_shape
    (1437, 360, (1, 8, 8))
    """
    path = Path(name).expanduser()
    if standardise and not (is_own_file(name) and not path.exists()):
        check_standardise(name)
    if is_own_file(name):
        other = None if test_file is None else Path(test_file).expanduser()
        return load_file(path, columns=columns, seed=seed, test_file=other, test_share=test_share)
    source, paths = locate(find_source(name), resolve_data_dir(data_dir))
    *parts, last = _READERS[source.name](paths)
    joined = (np.concatenate([part[at] for part in parts]) for at in (0, 1))
    train, test = _examples(source, *joined), _examples(source, *last)
    if standardise:
        for examples in (train, test):
            _standardise(examples.features, source)
    return Dataset(source.name, train=train, test=test, num_classes=source.num_classes)


def standardised(examples: Examples, name: str) -> Examples:
    """Return a copy of a party's own images, shifted and scaled as in ``load_dataset``.

    Args:
        examples: images in [0, 1], with as many channels as the images of that data set.
        name: the data set whose published means and deviations are used.

    Raises:
        ConfigError: no constants are published, or none for this number of channels.
    """
    source = check_standardise(name)
    if examples.features.shape[1:2] != (len(source.means),):
        raise ConfigError(
            f"standardise = true: the constants of {name} are for {len(source.means)} channels, "
            f"but an example has the shape {examples.features.shape[1:]}; set standardise = false"
        )
    images = examples.features.copy()
    _standardise(images, source)
    return replace(examples, features=images)


def check_standardise(name: str) -> PublishedDataset:
    """Return the data set with this name, or refuse it if it has no published constants.

    Raises:
        ConfigError: there are no constants.
    """
    source = None if is_own_file(name) else find_source(name)
    if source is None or not source.means:
        raise ConfigError(
            f"standardise = true: no means are published for {name}; scale the data yourself with "
            "public constants, and set standardise = false"
        )
    return source


def _standardise(images: NDArray[np.float32], source: PublishedDataset) -> None:
    # Work in place, because the largest data set takes 7 GB, which leaves no room for copies.
    for channel, (mean, deviation) in enumerate(zip(source.means, source.deviations, strict=True)):
        images[:, channel] -= np.float32(mean)
        images[:, channel] /= np.float32(deviation)


_Part = tuple[NDArray[Any], NDArray[np.int64]]
"""Pixels as bytes, or features from 0 to 1; and labels."""


def _digits(paths: list[Path]) -> list[_Part]:
    with np.load(Path(__file__).with_name("digits.npz")) as file:
        features, labels = _scale(file["pixels"], 16), file["labels"].astype(np.int64)
    cut = SOURCES["digits"].num_train
    return [(features[:cut], labels[:cut]), (features[cut:], labels[cut:])]


def _idx(paths: list[Path]) -> list[_Part]:
    return [
        (read_idx(images, 3)[:, None], read_idx(labels, 1).astype(np.int64))
        for images, labels in (paths[:2], paths[2:])
    ]


def _covertype(paths: list[Path]) -> list[_Part]:
    features, labels = read_covertype(paths[0])
    parts = split(labels, test_share=_TEST_SHARE, seed=_FIXED_SPLIT_SEED)
    return [(features[rows], labels[rows]) for rows in parts]


_READERS: dict[str, Callable[[list[Path]], list[_Part]]] = {
    "digits": _digits,
    **dict.fromkeys(("mnist", "fmnist"), _idx),
    "cifar10": lambda paths: list(map(read_cifar_batch, paths)),
    "cifar100": lambda paths: [read_cifar_batch(path, "fine_labels") for path in paths],
    **dict.fromkeys(("svhn", "svhn-extra"), lambda paths: list(map(read_svhn, paths))),
    **dict.fromkeys(("covertype", "covertype-subset-92962"), _covertype),
    "adult": lambda paths: list(map(read_adult, paths)),
}
"""Read a data set's files into parts, the last of which is the test set."""


def _examples(
    source: PublishedDataset, features: NDArray[Any], labels: NDArray[np.int64]
) -> Examples:
    """Return a part with bytes scaled to [0, 1], after checking the shapes and labels."""
    shape = (len(labels), *source.input_shape)
    if features.shape != shape or labels.shape != shape[:1]:
        raise DataError(
            f"{source.name} is damaged: features {features.shape} with labels {labels.shape}; "
            "run: fedldp data verify"
        )
    if labels.size and not 0 <= labels.min() <= labels.max() < source.num_classes:
        raise DataError(
            f"{source.name} is damaged: labels from {labels.min()} to {labels.max()}; "
            "run: fedldp data verify"
        )
    return Examples(_scale(features, 255) if features.dtype == np.uint8 else features, labels)


def _scale(pixels: NDArray[np.uint8], largest: int) -> NDArray[np.float32]:
    # Convert in one pass, because the largest data set takes 7 GB, which leaves no room for copies.
    scaled: NDArray[np.float32] = np.divide(pixels, largest, dtype=np.float32, order="C")
    return scaled


_COVERTYPE_BINARY = 44  # 4 wilderness areas, 40 soil types
_COVERTYPE_CLASSES = 7
_CIFAR_PIXELS = 3 * 32 * 32


def _columns_of(name: str) -> dict[str, Any]:
    """Return the public ranges and categories of a data set's columns."""
    path = Path(__file__).with_name(f"{name}.toml")
    return tomllib.loads(path.read_text(encoding="ascii"))


def read_idx(path: Path, num_axes: int) -> NDArray[np.uint8]:
    """Read a gzipped IDX file of unsigned bytes with ``num_axes`` axes.

    The format is specified at http://yann.lecun.com/exdb/mnist/: two zero bytes, the type 0x08,
    the number of axes, each axis's length as a big-endian 32-bit integer, then the values.

    Returns:
        An array of the shape that the file states.

    Raises:
        DataError: the file is not of this format or has too few or too many values.
    """
    with reading(path, "gzipped IDX"):
        content, start = _unzipped(path), 4 + 4 * num_axes
        if (magic := content[:4]) != bytes([0, 0, 8, num_axes]):
            raise ValueError(f"it starts with {magic!r}")
        shape = struct.unpack(f">{num_axes}I", content[4:start])
        values = memoryview(content)[start:]
        if len(values) != math.prod(shape):
            raise ValueError(f"{len(values)} values for the shape {shape}")
        return np.frombuffer(values, dtype=np.uint8).reshape(shape)


_WORTH_KEEPING = 2**20  # bytes


def _unzipped(path: Path) -> bytes:
    """Return what a gzipped file holds.

    Unzipping takes longer than a small run. So a large file's content is kept beside it, under the
    same name without ".gz" if the folder can be written, and counts while it has the checksum and
    the size with which the gzipped file ends.
    """
    kept = path.with_suffix("")
    with path.open("rb") as file:
        file.seek(-8, os.SEEK_END)
        ends = file.read()
    with suppress(OSError):
        content = kept.read_bytes()
        if _end_of(content) == ends:
            return content
    content = gzip.decompress(path.read_bytes())
    large = len(content) >= _WORTH_KEEPING and path.suffix == ".gz"
    if large and _end_of(content) == ends:
        partial = kept.with_name(f"{kept.name}.{os.getpid()}.partial")
        with suppress(OSError):
            try:
                partial.write_bytes(content)
                partial.replace(kept)
            finally:
                partial.unlink(missing_ok=True)
    return content


def _end_of(content: bytes) -> bytes:
    """Return the last bytes of a gzipped file with this content; see RFC 1952."""
    return struct.pack("<II", zlib.crc32(content), len(content) % 2**32)


class _ArraysOnly(pickle.Unpickler):
    """Loads only what a pickled NumPy array needs, and nothing that could run code.

    See https://docs.python.org/3/library/pickle.html#restricting-globals.
    """

    _ADMITTED = frozenset(
        {("numpy.core.multiarray", "_reconstruct"), ("numpy", "ndarray"), ("numpy", "dtype")}
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._ADMITTED:
            raise pickle.UnpicklingError(f"it uses {module}.{name}, which is refused")
        return super().find_class(module, name)


def read_cifar_batch(
    path: Path, labelled: str = "labels"
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Read one batch of the python version of CIFAR-10 or CIFAR-100, without running code in it.

    The format is specified at https://www.cs.toronto.edu/~kriz/cifar.html: a pickled dictionary
    with rows of 1024 red, 1024 green and 1024 blue values.

    Args:
        path: the file.
        labelled: the dictionary's key for the labels: labels (CIFAR-10), or fine_labels or
            coarse_labels (CIFAR-100).

    Returns:
        Images of shape (N, 3, 32, 32) and labels of shape (N,).

    Raises:
        DataError: the file is not such a pickle, or contains anything other than arrays.
    """
    with reading(path, "a CIFAR batch"):
        with path.open("rb") as file:
            batch = _ArraysOnly(file, encoding="bytes").load()
        pixels, labels = batch[b"data"], np.array(batch[labelled.encode()], dtype=np.int64)
        if pixels.dtype != np.uint8 or pixels.shape != (len(labels), _CIFAR_PIXELS):
            raise ValueError(f"{pixels.dtype} data of shape {pixels.shape}, {len(labels)} labels")
        return pixels.reshape(-1, 3, 32, 32), labels


def read_svhn(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Read a MATLAB file of SVHN's cropped digits.

    The format is specified at http://ufldl.stanford.edu/housenumbers/: X of shape (32, 32, 3, N)
    and y of shape (N, 1), where the digit 0 has label 10.

    Returns:
        Images of shape (N, 3, 32, 32) and labels of shape (N,), from 0 to 9.

    Raises:
        DataError: the file is not of this format.
    """
    from scipy.io import loadmat  # slow to import, and needed only for this data set

    with reading(path, "an SVHN .mat file"):
        variables = loadmat(path, variable_names=("X", "y"))
        pixels, labels = variables["X"], variables["y"]
        if pixels.dtype != np.uint8 or pixels.shape != (32, 32, 3, len(labels)):
            raise ValueError(f"{pixels.dtype} X of shape {pixels.shape}, y of {labels.shape}")
        digits = labels.astype(np.int64).reshape(len(labels))
        if not ((digits >= 1) & (digits <= 10)).all():
            raise ValueError("it has labels outside 1 to 10")
        return pixels.transpose(3, 2, 0, 1), digits % 10


def read_covertype(path: Path) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Read gzipped rows of ten numbers, 44 bits and a label from 1 to 7, without a header.

    The format is specified at https://archive.ics.uci.edu/dataset/31/covertype.

    Returns:
        Features of shape (N, 54), all in [0, 1] by the ranges in covertype.toml, and labels from 0
            to 6.

    Raises:
        DataError: the file is not of this format, or a value is outside its published range.
    """
    with reading(path, "gzipped rows of integers"):
        numbers = _columns_of("covertype").values()
        ranges = (*numbers, *[(0, 1)] * _COVERTYPE_BINARY, (1, _COVERTYPE_CLASSES))
        lowest, highest = np.array(ranges, dtype=np.int32).T
        with gzip.open(path, "rt", encoding="ascii") as file:
            rows = np.loadtxt(file, delimiter=",", dtype=np.int32, ndmin=2)
        if rows.shape[1] != len(ranges):
            raise ValueError(f"{rows.shape[1]} columns instead of {len(ranges)}")
        outside = ((rows < lowest) | (rows > highest)).any(axis=1)
        if outside.any():
            raise ValueError(f"row {int(outside.argmax()) + 1} has a value outside its range")
        features = np.divide(rows - lowest, highest - lowest, dtype=np.float32)[:, :-1]
        return features, rows[:, -1].astype(np.int64) - 1


def read_adult(path: Path) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Read rows of 14 columns and an income, separated by commas and spaces, without a header.

    The format is specified at https://archive.ics.uci.edu/dataset/2/adult; the test file begins
    with a line to skip, and ends its rows with a dot.

    Returns:
        Features of shape (N, 108): numbers from 0 to 1 by the public ranges in adult.toml, and 0 or
            1 for each category there; and labels, 1 for an income above 50,000 dollars.

    Raises:
        DataError: the file is not of this format, or has an unknown category.
    """
    with reading(path, "rows of Adult"):
        lines = path.read_text(encoding="ascii").splitlines()
        rows = [line.split(", ") for line in lines if line and not line.startswith("|")]
        *found, incomes = zip(*rows, strict=True)
        parts = []
        for (first, *others), values in zip(_columns_of("adult").values(), found, strict=True):
            if isinstance(first, str):
                places = list(map([first, *others].index, values))
                parts.append(np.eye(1 + len(others), dtype=np.float32)[places])
            else:
                scaled = (np.array(values, np.float64) - first) / (others[0] - first)
                parts.append(scaled.clip(0, 1).astype(np.float32)[:, None])
        labels = [("<=50K", ">50K").index(income.rstrip(".")) for income in incomes]
        return np.hstack(parts), np.array(labels, np.int64)
