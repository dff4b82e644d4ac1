"""Checks whether a site of the agreement could have sent a given report.

A lying site can choose the bits of its report. It must not be able to choose how they are read, or
to stop a round for all sites.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fedldp.core.bounding import within_largest_weight
from fedldp.core.errors import WireError
from fedldp.core.randomness import Stream
from fedldp.deployment.agreement import Agreement
from fedldp.protocol.client_store import MemoryStore
from fedldp.protocol.roles import Draws, Sender, ServerRole, State
from fedldp.protocol.updates import alone
from fedldp.protocol.wire import Report, RoundRequest, Sensitive


@dataclass
class ReportChecker:
    """Checks the reports of a run.

    Attributes:
        agreement: the agreement of the run.
        role: the server's role.
        draws: the server's randomness.
        state: the state of the server in the current round.
    """

    agreement: Agreement
    role: ServerRole
    draws: Draws
    state: State
    _like: dict[int, Report] = field(default_factory=dict)

    def check(self, request: RoundRequest, report: Report, client: int) -> None:
        """Refuse a report that cannot be read, or whose form differs from that of an honest report.

        Raises:
            WireError: the report is refused.
        """
        if self.agreement.channel == "sum":
            size = self.agreement.setup.size
            like = Report(round=report.round, size=size, payload=b"", chunk=size)
        else:
            like = self._of_no_examples(request, client if self.agreement.budgets else 0)
        for name in ("size", "chunk", "epsilon"):
            found, expected = getattr(report, name), getattr(like, name)
            if found != expected:
                raise WireError(f"its {name} is {found}, not {expected}")
        if (report.weight is None) != (like.weight is None):
            raise WireError(
                "it has weights where other reports have none, or lacks weights that they have"
            )
        if self.agreement.channel == "named" and not self._counts(report):
            raise WireError("it cannot be counted: it is malformed, or its numbers are too large")

    def _of_no_examples(self, request: RoundRequest, client: int) -> Report:
        """Return what a site would send if its training failed."""
        found = self._like.get(client)
        if found is None or found.round != request.broadcast.round:
            encoder = self.agreement.config.algorithm(self.agreement.problem).encoder(client)
            sender = Sender(
                index=client,
                num_examples=Sensitive(1),
                fresh=lambda purpose: Stream(bytes(32), simulated=True),
                kept=lambda purpose: Stream(bytes(32), simulated=True),
                store=MemoryStore(),
            )
            found = alone(encoder, Sensitive(None), request.broadcast, sender)
            self._like[client] = found
        return found

    def _counts(self, report: Report) -> bool:
        """Return whether the server step accepts a round with only this report."""
        try:
            with np.errstate(all="ignore"):
                weights = self.role.read(self.state, iter([report]), self.draws(report.round))
        except Exception:  # an attacker may cause any exception
            return False
        return within_largest_weight(weights)
