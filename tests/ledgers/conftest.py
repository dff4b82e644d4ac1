"""What the tests of ledgers share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from ledger_helpers import KEYS, Budgets, One, Store, asked

from fedldp.ledgers.columns import MemoryLedger
from fedldp.ledgers.sqlite import SqliteLedger


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "client.ledger"


@pytest.fixture(params=["file", "memory", "keeping", "worker"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    def begin(budget: Budgets) -> tuple[One, Callable[[], float]]:
        if request.param == "file":
            file = SqliteLedger(tmp_path / "client.ledger", budget)
            return One(file), file.spent
        memory = MemoryLedger(budget, keeps_answers=request.param == "keeping")
        if request.param == "worker":
            One(memory, 5).release("before", 0, 0, asked("?"), KEYS, lambda: b"keys")
            memory = memory.extract([4, 5])
        return One(memory, 5), lambda: memory.spent(5)

    return begin
