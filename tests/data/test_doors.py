"""The rules for a user's own examples are the same whatever the examples come from."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset
from unlabelled import load_features

from fedldp import FederatedClassifier, estimator
from fedldp.core.errors import DataError, FedldpError
from fedldp.data import Columns, Dataset, load_dataset, load_examples
from fedldp.data.examples import as_dataset, checked_rows
from fedldp.data.rules import check_column, class_of
from fedldp.deployment.source import open_source

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


def reached(*args: Any, dataset: Dataset, **others: Any) -> None:
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
    of_hugging_face,
    of_estimator_with_a_frame,
]
WITHOUT_NAMES = [of_arrays, of_clients, of_npz, of_torch, of_loader, of_estimator]
OF_SKLEARN = [of_estimator, of_estimator_with_a_frame]

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
    "too few labels": [of_parquet, of_mapping, of_frame, of_hugging_face, of_torch, of_loader],
    "complex numbers": [of_parquet, of_hugging_face],
    "strings as features": [of_torch, of_loader],
    "no rows": [of_loader],
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
    "the index of a .parquet file": plain(__index_level_0__=AGE),
    "0 to N - 1": plain(row=np.arange(40)),
    "0 to N - 1 as floats": plain(row=np.arange(40.0)),
    "0 to N - 1 in any order": plain(row=SHUFFLED),
    "identifiers": plain(row=10**9 + 7 * SHUFFLED),
}
"""What every entrance with the names of columns refuses."""


@pytest.mark.slow
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
        assert len(line.replace(str(tmp_path), "")) < 600


# Each rule for all values


def numbers_rows(values: list[float], tables: list[int]) -> bool:
    """The rule for columns, in plain loops over all rows as one table, and over each client's."""
    for owners in ([0] * len(values), tables):
        parts: dict[int, list[float]] = {}
        for value, owner in zip(values, owners, strict=True):
            parts.setdefault(owner, []).append(value)
        every = list(parts.values())
        differ = all(len(set(part)) == len(part) for part in every)
        pairs = sum(len(part) * (len(part) - 1) // 2 for part in every)
        from_zero = all(sorted(part) == list(range(len(part))) for part in every)
        if differ and (pairs >= 30 * 29 // 2 or (from_zero and max(map(len, every)) >= 3)):
            return all(value == int(value) for value in values)
    return False


@given(st.data())
def test_a_column_is_refused_exactly_if_it_numbers_rows(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 34), min_size=1, max_size=3))
    tables = [table for table, size in enumerate(sizes) for _ in range(size)]
    kind = data.draw(st.sampled_from(["all", "each", "any"]))
    count = sum(sizes)
    if kind == "all":
        values = data.draw(st.permutations(range(count)))
    elif kind == "each":
        values = [row for size in sizes for row in range(size)]
    else:
        values = data.draw(st.lists(st.integers(0, 900), min_size=count, max_size=count))
    values = [value + data.draw(st.sampled_from([0, 0, 0, 10**9, 0.5])) for value in values[:1]] + [
        *values[1:]
    ]
    given_tables = data.draw(st.booleans())
    column = np.array(values, float)
    expected = numbers_rows(values, tables if given_tables else [0] * count)
    owners = np.array(tables) if given_tables else None
    if not expected:
        check_column("row", column, "it:", owners)
        return
    with pytest.raises(DataError, match="column 'row' may only number the rows"):
        check_column("row", column, "it:", owners)


# A declaration


@pytest.mark.parametrize("name", ["", "Unnamed: 0", "number"])
def test_a_declared_column_is_accepted(name: str, tmp_path: Path) -> None:
    of = {"ignored": Columns(ignored=(name,)), "scaled": Columns(scaled={name: (0, 100)})}
    rows = plain(**{name: np.arange(40)})
    with pytest.raises(DataError):
        of_csv(rows, tmp_path)
    for how, columns in of.items():
        data = load_dataset(str(tmp_path / "t.csv"), columns=columns)
        assert data.features == ("age", "dose", name)[: 2 if how == "ignored" else 3]


def test_declared_classes_may_lack_rows() -> None:
    labels = np.where(LABELS == 1, 3, LABELS) + 1
    for classes in ([1, 2, 3, 4], ["1", "2", "3", "4"]):
        features = stacked(plain()[0])
        half = (features[:20], labels[:20]), (features[20:], labels[20:])
        for data in (
            Dataset.from_arrays(features, labels, classes=classes),
            Dataset.from_clients(half, classes=classes),
            Dataset.from_table({"age": AGE, "label": labels}, classes=classes),
        ):
            assert (data.num_classes, data.classes) == (4, ("1", "2", "3", "4"))
            every = np.concatenate([data.train.labels, data.test.labels])
            np.testing.assert_array_equal(np.bincount(every), np.bincount(labels - 1))


def test_a_party_with_some_of_the_classes_uses_the_declared_ones() -> None:
    rows = (stacked(plain()[0])[:4], np.array(["fox", "fox", "cat", "fox"]))
    assert checked_rows(rows, "it:", ("cat", "dog", "fox")).labels.tolist() == [2, 2, 0, 2]
    with pytest.raises(DataError, match="not an integer from 0"):
        checked_rows(rows, "it:")
    assert checked_rows((rows[0], [3, 3, 5, 3]), "it:").labels.tolist() == [3, 3, 5, 3]
    found = list(map(class_of(None), ("1", "1.0", "-1", "x", "1e99")))
    assert found == [1, 1, None, None, None]


# Where nothing may be refused


def test_only_the_owner_of_a_table_is_told_and_never_a_round(tmp_path: Path) -> None:
    of_csv_rows = plain(**{"": np.arange(40)})
    with pytest.raises(DataError):
        of_csv(of_csv_rows, tmp_path)
    site, names = open_source(tmp_path / "t.csv", "label"), ("age", "dose", "")
    with pytest.raises(DataError, match="row numbers that pandas writes"):
        site.examples(Columns(), leave_out=False)
    assert site.examples(Columns()).features.shape == (40, 3)  # as in a round
    for each in (site.examples(Columns(), names, leave_out=False), site.examples(Columns(), names)):
        assert each.features.shape == (40, 3)  # the agreement names the column
    # A model that has the column as a feature can be measured and used.
    assert load_examples(tmp_path / "t.csv", columns=Columns(), names=names).features[3, 2] == 3
    assert load_features(tmp_path / "t.csv", columns=Columns(), names=names)[3, 2] == 3
