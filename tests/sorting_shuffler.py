"""Parameter shuffling as a discrete-event simulation of arrivals, without sleeping.

It holds and sorts n d bits with their times. No server step reads the order, so
``Counting`` must give the same counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from fedldp.algorithms.settings import Delays
from fedldp.core.randomness import SERVER, Source, declare
from fedldp.protocol.server_loop import Delivery, Transport, one_by_one
from fedldp.protocol.wire import Refusal, Report, RoundRequest, Shuffled
from fedldp.simulation.shuffler import (
    Schedule,
    World,
    delay_of_run,
    draw_schedule,
    times,
    unnamed,
)

declare(Source.WORLD, "delays", "ties *")

# The number of messages that are sorted at a time. A block has the messages of all clients at some
# positions.
_BLOCK = 1 << 22


class Shuffler:
    """A transport that emits the messages in another transport's reports, without senders.

    Args:
        inner: the source of the reports.
        delays: the time model.
        clients: the number of clients in the run; they all agree on T, once for all rounds.
        stream: returns the stream of random numbers for a round, a client and a purpose, so that
            each client draws its own delays.
    """

    def __init__(
        self,
        inner: Transport,
        delays: Delays,
        clients: int,
        stream: World,
    ) -> None:
        self._inner = inner
        self._delays = delays
        self._delay = delay_of_run(delays, clients, stream)
        self._stream = stream
        self._arrivals: dict[str, float] | None = None

    def arrivals(self) -> dict[str, float] | None:
        """Return the times of the last round, in seconds.

        They are T, T_S, the first and the last T_W, and the first and the last arrival.
        """
        return self._arrivals

    def exchange(self, request: RoundRequest, clients: Sequence[int]) -> Iterator[Delivery]:
        """Yield the participating clients, then each budget's messages in blocks, by arrival.

        The shuffler can start only when all reports have arrived, so it holds n d bits.
        """
        reports: list[tuple[int, Report]] = []
        for client, content in one_by_one(self._inner.exchange(request, clients)):
            if isinstance(content, Refusal):
                yield client, content
                continue
            report = unnamed(client, content)
            assert client is not None
            assert isinstance(report, Report)
            reports.append((client, report))
            yield client, None
        if not reports:
            return
        round = request.broadcast.round
        latency = self._stream(round, SERVER, "latency").generator()
        schedule = draw_schedule(self._delays, len(reports), self._delay, latency)
        first, last = math.inf, -math.inf
        numbered = sorted(enumerate(reports), key=lambda item: item[1][1].epsilon or 0.0)
        for _, group in groupby(numbered, key=lambda item: item[1][1].epsilon):
            for messages in self._shuffle(list(group), schedule):
                first = min(first, float(messages.arrival_seconds[0]))
                last = max(last, float(messages.arrival_seconds[-1]))
                yield None, messages
        self._arrivals = times(schedule, first, last)

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
            # Messages that arrive at the same time are put in random order, because the order of
            # the clients would link each client's messages.
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
    """Return the bits of messages at ``positions`` of all reports, shape (n, messages, chunk)."""
    first = int(positions[0]) * report.chunk
    last = min((int(positions[-1]) + 1) * report.chunk, report.size)
    part = payloads[:, first // 8 : -(-last // 8)]
    bits = np.unpackbits(part, axis=1)[:, first % 8 : first % 8 + last - first]
    padded = np.zeros((len(payloads), len(positions) * report.chunk), np.uint8)
    padded[:, : bits.shape[1]] = bits
    return padded.reshape(len(payloads), len(positions), report.chunk)
