"""Participation: which clients are asked in a round, and in how many rounds at most.

Every kind is public: who takes part follows from the configuration and the server's randomness,
never from a client's data. If a client's noise covers fewer rounds than the run has, ``max_rounds``
returns the number of rounds that it covers, and the client's own ledger enforces this limit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np

from fedldp.accounting.releases import ClientIndices
from fedldp.algorithms.settings import Offers
from fedldp.core.errors import ConfigError
from fedldp.core.randomness import KEY_BYTES, permutation
from fedldp.protocol.roles import Draws


class ParticipationSettings(Offers):
    """Who takes part, together with ``clients_per_round``."""

    participation: Literal["all", "drawn", "once", "balanced", "auto"] | None = None
    """which clients take part in which round: all clients in every round (all); clients_per_round
    clients, drawn anew for each round (drawn) or taking turns (balanced); or each client in one
    round only (once); auto means once if each report reaches the server and satisfies pure DP by
    itself, so that more rounds cost more, and otherwise the system's choice; if not set, the system
    decides"""


class Participation(ABC):
    """Who answers in which round.

    Attributes:
        told: settings with the number of rounds in which each client takes part, if the noise
            depends on it; the server draws them before the run, and announces them to everyone.
        uses_rounds: whether the clients in a round depend on the number of rounds.
    """

    told: ClassVar[tuple[str, ...]] = ()
    uses_rounds: ClassVar[bool] = False

    @abstractmethod
    def clients(self, round: int, draws: Draws) -> ClientIndices | None:
        """Return the clients of ``round`` in ascending order; None for all clients.

        Args:
            round: the round, from 1.
            draws: the server's streams.
        """

    def max_rounds(self, client: int) -> int | None:
        """Return the largest number of rounds in which ``client`` answers; None for all rounds."""
        return None

    def scheduled(self, draws: Draws) -> Self:
        """Return a copy with the values that the server draws for it before the run."""
        return self


@dataclass(frozen=True)
class All(Participation):
    """Every client is asked in every round."""

    def clients(self, round: int, draws: Draws) -> ClientIndices | None:
        return None


@dataclass(frozen=True)
class Drawn(Participation):
    """A uniform sample without replacement in each round, from the stream "participation".

    A client may be drawn in every round, so its privacy is stated for all rounds.

    Attributes:
        num_clients: n.
        size: the number of clients in a round, 1 to n.
    """

    num_clients: int
    size: int

    def clients(self, round: int, draws: Draws) -> ClientIndices | None:
        generator = draws(round)("participation").generator()
        drawn = generator.choice(self.num_clients, size=self.size, replace=False)
        return np.sort(drawn).astype(np.int32)


@dataclass(frozen=True)
class Once(Participation):
    """Every client answers in exactly one round, in a cohort that the server draws in secret.

    The cohorts are the pieces of one uniform permutation of the clients, from the stream "cohorts"
    of round 0. They are disjoint, include everyone, and differ in size by at most one. Without the
    server's secret nobody can predict a client's round, but no guarantee relies on that. A server
    that restarts draws the same cohorts.

    Attributes:
        num_clients: n, at least ``rounds``.
        rounds: the number of rounds in the run.
    """

    uses_rounds: ClassVar[bool] = True

    num_clients: int
    rounds: int

    def clients(self, round: int, draws: Draws) -> ClientIndices:
        key = draws(0)("cohorts").bytes(KEY_BYTES).tobytes()
        fewest, larger = divmod(
            self.num_clients, self.rounds
        )  # the first ``larger`` rounds have one more client
        start = (round - 1) * fewest + min(round - 1, larger)
        stop = round * fewest + min(round, larger)
        return np.sort(permutation(key, self.num_clients)[start:stop])

    def max_rounds(self, client: int) -> int:
        return 1


def cohort_sizes(num_clients: int, rounds: int) -> tuple[int, int]:
    """Return the smallest and the largest number of clients in a round of ``Once``."""
    return num_clients // rounds, -(-num_clients // rounds)


@dataclass(frozen=True)
class Balanced(Participation):
    """Clients take turns in an order that is drawn once, from the stream "turns" of round 0.

    No client takes part in more than ceil(rounds size/n) rounds, and its ledger enforces this
    limit.

    Attributes:
        num_clients: n.
        size: the number of clients in a round, 1 to n.
        rounds: the number of rounds in the run.
    """

    num_clients: int
    size: int
    rounds: int

    def clients(self, round: int, draws: Draws) -> ClientIndices | None:
        if self.size == self.num_clients:
            return None
        order = draws(0)("turns").generator().permutation(self.num_clients)
        places = np.arange((round - 1) * self.size, round * self.size)
        found: list[int] = np.sort(order[places % self.num_clients]).tolist()
        return found

    def max_rounds(self, client: int) -> int:
        return -(-self.rounds * self.size // self.num_clients)


def participation_of(
    settings: Any, default: Literal["drawn", "balanced"] = "drawn"
) -> Participation:
    """Return the participation that ``participation`` and ``clients_per_round`` describe.

    Args:
        settings: the run's settings.
        default: the participation if ``clients_per_round`` is set and ``participation`` is not.

    Raises:
        ConfigError: the two settings contradict each other.
    """
    clients, size, chosen = settings.num_clients, settings.round_size, settings.participation
    if chosen == "all" and size < clients:
        raise ConfigError(
            f"participation = all and clients_per_round = {size}: all num_clients = {clients} "
            "clients take part; leave clients_per_round out"
        )
    if chosen == "once":
        return _once(settings)
    if chosen in ("drawn", "balanced") and settings.clients_per_round is None:
        raise ConfigError(
            f"participation = {chosen}: give clients_per_round, or set participation = all"
        )
    if settings.clients_per_round is None:
        return All()
    if (chosen or default) == "balanced":
        return Balanced(clients, size, settings.rounds)
    return Drawn(clients, size)


def _once(settings: Any) -> Once:
    """Return the participation in which everyone answers once.

    Raises:
        ConfigError: ``clients_per_round`` also sets how many answer; or some rounds would be empty.
    """
    clients, rounds = settings.num_clients, settings.rounds
    if settings.clients_per_round is not None:
        raise ConfigError(
            f"participation = once and clients_per_round = {settings.clients_per_round}: each "
            f"round has num_clients/rounds = {clients}/{rounds} clients; leave clients_per_round "
            "out"
        )
    if clients < rounds:
        raise ConfigError(
            f"participation = once and rounds = {rounds}: with num_clients = {clients}, some "
            f"rounds would be empty; set rounds = {clients}, or fewer"
        )
    return Once(clients, rounds)


def most_rounds(participation: Participation, client: int, rounds: int) -> int:
    """Return the largest number of a run's ``rounds`` in which a client takes part."""
    found = participation.max_rounds(client)
    return rounds if found is None else found
