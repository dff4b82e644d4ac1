"""A shuffler that only counts messages, because their order does not change any count.

The server step uses only the number of ones at each coordinate and the number of reports, not the
order of the messages. So this transport adds up the bits of each report as it arrives, in O(d)
memory for any number of clients. It draws the round's times separately: T, T_S and the waits T_W
are bit for bit the same as with ``shuffler``. The first and the last arrival only have the same
distribution as with ``shuffler``, because the times of individual messages are not drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fedldp.algorithms.settings import Delays
from fedldp.core.randomness import SERVER
from fedldp.mechanisms import Counts
from fedldp.protocol.server_loop import Delivery, Transport
from fedldp.protocol.wire import Counted, Refusal, Report, Reports, RoundRequest
from fedldp.simulation.schedule import World, delay_of_run, draw_extremes, draw_schedule, times
from fedldp.simulation.shuffler import unnamed


class Counting:
    """A transport that counts the ones at each coordinate of another transport's reports.

    Args:
        inner: the source of the reports.
        delays: the time model.
        clients: the number of clients in the run; they all agree on T, once for all rounds.
        stream: returns the stream of random numbers for a round, a client and a purpose.
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
        """Yield which clients take part, then the counts, separately for each budget."""
        found: dict[float | None, _Sum] = {}
        for sender, content in self._inner.exchange(request, clients):
            if isinstance(content, Refusal):
                yield sender, content
                continue
            reports = unnamed(sender, content)
            if reports.epsilon not in found:
                found[reports.epsilon] = _Sum(reports)
            found[reports.epsilon].add(reports)
            yield sender, None
        if found:
            counted = [each.counted() for _, each in sorted(found.items(), key=_budget)]
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
        return times(schedule, *draw_extremes(schedule, first.num_messages, arrivals))


def _budget(item: tuple[float | None, object]) -> float:
    return item[0] or 0.0


class _Sum:
    """The counts of one budget."""

    def __init__(self, first: Report | Reports) -> None:
        self._counts = Counts(first.size, scale=1.0)
        self._first = first
        self._reports = 0

    def add(self, reports: Report | Reports) -> None:
        if isinstance(reports, Reports):
            self._counts.add_many(reports.payloads)
            self._reports += len(reports)
        else:
            self._counts.add(reports.payload)
            self._reports += 1

    def counted(self) -> Counted:
        first = self._first
        return Counted(
            round=first.round,
            size=first.size,
            chunk=first.chunk,
            ones=self._counts.ones(),
            reports=self._reports,
            epsilon=first.epsilon,
        )
