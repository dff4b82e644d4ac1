"""The games of mechanisms: on whole reports, on coordinates of long reports, on repeating noise.

Some games count the coordinates of one report as trials. What they see of a coordinate is the
server's estimate from that report alone, so a bound on estimates is a bound on the report, whatever
its layout. Each trial must depend on one coordinate only: two coordinates together may show twice
the epsilon of one, even if the mechanism is correct. So before these games are played, some bits of
a few reports are flipped, one at a time; none may change two estimates. Otherwise the games are not
played, and the audit says why.

Estimates do not show bits that ``aggregate`` does not read, so the audit says how many flipped bits
changed no estimate. Games on whole reports look at all bits, in fewer trials. The check sees only
the layout of the few reports that it uses: it misses a layout that depends on the values or on the
stream, and dependence between estimates that no single flipped bit shows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.guarantees import HOUSE, Unit, proven_epsilon
from fedldp.audit.game import Game, Trials
from fedldp.audit.inputs import (
    InputPair,
    constant_pairs,
    coordinate_pairs,
    scanned_pairs,
    whole_pairs,
)
from fedldp.audit.observations import (
    AuditKeys,
    Floats,
    Observations,
    Rounds,
    estimate_alone,
    needs_simulated,
    observe,
)
from fedldp.audit.results import GameResult, Line
from fedldp.audit.scores import Score, of_code_pairs, of_codes, of_reports
from fedldp.mechanisms import Mechanism, mechanisms, stated_event

_FLIPPED = 32
"""How many bits are flipped at each end of a payload, where a header or a checksum may be, and how
many at random positions."""
_LARGEST = 1e12
"""The limit on estimates, so that their squares can be added."""
_MISSING = -2 * _LARGEST
"""Stands for each coordinate of an answer that is missing or unreadable."""


def shown_coordinates(mechanism: Mechanism, size: int) -> tuple[bool, str]:
    """Return whether each estimate from a report shows one coordinate only, and what none shows.

    What none shows is told to the reader; it is empty if estimates show all bits. The layout does
    not depend on an audit's seed, so the few reports that are looked at always use the same
    streams.
    """
    keys, label = AuditKeys(0), f"{mechanism!r}/{size}/layout"
    generator = keys.generator(label)
    ones = np.ones(size)
    inputs = [ones, -ones, *generator.uniform(-1, 1, (2, size))]
    streams = keys.draws(len(inputs), label, simulated=False).streams(0, len(inputs))
    reports = []
    for values, stream in zip(inputs, streams, strict=True):
        try:
            reports.append(bytes(mechanism.encode(values.copy(), stream)))
        except Exception:  # a refusal has no layout
            continue
    if len(reports) < 2:
        return False, "not played, because encode refuses values between -1 and 1"
    if any(estimate_alone(mechanism, size, report) is None for report in reports):
        return False, "not played, because the server cannot read an honest report"
    changed = list(_changed(mechanism, size, reports, generator))
    if max(changed, default=0) > 1:
        return False, "not played, because a flipped bit of a report changes several estimates"
    if 1 not in changed:
        return False, "not played, because no flipped bit of a report changes an estimate"
    unread = changed.count(0)
    left_out = (
        f"{unread} of {len(changed)} flipped bits changed no estimate; only games on whole reports "
        "look at bits that aggregate does not read"
    )
    return True, left_out if unread else ""


def _changed(
    mechanism: Mechanism, size: int, reports: Sequence[bytes], generator: np.random.Generator
) -> Iterator[int]:
    """Yield, for each flipped bit of a readable payload, how many estimates it changes."""
    fewest = 8 * min(map(len, reports))
    ends = np.arange(min(_FLIPPED, fewest))
    anywhere = generator.integers(0, fewest, _FLIPPED)
    flipped = np.unique(np.concatenate([ends, fewest - 1 - ends, anywhere]))
    for number, at in enumerate(flipped.tolist()):
        rows = np.frombuffer(reports[number % len(reports)], np.uint8).copy()
        seen = [estimate_alone(mechanism, size, rows.tobytes())]
        rows[at // 8] ^= 128 >> at % 8
        seen.append(estimate_alone(mechanism, size, rows.tobytes()))
        before, after = seen
        if before is not None and after is not None:
            yield int((before != after).sum())


BLOCK = 1 << 16
"""The number of coordinates of one report in a game of coordinates."""

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


def lines_of(
    mechanism: Mechanism,
    size: int,
    unit: Unit,
    deltas: Sequence[float] = (0.0,),
    claimed: float | None = None,
) -> tuple[Line, ...]:
    """Return what a mechanism's event proves for a unit at some deltas, beside a claim.

    Args:
        mechanism: the mechanism.
        size: d, coordinates of its input.
        unit: the unit; "client-run": a run of two rounds.
        deltas: the deltas.
        claimed: the claimed epsilon.
    """
    event, rounds = stated_event(mechanism, size), 2 if unit == "client-run" else 1
    return tuple(
        Line(
            subject=repr(mechanism),
            size=size,
            unit=unit,
            delta=delta,
            claimed=claimed,
            proven=proven_epsilon(event, unit, delta, rounds=rounds),
            stated_by=whose(type(mechanism)),
        )
        for delta in deltas
    )


def whose(mechanism: type[Mechanism]) -> str:
    """Return who states a mechanism's event: "fedldp", or the address of a user's own class."""
    if mechanism in mechanisms().values():
        return HOUSE
    return f"{mechanism.__module__}:{mechanism.__qualname__}"


@dataclass(frozen=True, kw_only=True)
class _OfMechanism(Game):
    """A game of a mechanism.

    Attributes:
        mechanism: the attacked mechanism.
    """

    trial: ClassVar[str] = ""
    """What a trial is, unless it is the unit of the lines."""

    mechanism: Mechanism

    @property
    def size(self) -> int:
        """The number of coordinates of a report, d."""
        return self.lines[0].size

    @property
    def name(self) -> str:
        """What a trial is."""
        return self.trial or self.lines[0].unit

    @property
    def label(self) -> str:
        """The label that separates this game's streams from other games'."""
        return f"{self.mechanism!r}/{self.size}/{self.name}"


@dataclass(frozen=True, kw_only=True)
class ReportGame(_OfMechanism):
    """The adversary sees whole reports from one client, and knows that the input is one of two.

    If the lines are for a "weight", the inputs differ in one coordinate; for a "client-round", in
    all coordinates; for a "client-run", in all coordinates, after a report of the first input.
    """

    def trials(self, asked: int | None) -> Trials:
        """Return as many trials as the proven epsilon at the first delta makes worthwhile."""
        effort, mechanism = self.effort, self.mechanism
        many = type(mechanism).encode_many is not Mechanism.encode_many and not mechanism.costly
        most = effort.mechanism_most_quick if many else effort.mechanism_most
        count = asked or trials_for(self.lines[0].proven, effort.mechanism_least, most)
        return Trials(effort.mechanism_explore, count, again=not mechanism.costly)

    def pairs(self, keys: AuditKeys) -> list[InputPair]:
        """Return the usual pairs, and the most promising of many others."""
        generator = keys.generator(self.label)
        if self.name == "weight":
            return [*coordinate_pairs(self.size, generator), *self._scanned(keys)]
        found = whole_pairs(self.size, generator)
        if self.name == "client-run":  # two reports test the streams, so few inputs suffice
            return found[:2]
        return [*found, *self._scanned(keys)]

    def observe(
        self, pair: InputPair, side: int, count: int, keys: AuditKeys, purpose: str
    ) -> Iterator[Rounds]:
        """Yield the reports, round by round."""
        values = [pair.first, pair.second][side]
        rounds = [pair.first, values] if self.name == "client-run" else [values]
        # Encode in the order of real clients: report i of round r is in row i * rounds + r.
        seen = self._seen(np.tile(np.array(rounds), (count, 1)), keys, pair.name, side, purpose)
        yield Rounds(seen.part(at, None, len(rounds)) for at in range(len(rounds)))

    def scores(self, pair: InputPair, first: Rounds, second: Rounds) -> Iterator[tuple[str, Score]]:
        """Return scores of the bytes, and of the server's estimate."""
        return of_reports(first, second, (pair.first, pair.second))

    def _seen(self, values: NDArray[Any], keys: AuditKeys, *labels: object) -> Observations:
        simulated = needs_simulated(self.mechanism, self.size)
        draws = keys.draws(len(values), self.label, *labels, simulated=simulated)
        return observe(self.mechanism, values, draws)

    def _scanned(self, keys: AuditKeys) -> list[InputPair]:
        """Return the pair, among many, whose estimates differ most; empty if none is tried."""
        trials = self.effort.mechanism_scan
        if self.mechanism.costly or trials == 0:
            return []
        pairs = scanned_pairs(self.size, one_coordinate=self.name == "weight")

        def seen(number: int, values: NDArray[Any], count: int) -> Observations:
            return self._seen(np.tile(values, (count, 1)), keys, "scan", number)

        found: dict[int, Observations] = {}
        apart = []
        for number, pair in enumerate(pairs):
            if id(pair.second) not in found:  # several pairs may share this input
                found[id(pair.second)] = seen(-1 - number, pair.second, 8 * trials)
            apart.append(_apart(seen(number, pair.first, trials), found[id(pair.second)]))
        return [pairs[int(np.argmax(apart))]]


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
class _OfCoordinates(_OfMechanism):
    """The adversary sees the codes of a report's coordinates, each of which is a trial.

    The game is for events that state independent and identical coordinates. If the coordinates are
    dependent or differ in law, the stated event is wrong, and a bound above its epsilon is still a
    correct verdict.
    """

    def play(
        self, keys: AuditKeys, confidence: float, trials: int | None = None
    ) -> list[GameResult]:
        """Play if estimates show coordinates; a row without a verdict says what is left out."""
        shown, left_out = shown_coordinates(self.mechanism, self.size)
        rows = []
        if left_out:
            attack = f"{self.name}: {left_out}"
            rows.append(self.lines[0].result(attack=attack, note="omitted: no verdict"))
        return rows + super().play(keys, confidence, trials) if shown else rows

    def _codes(self, values: NDArray[Any], count: int, keys: AuditKeys, *labels: object) -> Any:
        """Yield the estimate of each coordinate of the same values, from each of the reports."""
        draws = keys.draws(count, self.label, *labels, simulated=False)
        for stream in draws.streams(0, count):
            try:
                found = estimate_alone(
                    self.mechanism, self.size, self.mechanism.encode(values, stream)
                )
            except Exception:  # a refusal
                found = None
            if found is None:
                yield np.full(self.size, _MISSING)
            else:
                yield np.clip(np.nan_to_num(found), -_LARGEST, _LARGEST)


