"""Weighted means of reports, and the unprotected path: clients send their weights as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.events import Event
from fedldp.errors import RunError
from fedldp.mechanisms import Mechanism
from fedldp.parts.changes import open_weights, whole
from fedldp.parts.sides import Draw, Sender, State
from fedldp.wire import Broadcast, Incoming, Report, Sensitive, Vector


def weighted_mean(
    reports: Incoming, size: int, decode: Callable[[bytes], NDArray[np.float64]]
) -> tuple[NDArray[np.float64], float]:
    """Return the mean of ``reports`` by their weights, and the sum of these.

    A report without a weight has weight 1.

    Args:
        reports: of one round.
        size: their coordinates, d.
        decode: turns a payload into a vector of shape (d,).

    Raises:
        RunError: there is no report, or one that is not whole.
    """
    total = np.zeros(size)
    weight = 0.0
    for report in whole(reports):
        share = 1.0 if report.weight is None else report.weight
        total += share * decode(report.payload)
        weight += share
    if weight == 0:
        raise RunError("no report came in: there is no mean to take")
    return total / weight, weight


def read_report(mechanism: Mechanism, payload: bytes, size: int) -> NDArray[np.float64]:
    """Return what one payload of ``mechanism`` estimates, shape (size,)."""
    aggregate = mechanism.aggregate(size)
    aggregate.add(payload)
    return aggregate.mean()


@dataclass(frozen=True)
class SendPlain:
    """An encoder that protects nothing itself: float32 weights, little-endian.

    Attributes:
        releases: what the weights release: they are in clear, or follow from what was randomised.
        by_examples: also release the number of the client's examples, as its weight in the average.
    """

    releases: Event
    by_examples: bool = False

    def event(self, exchange: int = 0) -> Event:
        """Return what the weights release."""
        return self.releases

    def __call__(self, update: Sensitive[Vector], broadcast: Broadcast, sender: Sender) -> Report:
        """Return the report of one client."""
        weights = open_weights(update, broadcast)
        return Report(
            round=broadcast.round,
            size=weights.size,
            payload=weights.astype("<f4").tobytes(),
            chunk=weights.size,
            weight=float(sender.num_examples.open()) if self.by_examples else None,
        )


@dataclass(frozen=True)
class WeightedMean:
    """The server step of FedAvg: the mean of the reports by their weights, summed in float64."""

    def __call__(
        self, state: State, reports: Incoming, draw: Draw
    ) -> tuple[State, Mapping[str, float]]:
        """Return the next state."""
        mean, _ = weighted_mean(
            reports,
            state.weights.size,
            lambda payload: np.frombuffer(payload, "<f4").astype(np.float64),
        )
        return state.next(mean), {}


def mean_by_sender(
    reports: Incoming,
    size: int,
    shares: NDArray[np.float64],
    read: Callable[[Report, int], NDArray[np.float64]],
) -> NDArray[np.float64] | None:
    """Return the mean of reports by their senders' shares, shape (d,), or None where all are 0.

    Args:
        reports: a stream, of which one report at a time is held.
        size: of a report, d.
        shares: of every client, at least 0, shape (n,); they need not sum to 1.
        read: gives the values of a report and its sender, shape (d,).

    Raises:
        RunError: there are no reports, or one is not of this size or of a known sender.
    """
    total: NDArray[np.float64] = np.zeros(size)
    weight, came = 0.0, 0
    for report in whole(reports):
        sender = report.client
        if sender is None or not 0 <= sender < shares.size:
            raise RunError("this server must know whose report it reads")
        came += 1
        share = float(shares[sender])
        if share > 0:
            values = read(report, sender)
            if values.shape != total.shape:
                raise RunError(
                    f"a report of {values.size} values for {size} coordinates: "
                    "client and server run different models"
                )
            total += share * values
            weight += share
    if came == 0:
        raise RunError("no report came in: there is no mean to take")
    return total / weight if weight > 0 else None
