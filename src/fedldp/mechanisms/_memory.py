"""Working memory that a thread keeps: allocating new pages costs as much as computing in them."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray


class _Kept(threading.local):
    def __init__(self) -> None:
        self.buffers: dict[str, NDArray[np.uint8]] = {}
        self.arrays: dict[str, NDArray[Any]] = {}


_kept = _Kept()


def kept_array(use: str, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Return an array with arbitrary content, valid until the thread's next call for the same use.

    Ask only for blocks of bounded size: the memory is never freed.
    """
    array: NDArray[Any] | None = _kept.arrays.get(use)
    if array is not None and array.shape == shape and array.dtype == dtype:
        return array
    size = math.prod(shape) * np.dtype(dtype).itemsize
    buffer = _kept.buffers.get(use)
    if buffer is None or buffer.size < size:
        buffer = _kept.buffers[use] = np.empty(size, np.uint8)
    fresh: NDArray[Any] = buffer[:size].view(dtype).reshape(shape)
    _kept.arrays[use] = fresh
    return fresh
