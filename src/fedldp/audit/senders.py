"""Checks whether a shuffled report reveals its sender, with two clients that have the same data.

The proofs for a shuffler assume that reports of the same data have the same law, whoever sends
them. If a seed depends on the client's number, or one client's mechanism differs, the report
reveals the sender, and the shuffler hides nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.systems import whose_word
from fedldp.audit.adversary_views import AdversaryView, Transcript
from fedldp.audit.canaries import CanaryPair
from fedldp.audit.distinguishers import Floats, scores
from fedldp.audit.efforts import Effort
from fedldp.audit.events import best, lower_bound
from fedldp.audit.harness import AttackedClient
from fedldp.audit.observations import AuditKeys
from fedldp.audit.results import Estimate, Result, note_of, verdict_of
from fedldp.training.tensors import one_thread

_MOST_ROUNDS = 2


@dataclass(frozen=True)
class PlannedSenderGame:
    """A game: reports from one client, against reports of which the last is from another client.

    Both clients learned nothing. The proven epsilon is 0: a report of the same data reveals neither
    its sender nor whether an earlier round's report came from the same client.

    Attributes:
        config: the configuration of the run, with what the server draws before it.
        problem: public facts about its data.
        effort: how many trials.
    """

    config: RunConfig
    problem: Problem
    effort: Effort

    @property
    def bounds(self) -> int:
        """How many bounds the game gives."""
        return 1

    @property
    def title(self) -> str:
        """A description of the game, for a progress line."""
        return f"{self.config.name()}, senders: a report from one client, or from another"

    def rows(self, keys: AuditKeys, confidence: float, trials: int | None) -> Iterator[Result]:
        """Play, and yield one row."""
        count = trials or self.effort.system_most
        explore = self.effort.system_explore
        with one_thread():
            fit, rest = (
                [self._seen(side, explore // 2, keys, purpose) for side in (0, 1)]
                for purpose in ("fit", "explore")
            )
            found = [*scores(*fit), ("bits that agree between rounds", _shared)]
            events = best(found, *rest, delta=0.0, trials=count)
            fresh = [self._seen(side, count, keys, "count") for side in (0, 1)]
            shown = lower_bound(
                events,
                lambda event, side: event.hits(fresh[side]),
                count,
                delta=0.0,
                confidence=confidence,
            )
        lower, by = shown.lower, whose_word(self.config)
        yield Result(
            subject=self.config.name(),
            game="system",
            attack=f"the sender swapped; {shown.attack}",
            measure="epsilon",
            measured=Estimate.at_least(lower),
            setting="senders",
            against="shuffled-server",
            size=self.config.layout(self.problem).size,
            unit="client-round",
            neighbours="another client with the same data sends the report",
            proven=0.0,
            confidence=confidence,
            trials=shown.trials,
            verdict=verdict_of(None, 0.0, lower),
            note=note_of(0.0, lower, by) if lower else "nothing found, as expected",
            stated_by=by,
            finds=shown.finds(0.0),
        )

    def _seen(self, side: int, count: int, keys: AuditKeys, purpose: str) -> Transcript:
        """Return reports of some trials; on side 1 the last one is the second client's."""
        rounds = tuple(range(1, min(_MOST_ROUNDS, self.config.rounds) + 1))
        settings = json.dumps(self.config.identity(("seed",)), sort_keys=True)
        digest = hashlib.sha256(settings.encode()).hexdigest()
        seen = []
        for round in rounds:
            client = side if round == rounds[-1] else 0
            attacked = AttackedClient(self.config, self.problem, client)
            nothing = attacked.unchanged
            pair = CanaryPair("nothing learned", nothing, nothing)
            # Every client has its own keys, and keeps them for the run.
            draws = keys.draws(count, digest, "sender", side, purpose, client, simulated=True)
            view = AdversaryView(attacked, "server", (round,))
            seen.append(view.observe(nothing, pair, draws))
        return _together(seen)


def _together(rounds: list[Transcript]) -> Transcript:
    first = rounds[0]
    if len(rounds) == 1:
        return first
    return Transcript(
        lengths=np.concatenate([each.lengths for each in rounds], axis=1),
        heads=np.concatenate([each.heads for each in rounds], axis=1),
        values=np.concatenate([each.values for each in rounds], axis=1),
        along=np.concatenate([each.along for each in rounds], axis=1),
        bits=np.concatenate([each.bits for each in rounds], axis=1),
        whole=tuple(b"".join(each) for each in zip(*(e.whole for e in rounds), strict=True)),
        same=(first.bits == rounds[-1].bits).all(axis=(1, 2)).astype(np.float64),
    )


def _shared(seen: Transcript) -> Floats:
    found: Floats = (seen.bits[:, 0] == seen.bits[:, -1]).sum(1).astype(np.float64)
    return found
