"""Every system's client role answers the same wherever it runs, and is told no more than it needs.

Systems are tested with their recipes on digits, and only through their interface.
"""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from subjects import subjects

import fedldp
from fedldp.accounting.prices import cost
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.settings import ClientBudget
from fedldp.core.errors import PrivacyError
from fedldp.ledgers.columns import MemoryLedger
from fedldp.ledgers.sqlite import SqliteLedger
from fedldp.protocol.wire import (
    Reason,
    Refusal,
    Report,
    read_reply,
)
from fedldp.testing.cases import (
    PLENTY,
    Case,
    ClientTerms,
    answered,
    at_site,
    deploys,
    events_of,
    population_of,
    secret_keys,
    simulation_keys,
)
from fedldp.training.tensors import one_thread

ALL, FEW = subjects(), subjects("local", "channel")
every_config = pytest.mark.parametrize("config", ALL.values(), ids=ALL)
few_configs = pytest.mark.parametrize("config", FEW.values(), ids=FEW)


@pytest.fixture(autouse=True)
def as_in_a_run() -> Iterator[None]:
    """Train as every process of a run does: torch's sums depend on the number of threads."""
    with one_thread():
        yield


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
