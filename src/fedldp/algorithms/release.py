"""What leaves a client: Release is the randomiser with its claim, Encoder the client's last step.

    Sensitive Update --> opened, once; a row with NaN becomes the broadcast's weights
                     --> Bound       subtracts, normalises, rotates, boxes
                     --> Mechanism   clips, randomises, packs; its event is what is charged
                     --> Reports

The reports of n clients are encoded together; each is exactly what its client would send alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.events import BinaryRandomizedResponse, Event, InClear
from fedldp.algorithms.bounds import Bound
from fedldp.core.errors import RunError, UnfitEvent
from fedldp.core.kinds import NUMBER_OF_EXAMPLES
from fedldp.core.randomness import Stream
from fedldp.mechanisms import Mechanism, stated_category
from fedldp.mechanisms.summing import Summing
from fedldp.protocol.roles import Senders, Update
from fedldp.protocol.updates import open_finite
from fedldp.protocol.wire import Broadcast, Reports, Sensitive

Needs = Literal["sum", "reports", "sender", "weight"]
"""What a server needs: a round's sum, or each report, perhaps with its sender or its weight."""

TOGETHER = 1 << 15
"""The number of coordinates that are bounded and randomised at a time; the arrays that this takes
stay in the second-level cache."""


@dataclass(frozen=True, kw_only=True)
class Release:
    """A bound and a mechanism: what is done to an update before it leaves, and the claim about it.

    Attributes:
        bound: the chart in which the mechanism works.
        mechanism: the mechanism that randomises.
        size: d, the size of the model.
        sends: the name of the update's array that is sent instead of the weights; None sends the
            weights. If the bound has a chart, the array is in the chart's coordinates. If training
            failed, the array is zero.
        mechanisms: the mechanism of each part of the run, with its rounds, if there are several.
    """

    bound: Bound
    mechanism: Mechanism
    size: int
    sends: str | None = None
    mechanisms: tuple[tuple[range, Mechanism], ...] = ()

    @property
    def coordinates(self) -> int:
        """The number of coordinates that are randomised."""
        return self.bound.size(self.size)

    def at(self, round: int) -> Self:
        """Return the release of a round; most are the same in all rounds.

        Raises:
            RunError: the run has no such round.
        """
        if not self.mechanisms:
            return self
        for rounds, mechanism in self.mechanisms:
            if round in rounds:
                return replace(self, mechanism=mechanism, mechanisms=())
        raise RunError(f"round {round}: the run has the rounds 1 to {self.mechanisms[-1][0][-1]}")

    def event(self) -> Event:
        """Return what one client's report releases, for every update and broadcast."""
        return self.bound.event(self.mechanism, self.coordinates)

    def category(self) -> Event:
        """Return how one client's report is drawn, for a shuffler of whole reports.

        Raises:
            UnfitEvent: the report is not one category; see ``stated_category``.
        """
        return stated_category(self.mechanism, self.coordinates)

    def payloads(self, update: Update, broadcast: Broadcast, senders: Senders) -> NDArray[np.uint8]:
        """Return the randomised reports of n clients, shape (n, bytes per report).

        Args:
            update: the opened update; its rows are finite.
            broadcast: the broadcast that it answers.
            senders: the clients; each draws from its own stream "mechanism".
        """
        streams, update = senders.fresh("mechanism"), self.sent(update)
        payloads = []
        count = max(1, TOGETHER // self.coordinates)
        for first in range(0, len(update), count):
            few = slice(first, first + count)
            values = self.bound.apply(update.rows[few], broadcast)
            payloads.append(self.randomise(values, update.at(few), broadcast, streams[few]))
        return payloads[0] if len(payloads) == 1 else np.concatenate(payloads)

    def sent(self, update: Update) -> Update:
        """Return an opened update whose rows are the array that is sent; see ``sends``."""
        if self.sends is None:
            return update
        chart = self.bound.chart
        nothing = np.zeros((len(update), self.coordinates if chart is None else chart.size))
        return replace(update, rows=update.aux.get(self.sends, nothing))

    def randomise(
        self,
        values: NDArray[np.floating],
        update: Update,
        broadcast: Broadcast,
        streams: Sequence[Stream],
    ) -> NDArray[np.uint8]:
        """Return the reports for bounded values, shape (n, coordinates)."""
        return self.mechanism.encode_many(values, streams)


@dataclass(frozen=True, kw_only=True)
class Encoder:
    """The client's last step: the only place where a sensitive update is opened for sending.

    Whether a report is sent, and how long it is, does not depend on the update.

    Attributes:
        release: the randomiser, with its claim.
        inner: what the update itself releases, if training randomised it.
        chunk: the number of coordinates in one message; None for all coordinates.
        needs: what the server needs. A "weight" is the client's number of examples, in the clear,
            and a "sender" is its name; either is sent besides the report.
        label: the budget that is also sent, if clients' budgets differ.
        one_category: whether a shuffler of whole reports carries the report. Its event then states
            how its one category is drawn, in addition to the cost.
    """

    release: Release
    inner: Event | None = None
    chunk: int | None = None
    needs: Needs = "sum"
    label: float | None = None
    one_category: bool = False

    def event(self, phase: int = 0, round: int = 1) -> Event:
        """Return what one report of one client releases in a round; this is charged."""
        release = self.release.at(round)
        event = release.event() if self.inner is None else self.inner
        if self.one_category:
            if self.inner is not None or self.needs == "weight" or self.label is not None:
                raise UnfitEvent("a shuffler of whole reports passes on one category and no more")
            return release.category()
        if self.needs == "weight":
            sent = event.sent if isinstance(event, InClear) else ()
            return InClear(what=(*sent, NUMBER_OF_EXAMPLES))
        if self.label is not None and isinstance(event, BinaryRandomizedResponse):
            return replace(event, group=self.label)
        return event

    def __call__(
        self, update: Sensitive[Update], broadcast: Broadcast, senders: Senders
    ) -> Reports:
        """Return the reports of n clients, each as its client would send it alone."""
        opened = open_finite(update, broadcast)
        size = self.release.coordinates
        counts = senders.num_examples.open() if self.needs == "weight" else None
        return Reports(
            round=broadcast.round,
            size=size,
            payloads=self.release.at(broadcast.round).payloads(opened, broadcast, senders),
            chunk=self.chunk or size,
            weight=None if counts is None else counts.astype(np.float64),
            epsilon=self.label,
            client=np.asarray(senders.indices, np.int64) if self.needs == "sender" else None,
        )

    def summing(self, most: int) -> Summing | None:
        """Return how such reports add up, if they do and only their sum is needed.

        Args:
            most: the largest number of reports in one sum.
        """
        if self.needs != "sum" or self.label is not None:
            return None
        return self.release.mechanism.summing(self.release.coordinates, most)
