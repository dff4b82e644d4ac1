"""Games in which an adversary who knows everything but the input tries to tell two inputs apart.

A game explores first: with a few trials of every pair of inputs, it chooses a pair and an event.
Then it counts this event in fresh trials of the pair, with streams that played no part in the
choice. The counts give a bound on epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.guarantees import Unit
from fedldp.audit.coordinate_codes import Estimates, FoundCodes, coordinate_codes
from fedldp.audit.efforts import Effort
from fedldp.audit.events import (
    Distinguisher,
    LowerBound,
    ObservedRounds,
    Score,
    best,
    lower_bound,
    scores,
)
from fedldp.audit.inputs import (
    InputPair,
    constant_pairs,
    coordinate_pairs,
    scanned_pairs,
    whole_pairs,
)
from fedldp.audit.observations import AuditKeys, Floats, Observations, needs_simulated, observe
from fedldp.mechanisms import Mechanism

BLOCK = 1 << 16
"""The number of coordinates of one report in a game of coordinates."""

_FEW_CODES = 4096
_LEFT, _AGAIN = 3, 2
"""How many pairs are explored again, and the factor by which their trials increase."""
_VALUES, _SCANS, _WIDE = 4096, 8, 1.25
"""How many values of a coordinate are tried, in how many reports, and the largest absolute value
tried."""

_TRIALS_PER_RARE_EVENT = 100


def trials_for(epsilon: float | None, least: int, most: int) -> int:
    """Return how many trials of each input can show ``epsilon``: enough for about 100 rare events.

    The result is from ``least`` to ``most``. An event that proves epsilon has a probability of at
    most e^-epsilon under one of the inputs.
    """
    limit = math.log(most / _TRIALS_PER_RARE_EVENT) if most > _TRIALS_PER_RARE_EVENT else 0.0
    if epsilon is None or epsilon >= limit:
        return max(least, most)
    return max(least, math.ceil(_TRIALS_PER_RARE_EVENT * math.exp(epsilon)))


@dataclass(frozen=True, kw_only=True)
class ReportGame:
    """The adversary sees whole reports from one client, and knows that the input is one of two.

    Attributes:
        mechanism: the attacked mechanism.
        size: d, coordinates of its input.
        unit: "weight": the inputs differ in one coordinate; "client-round": in all coordinates;
            "client-run": in all coordinates, after a report of the first input.
    """

    mechanism: Mechanism
    size: int
    unit: Unit

    @property
    def label(self) -> str:
        """The label that separates this game's streams from other games'."""
        return f"{self.mechanism!r}/{self.size}/{self.unit}"

    def play(
        self, deltas: list[float], proven: float | None, effort: Effort, keys: AuditKeys,
        confidence: float, trials: int | None = None,
    ) -> list[LowerBound]:  # fmt: skip
        """Return a bound for each of ``deltas``.

        Args:
            deltas: the deltas at which epsilon is bounded.
            proven: the proven epsilon at the first delta, which determines how many trials are
                worthwhile.
            effort: how many trials to make.
            keys: the source of streams.
            confidence: the confidence level of each bound.
            trials: the number of trials of each input, for counting; None: as many as ``effort``
                says.
        """
        many = type(self.mechanism).encode_many is not Mechanism.encode_many
        many &= not self.mechanism.costly
        most = effort.mechanism_most_quick if many else effort.mechanism_most
        count = trials or trials_for(proven, effort.mechanism_least, most)
        pair, chosen = self.choose(deltas, effort, count, keys)
        fresh = [self.reports(pair, side, count, keys, "count") for side in (0, 1)]
        return [
            self._shown(events, pair, fresh, delta, confidence, count)
            for events, delta in zip(chosen, deltas, strict=True)
        ]

    def choose(
        self, deltas: list[float], effort: Effort, count: int, keys: AuditKeys
    ) -> tuple[InputPair, list[tuple[Distinguisher, Distinguisher]]]:
        """Return the pair that promises most over all deltas, and two events for each delta.

        A few trials of every pair select some pairs, and more trials choose one of these: few
        trials cannot tell one rare event from a rarer one.
        """
        explore = effort.mechanism_explore
        tried = []
        for pair in [*self._pairs(keys), *self._scanned(effort.mechanism_scan, keys)]:
            sides = [self.reports(pair, side, explore, keys, "explore") for side in (0, 1)]
            fit, rest = (
                [[seen.part(start, stop) for seen in reports] for reports in sides]
                for start, stop in ((0, explore // 2), (explore // 2, None))
            )
            fitted = list(scores(*fit, inputs=(pair.first, pair.second), learned=True))
            tried.append(_tried(pair, fitted, rest, deltas, count))
        if not self.mechanism.costly:
            tried.sort(key=attrgetter("promise"), reverse=True)
            tried = [
                _tried(
                    each.pair,
                    each.fitted,
                    [
                        self.reports(each.pair, side, _AGAIN * explore, keys, "explore again")
                        for side in (0, 1)
                    ],
                    deltas,
                    count,
                )
                for each in tried[:_LEFT]
            ]
        found = max(tried, key=attrgetter("promise"))
        return found.pair, found.events

    def reports(
        self, pair: InputPair, side: int, count: int, keys: AuditKeys, purpose: str
    ) -> ObservedRounds:
        """Return ``count`` trials with one input of a pair, round by round."""
        simulated = needs_simulated(self.mechanism, self.size)
        values = [pair.first, pair.second][side]
        rounds = [pair.first, values] if self.unit == "client-run" else [values]
        draws = keys.draws(
            count * len(rounds), self.label, pair.name, side, purpose, simulated=simulated
        )
        # Encode in the order of real clients: report i of round r is in row i * rounds + r.
        seen = observe(self.mechanism, np.tile(np.array(rounds), (count, 1)), draws)
        return [seen.part(at, None, len(rounds)) for at in range(len(rounds))]

    def _pairs(self, keys: AuditKeys) -> list[InputPair]:
        generator = keys.generator(self.label)
        if self.unit == "weight":
            return coordinate_pairs(self.size, generator)
        if self.unit == "client-run":  # two reports test the streams, so few inputs suffice
            return whole_pairs(self.size, generator)[:2]
        return whole_pairs(self.size, generator)

    def _scanned(self, trials: int, keys: AuditKeys) -> list[InputPair]:
        """Return the pair, among many, whose estimates differ most; empty if none is tried."""
        if self.unit == "client-run" or self.mechanism.costly or trials == 0:
            return []
        pairs = scanned_pairs(self.size, one_coordinate=self.unit == "weight")
        simulated = needs_simulated(self.mechanism, self.size)

        def seen(number: int, values: NDArray[Any], count: int) -> Observations:
            draws = keys.draws(count, self.label, "scan", number, simulated=simulated)
            return observe(self.mechanism, np.tile(values, (count, 1)), draws)

        found: dict[int, Observations] = {}
        apart = []
        for number, pair in enumerate(pairs):
            if id(pair.second) not in found:  # several pairs may share this input
                found[id(pair.second)] = seen(-1 - number, pair.second, 8 * trials)
            apart.append(_apart(seen(number, pair.first, trials), found[id(pair.second)]))
        return [pairs[int(np.argmax(apart))]]

    def _shown(
        self,
        events: tuple[Distinguisher, Distinguisher],
        pair: InputPair,
        sides: list[ObservedRounds],
        delta: float,
        confidence: float,
        count: int,
    ) -> LowerBound:
        found = lower_bound(
            events,
            lambda event, side: event.hits(sides[side]),
            count,
            delta=delta,
            confidence=confidence,
        )
        return replace(found, attack=f"{pair.name}; {found.attack}")


@dataclass(frozen=True)
class _Tried:
    pair: InputPair
    fitted: list[tuple[str, Score]]
    events: list[tuple[Distinguisher, Distinguisher]]

    @property
    def promise(self) -> float:
        return sum(max(0.0, one.promise) for one, _ in self.events)


def _tried(
    pair: InputPair,
    fitted: list[tuple[str, Score]],
    seen: Sequence[ObservedRounds],
    deltas: Sequence[float],
    count: int,
) -> _Tried:
    """Choose a pair's events on trials on which nothing was fitted."""
    events = [best(fitted, *seen, delta=delta, trials=count) for delta in deltas]
    return _Tried(pair, fitted, events)


