"""Committees: the clients of a round are divided into groups, each with its own secure sum.

The division depends only on the numbers of clients and committees, so every client knows it before
a run: client i is in committee i modulo the number of committees. The server adds up the sums.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Committees:
    """How clients are divided into committees whose sizes differ by at most one.

    Attributes:
        clients: the number of clients, numbered from 0.
        number: the number of committees; 1 means a single sum of all clients.
    """

    clients: int
    number: int = 1

    @classmethod
    def of_size(cls, clients: int, least: int | None) -> Committees:
        """Return the most committees that have at least ``least`` clients each; one for None."""
        return cls(clients, 1 if least is None else max(1, clients // least))

    @property
    def fewest(self) -> int:
        """The number of clients in the smallest committee."""
        return self.clients // self.number

    @property
    def most(self) -> int:
        """The number of clients in the largest committee."""
        return -(-self.clients // self.number)

    def of(self, client: int) -> int:
        """Return the committee of a client, from 0."""
        return client % self.number

    def members(self, committee: int) -> range:
        """Return the clients of a committee, ascending."""
        return range(committee, self.clients, self.number)
