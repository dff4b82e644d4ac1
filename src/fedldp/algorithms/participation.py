"""Participation: which clients are asked in a round, and in how many rounds one client at most.

Every kind is public: who takes part follows from the configuration and the server's randomness,
never from a client's data. Where a client's noise is made for fewer rounds than the run has,
``max_rounds`` says for how many, and the client's own ledger enforces it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.releases import ClientIndices
from fedldp.algorithms.per_client import ClientValue, of_client
from fedldp.algorithms.settings import Offer
from fedldp.core.errors import ConfigError
from fedldp.core.randomness import KEY_BYTES, Stream
from fedldp.protocol.roles import Draws

PARTICIPATION = Offer(
    "participation",
    Literal["all", "drawn", "once", "balanced", "auto"] | None,
    "who answers when: all clients; clients_per_round of them, drawn for each round, or in turns "
    "(balanced); each client in one round only (once); auto: once where each report reaches the "
    "server, and by itself is pure private, so that more rounds cost more, else as the system "
    "says. Where it is not set, what the system says",
    None,
)

_DENSE = 16
"""A sample of more than one in so many is put in order by a table of all clients."""


class Participation(Protocol):
    """Who answers when.

    Attributes:
        told: settings whose values the server draws before the run, and tells everyone.
        uses_rounds: whether who answers in a round depends on how many rounds there are.
    """

    told: ClassVar[tuple[str, ...]]
    uses_rounds: ClassVar[bool]

    def clients(self, round: int, draws: Draws) -> ClientIndices | None:
        """Return the clients of ``round``, ascending; None for all of them.

        Args:
            round: from 1.
            draws: the server's streams.
        """
        ...

    def max_rounds(self, client: int) -> int | None:
        """Return in how many rounds ``client`` takes part at most; None: in all of them."""
        ...

    def scheduled(self, draws: Draws) -> Self:
        """Return a copy that knows what the server draws of it before the run."""
        ...


@dataclass(frozen=True)
class All:
    """Every client is asked in every round."""

    told: ClassVar[tuple[str, ...]] = ()
    uses_rounds: ClassVar[bool] = False

    def clients(self, round: int, draws: Draws) -> ClientIndices | None:
        return None

    def max_rounds(self, client: int) -> int | None:
        return None

    def scheduled(self, draws: Draws) -> Self:
        return self


@dataclass(frozen=True)
class Drawn:
    """A uniform sample without replacement in each round, from the stream "participation".

    A client must be prepared to be drawn in every round, so its privacy is that of all of them.

    Attributes:
        num_clients: n.
        size: clients of a round, 1 to n.
    """

    told: ClassVar[tuple[str, ...]] = ()
    uses_rounds: ClassVar[bool] = False

    num_clients: int
    size: int

    def clients(self, round: int, draws: Draws) -> ClientIndices | None:
        generator = draws(round)("participation").generator()
        drawn = generator.choice(self.num_clients, size=self.size, replace=False)
        if self.size < self.num_clients // _DENSE:
            return np.sort(drawn).astype(np.int32)
        there = np.zeros(self.num_clients, np.bool_)
        there[drawn] = True
        return np.flatnonzero(there).astype(np.int32)

    def max_rounds(self, client: int) -> int | None:
        return None

    def scheduled(self, draws: Draws) -> Self:
        return self


@dataclass(frozen=True)
class Once:
    """Every client answers in exactly one round, in a cohort that the server draws in secret.

    The cohorts are the pieces of one uniform permutation of the clients, from the stream "cohorts"
    of round 0: they are disjoint, hold everyone, and differ in size by one at most. Nobody can tell
    a client's round in advance without the server's secret; no guarantee rests on that. A server
    that starts again draws the same cohorts.

    Attributes:
        num_clients: n, at least ``rounds``.
        rounds: of the run.
    """

    told: ClassVar[tuple[str, ...]] = ()
    uses_rounds: ClassVar[bool] = True

    num_clients: int
    rounds: int

    def clients(self, round: int, draws: Draws) -> ClientIndices:
        key = draws(0)("cohorts").bytes(KEY_BYTES).tobytes()
        fewest, larger = divmod(self.num_clients, self.rounds)  # the first ``larger`` have one more
        start = (round - 1) * fewest + min(round - 1, larger)
        stop = round * fewest + min(round, larger)
        return np.sort(_permutation(key, self.num_clients)[start:stop])

    def max_rounds(self, client: int) -> int:
        return 1

    def scheduled(self, draws: Draws) -> Self:
        return self


@lru_cache(maxsize=2)  # every round of a run asks for the same one
def _permutation(key: bytes, size: int) -> NDArray[np.int32]:
    """Return a uniform permutation of 0 to ``size`` - 1, which nobody knows without the key.

    The order of random integers that are all different is uniform; where two are equal, all are
    drawn again. numpy's own permutation draws from a generator that is not cryptographic.
    """
    stream = Stream(key, simulated=True)
    while True:
        numbers = stream.integers(size, np.uint64)
        order = np.argsort(numbers, kind="stable")
        ascending = numbers[order]
        if np.all(ascending[1:] > ascending[:-1]):
            found = order.astype(np.int32)
            found.flags.writeable = False
            return found


def cohort_sizes(num_clients: int, rounds: int) -> tuple[int, int]:
    """Return how many clients a round of ``Once`` has, at least and at most."""
    return num_clients // rounds, -(-num_clients // rounds)


@dataclass(frozen=True)
class Balanced:
    """Clients take turns in an order that is drawn once, from the stream "turns" of round 0.

    Nobody takes part in more than ceil(rounds size/n) rounds, which every client's ledger counts.

    Attributes:
        num_clients: n.
        size: clients of a round, 1 to n.
        rounds: of the run.
    """

    told: ClassVar[tuple[str, ...]] = ()
    uses_rounds: ClassVar[bool] = False

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

    def scheduled(self, draws: Draws) -> Self:
        return self


def participation_of(
    settings: Any, default: Literal["drawn", "balanced"] = "drawn"
) -> Participation:
    """Return who answers when, as ``PARTICIPATION`` and clients_per_round say.

    Args:
        settings: of the run.
        default: of those of a round that has fewer than all.

    Raises:
        ConfigError: the two contradict each other.
    """
    clients, size, chosen = settings.num_clients, settings.round_size, settings.participation
    if chosen == "all" and size < clients:
        raise ConfigError(
            f"participation = all and clients_per_round = {size}: there are num_clients = "
            f"{clients}; leave clients_per_round out"
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
        ConfigError: ``clients_per_round`` says how many answer, too; or some rounds would be empty.
    """
    clients, rounds = settings.num_clients, settings.rounds
    if settings.clients_per_round is not None:
        raise ConfigError(
            f"participation = once and clients_per_round = {settings.clients_per_round}: a round "
            f"has num_clients/rounds = {clients}/{rounds} of them; leave clients_per_round out"
        )
    if clients < rounds:
        raise ConfigError(
            f"participation = once and rounds = {rounds}: num_clients = {clients} leave some "
            f"rounds empty; set rounds = {clients}, or fewer"
        )
    return Once(clients, rounds)


