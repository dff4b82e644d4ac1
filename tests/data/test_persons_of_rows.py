"""The persons that rows belong to, in files, arrays and splits, and persons at several clients."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from unlabelled import load_features

from fedldp.core.errors import ConfigError, DataError, FedldpError
from fedldp.data import Columns, Dataset, Examples, load_dataset, load_examples
from fedldp.data.custom import encode_examples
from fedldp.data.people import few_of_each, held_of_each
from fedldp.data.tables import read_table

HEADER = "visit,patient,hospital,age,outcome\n"
COLUMNS: dict[str, Any] = {
    "label": "outcome",
    "client": "hospital",
    "person": "patient",
    "ignored": ("visit",),
}


def visits(persons: int, hospital: str = "north", first: int = 0) -> str:
    """Return rows of persons with one to five visits; the age is the person's number."""
    return "".join(
        f"{visit},p{who},{hospital},{who},{'ill' if who % 4 == 0 else 'well'}\n"
        for who in range(first, first + persons)
        for visit in range(1 + who % 5)
    )


def table(folder: Path, rows: str, name: str = "visits.csv", header: str = HEADER) -> Path:
    path = folder / name
    path.write_text(header + rows, encoding="utf-8")
    return path


def loaded(path: Path, **changes: Any) -> Dataset:
    return load_dataset(str(path), columns=Columns(**{**COLUMNS, **changes}))


def refused(error: type[FedldpError], says: str, path: Path, **changes: Any) -> None:
    with pytest.raises(error, match=says) as found:
        loaded(path, **changes)
    assert "\n" not in str(found.value)


def ages(examples: Examples) -> set[int]:
    """Return the persons in examples, from their only feature."""
    return {int(age) for age in examples.features[:, 0]}


def persons(whole: Examples) -> int:
    """Check that each person has only rows of its own age; return the number of persons."""
    assert whole.people is not None
    pairs = np.unique(np.stack([whole.people, whole.features[:, 0]], 1), axis=0)
    assert len(pairs) == len(np.unique(pairs[:, 0])) == len(np.unique(pairs[:, 1]))
    return len(pairs)


# Files and arrays


def test_a_persons_rows_in_a_table_have_one_number_and_are_in_one_part(tmp_path: Path) -> None:
    data = loaded(table(tmp_path, visits(20) + visits(30, "south", 20)))
    assert data.features == ("age",)
    assert ages(data.train) | ages(data.test) == set(range(50))
    assert not ages(data.train) & ages(data.test)
    assert persons(data.train) == data.num_people == 40
    assert persons(data.test) == 10
    assert data.clients is not None
    north, south = (ages(data.train.taken(rows)) for rows in data.clients)
    assert len(north) == 16
    assert max(north) < 20
    assert len(south) == 24
    assert min(south) >= 20


def test_without_a_client_column_a_fifth_of_the_persons_is_held_out(tmp_path: Path) -> None:
    path = table(tmp_path, visits(50))
    data = loaded(path, client=None, ignored=("visit", "hospital"))
    assert not ages(data.train) & ages(data.test)
    assert (persons(data.train), persons(data.test)) == (40, 10)
    # The split is by label if a person has one: 13 of 50 are ill.
    assert sum(age % 4 == 0 for age in ages(data.test)) in (2, 3)


@pytest.mark.parametrize("gap", ["", "  ", "NA", "nan", "?"])
def test_a_gap_in_the_person_column_is_refused_with_its_line(tmp_path: Path, gap: str) -> None:
    path = table(tmp_path, visits(5) + f"0,{gap},north,3,well\n")
    line = visits(5).count("\n") + 2
    says = rf"line {line}: column 'patient' holds '{gap.strip()}".replace("?", r"\?")
    refused(DataError, says, path)
    refused(DataError, "every row needs its person", path)


def test_a_party_of_a_run_leaves_rows_without_a_person_out(tmp_path: Path) -> None:
    rows = "f1,a,0\nf2,,1\nf3,b,1\nf4,a,0\n"
    path = table(tmp_path, rows.replace("f", ""), header="age,patient,label\n")
    columns = Columns(person="patient")
    found = encode_examples(read_table(path), columns, leave_out=True)
    assert found.people is not None
    assert found.features[:, 0].tolist() == [1, 3, 4]
    assert found.people.tolist() == [0, 1, 0]
    with pytest.raises(DataError, match="line 3: column 'patient'"):
        encode_examples(read_table(path), columns)
    with pytest.raises(ConfigError, match="person_column names 'who'"):
        encode_examples(read_table(path), Columns(person="who"), leave_out=True)


def test_a_new_table_needs_no_persons(tmp_path: Path) -> None:
    path = table(tmp_path, "1,0\n2,1\n", header="age,label\n")
    columns = Columns(person="patient")
    assert load_examples(path, columns=columns).people is None
    assert load_features(path, columns=columns).tolist() == [[1], [2]]
    path = table(tmp_path, "1,,0\n2,,1\n", header="age,patient,label\n")
    assert load_features(path, columns=columns).tolist() == [[1], [2]]


def test_no_person_is_both_in_a_table_and_in_its_test_file(tmp_path: Path) -> None:
    path = table(tmp_path, visits(20))
    columns = Columns(**COLUMNS)
    other = table(tmp_path, visits(5, first=30), name="other.csv")
    data = load_dataset(str(path), columns=columns, test_file=str(other))
    assert (persons(data.train), persons(data.test)) == (20, 5)
    mixed = table(tmp_path, visits(5, first=17), name="mixed.csv")
    with pytest.raises(DataError, match="3 persons are in the training and in the test set"):
        load_dataset(str(path), columns=columns, test_file=str(mixed))
    # A table that does not name persons is taken as it is.
    rows = "1,ill\n2,well\n"
    nameless = table(tmp_path, rows, name="nameless.csv", header="age,outcome\n")
    data = load_dataset(str(path), columns=columns, test_file=str(nameless))
    assert data.test.people is None


