"""The privacy ledgers of a simulation's clients."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from fedldp.accounting.budget import Budget, cost
from fedldp.accounting.events import Event, from_record, to_record
from fedldp.errors import PrivacyError


class MemoryLedger:
    """What the clients of one simulated run have released: who took part in which round, and how.

    Args:
        budget: of each client, or None to count only.
    """

    def __init__(self, budget: Budget | None = None) -> None:
        self.budget = budget
        # By event and client: the rounds as bits of an integer, which takes 100 rounds in 44 bytes.
        self._rounds: dict[Event, dict[int, int]] = {}

    def charge(self, client: int, round: int, event: Event) -> None:
        """Count that ``client`` releases ``event`` in ``round``; the same again changes nothing.

        Raises:
            PrivacyError: its budget does not cover the event, the event is unknown, or it already
                released another in this round.
        """
        bit = 1 << round
        clients = self._rounds.get(event)
        if clients is None:
            cost(event, "pure")  # raises if the event is unknown
            clients = self._rounds.setdefault(event, {})
        done = clients.get(client, 0)
        if done & bit:
            return
        if len(self._rounds) > 1 and any(r.get(client, 0) & bit for r in self._rounds.values()):
            raise PrivacyError(
                f"client {client} round {round}: it released another event than {event}"
            )
        if self.budget is not None:
            self.budget.admit(event, self._spent(client, self.budget))
        clients[client] = done | bit

    def history(self, client: int) -> Mapping[Event, int]:
        """Return in how many rounds ``client`` released which event."""
        return {
            event: clients[client].bit_count()
            for event, clients in self._rounds.items()
            if client in clients
        }

    def releases(self) -> dict[int, dict[int, Event]]:
        """Return the event of every report, by round and then by client, both ascending."""
        found: dict[int, dict[int, Event]] = {}
        for event, clients in self._rounds.items():
            for client, bits in clients.items():
                for round in range(bits.bit_length()):
                    if bits >> round & 1:
                        found.setdefault(round, {})[client] = event
        return {round: dict(sorted(found[round].items())) for round in sorted(found)}

    def _spent(self, client: int, budget: Budget) -> Fraction:
        history = self.history(client).items()
        return sum((Fraction(cost(event, budget.kind)) * n for event, n in history), Fraction(0))

    def to_record(self) -> dict[str, Any]:
        """Return the counts, but not the budget, as a JSON-ready record."""
        return {
            "releases": [
                {"event": to_record(event), "rounds": [[c, f"{r:x}"] for c, r in clients.items()]}
                for event, clients in self._rounds.items()
            ]
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any], budget: Budget | None = None) -> MemoryLedger:
        """Return the ledger of a record, under ``budget``."""
        ledger = cls(budget)
        for entry in record["releases"]:
            rounds = {client: int(bits, 16) for client, bits in entry["rounds"]}
            ledger._rounds[from_record(entry["event"])] = rounds
        return ledger
