"""The certain checks of a mechanism: the weights of its category, and its duties.

The check of a category's weights counts how many 64-bit words lead to each report. A mechanism that
states a ``SubsetResponse`` draws its category with one word from the stream. Here the mechanism
itself encodes with chosen words, while its seed stays the same, and we count the words that lead to
each report. From these counts we compute the law and its epsilon again. This detects weights that
are off by one, which no number of random trials would.

The check assumes that if two neighbouring words among those tried lead to the same report, then all
words between them lead to it, too. It tries both ends of every run of words that follows from the
stated weights, in the order of ``Window``. Where neighbouring words lead to different reports, it
bisects the words between them.

A mechanism's duties, whatever its epsilon, are to refuse non-numbers, and to write readable
reports. An encoder never gives a mechanism NaN or infinity, so no epsilon is false because a
mechanism accepts them. But such a mechanism breaks its contract, and does not protect those who
call it directly. And if ``aggregate`` raises on an honest report, the games that use the server's
estimate find nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.events import SubsetResponse
from fedldp.audit.game import Planned
from fedldp.audit.observations import AuditKeys, needs_simulated
from fedldp.audit.results import GameResult
from fedldp.core.errors import PrivacyError
from fedldp.core.numbers import exp_below, log_up
from fedldp.core.randomness import Stream
from fedldp.mechanisms import Mechanism

WORDS = 1 << 64
_TOGETHER = 512
_MOST_HALVINGS = 100
"""The most words tried for each category; it takes 64 words to find each of its two ends."""
_RANDOM, _TRIED = 12, 16
"""The number of random inputs, and of words for each of them but the first: one report with another
seed is enough. A choice that depends on the values, such as the better of two seeds, may be the
same for a few inputs."""
_AGAIN = b""
"""Stands in for the report of a word that is drawn again."""

Law = Counter[bytes]
"""How many words lead to each report, not counting the words that are drawn again."""


@dataclass(frozen=True, kw_only=True)
class WeightCheck(Planned):
    """The counted law of a mechanism's category, compared with what the mechanism states.

    Attributes:
        mechanism: the checked mechanism.
        stated: the law that it states.
    """

    certain = True
    mechanism: Mechanism
    stated: SubsetResponse

    def play(
        self, keys: AuditKeys, confidence: float, trials: int | None = None
    ) -> list[GameResult]:
        """Count words, and return one row."""
        (line,) = self.lines
        key = keys.draws(1, self.title, "seed", simulated=False).keys
        generator = keys.generator(self.title)
        laws: list[Law] = []
        wrong = ""
        for name, values, whole in self._inputs(generator):
            try:
                if whole:
                    law = law_of(self.mechanism, values, key, self.stated)
                else:
                    words = generator.integers(0, WORDS - 1, _TRIED, np.uint64, endpoint=True)
                    law = Counter(_reports(self.mechanism, values, key, words.tolist()))
            except Exception:  # refusing a finite vector is an outcome that the games observe
                law = Counter()
            laws += [law] * whole
            known = {*laws[0], _AGAIN}
            if not laws[0]:
                break
            if wrong := unlike(law, self.stated) if whole else "":
                wrong = f"{name}: {wrong}"
            elif not law or not law.keys() <= known or (whole and law.keys() != laws[0].keys()):
                wrong = f"{name}: some reports come from only one of it and random input 1"
            if wrong:
                break
        ratio = _largest_ratio(laws)
        lower, above = 0.0, False
        if ratio is None:
            wrong = ""
            note = "unchecked: reports need several words, or their words are not contiguous"
        else:
            above = line.proven is not None and ratio > exp_below(Fraction(line.proven))
            # Rounding up must not lift a ratio within the proven epsilon above that epsilon.
            exact = log_up(ratio)
            lower = exact if above or line.proven is None else min(line.proven, exact)
            note = "exact: the weights are as stated"
            if wrong or above:
                note = "different from the stated weights" if wrong else "above the stated epsilon"
        counted = line.result(
            attack=f"64-bit words counted for each report; {wrong or 'distributions compared'}",
            lower=lower,
            trials=len(laws),
            verdict="bug" if wrong or above else "ok",
            note=note,
            finds=line.proven,
        )
        return [counted]

    def _inputs(
        self, generator: np.random.Generator
    ) -> Iterator[tuple[str, NDArray[np.float64], bool]]:
        """Yield the inputs by name, and whether all words are counted rather than a few tried."""
        ones = np.ones(self.lines[0].size)
        for at, values in enumerate(generator.normal(size=(_RANDOM, len(ones))), 1):
            yield f"random input {at}", values, at == 1
        yield "the opposite corner", -ones, False
        yield "a corner", ones, True
        yield "zero", 0 * ones, True


def law_of(
    mechanism: Mechanism, values: NDArray[np.float64], key: bytes, stated: SubsetResponse
) -> Law:
    """Return how many words lead to each report of ``values``.

    The result is empty if one word does not determine the report, or if the words that lead to one
    report are not contiguous.

    Args:
        mechanism: the mechanism that encodes.
        values: shape (d,).
        key: the key of all other randomness, which is the same for every word.
        stated: the stated weights; both ends of their runs of words are tried.
    """
    window = [stated.high] * stated.closest + [stated.low] * (stated.categories - stated.closest)
    ends, start = [], 0
    for weight in window:
        ends += [start, start + weight - 1]
        start += weight
    words = sorted({*(end for end in ends if end < WORDS), min(start, WORDS - 1), WORDS - 1})
    reports = _reports(mechanism, values, key, words)
    while True:
        gaps = [
            at
            for at in range(len(words) - 1)
            if reports[at] != reports[at + 1] and words[at + 1] - words[at] > 1
        ]
        if not gaps:
            break
        if len(words) > _MOST_HALVINGS * stated.categories:
            return Counter()  # the words that lead to one report are not contiguous
        middles = [(words[at] + words[at + 1]) // 2 for at in gaps]
        known = dict(zip(words, reports, strict=True))
        known |= zip(middles, _reports(mechanism, values, key, middles), strict=True)
        words = sorted(known)
        reports = [known[word] for word in words]
    law: Law = Counter()
    for at, (word, report) in enumerate(zip(words, reports, strict=True)):
        # All words before the next known word lead to this report, because the next known word is
        # adjacent or leads to the same report.
        law[report] += (words[at + 1] if at + 1 < len(words) else WORDS) - word
    law.pop(_AGAIN, None)
    return law


class _Chosen(Stream):
    """A stream whose first 64-bit word is chosen."""

    def __init__(self, key: bytes, word: int) -> None:
        super().__init__(key, simulated=False)
        self._word = word
        self.drawn = 0

    def integers(self, count: int, dtype: type[np.signedinteger | np.unsignedinteger]) -> NDArray:  # type: ignore[type-arg]
        self.drawn += count
        found = super().integers(count, dtype)
        if self.drawn == count == 1 and np.dtype(dtype) == np.uint64:
            return np.array([self._word], np.uint64)
        return found


def _reports(
    mechanism: Mechanism, values: NDArray[np.float64], key: bytes, words: Sequence[int]
) -> list[bytes]:
    found: list[bytes] = []
    for start in range(0, len(words), _TOGETHER):
        streams = [_Chosen(key, word) for word in words[start : start + _TOGETHER]]
        rows = mechanism.encode_many(np.tile(values, (len(streams), 1)), streams)
        found += [
            row.tobytes() if stream.drawn == 1 else _AGAIN
            for row, stream in zip(rows, streams, strict=True)
        ]
    return found


def unlike(law: Law, stated: SubsetResponse) -> str:
    """Describe how a law differs from the stated one; return an empty string if it does not."""
    due = Counter({stated.high: stated.closest})
    due[stated.low] += stated.categories - stated.closest
    found = Counter(law.values())
    if not law or found == due:
        return ""
    weight = next(weight for weight in sorted(found | due) if found[weight] != due[weight])
    return f"{found[weight]} reports have weight {weight}, but {due[weight]} are stated"


def _largest_ratio(laws: Sequence[Law]) -> Fraction | None:
    """Return the largest ratio between a report's probabilities for two inputs.

    None if a law is unknown. A report that an input never leads to counts as if one word led to it.
    """
    if not all(laws):
        return None
    reports = {report for law in laws for report in law}
    totals = [law.total() for law in laws]
    shares = [
        [Fraction(max(1, law[report]), total) for law, total in zip(laws, totals, strict=True)]
        for report in sorted(reports)
    ]
    return max(max(each) / min(each) for each in shares)


@dataclass(frozen=True, kw_only=True)
class ContractCheck(Planned):
    """A mechanism's duties besides its epsilon.

    Attributes:
        mechanism: the checked mechanism.
    """

    certain = True
    mechanism: Mechanism

    def play(
        self, keys: AuditKeys, confidence: float, trials: int | None = None
    ) -> list[GameResult]:
        """Return a row for each broken duty; none if all are kept."""
        (line,) = self.lines
        simulated = needs_simulated(self.mechanism, line.size)
        (stream,) = keys.draws(1, self.title, simulated=simulated).streams(0, 1)
        return [
            line.result(
                attack=broken,
                verdict="fails its contract",
                note="certain: found without trials",
            )
            for broken in _broken(self.mechanism, line.size, stream)
        ]


def _broken(mechanism: Mechanism, size: int, stream: Stream) -> Iterator[str]:
    """Yield each non-number that is not refused properly, and why a report cannot be read."""
    for name, value in (("NaN", np.nan), ("infinity", np.inf), ("minus infinity", -np.inf)):
        one = np.ones(size)
        one[-1] = value
        for values in (np.full(size, value), one):
            try:
                mechanism.encode(values.copy(), stream)
            except PrivacyError:
                continue
            except Exception as error:
                yield f"encode of {name} raises {_named(error)} instead of a PrivacyError"
            else:
                yield f"encode accepts {name}, which it must refuse with a PrivacyError"
            break
    try:
        payload = mechanism.encode(np.zeros(size), stream)
    except Exception:  # refusing a finite vector is an outcome that the games observe
        return
    try:
        aggregate = mechanism.aggregate(size)
        aggregate.add(payload)
        mean = np.asarray(aggregate.mean())
    except Exception as error:
        yield (
            f"aggregate raises {_named(error)} on an honest report, so no attack used the "
            "server's estimate"
        )
        return
    if mean.shape != (size,):
        yield f"aggregate returns a mean of shape {mean.shape}, not {(size,)}"
    elif not np.isfinite(mean).all():
        yield "aggregate returns NaN or infinity for an honest report"


def _named(error: Exception) -> str:
    said = f"{type(error).__name__}: {error}".splitlines()[0].rstrip(": ")
    return said if len(said) <= 120 else f"{said[:117]}..."
