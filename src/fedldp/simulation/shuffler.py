"""Shufflers: transports that hide who sent which report, and when the messages arrive.

No server step reads the order of messages, so ``Counting`` only adds them up, and draws the round's
times separately. ``ReportShuffler`` shuffles whole reports.

Each message of a client is sent after its own random delay, so that times and order of arrival do
not show which messages belong together:

    t = T_W + U(0, T),   T_W = T_S - t_LC - t_C,   T_S = max over clients of (t_LC + t_C)

All clients of a run agree on T once, before the first round. The clients that take part in a round
agree on its T_S.

A message that is sent a time t after the end of training arrives at t_LC + t + t_C = T_S + U(0, T)
if the client predicted its own times correctly. A wrong prediction shifts the client's whole
window, which the server can see; ``Delays.prediction_error`` simulates that.

Source: Sun, Qian, Chen 2021, Algorithm 3 and Section 3.1, Parameter Shuffling.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedldp.algorithms.settings import Delays
from fedldp.core.errors import RunError
from fedldp.core.randomness import SERVER, Source, Stream, check_purpose
from fedldp.mechanisms import Counts
from fedldp.protocol.server_loop import Content, Delivery, Transport, one_by_one
from fedldp.protocol.wire import Counted, Refusal, Report, Reports, RoundRequest

World = Callable[[int, int, str], Stream]
"""Returns the stream for a round, a client and a purpose that nobody draws for in a deployment."""


def world_of_seed(seed: int) -> World:
    """Return a simulation's streams for what the world decides in a deployment, such as delays."""

    def stream(round: int, client: int, purpose: str) -> Stream:
        check_purpose(Source.WORLD, purpose)
        return Stream.simulation(seed=seed, round=round, client=client, purpose=purpose)

    return stream


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The times that a round's clients agreed on, and the times that each client takes, in seconds.

    Attributes:
        delay: T, the same in every round.
        response: T_S, the slowest client's predicted t_LC + t_C.
        waits: T_W of each client, shape (n,).
        offsets: for each client, the time when its window of arrivals opens, t_LC + T_W + t_C,
            shape (n,).
    """

    delay: float
    response: float
    waits: NDArray[np.float64]
    offsets: NDArray[np.float64]


def agree_delay(delays: Delays, clients: int, generator: np.random.Generator) -> float:
    """Return the median of the values of T, in seconds, that ``clients`` clients propose.

    A single dishonest client cannot move the median far.
    """
    proposals = delays.delay_seconds * generator.lognormal(0.0, delays.spread, clients)
    return float(np.median(proposals))


def draw_schedule(
    delays: Delays, clients: int, delay: float, generator: np.random.Generator
) -> Schedule:
    """Draw the times of a round for ``clients`` clients that have agreed on ``delay``, T."""

    def around(typical: float, sigma: float) -> NDArray[np.float64]:
        return typical * generator.lognormal(0.0, sigma, clients)

    taken = around(delays.compute_seconds, delays.spread)
    taken += around(delays.communication_seconds, delays.spread)
    predicted = taken * around(1.0, delays.prediction_error)
    response = float(predicted.max())
    waits = np.maximum(np.subtract(response, predicted, out=predicted), 0.0, out=predicted)
    if delays.prediction_error == 0:
        taken[:] = response  # all times are equal, but rounding errors would make clients differ
    else:
        taken += waits
    return Schedule(delay=delay, response=response, waits=waits, offsets=taken)


def draw_extremes(
    schedule: Schedule, messages: int, generator: np.random.Generator
) -> tuple[float, float]:
    """Draw when the first and the last message arrive, without drawing the times in between.

    The smallest of m uniform numbers in (0, 1) is distributed as 1 - V^(1/m), with V uniform. Given
    that the smallest is x, the others are uniform in (x, 1).

    Args:
        schedule: the times of the clients.
        messages: the number of messages that each client sends.
        generator: the source of V.

    Returns:
        The first and the last arrival, in seconds since the start of the round.
    """
    windows = schedule.offsets
    if (windows == windows[0]).all():
        windows, messages = windows[:1], messages * windows.size
    low = -np.expm1(np.log1p(-generator.random(windows.size)) / messages)
    high = low
    if messages > 1:
        rest = np.exp(np.log1p(-generator.random(windows.size)) / (messages - 1))
        high = low + (1 - low) * rest
    first, last = windows + schedule.delay * low, windows + schedule.delay * high
    return float(first.min()), float(last.max())


class Counting:
    """A transport that counts the ones at each coordinate of another transport's reports.

    It adds up the bits of each report as it arrives, in O(d) memory for any number of clients. It
    draws the round's times separately: T, T_S and the waits T_W are bit for bit the same as if the
    messages were sorted. The first and the last arrival only have the same distribution, because
    the times of individual messages are not drawn.

    Args:
        inner: the source of the reports.
        delays: the time model.
        clients: the number of clients in the run; they all agree on T, once for all rounds.
        stream: returns the stream of random numbers for a round, a client and a purpose.
    """

    def __init__(self, inner: Transport, delays: Delays, clients: int, stream: World) -> None:
        self._inner = inner
        self._delays = delays
        # All clients agree on one T before the first round, whoever takes part in which round. So a
        # run that is resumed or extended has the same T again.
        self._delay = agree_delay(delays, clients, stream(0, SERVER, "delay").generator())
        self._stream = stream
        self._arrivals: dict[str, float] | None = None

    def arrivals(self) -> dict[str, float] | None:
        """Return the times of the last round, in seconds.

        They are T, T_S, the first and the last T_W, and the first and the last arrival.
        """
        return self._arrivals

    def exchange(self, request: RoundRequest, clients: Sequence[int]) -> Iterator[Delivery]:
        """Yield which clients take part, then the counts, separately for each budget."""
        found: dict[float | None, tuple[Report | Reports, Counts]] = {}
        sent = Counter[float | None]()
        for sender, content in self._inner.exchange(request, clients):
            if isinstance(content, Refusal):
                yield sender, content
                continue
            reports = unnamed(sender, content)
            epsilon = reports.epsilon
            if epsilon not in found:
                found[epsilon] = reports, Counts(reports.size, scale=1.0)
            if isinstance(reports, Reports):
                found[epsilon][1].add_many(reports.payloads)
                sent[epsilon] += len(reports)
            else:
                found[epsilon][1].add(reports.payload)
                sent[epsilon] += 1
            yield sender, None
        if found:
            counted = [
                Counted(
                    round=first.round,
                    size=first.size,
                    chunk=first.chunk,
                    ones=counts.ones(),
                    reports=sent[epsilon],
                    epsilon=epsilon,
                )
                for epsilon, (first, counts) in sorted(found.items(), key=lambda each: each[0] or 0)
            ]
            self._arrivals = self._times(counted)
            yield from ((None, each) for each in counted)

    def _times(self, counted: Sequence[Counted]) -> dict[str, float]:
        first = counted[0]
        latency, arrivals = (
            self._stream(first.round, SERVER, purpose).generator()
            for purpose in ("latency", "arrivals")
        )
        reports = sum(each.reports for each in counted)
        schedule = draw_schedule(self._delays, reports, self._delay, latency)
        earliest, latest = draw_extremes(schedule, first.num_messages, arrivals)
        return {
            "delay": schedule.delay,
            "response": schedule.response,
            "first_wait": float(schedule.waits.min()),
            "last_wait": float(schedule.waits.max()),
            "first_arrival": earliest,
            "last_arrival": latest,
        }


def unnamed(sender: object, content: Content) -> Report | Reports:
    """Return reports that may be shuffled.

    Raises:
        RunError: they are already shuffled, or a report itself names or reveals its sender.
    """
    if sender is None or not isinstance(content, Report | Reports):
        raise RunError("a shuffler needs whole reports, not reports that are already shuffled")
    if content.client is not None or content.weight is not None:
        raise RunError("a shuffler does not pass on reports that name or reveal their senders")
    return content


class ReportShuffler:
    """A transport that waits for another transport's reports and sorts them by their bytes.

    The order depends only on the reports, so it does not reveal who sent which report, or when.

    Args:
        inner: the source of the reports.
    """

    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    def exchange(self, request: RoundRequest, clients: Sequence[int]) -> Iterator[Delivery]:
        """Yield which clients take part, then all reports at once, but only one report per client.

        Raises:
            RunError: a report is already shuffled, consists of several messages, names its sender,
                or differs from the other reports in more than its payload.
        """
        found: list[Report] = []
        seen = set[int]()
        for client, content in one_by_one(self._inner.exchange(request, clients)):
            if isinstance(content, Refusal):
                yield client, content
                continue
            report = unnamed(client, content)
            assert client is not None
            assert isinstance(report, Report)
            if client in seen:
                continue
            seen.add(client)
            _check_alike(report, found[0] if found else report)
            found.append(report)
            yield client, None
        if found:
            reports = Reports.of(found)
            columns: NDArray[np.uint8] = reports.payloads[:, ::-1].T
            yield None, replace(reports, payloads=reports.payloads[np.lexsort(columns)])


def _check_alike(report: Report, first: Report) -> None:
    alike = replace(report, payload=b"") == replace(first, payload=b"") and report.epsilon is None
    if not alike or len(report.payload) != len(first.payload) or report.num_messages != 1:
        raise RunError(
            "reports of several messages, of different sizes, or that differ in more than their "
            "payloads: this would distinguish clients"
        )
