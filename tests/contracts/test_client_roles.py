"""Every system's client role answers the same wherever it runs, and is told no more than it needs.

Systems are tested with their recipes on digits, and only through their interface.
"""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samples import first_of_each
from subjects import configs
from tables import table_of

import fedldp
from fedldp.accounting.events import Event, NoRelease
from fedldp.accounting.prices import cost
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.per_client import of_client
from fedldp.algorithms.settings import ClientBudget, PersonBudget, PrivacyTarget
from fedldp.algorithms.systems import systems
from fedldp.core.errors import ConfigError, PrivacyError
from fedldp.ledgers.columns import MemoryLedger
from fedldp.ledgers.protocol import Ledgers, Place
from fedldp.ledgers.sqlite import SqliteLedger
from fedldp.protocol.roles import Encoder, Senders
from fedldp.protocol.wire import (
    Broadcast,
    Reason,
    Refusal,
    Report,
    Reports,
    pack_reports,
    read_reply,
)
from fedldp.simulation.plan import plan
from fedldp.testing.cases import (
    PLENTY,
    RUN,
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

CONFIGS = configs()
every_config = pytest.mark.parametrize(
    "config", first_of_each(CONFIGS, lambda config: (config.system, config.model))
)


@pytest.fixture(autouse=True)
def as_in_a_run() -> Iterator[None]:
    """Train as every process of a run does: torch's sums depend on the number of threads."""
    with one_thread():
        yield


def test_every_system_is_tested() -> None:
    assert {config.system for config in CONFIGS.values()} == set(systems())


# The same role in another process


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[ProcessPoolExecutor]:
    """A process that knows only what it is sent: one for all sites, because processes start
    slowly."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as executor:
        yield executor


@pytest.mark.sampled(3)
@every_config
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


@pytest.mark.sampled(8)
@every_config
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
    config = fedldp.recipe("ldp-fl-digits", standardise=False, **table)
    told = config.for_client(0)
    assert [getattr(config, name) for name in OF_TABLES] == ["hospital", "kept.csv"]
    assert [getattr(told, name) for name in OF_TABLES] == [None, None]


# What is charged is the event of the encoder that ran


@dataclass
class Recording:
    """A ledger that records what is charged, and the bytes that leave."""

    ledger: Ledgers
    charged: list[tuple[Event, bytes]]

    def check(self, *arguments: Any) -> Any:
        return self.ledger.check(*arguments)

    def release(
        self, place: Place, event: Event, clients: Any, make: Any, max_rounds: int | None = None
    ) -> Any:
        left = self.ledger.release(place, event, clients, make, max_rounds)
        self.charged += [(event, bytes(row)) for row in left if not isinstance(row, Exception)]
        return left


class Spied:
    """Records every encoder that is called, and the bytes of its report."""

    def __init__(self, patch: pytest.MonkeyPatch, kind: type) -> None:
        self.made: list[tuple[Encoder, int, bytes]] = []
        original: Any = kind.__call__

        def many(encoder: Any, update: Any, broadcast: Broadcast, senders: Senders) -> Reports:
            reports: Reports = original(encoder, update, broadcast, senders)
            for row in pack_reports(reports, run=RUN, phase=senders.phase):
                self.made.append((encoder, senders.phase, row.tobytes()))
            return reports

        patch.setattr(kind, "__call__", many)


@pytest.mark.sampled(3)
@every_config
def test_the_event_of_the_encoder_that_made_the_bytes_is_charged(
    config: RunConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    case = Case.of(config)
    talk = case.talk(simulation_keys, tmp_path / "talk")
    population, memory = population_of(case, tmp_path / "simulation"), MemoryLedger()
    recording = Recording(memory, [])
    spied = Spied(monkeypatch, type(population.encoders[talk.index]))
    runtime = replace(population.runtime(memory), ledgers=recording)
    for message in talk.requests:
        list(runtime.answers(message, [talk.index]))
    most = case.role(
        talk.index
    ).max_participations  # how many of the two rounds this client takes part in
    rounds = (1, 2) if most is None else range(1, min(2, most) + 1)
    assert len(spied.made) * 2 == len(talk.requests) * len(rounds)
    for (encoder, phase, made), (event, left) in zip(spied.made, recording.charged, strict=True):
        assert event == encoder.event(phase)
        assert left == made
    # The statement is made from the same events, before the run and after it.
    planned = table_of(plan(config, case.problem).releases)
    counted = table_of(memory.releases(RUN))
    charged = [event for event, _ in recording.charged if not isinstance(event, NoRelease)]
    assert [counted[round][talk.index] for round in rounds] == charged
    assert planned[1][talk.index] == charged[0]
    assert planned[2].get(talk.index, charged[-1]) == charged[-1]
