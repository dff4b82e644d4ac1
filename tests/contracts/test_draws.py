"""What is drawn afresh differs from round to round, and what is drawn once does not.

Noise that repeats can be subtracted, so every part that hides a value is asked twice for the same
input, with the keys of a deployment. Two answers may agree in no more coordinates than answers of
clients with different secrets do. The chance that a correct part fails is at most 1e-9 a case.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from subjects import subjects
from terms import first_broadcast

import fedldp
from fedldp.accounting.events import InClear
from fedldp.algorithms.problem import Problem
from fedldp.core.randomness import KEY_BYTES, Stream
from fedldp.data import Examples
from fedldp.mechanisms import stated_event
from fedldp.protocol.client_store import MemoryStore
from fedldp.protocol.keys import Keys, SecretKeys, TrialKeys, draws_of_secret
from fedldp.protocol.roles import Batch, Client, Sender, Update
from fedldp.protocol.updates import alone
from fedldp.protocol.wire import Broadcast, Report, Sensitive
from fedldp.secure_sum.client import TOLD
from fedldp.secure_sum.messages import KEYS_BYTES
from fedldp.testing.cases import RUN, Case, deploys
from fedldp.testing.clients import Roles

FALSE_ALARM = 1e-9
Floats = NDArray[np.float64]


CASES = subjects()
every_case = pytest.mark.parametrize("name", CASES)


def no_more_than_independent(again: Any, other: Any) -> None:
    """Check that the pair ``again`` agrees in no more coordinates than the pair ``other``.

    If all four draws are independent, each agreement is equally likely to be in either pair. Zeros
    are left out: a report of some coordinates has zeros in all others, which agree together.
    """
    agree, between = (int(np.sum(np.equal(*pair) & (pair[0] != 0))) for pair in (again, other))
    size = again[0].size
    assert size == other[0].size
    assert agree < size
    chance = stats.hypergeom.sf(agree - 1, 2 * size, agree + between, size)
    assert chance > FALSE_ALARM, (agree, between, size)


ORDER = {"augmentation", "batches", "model", "sampling"}
"""Purposes that hide nothing: the order of examples, dropout, and which examples are used."""


class Noting:
    """A client's keys that note for which purposes they are asked.

    Whatever is drawn for ``ORDER`` is always the same, so that only what hides can differ.
    """

    def __init__(self, keys: Keys) -> None:
        self.keys, self.asked = keys, set[str]()

    def fresh(self, round: int, purpose: str) -> Stream:
        self.asked.add(purpose)
        drawn = self.keys.fresh(round, 0, purpose)
        return Stream(bytes(KEY_BYTES), simulated=drawn.simulated) if purpose in ORDER else drawn

    def kept(self, purpose: str) -> Stream:
        self.asked.add(purpose)
        return self.keys.kept(purpose)


@dataclass
class OneClient:
    """A client that has the same input in every round.

    Attributes:
        case: the configuration.
        keys: the client's own keys.
        store: what the client keeps.
    """

    case: Case
    keys: Noting
    store: MemoryStore = field(default_factory=MemoryStore)

    @classmethod
    def of(cls, case: Case) -> OneClient:
        """Return a client with a secret of its own.

        If the system is for simulations only, its streams are marked as a simulation's, but are
        those of a deployment otherwise.
        """
        secret, sampled = os.urandom(KEY_BYTES), getattr(case.config, "sample_rate", 1) < 1
        if deploys(case.config) and not sampled:
            return cls(case, Noting(SecretKeys(secret, RUN)))
        return cls(case, Noting(TrialKeys(secret, streams_simulated=True, again=True)))

    @property
    def examples(self) -> Examples:
        """Equal examples, of which rounds may take portions; people are all used, so they
        differ."""
        if self.case.config.system == "person_dp_sgd":
            return self.case.examples
        own = self.case.own(0)
        return own.taken(np.zeros(len(own), np.int64))

    def update(self, broadcast: Broadcast) -> Update:
        """Return what the client computes in the broadcast's round."""
        client = Client(
            index=0,
            examples=self.examples,
            fresh=partial(self.keys.fresh, broadcast.round),
            kept=self.keys.kept,
            store=self.store,
        )
        return self.case.role(0).local_update(broadcast, Batch.of_one(client)).open()

    def encoded(self, encoder: Any, update: Update | None, broadcast: Broadcast) -> Report:
        sender = Sender(
            index=0,
            num_examples=Sensitive(len(self.examples)),
            fresh=partial(self.keys.fresh, broadcast.round),
            kept=self.keys.kept,
            store=self.store,
        )
        return alone(encoder, Sensitive(update), broadcast, sender)

    def sends_first(self, broadcast: Broadcast) -> bytes:
        """Return the client's answer in the first of several phases."""
        return self.encoded(self.case.role(0).encoder, None, broadcast).payload

    def report(self, broadcast: Broadcast, update: Update) -> Report:
        """Return the client's report of an update, outside any secure sum."""
        encoder = self.case.config.algorithm(self.case.problem).report_encoder(0)
        return self.encoded(encoder, update, broadcast)


def values_of(update: Update) -> Floats:
    arrays = [np.asarray(update.rows), *update.aux.values()]
    return np.concatenate([array.reshape(-1).astype(np.float64) for array in arrays])


