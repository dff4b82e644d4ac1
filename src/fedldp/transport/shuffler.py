"""Parameter shuffling as a discrete-event simulation of arrivals: no sleeping.

Each message of a client leaves after its own random delay, so that arrival times and order say
nothing about which messages belong together:

    t = T_W + U(0, T),   T_W = T_S - t_LC - t_C,   T_S = max over clients of (t_LC + t_C)

A message sent at t after the end of training arrives at t_LC + t + t_C = T_S + U(0, T) where the
client predicted its own times rightly. Wrong predictions shift a client's whole window, which is
visible to the server; ``Delays.prediction_error`` simulates that.

Source: Sun, Qian, Chen 2021, Algorithm 3 and Section 3.1, Parameter Shuffling.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from fedldp.errors import RunError
from fedldp.randomness import SERVER, Stream
from fedldp.systems.settings import Delays
from fedldp.transport import Delivery, Transport
from fedldp.wire import Question, Refusal, Report, Shuffled

# Messages put in order at a time; a block covers all clients at some positions.
_BLOCK = 1 << 22


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """What the clients of one round agreed on and how long each takes; times in seconds.

    Attributes:
        delay: T, the median of the clients' proposals: one dishonest client cannot move it far.
        response: T_S, the slowest client's predicted t_LC + t_C.
        waits: T_W of each client, shape (n,).
        offsets: for each client, t_LC + T_W + t_C: when its window of arrivals opens, shape (n,).
    """

    delay: float
    response: float
    waits: NDArray[np.float64]
    offsets: NDArray[np.float64]


def draw_schedule(delays: Delays, clients: int, generator: np.random.Generator) -> Schedule:
    """Draw the times of ``clients`` clients and let them agree on T and T_S."""

    def around(typical: float, sigma: float) -> NDArray[np.float64]:
        return typical * generator.lognormal(0.0, sigma, clients)

    training = around(delays.compute_seconds, delays.spread)
    communication = around(delays.communication_seconds, delays.spread)
    predicted = (training + communication) * around(1.0, delays.prediction_error)
    proposals = around(delays.delay_seconds, delays.spread)
    response = float(predicted.max())
    waits = np.maximum(response - predicted, 0.0)
    offsets = training + waits + communication
    if delays.prediction_error == 0:
        offsets = np.full(clients, response)  # equal but for rounding, which would tell them apart
    return Schedule(
        delay=float(np.median(proposals)), response=response, waits=waits, offsets=offsets
    )


class Shuffler:
    """A transport that takes another's reports and puts their messages out without senders.

    Args:
        inner: where the reports come from.
        delays: the time model.
        stream: gives the stream for (round, client, purpose): each client draws its own delays.
        record: is shown every block of messages that comes out, with its number in the round.
    """

    def __init__(
        self,
        inner: Transport,
        delays: Delays,
        stream: Callable[[int, int, str], Stream],
        record: Callable[[int, Shuffled], None] = lambda block, messages: None,
    ) -> None:
        self._inner = inner
        self._delays = delays
        self._stream = stream
        self._record = record
        self._arrivals: dict[str, float] | None = None

    def arrivals(self) -> dict[str, float] | None:
        """Return T, T_S, and the first and last T_W and arrival of the last round, in seconds."""
        return self._arrivals

    def exchange(self, question: Question, clients: Sequence[int]) -> Iterator[Delivery]:
        """Yield who takes part, then the messages, each budget apart, in blocks by arrival.

        A shuffler can only start when all reports are there: it holds n d bits.
        """
        reports: list[tuple[int, Report]] = []
        for client, content in self._inner.exchange(question, clients):
            if isinstance(content, Refusal):
                yield client, content
                continue
            if client is None or not isinstance(content, Report):
                raise RunError("a shuffler needs whole reports, not ones that are shuffled already")
            if content.client is not None or content.weight is not None:
                raise RunError("a shuffler passes no report on that names or tells its sender")
            reports.append((client, content))
            yield client, None
        if not reports:
            return
        round = question.broadcast.round
        times = self._stream(round, SERVER, "latency").generator()
        schedule = draw_schedule(self._delays, len(reports), times)
        first, last, block = math.inf, -math.inf, 0
        numbered = sorted(enumerate(reports), key=lambda item: item[1][1].epsilon or 0.0)
        for _, group in groupby(numbered, key=lambda item: item[1][1].epsilon):
            for messages in self._shuffle(list(group), schedule):
                block += 1
                first = min(first, float(messages.arrival_seconds[0]))
                last = max(last, float(messages.arrival_seconds[-1]))
                self._record(block, messages)
                yield None, messages
        self._arrivals = {
            "delay": schedule.delay,
            "response": schedule.response,
            "first_wait": float(schedule.waits.min()),
            "last_wait": float(schedule.waits.max()),
            "first_arrival": first,
            "last_arrival": last,
        }

    def _shuffle(
        self, group: list[tuple[int, tuple[int, Report]]], schedule: Schedule
    ) -> Iterator[Shuffled]:
        first = group[0][1][1]
        labels = first.num_messages
        delays = [
            self._stream(first.round, client, "delays").generator() for _, (client, _) in group
        ]
        ties = self._stream(first.round, SERVER, f"ties {first.epsilon}").generator()
        offsets = schedule.offsets[[place for place, _ in group]]
        payloads = np.stack([np.frombuffer(report.payload, np.uint8) for _, (_, report) in group])
        step = max(1, _BLOCK // (len(group) * first.chunk))
        for start in range(0, labels, step):
            positions = np.arange(start, min(start + step, labels))
            arrivals = np.stack(
                [
                    offset + generator.uniform(0.0, schedule.delay, len(positions))
                    for offset, generator in zip(offsets, delays, strict=True)
                ]
            ).reshape(-1)
            # Equal times come in random order: that of the clients would link their messages.
            order = np.lexsort((ties.permutation(len(arrivals)), arrivals))
            bits = _message_bits(payloads, first, positions)
            yield Shuffled(
                round=first.round,
                size=first.size,
                chunk=first.chunk,
                positions=np.tile(positions, len(group))[order],
                bits=bits.reshape(-1, first.chunk)[order],
                arrival_seconds=arrivals[order],
                epsilon=first.epsilon,
            )


def _message_bits(
    payloads: NDArray[np.uint8], report: Report, positions: NDArray[np.int64]
) -> NDArray[np.uint8]:
    """Return the bits of messages ``positions`` of all reports, shape (n, messages, chunk)."""
    first = int(positions[0]) * report.chunk
    last = min((int(positions[-1]) + 1) * report.chunk, report.size)
    part = payloads[:, first // 8 : -(-last // 8)]
    bits = np.unpackbits(part, axis=1)[:, first % 8 : first % 8 + last - first]
    padded = np.zeros((len(payloads), len(positions) * report.chunk), np.uint8)
    padded[:, : bits.shape[1]] = bits
    return padded.reshape(len(payloads), len(positions), report.chunk)