@dataclass(frozen=True, kw_only=True)
class CoordinateGame(_OfCoordinates):
    """The adversary sees the codes of coordinates that all have one of two values."""

    trial = "coordinates"

    suffix = " of a coordinate"

    def trials(self, asked: int | None) -> Trials:
        """Return as many coordinates as the proven epsilon makes worthwhile, in whole reports."""
        most = self.effort.mechanism_most_coordinates
        count = asked or trials_for(self.lines[0].proven, min(most, 4 * self.size), most)
        return Trials(self.size, self.size * -(-count // self.size))

    def pairs(self, keys: AuditKeys) -> list[InputPair]:
        """Return the usual pairs of values, and the most promising of many others."""
        return [*constant_pairs(), self._scanned(keys)]

    def observe(
        self, pair: InputPair, side: int, count: int, keys: AuditKeys, purpose: str
    ) -> Iterator[NDArray[Any]]:
        """Yield the codes, report by report."""
        value = [pair.first, pair.second][side]
        yield from self._of_value(value, count // self.size, keys, pair.name, side, purpose)

    def explored(self, pair: InputPair, count: int, keys: AuditKeys) -> Any:
        """Return the codes of one report to fit scores, and of another to choose events."""
        return tuple(
            [next(self.observe(pair, side, count, keys, purpose)) for side in (0, 1)]
            for purpose in ("fit", "explore")
        )

    def scores(
        self, pair: InputPair, first: NDArray[Any], second: NDArray[Any]
    ) -> Iterator[tuple[str, Score]]:
        """Return scores of single codes."""
        return of_codes(first, second)

    def _scanned(self, keys: AuditKeys) -> InputPair:
        """Return the value, among many, whose codes are farthest from the codes of an end."""
        grid = np.linspace(-_WIDE, _WIDE, min(_VALUES, self.size))
        values = np.resize(grid, len(grid) * (self.size // len(grid)))
        seen = np.concatenate(list(self._of_value(values, _SCANS, keys, "scan", 0, "grid")))
        of_values = seen.reshape(-1, len(grid)).astype(np.float64)
        tried = []
        for side, end in enumerate((1.0, -1.0)):
            (codes,) = self._of_value(np.array([end]), 1, keys, "scan", side, "end")
            apart = deviations(of_values, codes.astype(np.float64)[:, None])
            tried.append((float(apart.max()), float(grid[int(apart.argmax())]), end))
        _, value, end = max(tried)
        return InputPair(f"{value:.5f} against an end", np.array([value]), np.array([end]))

    def _of_value(self, value: NDArray[Any], count: int, keys: AuditKeys, *labels: object) -> Any:
        return self._codes(np.resize(value, self.size), count, keys, *labels)


@dataclass(frozen=True, eq=False)
class _Lag:
    """Ones, and ones of which the first coordinate of each pair at a lag is -1 instead.

    Attributes:
        lag: how far the second coordinate of each pair is from the first.
        firsts: the first coordinate of each pair; pairs have no coordinate in common.
        inputs: both inputs, shape (d,) each.
    """

    lag: int
    firsts: NDArray[np.int64]
    inputs: tuple[NDArray[np.float64], NDArray[np.float64]]

    @property
    def name(self) -> str:
        return f"two coordinates {self.lag:,} apart"


@dataclass(frozen=True, kw_only=True)
class RepetitionGame(_OfCoordinates):
    """The adversary sees many pairs of coordinates and guesses if the first of each is 1 or -1.

    The adversary encodes ones, and finds the lag at which the codes of two coordinates agree most
    (by a Fourier transform), up to half the report. In every pair of coordinates at this lag, the
    game then moves the first coordinate from 1 to -1. The adversary knows the second coordinate,
    which reveals the first if both draw the same noise. By the event's own statement each pair is a
    trial.
    """

    trial = "repetitions"

    def trials(self, asked: int | None) -> Trials:
        """Return at least the number of pairs in a report; ``counted`` returns this number."""
        return Trials(self.size, self.size)

    def pairs(self, keys: AuditKeys) -> list[_Lag]:
        """Return the lag at which codes agree most."""
        ones = np.ones(self.size)
        (codes,) = self._codes(ones, 1, keys, "lag")
        centred = codes - codes.mean()
        spectrum = np.fft.rfft(centred, 2 * self.size)
        agreement = np.fft.irfft(np.abs(spectrum) ** 2)[1 : self.size // 2 + 1]
        among = self.size - np.arange(1, len(agreement) + 1)
        lag = 1 + int(np.argmax(np.abs(agreement) / np.sqrt(among)))
        places = np.arange(self.size - lag)
        firsts = places[places // lag % 2 == 0]
        turned = ones.copy()
        turned[firsts] = -1.0
        return [_Lag(lag, firsts, (ones, turned))]

    def counted(self, pair: _Lag, trials: Trials) -> int:
        """Return the number of pairs of coordinates."""
        return len(pair.firsts)

    def observe(
        self, pair: _Lag, side: int, count: int, keys: AuditKeys, purpose: str
    ) -> Iterator[NDArray[Any]]:
        """Yield the codes of both coordinates of each pair, shape (pairs, 2)."""
        (codes,) = self._codes(pair.inputs[side], 1, keys, f"{purpose} {side}")
        yield np.column_stack([codes[pair.firsts], codes[pair.firsts + pair.lag]])

    def explored(self, pair: _Lag, count: int, keys: AuditKeys) -> Any:
        """Return all pairs to choose events; no score is fitted."""
        seen = [next(self.observe(pair, side, count, keys, "explore")) for side in (0, 1)]
        return seen, seen

    def scores(
        self, pair: _Lag, first: NDArray[Any], second: NDArray[Any]
    ) -> Iterable[tuple[str, Score]]:
        """Return the difference and the sum of two codes."""
        return of_code_pairs()
