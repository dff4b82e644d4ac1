"""The games of systems, which are played through the client runtime.

The last of them are whole trainings with many canaries, each run only once: see ``bounds``.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.guarantees import Unit
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.audit.adversary_views import AdversaryView, Transcript
from fedldp.audit.bounds import best_one_run_lower
from fedldp.audit.game import Game, Planned, Trials
from fedldp.audit.harness import RUN, AttackedClient
from fedldp.audit.inputs import Canary, CanaryPair, ExampleShape, Swap, pairs
from fedldp.audit.observations import AuditKeys, Floats
from fedldp.audit.results import GameResult, Line
from fedldp.audit.scores import Score, of_transcripts
from fedldp.core.randomness import KEY_BYTES
from fedldp.data.examples import Examples
from fedldp.protocol.client_runtime import ClientRuntime
from fedldp.protocol.keys import TrialKeys, draws_of_seed
from fedldp.protocol.roles import State
from fedldp.protocol.wire import Broadcast, Report, RoundRequest, pack_request, read_reply
from fedldp.training.tensors import one_thread

_RARE = 20
"""About how many times a rare event must occur to give a bound."""
_MOST_ROUNDS = 2


@dataclass(frozen=True, kw_only=True)
class _OfSystem(Planned):
    """What is played against a system.

    Attributes:
        config: the configuration of the system, with what the server draws before a run.
        problem: the shape of its data.
    """

    config: RunConfig
    problem: Problem

    @property
    def settings(self) -> str:
        """The configuration without its seed, for the labels of streams."""
        return json.dumps(self.config.identity(("seed",)), sort_keys=True)

    @property
    def digest(self) -> str:
        """The digest of the settings."""
        return hashlib.sha256(self.settings.encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class SystemGame(_OfSystem, Game):
    """The adversary knows that a client has one of two inputs, and sees what its role allows.

    Attributes:
        index: the client's number.
        swap: what differs between the inputs.
        rounds: the rounds that are played.
        count: number of the client's examples.
        asked: how often each request is sent.
        factor: the factor by which all numbers that the server sends are multiplied; 1 for an
            honest server.
        trained: whether the client trains again in every trial.
    """

    index: int
    swap: Swap
    rounds: tuple[int, ...]
    count: int
    asked: int = 1
    factor: float = 1.0
    trained: bool = False

    @cached_property
    def attacked(self) -> AttackedClient:
        """The attacked client."""
        return AttackedClient(self.config, self.problem, self.index, self.factor)

    @cached_property
    def view(self) -> AdversaryView:
        """What the adversary sees of the client."""
        return AdversaryView(self.attacked, self.lines[0].adversary, self.rounds, self.asked)

    def __getstate__(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @property
    def label(self) -> str:
        """The label that separates this game's streams from other games'."""
        how = f"{self.rounds}/{self.count}/{self.asked}/{self.factor}"
        return f"{self.digest[:16]}/{self.lines[0].adversary}/{self.swap}/{how}"

    @property
    def suffix(self) -> str:
        """How this game differs from the usual one: a string that begins with a comma, or empty."""
        found = [f"in round {self.rounds[0]} only"] if self.rounds[0] > 1 else []
        found += ["with every request sent twice"] if self.asked > 1 else []
        if self.factor != 1:
            found.append(f"with all numbers from the server multiplied by {self.factor:g}")
        return "".join(f", {each}" for each in found)

    def trials(self, asked: int | None) -> Trials:
        """Return as many trials as seem worthwhile."""
        effort = self.effort
        figures = [line.smallest for line in self.lines if line.smallest is not None]
        refutable = bool(figures) and min(figures) <= math.log(effort.system_most / _RARE)
        # A late round or wrong numbers show gross mistakes (a wrong round or number), not small
        # ones.
        coarse = self.rounds[0] > 1 or self.factor != 1
        count = effort.system_most if refutable else effort.system_few
        if self.trained:
            count = min(count, effort.system_trained)
        if coarse or not figures:
            count //= 2
        weak = self.trained or not refutable or coarse
        explore = effort.system_explore // (2 if weak else 1)
        return Trials(explore, asked or count, again=effort.system_again and bool(figures))

    def pairs(self, keys: AuditKeys) -> list[CanaryPair]:
        """Return the pairs of inputs that are tried."""
        shape = ExampleShape(
            input_shape=self.problem.input_shape,
            num_classes=self.problem.num_classes,
            count=self.count,
        )
        once = self.attacked.trains_once
        return pairs(self.swap, shape, updates=self.attacked.takes_updates, lengths=once)

    def observe(
        self, pair: CanaryPair, side: int, count: int, keys: AuditKeys, purpose: str
    ) -> Iterator[Transcript]:
        """Yield what the adversary sees."""
        draws = keys.draws(count, self.label, pair.name, side, purpose, simulated=True)
        yield self.view.observe((pair.first, pair.second)[side], pair, draws)

    def scores(
        self, pair: CanaryPair, first: Transcript, second: Transcript
    ) -> Iterator[tuple[str, Score]]:
        """Return scores of everything that is seen."""
        return of_transcripts(first, second)


@dataclass(frozen=True, kw_only=True)
class SenderGame(_OfSystem, Game):
    """Reports from one client, against reports of which the last is from another client.

    Both clients learned nothing. The proven epsilon is 0: the proofs for a shuffler assume that
    reports of the same data have the same law, whoever sends them. If a seed depends on the
    client's number, or one client's mechanism differs, the report reveals its sender, or that an
    earlier round's report came from the same client, and the shuffler hides nothing.
    """

    name: ClassVar[str] = "the sender swapped"

    def trials(self, asked: int | None) -> Trials:
        """Return as many trials as seem worthwhile."""
        return Trials(self.effort.system_explore, asked or self.effort.system_most)

    def pairs(self, keys: AuditKeys) -> list[SenderGame]:
        """Return the only pair: one client, or another."""
        return [self]

    def explored(self, pair: Any, count: int, keys: AuditKeys) -> Any:
        """Return trials to fit scores, and others to choose events."""
        return tuple(
            [next(self.observe(pair, side, count // 2, keys, purpose)) for side in (0, 1)]
            for purpose in ("fit", "explore")
        )

    def observe(
        self, pair: Any, side: int, count: int, keys: AuditKeys, purpose: str
    ) -> Iterator[Transcript]:
        """Yield reports of some trials; on side 1 the last one is the second client's."""
        rounds = range(1, min(_MOST_ROUNDS, self.config.rounds) + 1)
        seen = []
        for round in rounds:
            client = side if round == rounds[-1] else 0
            attacked = AttackedClient(self.config, self.problem, client)
            nothing = CanaryPair("nothing learned", attacked.unchanged, attacked.unchanged)
            # Every client has its own keys, and keeps them for the run.
            draws = keys.draws(count, self.digest, "sender", side, purpose, client, simulated=True)
            view = AdversaryView(attacked, "server", (round,))
            seen.append(view.observe(nothing.first, nothing, draws))
        yield _together(seen)

    def scores(
        self, pair: Any, first: Transcript, second: Transcript
    ) -> Iterator[tuple[str, Score]]:
        """Return scores of everything that is seen, and of what two rounds have in common."""
        yield from of_transcripts(first, second)
        yield "bits that agree between rounds", _shared


