"""A system's two roles as a channel uses them, unchanged or in a secure sum; a check of reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedldp.core.bounding import within_largest_weight
from fedldp.core.errors import WireError
from fedldp.core.randomness import Stream
from fedldp.deployment.agreement import Agreement
from fedldp.protocol.client_store import MemoryStore
from fedldp.protocol.roles import ClientRole, Draws, Sender, ServerRole, State
from fedldp.protocol.updates import alone
from fedldp.protocol.wire import Report, RoundRequest, Sensitive
from fedldp.secure_sum.client import summed_client
from fedldp.secure_sum.identities import Identity, Roster
from fedldp.secure_sum.server import SumOfRound, summed_server

if TYPE_CHECKING:
    import torch


def client_role(
    agreement: Agreement, index: int, key: Ed25519PrivateKey, device: torch.device
) -> ClientRole:
    """Return the role that runs at one site; ``key`` is the site's identity."""
    config, problem = agreement.config, agreement.problem
    if agreement.summing is None:
        return config.algorithm(problem).client(index, device)
    committees, roster = agreement.config.committees, _roster(agreement)
    if committees.number > 1:  # a single sum needs the whole roster: participants may vary by round
        roster = roster.of(committees.members(committees.of(index)))
    identity = Identity(roster=roster, index=index, private=key.private_bytes_raw())
    inner = config.algorithm(problem).inside().client(index, device)
    return summed_client(inner, agreement.summing, agreement.setup, identity)


def server_role(agreement: Agreement, heard: Callable[[SumOfRound], None]) -> ServerRole:
    """Return the role that runs on the server; it calls ``heard`` with each round's sum."""
    config, problem = agreement.config, agreement.problem
    if agreement.summing is None:
        return config.algorithm(problem).server()
    return summed_server(
        config.algorithm(problem).inside().server(),
        agreement.summing,
        agreement.setup,
        committees=config.committees,
        roster=_roster(agreement),
        heard=heard,
    )


def _roster(agreement: Agreement) -> Roster:
    keys = {index: bytes.fromhex(site.key) for index, site in enumerate(agreement.sites)}
    return Roster(run=agreement.run, keys=keys)


@dataclass
class ReportChecker:
    """Checks whether a site of the agreement could have sent a given report.

    A lying site can choose the bits of its report. It must not be able to choose how they are read,
    or to stop a round for all sites.

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
            like = self._of_no_examples(request, client if self.agreement.has_own_budgets else 0)
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
