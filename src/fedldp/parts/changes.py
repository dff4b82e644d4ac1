"""Clients send what training changed, randomised as it is; the server adds the mean change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.events import Event
from fedldp.errors import RunError
from fedldp.mechanisms import Mechanism
from fedldp.parts.sides import Draw, Sender, State
from fedldp.wire import Broadcast, Incoming, Report, Sensitive, Vector


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
        if not isinstance(report, Report):
            raise RunError("this server reads whole reports, not shuffled messages")
        yield report


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
        return self.mechanism.event(self.size)

    def __call__(self, update: Sensitive[Vector], broadcast: Broadcast, sender: Sender) -> Report:
        """Return the report of one client."""
        change = open_update(update, broadcast, "update")
        return Report(
            round=broadcast.round,
            size=change.size,
            payload=self.mechanism.encode(change, sender.fresh("mechanism")),
            chunk=change.size,
        )


@dataclass(frozen=True)
class AddMeanChange:
    """The server step for ``SendChange``: add the estimated mean change to the weights.

    Attributes:
        mechanism: of the reports.
    """

    mechanism: Mechanism

    def __call__(
        self, state: State, reports: Incoming, draw: Draw
    ) -> tuple[State, Mapping[str, float]]:
        """Return the next state."""
        aggregate = self.mechanism.aggregate(state.weights.size)
        for report in whole(reports):
            aggregate.add(report.payload)
        return state.next(state.weights + aggregate.mean()), {}
