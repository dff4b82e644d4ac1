"""When the messages of a shuffled round arrive: the time model of parameter shuffling.

Each message of a client is sent after its own random delay, so that times and order of arrival do
not show which messages belong together:

    t = T_W + U(0, T),   T_W = T_S - t_LC - t_C,   T_S = max over clients of (t_LC + t_C)

All clients of a run agree on T once, before the first round. The clients that take part in a round
agree on its T_S.

A message that is sent a time t after the end of training arrives at t_LC + t + t_C = T_S + U(0, T)
if the client predicted its own times correctly. A wrong prediction shifts the client's whole
window, which the server can see; ``Delays.prediction_error`` simulates that.

Source: Sun, Qian, Chen 2021, Algorithm 3 and Section 3.1, Parameter Shuffling.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedldp.algorithms.settings import Delays
from fedldp.core.randomness import SERVER, Source, Stream, check_purpose

World = Callable[[int, int, str], Stream]
"""Returns the stream for a round, a client and a purpose that nobody draws for in a deployment."""


def world_of_seed(seed: int) -> World:
    """Return a simulation's streams for what the world decides in a deployment, such as delays."""

    def stream(round: int, client: int, purpose: str) -> Stream:
        check_purpose(Source.WORLD, purpose)
        return Stream.simulation(seed=seed, round=round, client=client, purpose=purpose)

    return stream


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The times that a round's clients agreed on, and the times that each client takes, in seconds.

    Attributes:
        delay: T, the same in every round.
        response: T_S, the slowest client's predicted t_LC + t_C.
        waits: T_W of each client, shape (n,).
        offsets: for each client, the time when its window of arrivals opens, t_LC + T_W + t_C,
            shape (n,).
    """

    delay: float
    response: float
    waits: NDArray[np.float64]
    offsets: NDArray[np.float64]


def agree_delay(delays: Delays, clients: int, generator: np.random.Generator) -> float:
    """Return the median of the values of T, in seconds, that ``clients`` clients propose.

    A single dishonest client cannot move the median far.
    """
    proposals = delays.delay_seconds * generator.lognormal(0.0, delays.spread, clients)
    return float(np.median(proposals))


def delay_of_run(delays: Delays, clients: int, stream: World) -> float:
    """Return the T on which all clients of a simulated run agree before its first round.

    The value depends only on the seed, not on which clients take part in which round. In a run that
    is resumed or extended, clients therefore agree on the same T again.

    Args:
        delays: the time model.
        clients: the number of clients in the run.
        stream: returns the stream of random numbers for a round, a client and a purpose.
    """
    return agree_delay(delays, clients, stream(0, SERVER, "delay").generator())


def draw_schedule(
    delays: Delays, clients: int, delay: float, generator: np.random.Generator
) -> Schedule:
    """Draw the times of a round for ``clients`` clients that have agreed on ``delay``, T."""

    def around(typical: float, sigma: float) -> NDArray[np.float64]:
        return typical * generator.lognormal(0.0, sigma, clients)

    taken = around(delays.compute_seconds, delays.spread)
    taken += around(delays.communication_seconds, delays.spread)
    predicted = taken * around(1.0, delays.prediction_error)
    response = float(predicted.max())
    waits = np.maximum(np.subtract(response, predicted, out=predicted), 0.0, out=predicted)
    if delays.prediction_error == 0:
        taken[:] = response  # all times are equal, but rounding errors would make clients differ
    else:
        taken += waits
    return Schedule(delay=delay, response=response, waits=waits, offsets=taken)


def draw_extremes(
    schedule: Schedule, messages: int, generator: np.random.Generator
) -> tuple[float, float]:
    """Draw when the first and the last message arrive, without drawing the times in between.

    The smallest of m uniform numbers in (0, 1) is distributed as 1 - V^(1/m), with V uniform. Given
    that the smallest is x, the others are uniform in (x, 1).

    Args:
        schedule: the times of the clients.
        messages: the number of messages that each client sends.
        generator: the source of V.

    Returns:
        The first and the last arrival, in seconds since the start of the round.
    """
    windows = schedule.offsets
    if (windows == windows[0]).all():
        windows, messages = windows[:1], messages * windows.size
    low = -np.expm1(np.log1p(-generator.random(windows.size)) / messages)
    high = low
    if messages > 1:
        rest = np.exp(np.log1p(-generator.random(windows.size)) / (messages - 1))
        high = low + (1 - low) * rest
    first, last = windows + schedule.delay * low, windows + schedule.delay * high
    return float(first.min()), float(last.max())


def times(schedule: Schedule, first: float, last: float) -> dict[str, float]:
    """Return the times in a round's record, in seconds."""
    return {
        "delay": schedule.delay,
        "response": schedule.response,
        "first_wait": float(schedule.waits.min()),
        "last_wait": float(schedule.waits.max()),
        "first_arrival": first,
        "last_arrival": last,
    }
