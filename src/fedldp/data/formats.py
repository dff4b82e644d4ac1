"""Parsers of the published files; each refuses a malformed file with a one-line message."""

from __future__ import annotations

import gzip
import math
import pickle
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import DataError

# The smallest and largest value of each numeric column over the 581,012 published rows, from the
# statistics at https://huggingface.co/datasets/mstz/covertype. They are public constants: scaling
# by ranges measured on the clients' own rows would leak these rows.
COVERTYPE_RANGES = (
    (1859, 3858),  # elevation, metres
    (0, 360),  # aspect, degrees
    (0, 66),  # slope, degrees
    (0, 1397),  # horizontal distance to water, metres
    (-173, 601),  # vertical distance to water, metres
    (0, 7117),  # horizontal distance to a road, metres
    (0, 254),  # hill shade at 9:00, an index of at most 255
    (0, 254),  # hill shade at noon
    (0, 254),  # hill shade at 15:00
    (0, 7173),  # horizontal distance to a wildfire's ignition point, metres
)
_COVERTYPE_BINARY = 44  # 4 wilderness areas, 40 soil types
_COVERTYPE_CLASSES = 7
_CIFAR_PIXELS = 3 * 32 * 32


def read_idx(path: Path, num_axes: int) -> NDArray[np.uint8]:
    """Read a gzipped IDX file of unsigned bytes with ``num_axes`` axes.

    The format is specified at http://yann.lecun.com/exdb/mnist/: two zero bytes, the type 0x08,
    the number of axes, each axis's length as a big-endian 32-bit integer, then the values.

    Returns:
        An array of the shape that the file states.

    Raises:
        DataError: the file is not of this format or has too few or too many values.
    """
    try:
        with gzip.open(path) as file:
            magic = file.read(4)
            if magic != bytes([0, 0, 8, num_axes]):
                raise ValueError(f"it starts with {magic!r}")
            shape = struct.unpack(f">{num_axes}I", file.read(4 * num_axes))
            values = file.read()
    except (OSError, EOFError, zlib.error, ValueError, struct.error) as error:
        raise _unreadable(path, "gzipped IDX", error) from None
    if len(values) != math.prod(shape):
        raise DataError(f"{path} is damaged: {len(values)} values for the shape {shape}")
    return np.frombuffer(values, dtype=np.uint8).reshape(shape)


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


def read_cifar_batch(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Read one batch of CIFAR-10's python version, without running any code in it.

    The format is specified at https://www.cs.toronto.edu/~kriz/cifar.html: a pickled dictionary
    with rows of 1024 red, 1024 green and 1024 blue values.

    Returns:
        Images of shape (N, 3, 32, 32) and labels of shape (N,).

    Raises:
        DataError: the file is not such a pickle, or contains anything other than arrays.
    """
    try:
        with path.open("rb") as file:
            batch = _ArraysOnly(file, encoding="bytes").load()
        pixels, labels = batch[b"data"], np.array(batch[b"labels"], dtype=np.int64)
        if pixels.dtype != np.uint8 or pixels.shape != (len(labels), _CIFAR_PIXELS):
            raise ValueError(f"{pixels.dtype} data of shape {pixels.shape}, {len(labels)} labels")
    except Exception as error:  # a damaged pickle can raise almost any exception
        raise _unreadable(path, "a CIFAR-10 batch", error) from None
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

    try:
        variables = loadmat(path, variable_names=("X", "y"))
        pixels, labels = variables["X"], variables["y"]
        if (
            pixels.dtype != np.uint8
            or pixels.shape != (32, 32, 3, len(labels))
            or labels.shape != (len(labels), 1)
        ):
            raise ValueError(f"{pixels.dtype} X of shape {pixels.shape}, y of {labels.shape}")
        digits = labels[:, 0].astype(np.int64)
    except Exception as error:  # a damaged file can raise almost any exception
        raise _unreadable(path, "an SVHN .mat file", error) from None
    if not ((digits >= 1) & (digits <= 10)).all():
        raise DataError(f"{path} is damaged: it has labels outside 1 to 10")
    return pixels.transpose(3, 2, 0, 1), digits % 10


def read_covertype(path: Path) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Read gzipped rows of ten numbers, 44 bits and a label from 1 to 7, without a header.

    The format is specified at https://archive.ics.uci.edu/dataset/31/covertype.

    Returns:
        Features of shape (N, 54), all in [0, 1] by COVERTYPE_RANGES, and labels from 0 to 6.

    Raises:
        DataError: the file is not of this format, or a value is outside its published range.
    """
    ranges = (*COVERTYPE_RANGES, *[(0, 1)] * _COVERTYPE_BINARY, (1, _COVERTYPE_CLASSES))
    lowest, highest = np.array(ranges, dtype=np.int32).T
    try:
        with gzip.open(path, "rt", encoding="ascii") as file:
            rows = np.loadtxt(file, delimiter=",", dtype=np.int32, ndmin=2)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise _unreadable(path, "gzipped rows of integers", error) from None
    if rows.shape[1] != len(ranges):
        raise DataError(f"{path} is damaged: {rows.shape[1]} columns instead of {len(ranges)}")
    outside = ((rows < lowest) | (rows > highest)).any(axis=1)
    if outside.any():
        raise DataError(
            f"{path} is damaged: row {int(outside.argmax()) + 1} has a value outside its range"
        )
    features = np.divide(rows - lowest, highest - lowest, dtype=np.float32)[:, :-1]
    return features, rows[:, -1].astype(np.int64) - 1


def _unreadable(path: Path, what: str, error: Exception) -> DataError:
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    return DataError(f"{path} cannot be read as {what} ({reason})")
