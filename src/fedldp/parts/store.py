"""What a client keeps from round to round, on its own disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Store:
    """A folder that is the client's own; what lies there never leaves it unless it is encoded.

    Attributes:
        folder: made when something is first kept.
    """

    folder: Path

    def arrays(self, name: str, make: Callable[[], Arrays]) -> Arrays:
        """Return the arrays kept as ``name``; where there are none, ``make`` and keep them.

        Two processes that make the same at once must make it alike, from the same streams.
        """
        path = self.folder / f"{name}.safetensors"
        if not path.exists():
            made = make()
            self.folder.mkdir(parents=True, exist_ok=True)
            partial = path.with_suffix(f".{os.getpid()}.safetensors")
            # safetensors writes the memory as it lies, and would scramble a view with strides.
            save_file({n: np.require(made[n], requirements="C") for n in made}, partial)
            partial.replace(path)  # so that it is there as a whole or not at all
        return load_file(path)