def most_rounds(participation: Participation, client: int, rounds: int) -> int:
    """Return in how many of a run's ``rounds`` a client takes part at most."""
    found = participation.max_rounds(client)
    return rounds if found is None else found


@dataclass(frozen=True, eq=False)
class Preselected:
    """The server selects clients for each round, those with less noise more often, before the run.

    The selections follow from the stream "selection" of each round. They are drawn before anyone
    trains, so the unselected send nothing, and release nothing.

    Attributes:
        rho: gives the inverse of each client's noise, positive, shape (n,); only who knows the
            settings of all clients can call it.
        rounds: of the run.
        turns: in how many rounds a client is selected: a list with one number for each client, or
            what one client is told; None until ``scheduled``.

    Source: the selection of Wu, Xu, Zhu 2023, Section 4.2; that it comes first is ours.
    """

    told: ClassVar[tuple[str, ...]] = ("turns",)
    uses_rounds: ClassVar[bool] = False

    rho: Callable[[], NDArray[np.float64]]
    rounds: int
    turns: int | Sequence[int] | ClientValue | None = None

    def clients(self, round: int, draws: Draws) -> ClientIndices:
        selected, _ = draw_selection(self.rho(), draws(round)("selection"))
        found: list[int] = np.flatnonzero(selected).tolist()
        return found

    def max_rounds(self, client: int) -> int:
        """Return how often ``client`` is selected, for which its noise is made.

        Raises:
            ConfigError: the selections have not been drawn yet.
        """
        if self.turns is None:
            raise ConfigError(
                "turns is not set: with selects_first the noise follows from who is selected, "
                "which the server draws before the run; take the settled configuration"
            )
        return int(of_client(self.turns, client))

    def scheduled(self, draws: Draws) -> Self:
        """Return a copy with ``turns`` as the selections of all rounds have it.

        Raises:
            ConfigError: ``turns`` is set, and is something else.
        """
        turns = np.zeros(self.rho().size, np.int64)
        for round in range(1, self.rounds + 1):
            turns[self.clients(round, draws)] += 1
        if self.turns is not None:
            for client, found in enumerate(turns.tolist()):
                given = of_client(self.turns, client)
                if given != found:
                    raise ConfigError(
                        f"turns: client {client} has {given}, and is selected {found} times by "
                        "what the server draws; leave turns out"
                    )
        return replace(self, turns=turns.tolist())


def draw_selection(
    rho: NDArray[np.float64], stream: Stream, *, redraw: bool = True
) -> tuple[NDArray[np.bool_], int]:
    """Draw one omega ~ U(0, 1), and select every client with P_i = rho_i/sum rho above it.

    The P_i sum to 1, so among N alike clients each P_i is 1/N and most draws select nobody.

    Args:
        rho: positive, shape (n,): the inverse of every client's noise.
        stream: the server's, for this round.
        redraw: draw again until somebody is selected, which is to draw from U(0, max P_i).

    Returns:
        Who is selected, shape (n,), and how many draws selected nobody and were repeated.

    Source: Wu, Xu, Zhu 2023, Section 4.2; what to do with an empty selection is not stated there.
    """
    probabilities = rho / rho.sum()
    generator = stream.generator()
    redrawn, omega = 0, generator.random()
    while redraw and omega >= probabilities.max():
        redrawn, omega = redrawn + 1, generator.random()
    return probabilities > omega, redrawn