def _apart(one: Observations, other: Observations) -> float:
    """Return the largest distance between two inputs' mean numbers, in standard deviations."""
    first, second = (
        np.column_stack([seen.decoded[:, 0], seen.decoded.sum(1), seen.lengths])
        for seen in (one, other)
    )
    return float(deviations(first, second).max())


def deviations(first: NDArray[Any], second: NDArray[Any]) -> Floats:
    """Return, for each column, the distance between the means of its rows in standard deviations.

    A spread of zero may be luck, so a small spread is always added.
    """
    error = first.var(0) / len(first) + second.var(0) / len(second)
    least = (np.abs(first).max(0) + np.abs(second).max(0) + 1e-300) / len(first) / 4
    found: Floats = np.abs(first.mean(0) - second.mean(0)) / np.sqrt(error + least**2)
    return found


@dataclass(frozen=True, kw_only=True)
class CoordinateGame:
    """The adversary sees the codes of a report's coordinates, each of which has one of two values.

    The game is for events that state independent and identical coordinates, so that each coordinate
    is a trial. If the coordinates are dependent or differ in law, the stated event is wrong, and a
    bound above its epsilon is still a correct verdict.

    Attributes:
        mechanism: the attacked mechanism.
        size: coordinates of a report, ``BLOCK``.
    """

    mechanism: Mechanism
    size: int = BLOCK

    @property
    def label(self) -> str:
        """The label that separates this game's streams from other games'."""
        return f"{self.mechanism!r}/{self.size}/coordinates"

    @cached_property
    def found(self) -> FoundCodes:
        """What reveals each coordinate of a report; ``play`` needs its codes."""
        return coordinate_codes(self.mechanism, self.size)

    def play(
        self, proven: float, effort: Effort, keys: AuditKeys, confidence: float,
        trials: int | None = None,
    ) -> LowerBound:  # fmt: skip
        """Return the bound for one coordinate, at delta 0."""
        most = effort.mechanism_most_coordinates
        count = trials or trials_for(proven, min(most, 4 * self.size), most)
        blocks = -(-count // self.size)
        count = blocks * self.size
        name, pair, events = self._choose(count, keys)
        hits = np.zeros((len(events), 2), np.int64)
        for side in (0, 1):
            for seen in self._codes(name, side, pair[side], blocks, keys, "count"):
                hits[:, side] += [event.hits(seen) for event in events]
        found = lower_bound(
            events,
            lambda event, side: int(hits[events.index(event), side]),
            count,
            delta=0.0,
            confidence=confidence,
        )
        what = "the estimate of " if isinstance(self.found.codes, Estimates) else ""
        return replace(found, attack=f"{name}; {found.attack} of {what}a coordinate")

    def _choose(
        self, count: int, keys: AuditKeys
    ) -> tuple[str, tuple[NDArray[Any], NDArray[Any]], tuple[Distinguisher, Distinguisher]]:
        found = []
        for name, first, second in [*constant_pairs(), self._scanned(keys)]:
            fit, rest = (
                [
                    np.concatenate(list(self._codes(name, side, values, 1, keys, purpose)))
                    for side, values in enumerate((first, second))
                ]
                for purpose in ("fit", "explore")
            )
            events = best(_code_scores(*fit), *rest, delta=0.0, trials=count)
            found.append((name, (first, second), events))
        return max(found, key=lambda each: each[2][0].promise)

    def _scanned(self, keys: AuditKeys) -> tuple[str, NDArray[Any], NDArray[Any]]:
        """Return the value, among many, whose codes are farthest from the codes of an end."""
        grid = np.linspace(-_WIDE, _WIDE, min(_VALUES, self.size))
        values = np.resize(grid, len(grid) * (self.size // len(grid)))
        seen = np.concatenate(list(self._codes("scan", 0, values, _SCANS, keys, "grid")))
        of_values = seen.reshape(-1, len(grid)).astype(np.float64)
        tried = []
        for side, end in enumerate((1.0, -1.0)):
            codes = np.concatenate(
                list(self._codes("scan", side, np.array([end]), 1, keys, "end"))
            ).astype(np.float64)
            apart = deviations(of_values, codes[:, None])
            tried.append((float(apart.max()), float(grid[int(apart.argmax())]), end))
        _, value, end = max(tried)
        name = f"{value:.5f} against an end"
        return name, np.array([value]), np.array([end])

    def _codes(
        self, name: str, side: int, value: NDArray[Any], blocks: int, keys: AuditKeys, purpose: str
    ) -> Iterator[NDArray[Any]]:
        """Yield what is seen of each coordinate, report by report."""
        draws = keys.draws(blocks, self.label, name, side, purpose, simulated=False)
        values = np.resize(value, self.size)
        codes = self.found.codes
        assert codes is not None
        for stream in draws.streams(0, blocks):
            try:
                yield codes.codes(self.mechanism.encode(values, stream))
            except Exception:  # a refusal, or a report with the wrong number of coordinates
                yield np.full(self.size, codes.missing)


def _code_scores(first: NDArray[Any], second: NDArray[Any]) -> Iterable[tuple[str, Score]]:
    yield "value", lambda seen: seen.astype(np.float64)
    codes, at = np.unique(np.concatenate([first, second]), return_inverse=True)
    if len(codes) > _FEW_CODES:
        return
    of_first = np.bincount(at[: len(first)], minlength=len(codes))
    of_second = np.bincount(at[len(first) :], minlength=len(codes))
    ratio = np.log((of_first + 0.5) / (of_second + 0.5))

    def score(seen: NDArray[Any]) -> Floats:
        place = np.minimum(np.searchsorted(codes, seen), len(codes) - 1)
        found: Floats = np.where(codes[place] == seen, ratio[place], 0.0)
        return found

    yield "histogram", score