# A client's parts


@pytest.mark.slow
@every_case
def test_what_hides_people_in_training_is_new_in_each_round(name: str) -> None:
    """Noise, and secret samples of people."""
    case = Case.of(CASES[name])
    one, other = OneClient.of(case), OneClient.of(case)
    first = first_broadcast(case)
    second = replace(first, round=2)
    found = values_of(one.update(first)), values_of(other.update(first))
    if one.keys.asked & {"mechanism", "people"}:
        no_more_than_independent((found[0], values_of(one.update(second))), found)
        one.store = MemoryStore()  # nothing but the secret may make two draws equal
        no_more_than_independent((found[0], values_of(one.update(first))), found)


@every_case
def test_a_report_of_the_same_update_is_randomised_anew(name: str) -> None:
    case = Case.of(CASES[name])
    release = case.config.algorithm(case.problem).release(0)
    if isinstance(stated_event(release.mechanism, release.coordinates), InClear):
        return  # it sends values in the clear
    one, other = OneClient.of(case), OneClient.of(case)
    first = first_broadcast(case)
    update = Update(rows=first.weights[None])
    second = replace(first, round=2)

    def values(client: OneClient, broadcast: Broadcast) -> Floats:
        aggregate = release.mechanism.aggregate(release.coordinates)
        aggregate.add(client.report(broadcast, update).payload)
        return aggregate.mean()

    found = values(one, first), values(other, first)
    for broadcast in (first, second):
        no_more_than_independent((found[0], values(one, broadcast)), found)


@pytest.mark.parametrize(
    "name", [name for name, config in CASES.items() if config.composition.channel.phases > 1]
)
def test_the_secrets_of_a_sum_are_new_in_each_round(name: str) -> None:
    """A client first sends its public keys, which follow from its secrets."""
    case = Case.of(CASES[name])
    one = OneClient.of(case)
    told = {TOLD: np.zeros(32, np.uint8)}  # the digest of anything
    first = replace(first_broadcast(case), public=told)
    sent = [one.sends_first(broadcast) for broadcast in (first, replace(first, round=2))]
    assert len(sent[0]) == len(sent[1])
    assert not any(a == b for a, b in zip(*map(_blocks, sent), strict=True))


def _blocks(payload: bytes) -> list[bytes]:
    """Return the two public keys at the end of a message."""
    return [payload[-KEYS_BYTES:-KEY_BYTES], payload[-KEY_BYTES:]]


@pytest.mark.slow
@every_case
def test_what_is_kept_for_a_run_is_drawn_once(name: str) -> None:
    """A client that lost its store, but not its secret, makes the same choices again."""
    case = Case.of(CASES[name])
    one = OneClient.of(case)
    first = first_broadcast(case)
    found = values_of(one.update(first))
    before, one.store = one.store, MemoryStore()
    again = values_of(one.update(replace(first, round=2)))
    if "held-out people" in one.keys.asked:
        assert np.array_equal(found, again)
    for (kept, round), arrays in before.made.items():
        if round is None:
            later = one.store.known(kept)
            assert later is not None
            assert all(np.array_equal(arrays[each], later[each]) for each in arrays), kept


# The server's noise


@every_case
def test_a_servers_noise_is_new_in_each_round_and_for_each_sum(name: str) -> None:
    case = Case.of(CASES[name])
    server = case.config.algorithm(case.problem).server()
    adds = case.config.composition.server_noise
    if server.downlink is None and (adds is None or adds(case.problem) is None):
        return  # it draws no noise
    one = OneClient.of(case)
    broadcast = first_broadcast(case)
    reports = [one.report(broadcast, one.update(broadcast)) for _ in range(3)]

    def noisy(secret: bytes, round: int, count: int) -> Floats:
        draws = draws_of_secret(secret, RUN)
        state = replace(server.initial(draws_of_secret(bytes(KEY_BYTES), RUN)(0)), round=round)
        return server.aggregate(state, reports[:count], draws(round))[0].weights

    secret = os.urandom(KEY_BYTES)
    another = os.urandom(KEY_BYTES)
    found, independent = noisy(secret, 2, 3), noisy(another, 2, 3)
    assert np.array_equal(noisy(secret, 2, 3), found)  # as after a crash
    no_more_than_independent((found, noisy(secret, 3, 3)), (found, independent))
    if server.downlink is not None:
        # If two sums had the same noise, their difference would not depend on the noise.
        one_less = found - noisy(secret, 2, 2)
        other = independent - noisy(another, 2, 2)
        assert np.std(one_less - other) > np.std(found - independent) / 2


def test_the_scale_of_central_noise_does_not_reveal_the_number_of_answers() -> None:
    config = fedldp.recipe("central-dp-digits", clients_per_round=10, noise_multiplier=8.0)
    roles = Roles(config, Problem((1, 8, 8), 10, 1437))
    start = replace(roles.first, weights=np.zeros(650, np.float32))
    report = Report(round=1, size=650, payload=bytes(4 * 650), chunk=650)
    one, ten = (np.std(roles.aggregate([report] * count, start)[0].weights) for count in (1, 10))
    assert one == pytest.approx(ten, rel=0.2)
