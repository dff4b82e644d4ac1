"""A shuffler of whole reports that emits only their multiset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import RunError
from fedldp.protocol.server_loop import Delivery, Transport, one_by_one
from fedldp.protocol.wire import Refusal, Report, Reports, RoundRequest
from fedldp.simulation.shuffler import unnamed


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
            yield None, _in_order(Reports.of(found))


def _check_alike(report: Report, first: Report) -> None:
    if report.num_messages != 1:
        raise RunError("a report of several messages: this shuffler accepts only whole reports")
    if len(report.payload) != len(first.payload):
        raise RunError(
            f"reports of {len(first.payload)} and {len(report.payload)} bytes: their sizes would "
            "distinguish clients"
        )
    if replace(report, payload=b"") != replace(first, payload=b"") or report.epsilon is not None:
        raise RunError(
            "reports that differ in more than their payloads: the difference would distinguish "
            "clients"
        )


def _in_order(reports: Reports) -> Reports:
    columns: NDArray[np.uint8] = reports.payloads[:, ::-1].T
    return replace(reports, payloads=reports.payloads[np.lexsort(columns)])
