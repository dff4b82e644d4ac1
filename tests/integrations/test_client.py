"""The client side around training of one's own, without any framework."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from node_settings import SETTINGS

from fedldp.core.errors import PrivacyError
from fedldp.integrations.client import PrivateClient
from fedldp.ledgers.budget import Budget
from fedldp.protocol.wire import Layout, Vector
from fedldp.simulation.settings import from_mapping

SIZE = 40
START = {"weight": np.zeros(SIZE, np.float32)}


class Node:
    """A client of one node, which counts how often it has trained."""

    def __init__(self, folder: Path) -> None:
        config = from_mapping(SETTINGS)
        layout = Layout(("weight",), ((SIZE,),))
        self.client = PrivateClient(layout, config, folder=folder, budget=Budget("pure", 1e6))
        self.trained = 0

    def __call__(self, round: int = 1, run: str = "run") -> Vector:
        """Return what the node sends in a round."""

        def train() -> dict[str, Vector]:
            self.trained += 1
            return {"weight": START["weight"] + np.float32(0.25)}

        found = self.client.answer(
            node="one", run=run, round=round, asked=bytes(32), weights=START, train=train,
            failed=pytest.fail,
        )  # fmt: skip
        assert isinstance(found, dict), found
        return found["weight"]


def test_a_node_keeps_everything_in_its_ledgers_file(tmp_path: Path) -> None:
    """Its folder also has the mark that the ledger was begun, and nothing else."""
    first, again = Node(tmp_path), Node(tmp_path)
    sent = [first(1), again(1), again(2)]
    assert (sent[0] == sent[1]).all()
    assert (sent[1] != sent[2]).any()
    assert (first.trained, again.trained) == (1, 1)
    assert {path.name for path in (tmp_path / "one").iterdir()} == {"ledger.sqlite", "begun"}


@pytest.mark.parametrize("damage", ["lost", "without its secret"])
def test_a_damaged_ledger_is_refused_in_words_that_name_no_path(
    tmp_path: Path, damage: str
) -> None:
    Node(tmp_path)()
    ledger = tmp_path / "one" / "ledger.sqlite"
    if damage == "lost":
        ledger.unlink()
    else:
        with closing(sqlite3.connect(ledger)) as db, db:
            db.execute("DELETE FROM site WHERE key = 'secret'")
    again = Node(tmp_path)
    for run in ("run", "another"):
        with pytest.raises(PrivacyError) as refusal:
            again(2, run)
        assert str(refusal.value) == "round 2: the ledger cannot be used; nothing was released"
    assert again.trained == 0
    assert ledger.exists() == (damage != "lost")
