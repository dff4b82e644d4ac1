"""A game: an adversary who knows everything but the input tries to tell two inputs apart.

A game explores first: with a few trials of every pair of inputs, it chooses a pair and, for each
line, two events. Then it counts these events in fresh trials of the pair, with streams that played
no part in the choice. The counts give a bound on epsilon.

``Game`` plays any game that says which pairs there are, what is seen of each input, and which
numbers may tell what is seen apart. What an audit plays, games and others, is ``Planned``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, ClassVar

import numpy as np

from fedldp.audit.bounds import epsilon_lower, smallest_found
from fedldp.audit.efforts import Effort
from fedldp.audit.observations import AuditKeys
from fedldp.audit.results import GameResult, Line
from fedldp.audit.scores import Distinguisher, Score, best

_LEFT, _AGAIN = 2, 2
"""How many pairs are explored again, and the factor by which their trials increase."""


@dataclass(frozen=True, kw_only=True)
class Planned(ABC):
    """What an audit plays or checks; it can be pickled.

    Attributes:
        lines: what is tested, with one result for each line.
        key: what is played, in words that ``playing.FIRST`` knows.
    """

    certain: ClassVar[bool] = False
    """Whether what is found is certain, and needs no share of the probability of error."""

    lines: tuple[Line, ...]
    key: str = ""

    @property
    def bounds(self) -> int:
        """How many bounds share the probability of error."""
        return 0 if self.certain else len(self.lines)

    @property
    def title(self) -> str:
        """A description for a progress line."""
        line = self.lines[0]
        return ", ".join(filter(None, (line.title, f"d = {line.size}", self.key or line.unit)))

    @property
    def subject(self) -> str:
        """The name of what is audited, without parameters."""
        return self.lines[0].subject.partition("(")[0]

    def can_refute(self, confidence: float, trials: int | None = None) -> bool:
        """Return whether any outcome could refute a line, which is known before anything is played.

        A line without a claimed and a proven epsilon has nothing to refute: it is played to show
        what is revealed.
        """
        figures = [line.smallest for line in self.lines]
        return any(
            figure is None or self.most(line, confidence, trials) > figure
            for line, figure in zip(self.lines, figures, strict=True)
        )

    def most(self, line: Line, confidence: float, trials: int | None) -> float:
        """Return the largest bound that any outcome gives for a line."""
        return math.inf

    @abstractmethod
    def play(
        self, keys: AuditKeys, confidence: float, trials: int | None = None
    ) -> list[GameResult]:
        """Play, and return what was found.

        Args:
            keys: the source of streams.
            confidence: the confidence level of each bound.
            trials: the number of trials of each input, for counting; None: as many as seem
                worthwhile.
        """


@dataclass(frozen=True)
class Trials:
    """How many trials of each input a game makes.

    Attributes:
        explore: of every pair, for choosing.
        count: of the chosen pair, for counting.
        again: whether the most promising pairs are explored again, with more trials: few trials
            cannot tell one rare event from a rarer one.
    """

    explore: int
    count: int
    again: bool = False


@dataclass(frozen=True, kw_only=True)
class Game(Planned):
    """Two inputs, what is seen of each, and numbers that may tell what is seen apart.

    Attributes:
        effort: how many trials.
    """

    effort: Effort

    @abstractmethod
    def trials(self, asked: int | None) -> Trials:
        """Return how many trials to make; ``asked`` replaces the number that is counted."""

    @abstractmethod
    def pairs(self, keys: AuditKeys) -> Iterable[Any]:
        """Return the pairs of inputs that are tried; each has a ``name``."""

    @abstractmethod
    def observe(
        self, pair: Any, side: int, count: int, keys: AuditKeys, purpose: str
    ) -> Iterator[Any]:
        """Yield what is seen in ``count`` trials with one input of a pair, in one or more parts."""

    @abstractmethod
    def scores(self, pair: Any, first: Any, second: Any) -> Iterable[tuple[str, Score]]:
        """Return scores fitted on trials with each input; a score sees each trial alone."""

    @property
    def suffix(self) -> str:
        """What is added to the description of an attack."""
        return ""

    def explored(self, pair: Any, count: int, keys: AuditKeys) -> tuple[list[Any], list[Any]]:
        """Return trials with each input on which scores are fitted, and others to choose events."""
        seen = [next(self.observe(pair, side, count, keys, "explore")) for side in (0, 1)]
        half = count // 2
        return [each.part(0, half) for each in seen], [each.part(half, None) for each in seen]

    def most(self, line: Line, confidence: float, trials: int | None) -> float:
        """Return the bound if one input always shows the event, and the other never does."""
        count, each = self.trials(trials).count, 1 - (1 - confidence) / 2
        return epsilon_lower(count, count, 0, count, delta=line.delta, confidence=each)

    def counted(self, pair: Any, trials: Trials) -> int:
        """Return how many trials with each input of a pair are counted."""
        return trials.count

    def play(
        self, keys: AuditKeys, confidence: float, trials: int | None = None
    ) -> list[GameResult]:
        """Choose a pair and events, count them, and return a bound for each line."""
        planned = self.trials(trials)
        pair, chosen = self._chosen(planned, keys)
        count = self.counted(pair, planned)
        events = [event for two in chosen for event in two]
        hits = np.zeros((len(events), 2), np.int64)
        for side in (0, 1):
            for seen in self.observe(pair, side, count, keys, "count"):
                hits[:, side] += [event.hits(seen) for event in events]
        found = []
        each = 1 - (1 - confidence) / 2  # two events share the probability of error
        for line, two, own in zip(self.lines, chosen, hits.reshape(-1, 2, 2), strict=True):
            bounds = []
            for event, both in zip(two, own.tolist(), strict=True):
                likelier, rarer = both[::-1] if event.swapped else both
                lower = epsilon_lower(
                    likelier, count, rarer, count, delta=line.delta, confidence=each
                )
                bounds.append((lower, event.name, rarer))
            lower, name, rarer = max(bounds, key=itemgetter(0))
            found.append(
                line.bounded(
                    lower,
                    f"{pair.name}; {name}{self.suffix}",
                    trials=2 * count,
                    confidence=confidence,
                    finds=smallest_found(
                        line.proven, rarer, count, delta=line.delta, confidence=each
                    ),
                )
            )
        return found

    def _chosen(self, trials: Trials, keys: AuditKeys) -> tuple[Any, list[Sequence[Distinguisher]]]:
        """Return the pair that promises most over all lines, and two events for each line."""
        tried = []
        for pair in self.pairs(keys):
            fit, rest = self.explored(pair, trials.explore, keys)
            fitted = list(self.scores(pair, *fit))
            tried.append((pair, fitted, self._events(pair, fitted, rest, trials)))
        if trials.again:
            more = _AGAIN * trials.explore
            for at, (pair, fitted, _) in enumerate(
                tried := sorted(tried, key=_promise, reverse=True)[:_LEFT]
            ):
                seen = [
                    next(self.observe(pair, side, more, keys, "explore again")) for side in (0, 1)
                ]
                tried[at] = pair, fitted, self._events(pair, fitted, seen, trials)
        pair, _, chosen = max(tried, key=_promise)
        return pair, chosen

    def _events(
        self, pair: Any, fitted: list[tuple[str, Score]], seen: list[Any], trials: Trials
    ) -> list[Sequence[Distinguisher]]:
        """Choose events for each line on trials on which nothing was fitted."""
        count = self.counted(pair, trials)
        return [best(fitted, *seen, delta=line.delta, trials=count) for line in self.lines]


def _promise(tried: tuple[Any, Any, list[Sequence[Distinguisher]]]) -> float:
    return sum(max(0.0, one.promise) for one, _ in tried[2])
