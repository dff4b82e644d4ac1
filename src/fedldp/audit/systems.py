"""The audit of a system: games through the client runtime, for the lines of its statement."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from fedldp.accounting.guarantees import Adversary, Unit
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.systems import whose_word
from fedldp.audit.adversary_views import AdversaryView, Transcript
from fedldp.audit.canaries import CanaryPair, ExampleShape, Swap, pairs
from fedldp.audit.distinguishers import scores
from fedldp.audit.efforts import Effort
from fedldp.audit.events import Distinguisher, LowerBound, best, lower_bound
from fedldp.audit.harness import AttackedClient
from fedldp.audit.observations import AuditKeys
from fedldp.audit.results import Estimate, Result, note_of, verdict_of
from fedldp.training.tensors import one_thread

_RARE = 20
"""About how many times a rare event must occur to give a bound."""


@dataclass(frozen=True, kw_only=True)
class SystemGame:
    """The adversary knows that a client has one of two inputs, and sees what its role allows.

    Attributes:
        config: the configuration of the system, with what the server draws before a run.
        problem: the shape of its data.
        index: the client's number.
        adversary: who looks at the client.
        swap: what differs between the inputs.
        rounds: the rounds that are played.
        count: number of the client's examples.
        asked: how often each request is sent.
        factor: the factor by which all numbers that the server sends are multiplied; 1 for an
            honest server.
    """

    config: RunConfig
    problem: Problem
    index: int
    adversary: Adversary
    swap: Swap
    rounds: tuple[int, ...]
    count: int
    asked: int = 1
    factor: float = 1.0

    @cached_property
    def attacked(self) -> AttackedClient:
        """The attacked client."""
        return AttackedClient(self.config, self.problem, self.index, self.factor)

    @cached_property
    def view(self) -> AdversaryView:
        """What the adversary sees of the client."""
        return AdversaryView(self.attacked, self.adversary, self.rounds, self.asked)

    def __getstate__(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @property
    def label(self) -> str:
        """The label that separates this game's streams from other games'."""
        settings = json.dumps(self.config.identity(("seed",)), sort_keys=True)
        digest = hashlib.sha256(settings.encode()).hexdigest()[:16]
        how = f"{self.rounds}/{self.count}/{self.asked}/{self.factor}"
        return f"{digest}/{self.adversary}/{self.swap}/{how}"

    @property
    def apart(self) -> str:
        """How this game differs from the usual one: a string that begins with a comma, or empty."""
        found = [f"in round {self.rounds[0]} only"] if self.rounds[0] > 1 else []
        found += ["with every request sent twice"] if self.asked > 1 else []
        if self.factor != 1:
            found.append(f"with all numbers from the server multiplied by {self.factor:g}")
        return "".join(f", {each}" for each in found)

    def pairs(self) -> list[CanaryPair]:
        """Return the pairs of inputs that are tried."""
        shape = ExampleShape(
            input_shape=self.problem.input_shape,
            num_classes=self.problem.num_classes,
            count=self.count,
        )
        once = self.attacked.trains_once
        return pairs(self.swap, shape, updates=self.attacked.takes_updates, lengths=once)

    def play(
        self, deltas: Sequence[float], explore: int, count: int, keys: AuditKeys, confidence: float
    ) -> list[LowerBound]:
        """Return a bound for each of ``deltas``, from ``count`` fresh trials of each input.

        Args:
            deltas: the deltas at which epsilon is bounded.
            explore: trials of each input of every pair, for choosing.
            count: trials of each input of the chosen pair.
            keys: the source of streams.
            confidence: the confidence level of each bound.
        """
        with one_thread():
            pair, events = self.choose(deltas, explore, count, keys)
            fresh = [self.observe(pair, side, count, keys, "count") for side in (0, 1)]
            found = []
            for delta, chosen in zip(deltas, events, strict=True):
                bound = lower_bound(
                    chosen,
                    lambda event, side: event.hits(fresh[side]),
                    count,
                    delta=delta,
                    confidence=confidence,
                )
                found.append(replace(bound, attack=f"{pair.name}; {bound.attack}"))
        return found

    def choose(
        self, deltas: Sequence[float], explore: int, count: int, keys: AuditKeys
    ) -> tuple[CanaryPair, list[tuple[Distinguisher, Distinguisher]]]:
        """Return the most promising pair, and two of its events for each delta."""
        tried = []
        for pair in self.pairs():
            sides = [self.observe(pair, side, explore, keys, "explore") for side in (0, 1)]
            half = explore // 2
            fit, rest = (
                [seen.part(start, stop) for seen in sides]
                for start, stop in ((0, half), (half, None))
            )
            fitted = list(scores(fit[0], fit[1]))
            events = [best(fitted, *rest, delta=delta, trials=count) for delta in deltas]
            tried.append((sum(max(0.0, one.promise) for one, _ in events), pair, events))
        _, pair, events = max(tried, key=lambda each: each[0])
        return pair, events

    def observe(
        self, pair: CanaryPair, side: int, count: int, keys: AuditKeys, purpose: str
    ) -> Transcript:
        """Return what is seen in ``count`` trials with one input of a pair."""
        draws = keys.draws(count, self.label, pair.name, side, purpose, simulated=True)
        return self.view.observe((pair.first, pair.second)[side], pair, draws)


@dataclass(frozen=True, kw_only=True)
class PlannedSystemGame:
    """One game of a system, and the epsilons that its bounds are compared with.

    Attributes:
        setting: the configuration of the system, in words.
        size: d.
        unit: the unit of the epsilons.
        neighbours: how the inputs differ.
        game: the game to play.
        effort: how many trials.
        deltas: the deltas at which epsilon is bounded, with one row for each.
        claimed: the epsilon claimed at each delta.
        claim_unit: the unit of the claim.
        proven: the epsilon proven at each delta.
    """

    setting: str
    size: int
    unit: Unit
    neighbours: str
    game: SystemGame
    effort: Effort
    deltas: tuple[float, ...]
    claimed: tuple[float | None, ...]
    claim_unit: Unit | None
    proven: tuple[float | None, ...]
    trained: bool = field(default=False)

    @property
    def bounds(self) -> int:
        """How many rows the game gives."""
        return len(self.deltas)

    @property
    def title(self) -> str:
        """A description of the game, for a progress line."""
        game = self.game
        return (
            f"{game.config.name()} ({self.setting}), {self.unit}, {game.adversary}, "
            f"{game.swap} swapped{game.apart}"
        )

    def trials(self) -> int:
        """Return how many trials of each input seem worthwhile."""
        count = self.effort.system_most if self.is_refutable else self.effort.system_few
        if self.trained:
            count = min(count, self.effort.system_trained)
        return count if self.figures and not self.is_coarse else count // 2

    @property
    def explore(self) -> int:
        """How many trials of each input serve to choose the attack."""
        weak = self.trained or not self.is_refutable or self.is_coarse
        return self.effort.system_explore // (2 if weak else 1)

    @property
    def is_coarse(self) -> bool:
        """Whether the game looks for gross mistakes (a wrong round or number), not small ones."""
        return self.game.rounds[0] > 1 or self.game.factor != 1

    @property
    def figures(self) -> list[float]:
        """The claimed and the proven epsilons."""
        return [each for each in (*self.claimed, *self.proven) if each is not None]

    @property
    def is_refutable(self) -> bool:
        """Whether the game's trials could show that one of the epsilons is wrong."""
        return bool(self.figures) and min(self.figures) <= math.log(self.effort.system_most / _RARE)

    def rows(self, keys: AuditKeys, confidence: float, trials: int | None) -> Iterator[Result]:
        """Play, and yield a row for each of ``deltas``."""
        game, count = self.game, trials or self.trials()
        by = whose_word(game.config)
        found = game.play(self.deltas, self.explore, count, keys, confidence)
        for delta, claimed, proven, each in zip(
            self.deltas, self.claimed, self.proven, found, strict=True
        ):
            yield Result(
                subject=game.config.name(),
                game="system",
                attack=each.attack + game.apart,
                measure="epsilon",
                measured=Estimate.at_least(each.lower),
                setting=self.setting,
                size=self.size,
                unit=self.unit,
                against=game.adversary,
                neighbours=self.neighbours,
                delta=delta,
                claimed=claimed,
                claim_unit=None if claimed is None else self.claim_unit,
                proven=proven,
                confidence=confidence,
                trials=each.trials,
                verdict=verdict_of(claimed, proven, each.lower),
                note=note_of(proven, each.lower, by, each.finds(proven)),
                stated_by=by,
                finds=each.finds(proven),
            )
