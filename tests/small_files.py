"""Small files in the published formats."""

from __future__ import annotations

import gzip
import hashlib
import os
import pickle
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import scipy.io

from fedldp.data.sources import SOURCES, PublishedDataset, PublishedFile


def zipped(content: bytes) -> bytes:
    """Compress without the time of day, so that the same content always gives the same bytes."""
    return gzip.compress(content, compresslevel=1, mtime=0)


def published(name: str, content: bytes, *addresses: str) -> PublishedFile:
    return PublishedFile(name, len(content), hashlib.sha256(content).hexdigest(), addresses)


def idx_bytes(values: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
    return zipped(header + values.tobytes())


def cifar_bytes(
    pixels: np.ndarray,
    labels: list[int],
    module: str = "numpy.core.multiarray",
    key: bytes = b"labels",
) -> bytes:
    """Write a pickle as Python 2 did; Python 3's pickler stores byte strings differently."""

    def string(text: bytes) -> bytes:
        return b"T" + struct.pack("<i", len(text)) + text

    def integer(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    dtype = (
        b"cnumpy\ndtype\n" + string(b"u1") + integer(0) + integer(1) + b"\x87R"
        b"(" + integer(3) + string(b"|") + b"NNN" + integer(-1) + integer(-1) + integer(0) + b"tb"
    )
    shape = b"(" + b"".join(integer(length) for length in pixels.shape) + b"t"
    array = (
        b"c" + module.encode() + b"\n_reconstruct\ncnumpy\nndarray\n"
        + integer(0) + b"\x85" + string(b"b") + b"\x87R"
        + b"(" + integer(1) + shape + dtype + b"\x89" + string(pixels.tobytes()) + b"tb"
    )  # fmt: skip
    numbers = b"](" + b"".join(integer(label) for label in labels) + b"e"
    return b"\x80\x02}(" + string(b"data") + array + string(key) + numbers + b"u."


def svhn_file(path: Path, count: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    pixels = generator.integers(0, 256, (32, 32, 3, count), dtype=np.uint8)
    labels = (np.arange(count, dtype=np.uint8) % 10 + 1)[:, None]
    scipy.io.savemat(path, {"X": pixels, "y": labels})


def covertype_rows(count: int) -> np.ndarray:
    """Return rows with one wilderness and one soil bit, and numbers at both ends of their
    ranges."""
    rows = np.zeros((count, 55), dtype=np.int64)
    rows[::2, :10] = [1859, 0, 0, 0, -173, 0, 0, 0, 0, 0]
    rows[1::2, :10] = [3858, 360, 66, 1397, 601, 7117, 254, 254, 254, 7173]
    rows[:, 10] = rows[:, 14] = 1
    rows[:, 54] = np.arange(count) % 7 + 1
    return rows


def covertype_bytes(rows: np.ndarray) -> bytes:
    lines = (",".join(map(str, row)) for row in rows.tolist())
    return zipped("\n".join(lines).encode() + b"\n")


def write_mnist(folder: Path, train: int = 30, test: int = 20) -> None:
    generator = np.random.default_rng(0)
    for part, count in (("train", train), ("t10k", test)):
        images = generator.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(idx_bytes(images))
        labels = np.arange(count, dtype=np.uint8) % 10
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(idx_bytes(labels))


def _write_cifar10(folder: Path) -> None:
    generator = np.random.default_rng(0)
    for name in [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch"]:
        pixels = generator.integers(0, 256, (10, 3072), dtype=np.uint8)
        (folder / name).write_bytes(cifar_bytes(pixels, list(range(10))))


def _write_cifar100(folder: Path) -> None:
    generator = np.random.default_rng(0)
    for name in ("train", "test"):
        pixels = generator.integers(0, 256, (100, 3072), dtype=np.uint8)
        (folder / name).write_bytes(cifar_bytes(pixels, list(range(100)), key=b"fine_labels"))


def _write_svhn(folder: Path) -> None:
    for seed, (part, count) in enumerate((("train", 20), ("test", 10), ("extra", 30))):
        svhn_file(folder / f"{part}_32x32.mat", count, seed)


def _write_covertype(folder: Path) -> None:
    (folder / "covtype.data.gz").write_bytes(covertype_bytes(covertype_rows(70)))


ADULT_ROW = (
    "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, "
    "2174, 0, 40, United-States, {}"
)


def _write_adult(folder: Path) -> None:
    rows = [ADULT_ROW.format(income) for income in ("<=50K", ">50K") * 10]
    (folder / "adult.data").write_text("\n".join(rows) + "\n\n")
    rows = [ADULT_ROW.format(income) for income in ("<=50K.", ">50K.") * 3]
    (folder / "adult.test").write_text("\n".join(["|1x3 Cross validator", *rows]) + "\n\n")


WRITERS: dict[str, Callable[..., None]] = {
    "mnist": write_mnist,
    "fmnist": write_mnist,
    "cifar10": _write_cifar10,
    "cifar100": _write_cifar100,
    "svhn": _write_svhn,
    "svhn-extra": _write_svhn,
    "covertype": _write_covertype,
    "adult": _write_adult,
}


def write_small(name: str, folder: Path, **sizes: int) -> PublishedDataset:
    """Write a small version of a data set, and return its entry, with the files as they are."""
    source, place = SOURCES[name], folder / SOURCES[name].folder
    place.mkdir(exist_ok=True)
    WRITERS[name](place, **sizes)
    files = tuple(
        published(file.name, (place / file.name).read_bytes(), *file.addresses)
        for file in source.files
    )
    return replace(source, files=files)


class Malicious:
    """Runs a command when it is unpickled carelessly."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.marker),)


def malicious_pickle(marker: Path) -> bytes:
    return pickle.dumps({b"data": Malicious(marker), b"labels": [0]}, protocol=2)
