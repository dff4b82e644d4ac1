"""The features of all rows of a file, or the refusal of its first bad row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import DataError
from fedldp.data.custom import load_unlabelled


def load_features(path: Path, **given: Any) -> NDArray[np.float32]:
    found = load_unlabelled(path, **given)
    for problem in found.problems.values():
        raise DataError(problem)
    return found.features
