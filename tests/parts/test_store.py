"""What a client keeps comes back as it was, and is made once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedldp.parts.store import Store

WHOLE = np.arange(24, dtype=np.float32).reshape(4, 6)


@pytest.mark.parametrize(
    "value",
    [
        WHOLE,
        WHOLE[1::2],
        WHOLE[:, ::3],
        WHOLE.T,
        np.asfortranarray(WHOLE),
        WHOLE[:0],
        np.array(7, np.int64),
        np.arange(5, dtype=np.uint8)[::-1],
    ],
)
def test_arrays_come_back_however_they_lie_in_memory(tmp_path: Path, value: np.ndarray) -> None:
    store = Store(tmp_path / "client")
    for found in (store.arrays("kept", lambda: {"x": value}), store.arrays("kept", dict)):
        assert found["x"].dtype == value.dtype
        np.testing.assert_array_equal(found["x"], value)
        assert found["x"].shape == value.shape


def test_what_is_kept_is_made_once_and_under_its_own_name(tmp_path: Path) -> None:
    store, made = Store(tmp_path), []

    def make() -> dict[str, np.ndarray]:
        made.append(1)
        return {"x": np.full(3, len(made), np.float32)}

    first, again, other = (store.arrays(name, make)["x"][0] for name in ("a", "a", "b"))
    assert (first, again, other) == (1, 1, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.safetensors", "b.safetensors"]
