"""Clients send what training changed, randomised as it is; the server adds the mean change."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedldp.bounding import check_releasable
from fedldp.errors import RunError
from fedldp.mechanisms import Mechanism
from fedldp.parts import Client
from fedldp.wire import Broadcast, Incoming, Report, Sensitive, Vector


def open_update(
    update: Sensitive[Vector], broadcast: Broadcast, send: Literal["weights", "update"]
) -> NDArray[np.floating]:
    """Open a client's weights for its encoder: as they are, or their change from the broadcast.

    Raises:
        PrivacyError: they may not be released (see ``bounding.check_releasable``).
    """
    weights = update.open()
    check_releasable(weights)
    return weights if send == "weights" else weights - broadcast.weights.astype(np.float64)


@dataclass(frozen=True)
class SendChange:
    """An encoder: the change of the weights in one report of ``mechanism``, which bounds it.

    Attributes:
        mechanism: works in the unit of the weights.
    """

    mechanism: Mechanism

    def __call__(self, update: Sensitive[Vector], broadcast: Broadcast, client: Client) -> Report:
        """Return the report of one client."""
        change = open_update(update, broadcast, "update")
        return Report(
            round=broadcast.round,
            size=change.size,
            payload=self.mechanism.encode(change, client.stream("mechanism")),
            chunk=change.size,
        )


@dataclass(frozen=True)
class AddMeanChange:
    """The server step for ``SendChange``: add the estimated mean change to the weights.

    Attributes:
        mechanism: of the reports.
    """

    mechanism: Mechanism

    def __call__(self, broadcast: Broadcast, reports: Incoming) -> Broadcast:
        """Return the next round's broadcast."""
        aggregate = self.mechanism.aggregate(broadcast.weights.size)
        for report in reports:
            if not isinstance(report, Report):
                raise RunError("this server reads whole reports, not shuffled messages")
            aggregate.add(report.payload)
        weights = (broadcast.weights + aggregate.mean()).astype(np.float32)
        return replace(broadcast, round=broadcast.round + 1, weights=weights)
