"""A client that is asked for many rounds at once pays for no more than its rounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedldp.accounting.guarantees import local_guarantees
from fedldp.algorithms.recipes import find_recipe
from fedldp.ledgers.budget import Budget
from fedldp.ledgers.sqlite import SqliteLedger
from fedldp.protocol.roles import Batch, Update
from fedldp.protocol.wire import (
    Broadcast,
    Sensitive,
)
from fedldp.testing.cases import Case, asking, secret_keys
from fedldp.training.tensors import one_thread


@pytest.fixture(autouse=True)
def as_in_a_run() -> Iterator[None]:
    """Train as every process of a run does: torch's sums depend on the number of threads."""
    with one_thread():
        yield


def test_simultaneous_requests_do_not_exceed_a_clients_rounds(tmp_path: Path) -> None:
    base = find_recipe("personalized-sound-digits").config
    half = base.num_clients // 2
    config = base.changed(
        rounds=6,
        selects_first=True,
        clients_per_round=None,
        clip=1.0,
        epsilon=[0.3] * half + [1.0] * (base.num_clients - half),
    )
    case = Case.of(config)
    client = int(np.argmin(case.config.turns))
    assert case.config.composition.participation.max_rounds(client) < config.rounds, (
        "else there is nothing to go beyond"
    )
    budget = Budget("zcdp", 1e9)
    told, role, answers = case.first_broadcast, case.role(client), list[bytes]()

    def ask(round: int) -> None:
        """Ask a client that gets the requests of earlier rounds while it trains for this one."""

        def train(broadcast: Broadcast, batch: Batch, group: int) -> Sensitive[Update]:
            if round > 1:
                ask(round - 1)
            return role.local_update(broadcast, batch, group)

        runtime = case.start(
            client,
            secret_keys(client),
            tmp_path,
            ledger=SqliteLedger(tmp_path / "ledger", budget),
            role=replace(role, local_update=train),  # type: ignore[arg-type]
        )
        answers.append(runtime.answer(asking(told, round)))

    ask(6)
    assert len(answers) == 6, "all were open at once"
    released = Counter(entry.event for entry in SqliteLedger(tmp_path / "ledger").releases())
    epsilon, delta = case.config.composition.calibration.budget(client)
    assert local_guarantees(released, "client-run", delta)[0].epsilon <= epsilon
    assert 0 < released.total() <= case.config.composition.participation.max_rounds(client)
