"""Whole trainings with many canaries, each training run only once: see ``bounds``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.guarantees import Unit
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.audit.adversary_views import AdversaryView
from fedldp.audit.bounds import best_one_run_lower
from fedldp.audit.canaries import Canary
from fedldp.audit.game import Planned
from fedldp.audit.harness import RUN, AttackedClient
from fedldp.audit.observations import AuditKeys, Floats
from fedldp.audit.results import GameResult, Line, note_of, verdict_of
from fedldp.core.randomness import KEY_BYTES
from fedldp.data.examples import Examples
from fedldp.protocol.client_runtime import ClientRuntime
from fedldp.protocol.keys import TrialKeys, draws_of_seed
from fedldp.protocol.roles import State
from fedldp.protocol.wire import Broadcast, Report, RoundRequest, pack_request, read_reply
from fedldp.training.tensors import one_thread

LIGHT = np.float32(100.0)


def rounds_in_words(rounds: int) -> str:
    """Return "1 round", "2 rounds", and so on."""
    return "1 round" if rounds == 1 else f"{rounds} rounds"


@dataclass(frozen=True, kw_only=True)
class WholeRun(Planned):
    """One training, from the first round to the last, with a coin flip for every canary.

    If its line is for a "record", the canaries are records of one client, each either blank or lit
    in one pixel that no other record lights; for a "person", they are people of that client, each
    with two such rows; for a "client-run", they are clients, each with one of two labels.

    Attributes:
        config: the configuration of the system, with what the server draws before a run.
        problem: the shape of its data.
    """

    config: RunConfig
    problem: Problem

    @property
    def unit(self) -> Unit:
        """What the canaries are."""
        return self.lines[0].unit

    @property
    def title(self) -> str:
        """A description of the game, for a progress line."""
        (line,) = self.lines
        return f"{line.subject} ({line.setting}), {line.unit}, one run"

    def play(
        self, keys: AuditKeys, confidence: float, trials: int | None = None
    ) -> list[GameResult]:
        """Run once, and return the row; its number of trials is the number of canaries."""
        (line,) = self.lines
        scores, coins = self.scores(keys)
        lower, how = best_one_run_lower(scores, coins, delta=line.delta, confidence=confidence)
        rounds = rounds_in_words(self.config.rounds)
        kind = "clients" if self.unit == "client-run" else f"{self.unit}s of one client"
        row = line.result(
            attack=f"one run of {rounds}, {len(coins)} {kind} swapped by coin flips; {how}",
            lower=lower,
            confidence=confidence,
            trials=len(coins),
            verdict=verdict_of(None, line.proven, lower),
            note=note_of(line.proven, lower, line.stated_by),
        )
        return [row]

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

    def scores(self, keys: AuditKeys) -> tuple[Floats, NDArray[np.bool_]]:
        """Return the adversary's score for every canary, and the coins."""
        settings = json.dumps(self.config.identity(("seed",)), sort_keys=True)
        label = f"{settings}/{self.unit}/one run"
        coins = keys.generator(label, "coins").random(self.canaries) < 0.5
        draws = keys.draws(self.canaries, label, simulated=True).keys
        secrets = [draws[at : at + KEY_BYTES] for at in range(0, len(draws), KEY_BYTES)]
        with one_thread(), np.errstate(all="ignore"):
            if self.unit == "client-run":
                return self._clients(coins, secrets), coins
            return self._records(coins, secrets), coins

    def _clients(self, coins: NDArray[np.bool_], secrets: Sequence[bytes]) -> Floats:
        attacked = AttackedClient(self.config, self.problem, 0)
        data = [self._client_data(attacked, label) for label in (0, self.problem.num_classes - 1)]
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
        lit, blank = self._lit(), np.zeros_like(self._lit())
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

    def _client_data(self, attacked: AttackedClient, label: int) -> Examples:
        count = max(1, self.problem.num_examples // self.config.num_clients)
        shape = (count, *self.problem.input_shape)
        return Examples(np.ones(shape, np.float32), np.full(count, label, np.int64))

    def _lit(self) -> NDArray[np.float32]:
        pixels = int(np.prod(self.problem.input_shape))
        return (LIGHT * np.eye(pixels, dtype=np.float32)).reshape(-1, *self.problem.input_shape)