def test_persons_of_arrays_and_of_npz_files(tmp_path: Path) -> None:
    whose = np.repeat(np.arange(20), 3)
    features, labels = whose[:, None].astype(np.float32), whose % 2
    path = tmp_path / "mine.npz"
    np.savez(path, features=features, labels=labels, groups=whose)
    from_file = load_dataset(str(path))
    for data in (
        from_file,
        Dataset.from_arrays(features, labels, groups=whose),
        Dataset.from_arrays(features, labels, groups=[f"p{who}" for who in whose]),
        Dataset.from_arrays(features, labels, groups=np.array([f"{w}" for w in whose], object)),
    ):
        assert (persons(data.train), persons(data.test)) == (16, 4)
        assert not ages(data.train) & ages(data.test)
    assert load_examples(path, columns=Columns()).people is not None

    other = tmp_path / "test.npz"
    np.savez(other, features=features[:6], labels=labels[:6], groups=whose[:6] + 20)
    data = load_dataset(str(path), test_file=str(other))
    assert data.test.people is not None
    assert not np.isin(data.test.people, data.train.people).any()
    np.savez(other, features=features[:6], labels=labels[:6], groups=whose[:6])
    with pytest.raises(DataError, match="2 persons are in the training and in the test set"):
        load_dataset(str(path), test_file=str(other))
    np.savez(other, features=features, labels=labels, groups_train=whose)
    with pytest.raises(DataError, match="holds groups_train, which is not read; name the persons"):
        load_dataset(str(other))


def test_persons_of_known_clients_are_kept_apart() -> None:
    def client(first: int, count: int) -> tuple[Any, Any, Any]:
        who = np.repeat(np.arange(count), 2)
        return (first + who[:, None]).astype(np.float32), who % 2, who

    data = Dataset.from_clients([client(0, 10), client(10, 20)], test=client(30, 5))
    assert (persons(data.train), persons(data.test)) == (30, 5)
    assert data.test.people is not None
    assert not np.isin(data.test.people, data.train.people).any()
    data = Dataset.from_clients([client(0, 10), client(10, 20)])
    assert (persons(data.train), persons(data.test)) == (24, 6)


# Splits

SIZES = st.lists(st.integers(1, 12), min_size=1, max_size=12)


@given(sizes=SIZES, seed=st.integers(0, 2**32 - 1), share=st.sampled_from([0.1, 0.2, 0.5, 0.9]))
def test_whole_persons_are_held_out_from_each_client(
    sizes: Sequence[int], seed: int, share: float
) -> None:
    draw = np.random.default_rng(seed)
    home = np.repeat(np.arange(len(sizes)), sizes)  # of each person
    people = draw.permutation(np.repeat(np.arange(len(home)), draw.integers(1, 5, len(home))))
    owners = home[people]
    held = held_of_each(people, owners, share, draw)
    tested, trained = np.unique(people[held]), np.unique(people[~held])
    assert not np.isin(tested, trained).any()
    assert sorted({*tested, *trained}) == list(range(len(home)))
    counts = np.bincount(home[tested], minlength=len(sizes))
    own = share * np.array(sizes)
    assert (counts <= np.minimum(np.ceil(own), np.array(sizes) - 1)).all()
    if min(sizes) >= 1 / (1 - share):  # no client would give away its last person
        assert (counts >= np.floor(own)).all()
        assert len(tested) == np.ceil(round(share * len(home), 9))


@given(seed=st.integers(0, 2**32 - 1), shared=st.integers(0, 10))
def test_a_person_at_two_clients_is_held_out_at_both_or_at_none(seed: int, shared: int) -> None:
    draw = np.random.default_rng(seed)
    people, owners = np.r_[np.arange(10), np.arange(10 - shared, 20 - shared)], np.arange(20) // 10
    held = held_of_each(people, owners, 0.5, draw)
    assert not np.isin(people[held], people[~held]).any()
    assert set(owners[~held]) == {0, 1}


# Persons and their rows


@given(counts=st.lists(st.integers(1, 9), min_size=1, max_size=9), most=st.integers(1, 5))
def test_at_most_the_given_number_of_rows_is_kept_for_each_person(
    counts: Sequence[int], most: int
) -> None:
    draw = np.random.default_rng(most)
    people = draw.permutation(np.repeat(np.arange(len(counts)) * 7, counts))
    found = few_of_each(people, most, lambda: draw)
    assert (found is None) == (max(counts) <= most)
    kept = np.arange(len(people)) if found is None else found
    assert (np.diff(kept) > 0).all()
    left = np.bincount(people[kept] // 7, minlength=len(counts))
    assert left.tolist() == np.minimum(counts, most).tolist()


def test_persons_at_more_clients_than_declared_are_refused(tmp_path: Path) -> None:
    path = table(tmp_path, visits(20) + visits(10, "south", 18) + visits(9, "west", 19))
    refused(
        DataError,
        "10 persons have rows at more than persons_at_sites = 1 client; set persons_at_sites = 3",
        path,
    )
    refused(
        DataError,
        "1 person has rows at more than persons_at_sites = 2 clients",
        path,
        persons_at_sites=2,
    )
    data = loaded(path, persons_at_sites=3)
    assert not ages(data.train) & ages(data.test)
    assert data.clients is not None
    assert data.clients.sizes.min() > 0
