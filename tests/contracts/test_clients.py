"""Every system's client: told no more than it needs, the same wherever it runs, and after kills.

Systems are tested with their recipes on digits, and only through their interface."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from subjects import subjects
from terms import PLENTY, ClientTerms, answered, at_site, secret_keys

import fedldp
from fedldp.accounting.prices import cost
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.settings import ClientBudget
from fedldp.core.errors import PrivacyError
from fedldp.ledgers.columns import MemoryLedger
from fedldp.ledgers.sqlite import SqliteLedger
from fedldp.protocol.client_runtime import ClientRuntime
from fedldp.protocol.roles import ClientRole
from fedldp.protocol.wire import (
    Reason,
    Refusal,
    Report,
    pack_request,
    read_reply,
    read_request,
)
from fedldp.testing.cases import (
    Case,
    deploys,
    events_of,
    population_of,
    simulation_keys,
)

pytestmark = pytest.mark.usefixtures("as_in_a_run")

ALL, FEW = subjects(), subjects("local", "channel")
every_config = pytest.mark.parametrize("config", ALL.values(), ids=ALL)
few_configs = pytest.mark.parametrize("config", FEW.values(), ids=FEW)


# The same role in another process


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[ProcessPoolExecutor]:
    """A process that knows only what it is sent: one for all sites, because processes start
    slowly."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as executor:
        yield executor


@pytest.mark.slow
@few_configs
def test_a_client_answers_the_same_in_another_process_with_its_own_keys_and_ledger(
    config: RunConfig, elsewhere: ProcessPoolExecutor, tmp_path: Path
) -> None:
    case, events = Case.of(config), events_of(config)
    keys = secret_keys if deploys(config) else simulation_keys
    talk = case.talk(keys, tmp_path / "talk")
    told = ClientTerms.of(case.config, case.problem, talk.index, case.own(talk.index))
    (tmp_path / "site").mkdir()
    sent = elsewhere.submit(at_site, told, tmp_path / "site", talk.requests, on_disk=True)
    if not deploys(config):
        with pytest.raises(PrivacyError, match="private for real numbers only") as refused:
            case.start(talk.index, secret_keys(talk.index), tmp_path / "here")
        assert sent.result() == str(refused.value)
        assert not SqliteLedger(tmp_path / "site" / "ledger").releases()
        return
    ledger = MemoryLedger(PLENTY)
    here = case.start(talk.index, secret_keys(talk.index), tmp_path / "here", ledger=ledger)
    answers = [here.answer(message) for message in talk.requests]
    assert sent.result() == answers
    assert len(answers) == 2 * config.composition.channel.phases
    payable = [cost(event, PLENTY.kind) < np.inf for event in events] * 2
    role, paid = case.role(talk.index), list[bytes]()
    rounds, phases = role.max_participations, config.composition.channel.phases
    for at, (pays, answer, free) in enumerate(zip(payable, answers, talk.answers, strict=True)):
        if not all(payable[at - at % phases : at]):  # the client is out of this round's sum
            refusal = read_reply(answer)[2]
            assert isinstance(refusal, Refusal)
            assert refusal.reason is Reason.POLICY
        elif rounds is not None and len(paid) == rounds * role.phases:
            assert answer == free
            assert isinstance(read_reply(answer)[2], Refusal), "it has had its rounds"
        elif pays:
            paid.append(answer)
            assert answer == free, "the same as where nobody counts"
            assert isinstance(read_reply(answer)[2], Report)
        else:
            refusal = read_reply(answer)[2]
            assert isinstance(refusal, Refusal)
            assert refusal.reason is Reason.OVER_BUDGET
    entries = SqliteLedger(tmp_path / "site" / "ledger").releases()
    assert [entry.payload_sha256 for entry in entries] == [
        sha256(answer).hexdigest() for answer in paid
    ]


@pytest.mark.slow
@few_configs
def test_a_client_with_the_keys_of_a_simulation_answers_as_the_simulator_does(
    config: RunConfig, elsewhere: ProcessPoolExecutor, tmp_path: Path
) -> None:
    case = Case.of(config)
    talk = case.talk(simulation_keys, tmp_path / "talk")
    told = ClientTerms.of(case.config, case.problem, talk.index, case.own(talk.index))
    told = replace(told, seed=config.seed)
    sent = elsewhere.submit(at_site, told, tmp_path / "site", talk.requests, on_disk=False)
    population = population_of(case, tmp_path / "simulation")
    ledger = MemoryLedger()
    answers = [answered(population, message, talk.index, ledger) for message in talk.requests]
    assert answers == talk.answers
    assert sent.result() == answers


# What a client is told


@every_config
def test_a_client_is_told_only_what_it_needs(config: RunConfig) -> None:
    """What a client of each recipe is told, and which own values, is recorded in tests/gate."""
    config = config.changed(seed=192837465, client_budget=ClientBudget(limit=64738.25))
    case = Case.of(config)
    told, same = (
        ClientTerms.of(each, case.problem, 0, case.own(0))
        for each in (case.config, config.changed(seed=1))
    )
    for mark in ("192837465", "64738.25"):
        assert mark in repr(config.model_dump()), "else this looks for nothing"
        assert mark not in told.config
    assert pickle.dumps(told) == pickle.dumps(same), "all that its process gets, byte for byte"


OF_TABLES = ("client_column", "test_file")


@pytest.mark.slow
def test_a_client_is_not_told_the_persons_of_a_table() -> None:
    table = {"dataset": "own.csv", "client_column": "hospital", "test_file": "kept.csv"}
    config = fedldp.recipe("quickstart", standardise=False, **table)
    told = config.for_client(0)
    assert [getattr(config, name) for name in OF_TABLES] == ["hospital", "kept.csv"]
    assert [getattr(told, name) for name in OF_TABLES] == [None, None]


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
        paid = any(entry.costs[0] for entry in SqliteLedger(folder / "ledger").releases())
        assert killed or not paid or "store" in stage, f"{stage}: nobody was killed"


@pytest.mark.slow
@few_configs
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
