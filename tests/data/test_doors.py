"""The rules for a user's own examples are the same whatever the examples come from."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from fedldp import FederatedClassifier, estimator
from fedldp.core.errors import DataError, FedldpError
from fedldp.data import Dataset, check_columns, load_dataset
from fedldp.data.examples import as_dataset, checked_rows
from fedldp.data.rules import class_of

Rows = tuple[Mapping[str, Any], Any]
"""The columns of a table by name, and the labels."""

GENERATOR = np.random.default_rng(0)
AGE, DOSE = GENERATOR.uniform(size=(2, 40))
LABELS = np.arange(40) % 3
SHUFFLED = GENERATOR.permutation(40)


def plain(labels: Any = LABELS, **changed: Any) -> Rows:
    return {"age": AGE, "dose": DOSE, **changed}, labels


def with_value(value: float) -> Rows:
    column = AGE.copy()
    column[7] = value
    return plain(age=column)


def stacked(columns: Mapping[str, Any]) -> Any:
    return np.stack([np.asarray(each) for each in columns.values()], axis=1)


def lists(rows: Rows) -> dict[str, list[Any]]:
    return {name: np.asarray(each).tolist() for name, each in {**rows[0], "label": rows[1]}.items()}


# The entrances


def of_csv(rows: Rows, folder: Path) -> Dataset:
    columns = lists(rows)
    with (folder / "t.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for row in range(max(map(len, columns.values()))):
            writer.writerow([each[row] for each in columns.values() if row < len(each)])
    return load_dataset(str(folder / "t.csv"))


def of_parquet(rows: Rows, folder: Path) -> Dataset:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table(lists(rows)), folder / "t.parquet")
    return load_dataset(str(folder / "t.parquet"))


def of_arrays(rows: Rows, folder: Path) -> Dataset:
    return Dataset.from_arrays(stacked(rows[0]), rows[1])


def of_clients(rows: Rows, folder: Path) -> Dataset:
    features, labels = stacked(rows[0]), rows[1]
    return Dataset.from_clients([(features[:20], labels[:20]), (features[20:], labels[20:])])


def of_npz(rows: Rows, folder: Path) -> Dataset:
    np.savez(folder / "t.npz", features=stacked(rows[0]), labels=rows[1])
    return load_dataset(str(folder / "t.npz"))


def of_mapping(rows: Rows, folder: Path) -> Dataset:
    return Dataset.from_table({**rows[0], "label": rows[1]})


def frame(columns: Mapping[str, Any]) -> Any:
    return pytest.importorskip("pandas").DataFrame(columns)


def of_frame(rows: Rows, folder: Path) -> Dataset:
    return as_dataset(frame({**rows[0], "label": rows[1]}))


def of_frame_and_labels(rows: Rows, folder: Path) -> Dataset:
    return as_dataset((frame(rows[0]), rows[1]))


def of_clients_frames(rows: Rows, folder: Path) -> Dataset:
    whole = frame({**rows[0], "label": rows[1]})
    return as_dataset([whole[:20], whole[20:]])


def of_hugging_face(rows: Rows, folder: Path) -> Dataset:
    return as_dataset(pytest.importorskip("datasets").Dataset.from_dict(lists(rows)))


class Listed(TorchDataset[Any]):
    def __init__(self, rows: Rows) -> None:
        self.items = list(zip(map(torch.from_numpy, stacked(rows[0])), rows[1], strict=True))

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, row: int) -> Any:
        return self.items[row]


def of_torch(rows: Rows, folder: Path) -> Dataset:
    return as_dataset(Listed(rows))


def of_loader(rows: Rows, folder: Path) -> Dataset:
    return as_dataset(DataLoader(Listed(rows), batch_size=7, shuffle=True))


class Reached(Exception):
    """Carries the data set that the estimator would train on."""


def reached(*args: Any, dataset: Dataset, **settings: Any) -> None:
    raise Reached(dataset)


def fitted(features: Any, labels: Any) -> Dataset:
    model = FederatedClassifier("quickstart", num_clients=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(estimator, "run", reached)
        with pytest.raises(Reached) as found:
            model.fit(features, labels)
    made: Dataset = found.value.args[0]
    return made


def of_estimator(rows: Rows, folder: Path) -> Dataset:
    return fitted(stacked(rows[0]), rows[1])


def of_estimator_with_a_frame(rows: Rows, folder: Path) -> Dataset:
    return fitted(frame(rows[0]), rows[1])


WITH_NAMES = [
    of_csv,
    of_parquet,
    of_mapping,
    of_frame,
    of_frame_and_labels,
    of_clients_frames,
    of_hugging_face,
    of_estimator_with_a_frame,
]
WITHOUT_NAMES = [of_arrays, of_clients, of_npz, of_torch, of_loader, of_estimator]
OF_SKLEARN = [of_estimator, of_estimator_with_a_frame]
FILES = [of_csv, of_parquet]

# The rules


ANIMALS = np.array(["cat", "dog", "fox"])[LABELS]
REFUSED: dict[str, Rows] = {
    "labels from 1": plain(LABELS + 1),
    "a gap in the labels": plain(np.where(LABELS == 1, 3, LABELS)),
    "a stray label": plain(np.where(np.arange(40) == 7, 100_000, LABELS)),
    "a huge label": plain(np.where(np.arange(40) == 7, 2**62, LABELS)),
    "a negative label": plain(LABELS - 1),
    "a label that is a typing error": plain(np.array(["0", "1", "O"])[LABELS]),
    "fractions as labels": plain(LABELS + 0.5),
    "a missing label": plain(np.where(np.arange(40) == 7, np.nan, LABELS)),
    "an empty label": plain(np.where(np.arange(40) == 7, "", ANIMALS)),
    "one class": plain(np.zeros(40, int)),
    "too few labels": plain(LABELS[:-1]),
    "NaN": with_value(np.nan),
    "an infinite number": with_value(-np.inf),
    "a number too large for float32": with_value(1e300),
    "complex numbers": plain(age=AGE + 1j),
    "strings as features": plain(age=ANIMALS),
    "no rows": ({"age": AGE[:0], "dose": DOSE[:0]}, LABELS[:0]),
}
"""What every entrance refuses."""

OF_ANY_CLASSES = {
    "labels from 1",
    "a gap in the labels",
    "a stray label",
    "a huge label",
    "a negative label",
    "a label that is a typing error",
}
"""What the estimator accepts, as scikit-learn asks: the classes are the labels that occur."""

CANNOT_SAY = {
    "too few labels": [of_parquet, of_mapping, of_frame, of_clients_frames, of_hugging_face,
                       of_torch, of_loader],
    "complex numbers": [of_parquet, of_hugging_face],
    "strings as features": [of_torch, of_loader],
    "no rows": [of_clients_frames, of_loader],
}  # fmt: skip
"""What cannot be expressed at an entrance, because its library refuses it."""

ACCEPTED: dict[str, tuple[Rows, Any]] = {
    "integers from 0": (plain(), LABELS),
    "small integers": (plain(LABELS.astype(np.uint8)), LABELS),
    "whole numbers": (plain(LABELS.astype(float)), LABELS),
    "numbers as strings": (plain(LABELS.astype(str)), LABELS),
    "strings": (plain(ANIMALS), LABELS),
    "truths": (plain(LABELS > 0), LABELS > 0),
    "repeated whole numbers": (plain(age=np.arange(40) % 39), LABELS),
    "fractions that all differ": (plain(age=SHUFFLED + 0.25), LABELS),
}
"""What every entrance accepts, with the classes."""

NUMBERED: dict[str, Rows] = {
    "no name": plain(**{"": AGE}),
    "the index of a .csv file": plain(**{"Unnamed: 0": AGE}),
    "the index of a .parquet file": plain(**{"__index_level_0__": AGE}),
    "0 to N - 1": plain(row=np.arange(40)),
    "0 to N - 1 as floats": plain(row=np.arange(40.0)),
    "0 to N - 1 in any order": plain(row=SHUFFLED),
    "identifiers": plain(row=10**9 + 7 * SHUFFLED),
}
"""What every entrance with the names of columns refuses."""


@pytest.mark.sampled(12)
@pytest.mark.parametrize("door", WITH_NAMES + WITHOUT_NAMES)
@pytest.mark.parametrize("rule", [*REFUSED, *ACCEPTED, *NUMBERED])
def test_the_same_rules_hold_at_every_door(
    rule: str, door: Callable[[Rows, Path], Dataset], tmp_path: Path
) -> None:
    if door in CANNOT_SAY.get(rule, ()):
        pytest.skip("the source itself refuses this")
    if rule in ACCEPTED:
        rows, classes = ACCEPTED[rule]
        data = door(rows, tmp_path)
        found = np.concatenate([data.train.labels, data.test.labels])
        np.testing.assert_array_equal(np.bincount(found), np.bincount(classes))
        assert data.num_classes == len(set(classes.tolist()))
        return
    named = rule in NUMBERED
    rows = NUMBERED[rule] if named else REFUSED[rule]
    if (named and door in WITHOUT_NAMES) or (rule in OF_ANY_CLASSES and door in OF_SKLEARN):
        assert len(door(rows, tmp_path).train)
        return
    with pytest.raises((FedldpError, ValueError)) as found_error:  # ValueError: by scikit-learn
        door(rows, tmp_path)
    if door not in OF_SKLEARN:
        assert isinstance(found_error.value, FedldpError)
        (line,) = str(found_error.value).splitlines()
        assert len(line) < 500
