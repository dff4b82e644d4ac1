"""A client that is killed at any stage and asked again sends one string of bytes, and pays for it.

This holds for every kind of channel that can be deployed.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from subjects import subjects

from fedldp.accounting.prices import cost
from fedldp.algorithms.config import RunConfig
from fedldp.ledgers.sqlite import SqliteLedger
from fedldp.protocol.client_runtime import ClientRuntime
from fedldp.protocol.roles import ClientRole
from fedldp.protocol.wire import (
    Refusal,
    Report,
    pack_request,
    read_reply,
    read_request,
)
from fedldp.testing.cases import PLENTY, Case, deploys, events_of, secret_keys, simulation_keys
from fedldp.training.tensors import one_thread

CONFIGS = subjects("local", "channel")
every_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


@pytest.fixture(autouse=True)
def as_in_a_run() -> Iterator[None]:
    """Train as every process of a run does: torch's sums depend on the number of threads."""
    with one_thread():
        yield


# Killed at any stage, and asked again


DEPLOYED = {
    name: config
    for name, config in subjects("channel").items()
    if deploys(config) and any(cost(event, PLENTY.kind) < np.inf for event in events_of(config))
}


class Killed(BaseException):
    """Stands for the death of the process: nothing that follows is done."""


def kill(*_: Any, **__: Any) -> Any:
    raise Killed


def then_kill(original: Any) -> Any:
    def both(*given: Any, **options: Any) -> Any:
        original(*given, **options)
        raise Killed

    return both


def at_commit(patch: pytest.MonkeyPatch, execute: Callable[[Any], Any]) -> None:
    """Replace every ledger's COMMIT by ``execute``."""

    class Connection(sqlite3.Connection):
        def execute(self, sql: str, *given: Any) -> Any:
            plain = super().execute
            return (execute(plain) if sql == "COMMIT" else plain)(sql, *given)

    connect = sqlite3.connect
    patch.setattr(
        sqlite3, "connect", lambda *given, **opts: connect(*given, **opts, factory=Connection)
    )


STAGES: dict[str, Callable[[pytest.MonkeyPatch, ClientRole], None]] = {
    "in training": lambda patch, role: patch.setattr(type(role.local_update), "__call__", kill),
    "after training": lambda patch, role: patch.setattr(
        type(role.local_update), "__call__", then_kill(type(role.local_update).__call__)
    ),
    "in encoding": lambda patch, role: patch.setattr(type(role.encoder), "__call__", kill),
    "after encoding": lambda patch, role: patch.setattr(
        type(role.encoder), "__call__", then_kill(type(role.encoder).__call__)
    ),
    "before the ledger commits": lambda patch, role: at_commit(patch, lambda execute: kill),
    "after the ledger commits": lambda patch, role: at_commit(patch, then_kill),
    "before the store keeps": lambda patch, role: patch.setattr(os, "link", kill),
    "after the store keeps": lambda patch, role: patch.setattr(os, "link", then_kill(os.link)),
}


@pytest.mark.slow
@pytest.mark.parametrize("config", DEPLOYED.values(), ids=DEPLOYED)
def test_a_client_killed_at_any_stage_sends_one_string_of_bytes(
    config: RunConfig, tmp_path: Path
) -> None:
    case = Case.of(config)
    talk = case.talk(secret_keys, tmp_path / "talk")
    role = case.role(talk.index)
    # Fresh bytes are new at every start, so whatever is randomised again gives other bytes.
    keys = replace(secret_keys(talk.index), entropy=os.urandom)

    def start(folder: Path) -> ClientRuntime:
        ledger = SqliteLedger(folder / "ledger", PLENTY)
        return case.start(talk.index, keys, folder, ledger=ledger, role=role)

    for stage, dying in STAGES.items():
        folder = tmp_path / stage
        folder.mkdir()
        start(folder)
        killed, answers, unpaid = False, 0, set[int]()
        for number, message in enumerate(talk.requests):
            left: set[bytes] = set()
            with pytest.MonkeyPatch.context() as patch, suppress(Killed):
                dying(patch, role)
                left.add(start(folder).answer(message))
            killed |= not left
            entries = SqliteLedger(folder / "ledger").verify()
            left |= {start(folder).answer(message) for _ in range(2)}
            assert len(left) == 1, (stage, number)
            (answer,) = left
            if isinstance(read_reply(answer)[2], Refusal):
                request = read_request(message)
                if cost(role.encoder.event(request.phase), "zcdp") == np.inf:
                    unpaid.add(request.broadcast.round)  # no later phase of it is answered either
                over = answers == (role.max_participations or 0) * role.phases
                assert over or request.broadcast.round in unpaid
                continue
            answers += 1
            ledger = SqliteLedger(folder / "ledger").verify()
            assert ledger[: len(entries)] == entries
            assert ledger[-1].payload_sha256 == sha256(answer).hexdigest(), (stage, number)
            assert ledger[-1].event == role.encoder.event(ledger[-1].phase)
            places = [(entry.round, entry.phase) for entry in ledger]
            assert len(places) == len(set(places))
            if stage == "after the ledger commits":
                assert ledger == entries, "charged before it was asked again"
        paid = any(entry.cost for entry in SqliteLedger(folder / "ledger").releases())
        assert killed or not paid or "store" in stage, f"{stage}: nobody was killed"


@pytest.mark.slow
@every_config
def test_refused_requests_do_not_delete_what_a_client_keeps_for_its_round(
    config: RunConfig, tmp_path: Path
) -> None:
    """Otherwise a server could make it forget its request, and send a different one."""
    case = Case.of(config)
    talk = case.talk(simulation_keys, tmp_path / "talk")
    runtime = case.start(
        talk.index, simulation_keys(talk.index), tmp_path / "own", failed=lambda error: None
    )

    def kept() -> dict[Path, bytes]:
        found = (tmp_path / "own").rglob("*")
        return {path: path.read_bytes() for path in found if path.is_file()}

    first, second = (
        talk.requests[: config.composition.channel.phases],
        talk.requests[config.composition.channel.phases :],
    )
    for message in first:
        runtime.answer(message)
    before = kept()
    refused = 0
    for message in reversed(second):
        asked = read_request(message)
        told, weights = asked.broadcast.public, asked.broadcast.weights
        changes: list[dict[str, Any]] = [{"weights": np.full_like(weights, 3e38)}] * (
            len(weights) > 0
        )
        if told:  # without public arrays, these would be the server's own request
            empty = {name: np.zeros(0, values.dtype) for name, values in told.items()}
            changes += [{"public": {}}, {"public": empty}]
        for change in changes:
            bad = replace(asked, broadcast=replace(asked.broadcast, **change))
            if isinstance(read_reply(runtime.answer(pack_request(bad)))[2], Report):
                assert refused, "nothing was refused"
                return  # it has continued with the next round
            refused += 1
            assert before.items() <= kept().items()
    assert refused, "nothing was refused"
