"""Committees: the clients of a round are dealt into groups, each of which has a secure sum.

Who is in which follows from the number of clients and of committees alone, so every client knows
it before a run: client i is in committee i modulo their number. The server adds the sums.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Committees:
    """How clients are dealt into committees, whose sizes differ by one at most.

    Attributes:
        clients: all of them, numbered from 0.
        number: of committees; 1: one sum of all.
    """

    clients: int
    number: int = 1

    @classmethod
    def of_size(cls, clients: int, least: int | None) -> Committees:
        """Return as many committees as there can be of at least ``least`` clients; None: one."""
        return cls(clients, 1 if least is None else max(1, clients // least))

    @property
    def fewest(self) -> int:
        """The clients of the smallest committee."""
        return self.clients // self.number

    @property
    def most(self) -> int:
        """The clients of the largest committee."""
        return -(-self.clients // self.number)

    def of(self, client: int) -> int:
        """Return the committee of a client, from 0."""
        return client % self.number

    def members(self, committee: int) -> range:
        """Return the clients of a committee, ascending."""
        return range(committee, self.clients, self.number)
