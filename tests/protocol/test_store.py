"""A client's store returns what it kept, and makes it once."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fedldp.core.errors import StoreUnusable
from fedldp.ledgers.budget import Budget
from fedldp.ledgers.sqlite import SqliteLedger
from fedldp.protocol.client_store import FolderStore, LedgerStore

WHOLE = np.arange(24, dtype=np.float32).reshape(4, 6)

Arrays = dict[str, NDArray[np.float32]]


class Crash(BaseException):
    """Raised at the point where the process ends."""


def ones() -> Arrays:
    return {"x": np.ones(3, np.float32)}


def twos() -> Arrays:
    return {"x": np.full(3, 2, np.float32)}


def never() -> Arrays:
    raise AssertionError("made, though it was kept")


def kept(store: FolderStore, name: str = "kept") -> float:
    return float(store.arrays(name, never)["x"][0])


def files(store: FolderStore) -> list[str]:
    return sorted(path.name for path in store.folder.rglob("*") if path.is_file())


def test_a_kept_value_is_made_once_under_its_own_name(tmp_path: Path) -> None:
    store, made = FolderStore(tmp_path, "run"), []

    def make() -> Arrays:
        made.append(1)
        return {"x": np.full(3, len(made), np.float32)}

    first, again, other = (store.arrays(name, make)["x"][0] for name in ("a", "a", "b"))
    assert (first, again, other) == (1, 1, 2)
    assert files(store) == ["a.safetensors", "b.safetensors"]
    assert FolderStore(tmp_path, "run").arrays("a", never)["x"][0] == 1, "after a restart, too"


def test_a_run_never_sees_what_another_kept(tmp_path: Path) -> None:
    one, other = FolderStore(tmp_path, "one"), FolderStore(tmp_path, "other")
    one.arrays("kept", ones)
    other.arrays("kept", twos)
    assert (kept(one), kept(other)) == (1, 2)
    one.arrays("of a round", ones, round=1)
    other.arrays("of a round", twos, round=2)
    assert one.arrays("of a round", never, round=1)["x"][0] == 1, "nor deletes it"


@pytest.mark.parametrize("run", ["..", "../../elsewhere", "/", ".", "a" * 200, "run/1", "\u0101"])
def test_a_servers_name_for_a_run_is_not_used_as_a_path(run: str, tmp_path: Path) -> None:
    folder = tmp_path / "client"
    FolderStore(folder, run).arrays("kept", ones)
    (made,) = folder.iterdir()
    assert [path.name for path in made.iterdir()] == ["kept.safetensors"]
    assert [path.name for path in tmp_path.iterdir()] == ["client"]


def test_values_kept_for_a_round_are_deleted_once_a_later_round_keeps_some(
    tmp_path: Path,
) -> None:
    store = FolderStore(tmp_path, "run")
    store.arrays("kept", ones)
    store.arrays("a", ones, round=9)
    store.arrays("b", ones, round=9)
    assert store.arrays("a", never, round=9)["x"][0] == 1
    store.arrays("b", twos, round=10)
    assert files(store) == ["b.safetensors", "kept.safetensors"]
    assert kept(store) == 1, "what is kept for the run stays"
    assert store.arrays("b", never, round=10)["x"][0] == 2
    assert store.arrays("a", twos, round=9)["x"][0] == 2


def test_a_failure_in_a_later_round_deletes_nothing_of_an_earlier_one(
    tmp_path: Path,
) -> None:
    def fails() -> Arrays:
        raise RuntimeError

    store = FolderStore(tmp_path, "run")
    store.arrays("kept", ones, round=1)
    with pytest.raises(RuntimeError):
        store.arrays("kept", fails, round=2)
    assert store.arrays("kept", never, round=1)["x"][0] == 1


@pytest.mark.parametrize("stage", ["write", "link"])
def test_an_incomplete_file_is_made_again_and_never_read(
    stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(path: Path, content: bytes) -> None:
        with path.open("wb") as file:
            file.write(content[:9])
        raise Crash

    def crash(*_: object) -> None:
        raise Crash

    store = FolderStore(tmp_path, "run")
    with monkeypatch.context() as patch:
        if stage == "write":
            patch.setattr(Path, "write_bytes", cut)
        else:
            patch.setattr(os, "link", crash)
        with pytest.raises(Crash):
            store.arrays("kept", ones)
    assert FolderStore(tmp_path, "run").arrays("kept", twos)["x"][0] == 2
    assert kept(store) == 2
    assert files(store) == ["kept.safetensors"]


# Two processes at once


def test_two_that_make_the_same_value_at_once_both_get_the_first_one(
    tmp_path: Path,
) -> None:
    def meanwhile() -> Arrays:
        FolderStore(tmp_path, "run").arrays("kept", ones)
        return twos()

    store = FolderStore(tmp_path, "run")
    assert store.arrays("kept", meanwhile)["x"][0] == 1
    assert kept(store) == 1
    assert files(store) == ["kept.safetensors"]


# Stores carried from one machine to another


def test_kept_values_can_be_carried_elsewhere_and_back(tmp_path: Path) -> None:
    here, there = (FolderStore(tmp_path / name / "client-0", "run") for name in ("a", "b"))
    here.arrays("kept", ones)
    here.arrays("of a round", ones, round=1)
    there.add(here.files())
    assert kept(there) == 1
    assert float(there.arrays("of a round", never, round=1)["x"][0]) == 1
    there.arrays("of a round", twos, round=2)
    here.add(there.files())
    assert here.files() == there.files()
    assert sorted(here.files()) == ["kept.safetensors", "round-2/of a round.safetensors"]


def test_carried_values_never_replace_kept_ones(tmp_path: Path) -> None:
    here, there = (FolderStore(tmp_path / name / "client-0", "run") for name in ("a", "b"))
    here.arrays("kept", ones)
    there.arrays("kept", twos)
    here.add(there.files())
    assert kept(here) == 1
    assert files(here) == ["kept.safetensors"]


# What a real client keeps, in its ledger's file


def test_a_ledger_keeps_arrays_of_any_layout_once_for_each_run(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "site.db", Budget("pure", 1.0))
    store, other = LedgerStore(ledger, "run"), LedgerStore(ledger, "../run")
    strided = {"whole": WHOLE.T, "part": WHOLE[:, ::3], "number": np.array(7, np.int64)}
    store.arrays("kept", lambda: strided)
    again = LedgerStore(SqliteLedger(tmp_path / "site.db"), "run")
    found = again.arrays("kept", never)
    for name, value in strided.items():
        assert found[name].dtype == value.dtype
        np.testing.assert_array_equal(found[name], value)
    assert other.known("kept") is None
    other.arrays("kept", ones)
    store.forget()
    assert store.known("kept") is None
    assert other.known("kept") is not None
    store.arrays("of a round", ones, round=1)
    assert store.known("of a round", 1) is not None
    assert store.known("of a round") is None
    store.arrays("of a round", twos, round=2)
    assert store.known("of a round", 1) is None


def test_what_a_ledger_cannot_keep_or_read_is_refused_as_that(tmp_path: Path) -> None:
    path = tmp_path / "site.db"
    store = LedgerStore(SqliteLedger(path, Budget("pure", 1.0)), "run")
    store.arrays("kept", ones)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE kept SET content = x'00'")
    with pytest.raises(StoreUnusable, match="run run: what the client keeps for it cannot be used"):
        store.known("kept")
    path.write_bytes(b"no database, for a hundred bytes and more" * 9)
    for use in (lambda: store.known("kept"), lambda: store.arrays("more", ones), store.forget):
        with pytest.raises(StoreUnusable, match="this is not a ledger"):
            use()
