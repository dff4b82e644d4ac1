"""What an adversary sees of a system, in one or many trials, in the form that scores need.

    server             the bytes that leave one client, in every round that is played
    summing-server     the sum of a round's reports, as the server step gets it
    shuffled-server    how many ones a round's messages have at each coordinate; or all whole
                       reports of a round, sorted by their bytes
    downlink           the broadcast that follows from a round's reports

A round with several phases, in which the server gets only a sum, is played in full. The server then
sees the result of the round.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.guarantees import Adversary
from fedldp.audit.harness import RUN, AttackedClient
from fedldp.audit.inputs import Canary, CanaryPair
from fedldp.audit.observations import TrialStreams
from fedldp.core.errors import FedldpError, RunError, first_line
from fedldp.core.randomness import KEY_BYTES, Source, Stream, check_purpose
from fedldp.protocol.client_runtime import ClientRuntime
from fedldp.protocol.client_store import MemoryStore
from fedldp.protocol.keys import TrialKeys
from fedldp.protocol.roles import Arrays, Ask, Draw, Sender, State
from fedldp.protocol.updates import alone
from fedldp.protocol.wire import (
    Broadcast,
    Counted,
    Incoming,
    Refusal,
    Report,
    RoundRequest,
    Sensitive,
    pack_request,
    read_reply,
)
from fedldp.simulation.participation import participants
from fedldp.training.tensors import one_thread

MOST_VALUES = 2048
"""The number of coordinates of the server's estimate that are kept for each round."""
MOST_BITS = 512
_PROBES = 4

_NOTHING = -1.0
_HEADS = ("weight", "epsilon", "client")
_LARGEST = 1e15
_UNSUITED = "there is nothing to attack; the audit, or its budget, does not suit this system"
_UNREAD = "no attack can read them; fix the step"


