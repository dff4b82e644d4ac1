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
from fedldp.algorithms.per_client import of_client
from fedldp.algorithms.settings import ClientBudget, PersonBudget, PrivacyTarget
from fedldp.core.errors import ConfigError, PrivacyError
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


@pytest.mark.sampled(len(FEW))
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


@pytest.mark.sampled(len(FEW))
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


MARKS = {
    "seed": 192837465,
    "client_budget": ClientBudget(limit=64738.25),
    "person_budget": PersonBudget(limit=64738.75),
    "target": PrivacyTarget(unit="client-run", epsilon=64738.125),
}


OF_TABLES = ("client_column", "test_file")
"""They describe a user's own table, and these systems use digits."""


def marked(config: RunConfig) -> tuple[RunConfig, list[str]]:
    """Return a configuration whose settings for simulations have values that a text search can
    find."""
    texts = []
    for place, name in enumerate(sorted(config.simulation_only.difference(OF_TABLES)), 1):
        value = getattr(config, name)
        mark = MARKS.get(name, None if isinstance(value, bool) else 1 / 1024 + place / 65536)
        idle = config.unused_settings()
        if mark is None or name in idle or (name == "target" and config.calibrated in idle):
            continue
        config = config.changed(**{name: mark})
        texts.append(str(getattr(mark, "limit", getattr(mark, "epsilon", mark))))
    return config, texts


def with_own_values(config: RunConfig) -> tuple[RunConfig, dict[str, list[float]]]:
    """Return a configuration in which each client has its own value of every setting that allows
    one."""
    found: dict[str, list[float]] = {}
    for name in config.per_client:
        value = getattr(config, name)
        if value is None:
            continue
        first = of_client(value, 0)
        own = [first * (1 + (client + 1) / 65537) for client in range(config.num_clients)]
        try:
            config = config.changed(**{name: own})
        except ConfigError:  # this mechanism takes one value for all
            continue
        found[name] = own
    return config, found


@pytest.mark.sampled(len(ALL))
@every_config
def test_a_client_is_told_only_what_it_needs(config: RunConfig) -> None:
    config, marks = marked(config)
    config, values = with_own_values(config)
    case = Case.of(config)
    client = config.num_clients - 1
    told = ClientTerms.of(case.config, case.problem, client, case.own(client))
    assert len(marks) >= 2, "the seed and the budget"
    for mark in marks:
        assert mark in repr(config.model_dump()), "else this looks for nothing"
        assert mark not in told.config
    for own in values.values():
        assert repr(own[client]) in told.config
        assert not [value for value in own[:client] if repr(value) in told.config]
    same = ClientTerms.of(config.changed(seed=1), case.problem, client, case.own(client))
    assert pickle.dumps(told) == pickle.dumps(same), "all that its process gets, byte for byte"


def test_a_client_is_not_told_the_persons_of_a_table() -> None:
    table = {"dataset": "own.csv", "client_column": "hospital", "test_file": "kept.csv"}
    config = fedldp.recipe("quickstart", standardise=False, **table)
    told = config.for_client(0)
    assert [getattr(config, name) for name in OF_TABLES] == ["hospital", "kept.csv"]
    assert [getattr(told, name) for name in OF_TABLES] == [None, None]
