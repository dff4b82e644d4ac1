from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedldp.core.errors import DataError, FedldpError
from fedldp.data import Dataset, load_dataset
from fedldp.data.examples import split

X = np.random.default_rng(0).normal(size=(40, 3))
Y = np.arange(40) % 4


def one_line(error: pytest.ExceptionInfo[FedldpError]) -> str:
    assert "\n" not in str(error.value)
    return str(error.value)


@given(counts=st.lists(st.integers(0, 30), min_size=1, max_size=6).filter(lambda c: sum(c) > 1),
       test_share=st.floats(0.05, 0.9), seed=st.integers(0, 2**32 - 1))  # fmt: skip
def test_split_assigns_each_row_once(counts: list[int], test_share: float, seed: int) -> None:
    labels = np.repeat(np.arange(len(counts)), counts)
    train, test = split(labels, test_share, seed)
    assert sorted([*train, *test]) == list(range(len(labels)))
    assert len(test) == min(np.ceil(test_share * len(labels)), len(labels) - 1)
    again = split(labels, test_share, seed)
    np.testing.assert_array_equal(again[0], train)


def test_split_is_stratified_and_seeded() -> None:
    labels = np.repeat([0, 1, 2], [50, 30, 20])
    _, test = split(labels, 0.2, 0)
    assert np.bincount(labels[test]).tolist() == [10, 6, 4]
    assert sorted(test) != sorted(split(labels, 0.2, 1)[1])


def test_from_arrays_pairs_rows_with_labels() -> None:
    data = Dataset.from_arrays(X, Y, seed=3)
    assert (len(data.train), len(data.test), data.num_classes, data.name) == (32, 8, 4, "custom")
    assert data.train.features.dtype == np.float32
    assert data.train.labels.dtype == np.int64
    label_of = dict(zip(X.astype(np.float32)[:, 0].tolist(), Y.tolist(), strict=True))
    for part in (data.train, data.test):
        assert [label_of[v] for v in part.features[:, 0].tolist()] == part.labels.tolist()


def test_npz_with_a_test_set(tmp_path: Path) -> None:
    path, other = tmp_path / "mine.NPZ", tmp_path / "test.npz"
    with path.open("wb") as file:
        np.savez(file, features=X[:30], labels=Y[:30], note=1)
    np.savez(other, features=X[30:], labels=Y[30:])
    data = load_dataset(str(path), test_file=str(other))
    assert (data.name, len(data.train), len(data.test)) == ("mine.NPZ", 30, 10)


def test_npz_without_a_test_set_is_split_by_the_seed(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    np.savez(path, features=X.reshape(40, 1, 3), labels=Y)
    one, same, other = (load_dataset(str(path), seed=seed) for seed in (1, 1, 2))
    assert one.input_shape == (1, 3)
    assert np.bincount(one.test.labels).tolist() == [2, 2, 2, 2]
    np.testing.assert_array_equal(one.test.features, same.test.features)
    assert not np.array_equal(one.test.features, other.test.features)


def test_npz_never_unpickles(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    np.savez(path, features=X, labels=np.array([{}] * 40, dtype=object))
    with pytest.raises(DataError, match="allow_pickle=False") as caught:
        load_dataset(str(path))
    assert str(path) in one_line(caught)


@pytest.mark.parametrize("content", [b"", b"text", "npy", "cut"])
def test_npz_malformed(tmp_path: Path, content: bytes | str) -> None:
    path = tmp_path / "mine.npz"
    if content == "npy":
        with path.open("wb") as file:
            np.save(file, X)
    elif content == "cut":
        np.savez_compressed(path, features=X, labels=Y)
        path.write_bytes(path.read_bytes()[:-40])
    else:
        path.write_bytes(content)
    with pytest.raises(DataError, match=r"cannot be read as \.npz") as caught:
        load_dataset(str(path))
    assert str(path) in one_line(caught)