@dataclass(frozen=True, eq=False)
class Transcript:
    """What was observed in n trials of R rounds.

    Attributes:
        lengths: the number of bytes in each answer, shape (n, R).
        heads: the fields of a report other than its payload, and whether the client refused, shape
            (n, 4 R).
        values: the server's estimate, computed only from what was seen, shape (n, R, k), float32.
        along: the whole estimate, projected onto the difference of the two updates and onto the
            signs of this difference, shape (n, 2 R).
        bits: the bits of the payloads, shape (n, R, b).
        whole: a digest of everything that was observed in a trial.
        same: whether all rounds had the same payload, shape (n,).
    """

    lengths: NDArray[np.float64]
    heads: NDArray[np.float64]
    values: NDArray[np.float32]
    along: NDArray[np.float64]
    bits: NDArray[np.uint8]
    whole: tuple[bytes, ...]
    same: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.whole)

    def part(self, start: int, stop: int | None) -> Transcript:
        """Return some of the trials."""
        at = slice(start, stop)
        return Transcript(
            self.lengths[at], self.heads[at], self.values[at], self.along[at], self.bits[at],
            self.whole[at], self.same[at],
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Glance:
    """What was observed in one round of one trial."""

    length: int
    head: tuple[float, ...]
    estimate: NDArray[np.float64]
    payload: bytes


@dataclass(frozen=True, eq=False)
class AdversaryView:
    """What an adversary sees of one client of a system.

    Attributes:
        attacked: the client.
        adversary: who sees what leaves the client.
        rounds: the rounds that are played, from 1.
        asked: how often each request is sent; only a server sends one more than once.
    """

    attacked: AttackedClient
    adversary: Adversary
    rounds: tuple[int, ...]
    asked: int = 1
    _labels: dict[int, int] = field(default_factory=dict, init=False)
    _others: dict[int, AttackedClient] = field(default_factory=dict, init=False)
    _said: Counter[str] = field(default_factory=Counter, init=False)
    _steps: Counter[str] = field(default_factory=Counter, init=False)
    _places: dict[int, tuple[CanaryPair, NDArray[np.int64]]] = field(
        default_factory=dict, init=False
    )

    @one_thread()  # so that every machine gives the same bounds
    def observe(self, canary: Canary, pair: CanaryPair, draws: TrialStreams) -> Transcript:
        """Return what is observed in trials with one canary of a pair; each trial has its own key.

        Raises:
            RunError: the client answered no request from an honest server, or the server's step
                failed on every report. Both look the same whatever the client holds, so a game
                would find nothing and report "ok".
        """
        directions = [
            self._direction(pair, round) for round in self.rounds for _ in range(self.asked)
        ]
        places, rows = self._places_of(pair), []
        for at in range(len(draws)):
            key = draws.keys[KEY_BYTES * at : KEY_BYTES * (at + 1)]
            rows.append(_row(list(self._trial(canary, key)), directions, places))
        name = self.attacked.config.name()
        for said, good, wrong, so in (
            (self._said, "report", "the client refused all requests", _UNSUITED),
            (self._steps, "", "the server's step failed on all reports", _UNREAD),
        ):
            if self.attacked.factor == 1 and self.rounds[0] == 1 and said and not said[good]:
                ((why, times),) = said.most_common(1)
                raise RunError(f"audit of {name}: {wrong} ({times} times {why}), so {so}")
        *columns, whole, same = zip(*rows, strict=True)
        parts: list[Any] = [*map(np.array, columns), whole, np.array(same)]
        return Transcript(*parts)

    def _places_of(self, pair: CanaryPair) -> NDArray[np.int64]:
        """Return the coordinates to keep: for a large model, those that vary most across trials."""
        size = self.attacked.sent_size
        if size <= MOST_VALUES:
            return np.arange(size)
        if id(pair) not in self._places:
            seen = [
                next(self._trial(canary, bytes([number]) * KEY_BYTES)).estimate
                for canary in (pair.first, pair.second)
                for number in range(_PROBES)
            ]
            order = np.argsort(-np.std(seen, axis=0), kind="stable")
            self._places[id(pair)] = pair, np.sort(order[:MOST_VALUES])
        return self._places[id(pair)][1]

    def _direction(self, pair: CanaryPair, round: int) -> NDArray[np.float64] | None:
        """Return the difference between the canaries' updates; None if it is unknown or zero."""
        attacked = self.attacked
        if attacked.trains_once or (pair.first.change and pair.second.change):
            updates: list[Any] = [
                attacked.sent(attacked.trained(canary, round))
                for canary in (pair.first, pair.second)
            ]
        else:
            broadcast = attacked.broadcast(round)
            updates = [attacked.plainly(broadcast, c.examples) for c in (pair.first, pair.second)]
        found = [np.asarray(each) for each in updates]
        if any(each.shape != (attacked.sent_size,) for each in found):
            return None
        one, other = (
            np.clip(np.nan_to_num(each.astype(np.float64)), -_LARGEST, _LARGEST) for each in found
        )
        largest = np.abs(one - other).max()
        return (one - other) / largest if largest else None

    def _trial(self, canary: Canary, key: bytes) -> Iterator[_Glance]:
        # A repeated request is answered with new streams.
        keys = TrialKeys(key, self.attacked.real_arithmetic_only, again=self.asked > 1)
        runtime = self.attacked.runtime(canary, keys)
        if self.adversary == "server" and self.attacked.role.phases == 1:
            for round in self.rounds:
                for _ in range(self.asked):
                    answer = runtime.answer(self._requests[round])
                    self._report(answer)
                    yield self._glance(round, answer)
            return
        for round in self.rounds:
            broadcast = self.attacked.broadcast(round)
            draw = partial(_drawn, keys, round)
            if self.attacked.server.dialogue is not None:
                incoming: Incoming = self.attacked.server.dialogue(
                    self._asking(runtime, keys),
                    broadcast,
                    range(self.attacked.config.num_clients),
                    draw,
                )
            else:
                there = self._there(round, draw)
                own = self._report(runtime.answer(self._requests[round]))
                reports = [own] if own is not None and self.attacked.index in there else []
                reports += [
                    self._sent(client, keys, broadcast)
                    for client in there
                    if client != self.attacked.index
                ]
                incoming = self._through(reports, round)
            yield self._outcome(round, incoming, draw)

    def _there(self, round: int, draw: Draw) -> Sequence[int]:
        """Return the participants, who are drawn secretly if the adversary sees only broadcasts."""
        if self.adversary != "downlink":
            return range(self.attacked.config.round_size)
        return list(participants(self.attacked.config, round, lambda number: draw))

    @cached_property
    def _states(self) -> dict[int, State]:
        return {round: self.attacked.state(round) for round in self.rounds}

    @cached_property
    def _requests(self) -> dict[int, bytes]:
        return {round: self.attacked.request(round) for round in self.rounds}

    def _report(self, answer: bytes) -> Report | None:
        found = read_reply(answer)[2]
        if isinstance(found, Refusal):
            self._said[found.reason.name.lower().replace("_", "-")] += 1
            return None
        self._said["report"] += 1
        return found

    def _glance(self, round: int, answer: bytes) -> _Glance:
        found = read_reply(answer)[2]
        if isinstance(found, Refusal):
            nothing = np.zeros(self.attacked.sent_size)
            return _Glance(len(answer), (1.0, *[_NOTHING] * len(_HEADS)), nothing, b"")
        head = [getattr(found, name) for name in _HEADS]
        told = (_NOTHING if value is None else float(value) for value in head)
        estimate = self.estimate(found, self._states[round])
        return _Glance(len(answer), (0.0, *told), estimate, found.payload)

    def estimate(self, report: Report, state: State) -> NDArray[np.float64]:
        """Return the server's estimate from one report, or else the report's bytes as numbers."""
        for label in [self._labels[state.round]] if state.round in self._labels else range(8):
            # The server's draw may leave out this client, so try up to eight draws until one
            # selects it.
            found = self._step(state, [report], partial(_public, label))
            if found.any():
                self._labels[state.round] = label
                return found
        raw = np.frombuffer(report.payload, np.int8).astype(np.float64)
        return np.resize(raw, self.attacked.sent_size)

    def _step(self, state: State, incoming: Incoming, draw: Draw) -> NDArray[np.float64]:
        estimate = self.attacked.estimate_of_sent
        try:
            if estimate is None:
                change = self.attacked.server.read(state, incoming, draw).astype(np.float64)
                change -= state.weights
            else:
                found = estimate(state, incoming, draw).values
                change = (
                    np.zeros(self.attacked.sent_size) if found is None else found.astype(np.float64)
                )
        except Exception as error:  # reading a malformed report may raise anything
            # A step may refuse a single report, but the report's bytes are still examined.
            refused = self.adversary == "server" and isinstance(error, FedldpError)
            self._steps["" if refused else f"{type(error).__name__}: {first_line(error)}"] += 1
            return np.zeros(self.attacked.sent_size)
        self._steps[""] += 1
        return np.clip(np.nan_to_num(change), -_LARGEST, _LARGEST)

    def _outcome(self, round: int, incoming: Incoming, draw: Draw) -> _Glance:
        noise = draw if self.adversary == "downlink" else partial(_public, 0)
        change = self._step(self._states[round], incoming, noise)
        return _Glance(0, (0.0, *[_NOTHING] * len(_HEADS)), change, change.astype("<f4").tobytes())

    def _through(self, reports: list[Report], round: int) -> Incoming:
        """Return what the channel delivers for a round's reports."""
        if self.adversary == "downlink":
            return reports
        if self.adversary == "summing-server":
            summing = self.attacked.config.algorithm(self.attacked.problem).summing()
            assert summing is not None
            return [summing.summed(round, reports)]
        if self.attacked.config.composition.channel.shuffles_reports:
            return sorted(reports, key=lambda report: report.payload)
        size = reports[0].size
        bits = [np.unpackbits(np.frombuffer(r.payload, np.uint8), count=size) for r in reports]
        ones: NDArray[np.int64] = np.array(bits, np.int64).sum(0)
        return [
            Counted(round=round, size=size, chunk=reports[0].chunk, ones=ones, reports=len(bits))
        ]

    def _other(self, client: int, keys: TrialKeys) -> tuple[AttackedClient, TrialKeys]:
        """Return another client, and its keys in a trial."""
        if client not in self._others:
            self._others[client] = replace(self.attacked, index=client)
        secret = hashlib.blake2b(b"client %d" % client, key=keys.secret, digest_size=32).digest()
        return self._others[client], TrialKeys(secret, keys.streams_simulated)

    def _sent(self, client: int, keys: TrialKeys, broadcast: Broadcast) -> Report:
        """Return the report of another client, which learned nothing from its examples."""
        attacked, own = self._other(client, keys)
        sender = Sender(
            index=client,
            num_examples=Sensitive(1),
            fresh=partial(own.fresh, broadcast.round, 0),
            kept=own.kept,
            store=MemoryStore(),
        )
        return alone(attacked.role.encoder, Sensitive(None), broadcast, sender)

    def _asking(self, runtime: ClientRuntime, keys: TrialKeys) -> Ask:
        """Return a function that sends a round's requests to all clients."""
        runtimes = {self.attacked.index: runtime}

        def ask(
            phase: int,
            broadcast: Broadcast,
            clients: Iterable[int],
            own: Mapping[int, Arrays] = MappingProxyType({}),
        ) -> Iterator[Report]:
            request = RoundRequest(run=RUN, phase=phase, broadcast=broadcast, own=own)
            for client in clients:
                message = pack_request(request.to(client))
                if client not in runtimes:
                    attacked, others = self._other(client, keys)
                    runtimes[client] = attacked.runtime(attacked.unchanged, others)
                answer = runtimes[client].answer(message)
                reply = read_reply(answer)[2]
                found = self._report(answer) if client == self.attacked.index else reply
                if isinstance(found, Report):
                    yield found

        return ask


def _drawn(keys: TrialKeys, round: int, purpose: str) -> Stream:
    """Return the server's randomness in a trial; an adversary who sees only broadcasts lacks it."""
    check_purpose(Source.ROUND, purpose)
    return keys.labelled("kept", "server", round, purpose)


def _public(label: int, purpose: str) -> Stream:
    return Stream.simulation(seed=label, round=0, client=0, purpose=purpose)


def _row(
    glances: Sequence[_Glance],
    directions: Sequence[NDArray[np.float64] | None],
    places: NDArray[np.int64],
) -> Any:
    """Return the columns of one trial; see ``Transcript``."""
    along: list[Any] = []
    for glance, direction in zip(glances, directions, strict=True):
        if direction is None or direction.size != glance.estimate.size:
            along += [0.0, 0.0]
        else:
            along += [glance.estimate @ direction, glance.estimate @ np.sign(direction)]
    digest = hashlib.blake2b(digest_size=16)
    for glance in glances:
        digest.update(repr((glance.length, glance.head)).encode() + glance.payload)
    return (
        [float(glance.length) for glance in glances],
        [number for glance in glances for number in glance.head],
        np.array([glance.estimate[places] for glance in glances], np.float32),
        along,
        np.array([_first_bits(glance.payload) for glance in glances]),
        digest.digest(),
        float(len({glance.payload for glance in glances}) == 1),
    )


def _first_bits(payload: bytes) -> NDArray[np.uint8]:
    head = np.frombuffer(payload[: MOST_BITS // 8].ljust(MOST_BITS // 8, b"\0"), np.uint8)
    return np.unpackbits(head)
