"""How encoders open an update, and how a server reads reports: whole, or counted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, final

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.events import Event
from fedldp.errors import RunError
from fedldp.mechanisms import Counts, Mechanism, stated_event
from fedldp.parts.sides import Sender, Senders, Update
from fedldp.wire import (
    Broadcast,
    Counted,
    Incoming,
    Report,
    Reports,
    Sensitive,
    Shuffled,
    Vector,
)

if TYPE_CHECKING:
    import torch


def open_weights(update: Sensitive[Vector | None], broadcast: Broadcast) -> Vector:
    """Open a client's weights for its encoder: finite ones, whatever training gave.

    Where some are not finite, or training failed and there are none, the broadcast's weights stand
    in for all of them: a refusal would tell a server, which may choose weights for which training
    fails on some examples only, what the examples are.
    """
    weights = update.open()
    if weights is None or not np.isfinite(weights).all():
        return broadcast.weights
    return weights


def open_many(update: Sensitive[Update], broadcast: Broadcast) -> NDArray[np.float32]:
    """Open the weights of several clients, shape (n, d), each as ``open_weights`` does."""
    opened = update.open().rows
    weights = opened if isinstance(opened, np.ndarray) else opened.cpu().numpy()
    for row in np.flatnonzero(~np.isfinite(weights).all(1)):
        weights[row] = broadcast.weights
    return weights


def finite_on_device(update: Sensitive[Update]) -> torch.Tensor | None:
    """Open the weights of several clients where they lie on a device and all are finite."""
    opened = update.open().rows
    if isinstance(opened, np.ndarray) or not bool(opened.isfinite().all()):
        return None
    return opened


def open_update(
    update: Sensitive[Vector | None], broadcast: Broadcast, send: Literal["weights", "update"]
) -> NDArray[np.floating]:
    """Open a client's weights as ``open_weights`` does, or their change from the broadcast."""
    weights = open_weights(update, broadcast)
    return weights if send == "weights" else weights - broadcast.weights.astype(np.float64)


def whole(reports: Incoming) -> Iterator[Report]:
    """Yield ``reports``, for a server step that must have each of them as one.

    Raises:
        RunError: they went through a shuffler.
    """
    for report in reports:
        if isinstance(report, Reports):
            yield from report
        elif isinstance(report, Report):
            yield report
        else:
            raise RunError("this server reads whole reports, not shuffled messages")


def count(counts: Counts, report: Report | Reports | Shuffled | Counted) -> None:
    """Take reports of bits into ``counts``, in whatever way they come."""
    if isinstance(report, Report):
        counts.add(report.payload)
    elif isinstance(report, Reports):
        counts.add_many(report.payloads)
    elif isinstance(report, Counted):
        counts.add_counts(report.ones, report.reports)
    else:
        coordinates = report.positions[:, None] * report.chunk + np.arange(report.chunk)
        inside = coordinates < report.size
        counts.add_bits(coordinates[inside], report.bits[inside])


@final
@dataclass(frozen=True)
class SendChange:
    """An encoder: the change of the weights in one report of ``mechanism``, which bounds it.

    Attributes:
        mechanism: works in the unit of the weights.
        size: of the model, d.
    """

    mechanism: Mechanism
    size: int

    def event(self, exchange: int = 0) -> Event:
        """Return the mechanism's event."""
        return stated_event(self.mechanism, self.size)

    def __call__(self, update: Sensitive[Vector], broadcast: Broadcast, sender: Sender) -> Report:
        """Return the report of one client."""
        change = open_update(update, broadcast, "update")
        return Report(
            round=broadcast.round,
            size=change.size,
            payload=self.mechanism.encode(change, sender.fresh("mechanism")),
            chunk=change.size,
        )

    def many(self, update: Sensitive[Update], broadcast: Broadcast, senders: Senders) -> Reports:
        """Return the reports of several clients, each as it is on its own."""
        change = open_many(update, broadcast) - broadcast.weights.astype(np.float64)
        return Reports(
            round=broadcast.round,
            size=self.size,
            payloads=self.mechanism.encode_many(change, senders.fresh("mechanism")),
            chunk=self.size,
        )
