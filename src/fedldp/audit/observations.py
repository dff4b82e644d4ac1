"""What the adversary sees of a mechanism: bytes, their length, and whether it answers at all."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.accountants import real_arithmetic_only
from fedldp.core.randomness import KEY_BYTES, Stream
from fedldp.mechanisms import Mechanism

REFUSED = -1
"""The length that stands for a missing answer."""

_TOGETHER = 64

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class TrialStreams:
    """The keystreams of some trials, one for each report; each call returns them from the start."""

    keys: bytes
    simulated: bool

    def __len__(self) -> int:
        return len(self.keys) // KEY_BYTES

    def streams(self, start: int, stop: int) -> list[Stream]:
        """Return the streams of some trials, from their beginning."""
        starts = range(KEY_BYTES * start, KEY_BYTES * stop, KEY_BYTES)
        return [Stream(self.keys[at : at + KEY_BYTES], simulated=self.simulated) for at in starts]


@dataclass(frozen=True)
class AuditKeys:
    """The source of an audit's keystreams: the same seed and labels give the same streams."""

    seed: int

    def draws(self, count: int, *labels: object, simulated: bool) -> TrialStreams:
        """Return ``count`` independent streams, also independent of streams with other labels.

        They are seeded, so that an audit can be repeated. With ``simulated`` false they are of the
        kind that a deployment uses, so that a mechanism draws as it does in a deployment.
        """
        secret = hashlib.blake2b(f"fedldp audit/{self.seed}".encode(), digest_size=32).digest()
        source = Stream.derived(secret, *map(str, labels))
        return TrialStreams(source.bytes(KEY_BYTES * count).tobytes(), simulated)

    def generator(self, *labels: object) -> np.random.Generator:
        """Return a generator for public choices, such as random inputs."""
        return self.draws(1, "public", *labels, simulated=True).streams(0, 1)[0].generator()


@dataclass(frozen=True, eq=False)
class Observations:
    """The answers of ``n`` trials with one input.

    Attributes:
        lengths: bytes of each answer, or ``REFUSED``; shape (n,).
        rows: the answers, padded with zeros, shape (n, bytes of the longest).
        mechanism: the mechanism that answered; its decoder is public.
        size: d, coordinates of its input.
    """

    lengths: NDArray[np.int64]
    rows: NDArray[np.uint8]
    mechanism: Mechanism
    size: int

    def __len__(self) -> int:
        return len(self.lengths)

    def part(self, start: int, stop: int | None, step: int = 1) -> Observations:
        """Return some of the trials."""
        at = slice(start, stop, step)
        return Observations(self.lengths[at], self.rows[at], self.mechanism, self.size)

    @cached_property
    def whole(self) -> list[bytes]:
        """Each answer with its length, as a single key."""
        lengths = self.lengths.tolist()
        return [
            row[: max(0, length)].tobytes() + b"/%d" % length
            for row, length in zip(self.rows, lengths, strict=True)
        ]

    @cached_property
    def decoded(self) -> Floats:
        """The server's estimate from each answer alone, shape (n, d); zeros if none came."""
        found = np.zeros((len(self), self.size))
        for estimate, row, length in zip(found, self.rows, self.lengths, strict=True):
            payload = row[: max(0, length)].tobytes()
            alone = estimate_alone(self.mechanism, self.size, payload)
            if length >= 0 and alone is not None:
                estimate[:] = alone
        return np.nan_to_num(found)


def estimate_alone(mechanism: Mechanism, size: int, payload: bytes) -> Floats | None:
    """Return the server's estimate from one report, shape (d,); None if it cannot be read."""
    try:
        aggregate = mechanism.aggregate(size)
        aggregate.add(payload)
        found = np.asarray(aggregate.mean(), np.float64)
    except Exception:  # decoding a malformed answer may raise anything
        return None
    return found if found.shape == (size,) else None


class Rounds(tuple[Observations, ...]):
    """What is seen in each round of some trials with one input."""

    def part(self, start: int, stop: int | None) -> Rounds:
        """Return some of the trials."""
        return Rounds(each.part(start, stop) for each in self)


def needs_simulated(mechanism: Mechanism, size: int) -> bool:
    """Return whether a mechanism accepts only the streams of simulations."""
    return real_arithmetic_only(mechanism.event(size))


def observe(mechanism: Mechanism, values: NDArray[Any], draws: TrialStreams) -> Observations:
    """Return what is seen of the rows of ``values``, shape (n, d), each with its own stream.

    A missing answer is an observation, too, whatever the reason. Only some rows are encoded at a
    time, so that a mistake shared by the rows of one call does not affect all rows.
    """
    answers: list[bytes | None] = []
    for start in range(0, len(draws), _TOGETHER):
        answers += _answers(mechanism, values[start : start + _TOGETHER], draws, start)
    lengths = np.array([REFUSED if a is None else len(a) for a in answers], np.int64)
    rows = np.zeros((len(answers), max(1, int(lengths.max()))), np.uint8)
    if (lengths == lengths[0]).all() and lengths[0] > 0:
        joined = b"".join(answer for answer in answers if answer is not None)
        rows = np.frombuffer(joined, np.uint8).reshape(rows.shape)
    else:
        for row, answer in zip(rows, answers, strict=True):
            if answer:
                row[: len(answer)] = np.frombuffer(answer, np.uint8)
    return Observations(lengths, rows, mechanism, values.shape[1])


def _answers(
    mechanism: Mechanism, values: NDArray[Any], draws: TrialStreams, start: int
) -> list[bytes | None]:
    stop = start + len(values)
    try:
        rows = mechanism.encode_many(values.copy(), draws.streams(start, stop))
        if rows.ndim == 2 and len(rows) == len(values) and rows.dtype == np.uint8:
            return [row.tobytes() for row in rows]
    except Exception:  # one row is refused, or lengths differ: encode one by one instead
        pass
    streams = draws.streams(start, stop)
    return [_answer(mechanism, row, stream) for row, stream in zip(values, streams, strict=True)]


def _answer(mechanism: Mechanism, values: NDArray[Any], stream: Stream) -> bytes | None:
    try:
        return bytes(mechanism.encode(values.copy(), stream))
    except Exception:  # the adversary observes a refusal of any kind
        return None
