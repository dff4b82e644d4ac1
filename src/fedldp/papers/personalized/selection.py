"""Who is averaged, and with what weight: clients with less noise count more, or more often.

Source: X. Wu, L. Xu, L. Zhu 2023, Sections 3.2 and 4.2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.releases import ClientIndices
from fedldp.algorithms.participation import Participation
from fedldp.algorithms.settings import ClientValue, of_client
from fedldp.core.errors import ConfigError
from fedldp.core.randomness import Stream
from fedldp.protocol.roles import Draws


@dataclass(frozen=True, eq=False)
class Preselected(Participation):
    """Each round's clients, selected before the run; those with less noise are selected more often.

    The selections follow from the stream "selection" of each round. They are drawn before anyone
    trains, so clients that are not selected send nothing and release nothing.

    Attributes:
        rho: gives the inverse of each client's noise, positive, shape (n,); only someone who knows
            the settings of all clients can call it.
        rounds: the number of rounds in the run.
        turns: the number of rounds in which a client is selected: a list with one number for each
            client, or one client's own number; None until ``scheduled``.

    Source: the selection of Wu, Xu, Zhu 2023, Section 4.2; drawing it before the run is ours.
    """

    told: ClassVar[tuple[str, ...]] = ("turns",)

    rho: Callable[[], NDArray[np.float64]]
    rounds: int
    turns: int | Sequence[int] | ClientValue | None = None

    def clients(self, round: int, draws: Draws) -> ClientIndices:
        selected, _ = draw_selection(self.rho(), draws(round)("selection"))
        found: list[int] = np.flatnonzero(selected).tolist()
        return found

    def max_rounds(self, client: int) -> int:
        """Return in how many rounds ``client`` is selected; its noise is sized for this number.

        Raises:
            ConfigError: the selections have not been drawn yet.
        """
        if self.turns is None:
            raise ConfigError(
                "turns is not set: with selects_first the noise follows from the selections, "
                "which the server draws before the run; use the configuration that with_schedule "
                "returns"
            )
        return int(of_client(self.turns, client))

    def scheduled(self, draws: Draws) -> Self:
        """Return a copy whose ``turns`` follow from the selections of all rounds.

        Raises:
            ConfigError: ``turns`` is already set, and differs from the selections.
        """
        turns = np.zeros(self.rho().size, np.int64)
        for round in range(1, self.rounds + 1):
            turns[self.clients(round, draws)] += 1
        if self.turns is not None:
            for client, found in enumerate(turns.tolist()):
                given = of_client(self.turns, client)
                if given != found:
                    raise ConfigError(
                        f"turns: client {client} has {given}, but the server's draws select it "
                        f"{found} times; leave turns out"
                    )
        return replace(self, turns=turns.tolist())


def draw_selection(
    rho: NDArray[np.float64], stream: Stream, *, redraw: bool = True
) -> tuple[NDArray[np.bool_], int]:
    """Draw one omega ~ U(0, 1), and select every client with P_i = rho_i/sum rho above it.

    The P_i sum to 1, so among N equal clients each P_i is 1/N and most draws select nobody.

    Args:
        rho: positive, shape (n,): the inverse of every client's noise.
        stream: the server's stream for this round.
        redraw: whether to draw again until somebody is selected, which is equivalent to omega ~
            U(0, max P_i).

    Returns:
        The selected clients, shape (n,), and how many draws selected nobody and were repeated.

    Source: Wu, Xu, Zhu 2023, Section 4.2, which does not say what to do if nobody is selected.
    """
    probabilities = rho / rho.sum()
    generator = stream.generator()
    redrawn, omega = 0, generator.random()
    while redraw and omega >= probabilities.max():
        redrawn, omega = redrawn + 1, generator.random()
    return probabilities > omega, redrawn