def _together(rounds: list[Transcript]) -> Transcript:
    first = rounds[0]
    names = ("lengths", "heads", "values", "along", "bits")
    joined: dict[str, Any] = {
        name: np.concatenate([getattr(each, name) for each in rounds], axis=1) for name in names
    }
    return Transcript(
        **joined,
        whole=tuple(b"".join(each) for each in zip(*(e.whole for e in rounds), strict=True)),
        same=(first.bits == rounds[-1].bits).all(axis=(1, 2)).astype(np.float64),
    )


def _shared(seen: Transcript) -> Floats:
    found: Floats = (seen.bits[:, 0] == seen.bits[:, -1]).sum(1).astype(np.float64)
    return found


LIGHT = np.float32(100.0)


def rounds_in_words(rounds: int) -> str:
    """Return "1 round", "2 rounds", and so on."""
    return "1 round" if rounds == 1 else f"{rounds} rounds"


@dataclass(frozen=True, kw_only=True)
class WholeRun(_OfSystem):
    """One training, from the first round to the last, with a coin flip for every canary.

    If its line is for a "record", the canaries are records of one client, each either blank or lit
    in one pixel that no other record lights; for a "person", they are people of that client, each
    with two such rows; for a "client-run", they are clients, each with one of two labels.
    """

    @property
    def unit(self) -> Unit:
        """What the canaries are."""
        return self.lines[0].unit

    def play(
        self, keys: AuditKeys, confidence: float, trials: int | None = None
    ) -> list[GameResult]:
        """Run once, and return the row; its number of trials is the number of canaries."""
        (line,) = self.lines
        scores, coins = self.scores(keys)
        lower, how = best_one_run_lower(scores, coins, delta=line.delta, confidence=confidence)
        rounds = rounds_in_words(self.config.rounds)
        kind = "clients" if self.unit == "client-run" else f"{self.unit}s of one client"
        attack = f"one run of {rounds}, {len(coins)} {kind} swapped by coin flips; {how}"
        return [line.bounded(lower, attack, trials=len(coins), confidence=confidence)]

    @property
    def canaries(self) -> int:
        """The number of canaries."""
        if self.unit == "client-run":
            return self.config.num_clients
        return int(np.prod(self.problem.input_shape))

    def most(self, line: Line, confidence: float, trials: int | None) -> float:
        """Return the bound if all guesses are right."""
        sure = np.ones(self.canaries)
        lower, _ = best_one_run_lower(sure, sure > 0, delta=line.delta, confidence=confidence)
        return lower

    @one_thread()
    def scores(self, keys: AuditKeys) -> tuple[Floats, NDArray[np.bool_]]:
        """Return the adversary's score for every canary, and the coins."""
        label = f"{self.settings}/{self.unit}/one run"
        coins = keys.generator(label, "coins").random(self.canaries) < 0.5
        draws = keys.draws(self.canaries, label, simulated=True).keys
        secrets = [draws[at : at + KEY_BYTES] for at in range(0, len(draws), KEY_BYTES)]
        with np.errstate(all="ignore"):
            if self.unit == "client-run":
                return self._clients(coins, secrets), coins
            return self._records(coins, secrets), coins

    def _clients(self, coins: NDArray[np.bool_], secrets: Sequence[bytes]) -> Floats:
        attacked = AttackedClient(self.config, self.problem, 0)
        shape = ExampleShape(
            input_shape=self.problem.input_shape,
            num_classes=self.problem.num_classes,
            count=max(1, self.problem.num_examples // self.config.num_clients),
        )
        data = [shape.examples(shape.lit(), label) for label in (0, shape.num_classes - 1)]
        runtimes = []
        for at, (coin, secret) in enumerate(zip(coins, secrets, strict=True)):
            own = attacked if at == 0 else replace(attacked, index=at)
            keys = TrialKeys(secret, attacked.real_arithmetic_only)
            runtimes.append(own.runtime(Canary(data[int(not coin)]), keys, trains=True))
        scores = np.zeros(len(coins))
        for state, broadcast, reports in self._rounds(attacked, runtimes):
            one, other = (attacked.plainly(broadcast, each) for each in data)
            if one is None or other is None:
                continue
            direction = one.astype(np.float64) - other
            view = AdversaryView(attacked, "server", (state.round,))
            for at, report in enumerate(reports):
                scores[at] += view.estimate(report, state) @ np.sign(direction)
        return scores

    def _records(self, coins: NDArray[np.bool_], secrets: Sequence[bytes]) -> Floats:
        attacked = AttackedClient(self.config, self.problem, 0)
        lit = LIGHT * np.eye(len(coins), dtype=np.float32).reshape(-1, *self.problem.input_shape)
        blank = np.zeros_like(lit)
        labels = np.arange(len(coins)) % self.problem.num_classes
        mine = Examples(np.where(coins.reshape(-1, *[1] * (lit.ndim - 1)), lit, blank), labels)
        if self.unit == "person":
            whose = np.tile(np.arange(len(coins)), 2)
            mine = replace(mine.taken(whose), people=whose)
        runtime = attacked.runtime(
            Canary(mine), TrialKeys(secrets[0], attacked.real_arithmetic_only), trains=True
        )
        scores = np.zeros(len(coins))
        for state, broadcast, reports in self._rounds(attacked, [runtime]):
            estimate = AdversaryView(attacked, "server", (state.round,)).estimate(reports[0], state)
            for at in range(len(coins)):
                one, other = (
                    attacked.plainly(broadcast, Examples(each[at : at + 1], labels[at : at + 1]))
                    for each in (lit, blank)
                )
                if one is not None and other is not None:
                    direction = one.astype(np.float64) - other
                    scores[at] += estimate @ direction / (1e-12 + np.linalg.norm(direction))
        return scores - np.median(scores)

    def _rounds(
        self, attacked: AttackedClient, runtimes: Sequence[ClientRuntime]
    ) -> Iterator[tuple[State, Broadcast, list[Report]]]:
        """Yield each round's state, broadcast, and reports; the server learns from the reports."""
        state = attacked.first
        for round in range(1, self.config.rounds + 1):
            broadcast = attacked.server.publish(state)
            message = pack_request(RoundRequest(run=RUN, phase=0, broadcast=broadcast))
            answers = [read_reply(runtime.answer(message))[2] for runtime in runtimes]
            reports = [answer for answer in answers if isinstance(answer, Report)]
            if len(reports) < len(answers):
                return  # the clients have no turns left
            yield state, broadcast, reports
            state, _ = attacked.server.aggregate(state, reports, draws_of_seed(0)(round))
