"""A server's random choice among clients, those with less noise more often."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedldp.randomness import Stream


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
