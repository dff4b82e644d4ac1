"""When shuffled messages arrive, with realistic clocks, and which links their times reveal.

The game: one of n clients is the target. The server sees when one of the target's messages arrives,
and when all n clients' messages for another position arrive, in the same round or in the next. It
names the message that it believes to be from the target. Guessing is right with probability 1/n.

The time model is that of ``simulation.shuffler``: message j of client i arrives at W_i + U(0, T),
where W_i is T_S for every client that predicts its own times correctly. Then an arrival has the
same law for every client, and no attack on times beats guessing. ``Clocks`` says what can differ.

Attacks; all of them know T:

- ``ranks``: each message has a rank among the messages of its position. This attack picks the
  message with the same rank as the one shown, and uses nothing else.
- ``law``: picks the likeliest message, where the law of W is known. Given W, arrivals are
  independent, with density 1/T from W to W + T. So the likelihood ratio of "both from one client"
  to "from two clients" is P(both windows are open)/(P(the first is open) P(the second is open)),
  under the law of W.
- ``windows``: does the same if the server knows the actual windows of this round's clients, as it
  may after many rounds. The score of a message is a share of the clients whose windows are open
  when it arrives: the share whose windows were also open when the message shown arrived.
- ``ticks``: picks the message whose offset within a tick is closest to that of the message shown,
  if timers have ticks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedldp.algorithms.settings import Delays
from fedldp.simulation.shuffler import agree_delay, draw_schedule

Floats = NDArray[np.float64]
TimingAttack = Literal["ranks", "law", "windows", "ticks"]
Span = Literal["within", "across"]
TargetClient = Literal["any", "slowest"]

_LAW = 4096
"""The number of simulated clients from which the distribution of windows is estimated."""


@dataclass(frozen=True, kw_only=True)
class Clocks:
    """How the clients' clocks, timers and networks differ from what the paper assumes.

    Attributes:
        name: a name for the reader.
        waits: whether clients wait T_W (Section 3.1); Algorithm 3 as printed has no wait.
        prediction_error: the sigma of the log-normal factor by which a client's prediction of its
            own times is wrong, drawn again in every round; None: the time model's error.
        offset_seconds: standard deviation of a client's clock offset, which is the same in every
            round.
        tick_seconds: timers fire only at multiples of this, counted from the device's start; 0 for
            timers without ticks.
        jitter_seconds: mean of an exponential delay that the network adds to every message.
    """

    name: str
    waits: bool = True
    prediction_error: float | None = None
    offset_seconds: float = 0.0
    tick_seconds: float = 0.0
    jitter_seconds: float = 0.0

    @property
    def attacks(self) -> tuple[TimingAttack, ...]:
        """The attacks that are tried."""
        known: tuple[TimingAttack, ...] = ("ranks", "law", "windows")
        return (*known, "ticks") if self.tick_seconds else known


AS_ASSUMED = Clocks(name="as the paper assumes", prediction_error=0.0)
NO_WAIT = Clocks(name="Algorithm 3 as printed: nobody waits", waits=False, prediction_error=0.0)
CLOCKS = (
    AS_ASSUMED,
    NO_WAIT,
    Clocks(name="clocks off by 10 ms", prediction_error=0.0, offset_seconds=0.01),
    Clocks(name="clocks off by 1 s", prediction_error=0.0, offset_seconds=1.0),
    Clocks(name="own times predicted to 10 %", prediction_error=0.1),
    Clocks(
        name="timers with ticks of 1/64 s", prediction_error=0.0, tick_seconds=1 / 64,
        jitter_seconds=1e-3,
    ),
)  # fmt: skip
"""The clocks that are tried with every time model."""


@dataclass(frozen=True, eq=False)
class Habits:
    """What stays the same in all rounds: clock offsets, timer phases and the delay T, in seconds.

    Attributes:
        offsets: the offset of each client's clock, shape (n,).
        phases: the phase of each client's timer within a tick, shape (n,).
        delay: T, agreed on before the first round.
    """

    offsets: Floats
    phases: Floats
    delay: float

    @classmethod
    def draw(
        cls, delays: Delays, clocks: Clocks, clients: int, generator: np.random.Generator
    ) -> Habits:
        """Draw the habits of ``clients`` clients."""
        return cls(
            offsets=generator.normal(0.0, clocks.offset_seconds, clients),
            phases=generator.uniform(0.0, clocks.tick_seconds, clients),
            delay=agree_delay(delays, clients, generator),
        )


@dataclass(frozen=True, eq=False)
class Windows:
    """When the messages of a round's clients may arrive.

    Attributes:
        opens: W of each client, shape (n,), in seconds after T_S, or, if nobody waits, after the
            start of the round.
        delay: T, the same in all rounds of a run.
    """

    opens: Floats
    delay: float

    def open_at(self, times: Floats, among: Floats) -> NDArray[np.int64]:
        """Return how many windows, opening at ``among`` (ascending), are open at each time."""
        opened = np.searchsorted(among, times, "right")
        return opened - np.searchsorted(among, times - self.delay, "left")


def draw_windows(
    delays: Delays, clocks: Clocks, habits: Habits, generator: np.random.Generator
) -> Windows:
    """Draw one round's windows."""
    if clocks.prediction_error is not None:
        delays = replace(delays, prediction_error=clocks.prediction_error)
    schedule = draw_schedule(delays, habits.offsets.size, habits.delay, generator)
    start = schedule.response if clocks.waits else schedule.waits
    return Windows(schedule.offsets - start + habits.offsets, schedule.delay)


def draw_arrivals(
    windows: Windows, clocks: Clocks, habits: Habits, generator: np.random.Generator
) -> Floats:
    """Draw the arrival times of all clients' messages for one position, shape (n,)."""
    times: Floats = windows.opens + generator.uniform(0.0, windows.delay, windows.opens.size)
    if clocks.tick_seconds:
        tick, phases = clocks.tick_seconds, habits.phases
        times = np.ceil((times - phases) / tick) * tick + phases
    if clocks.jitter_seconds:
        times = times + generator.exponential(clocks.jitter_seconds, times.size)
    return times


def likelihoods(own: float, seen: Floats, first: Windows, second: Windows) -> Floats:
    """Return how much likelier each arrival is for the client of ``own`` than for another client.

    Args:
        own: the arrival that is shown, in the first round.
        seen: arrivals for another position, shape (n,), in the second round or in the same round.
        first: windows of clients in the first round: a sample from the law, or all clients'
            windows.
        second: windows of the same clients in the second round.
    """
    possible = (first.opens <= own) & (own <= first.opens + first.delay)
    shared = second.open_at(seen, np.sort(second.opens[possible]))
    every = second.open_at(seen, np.sort(second.opens))
    return shared / np.maximum(every, 1)


def by_rank(place: int, seen: Floats, others: Floats) -> Floats:
    """Return a score for each of ``others``: 1 for the one with the rank of message ``place``."""
    rank = int((seen < seen[place]).sum())
    scores = np.zeros(others.size)
    scores[np.argpartition(others, rank)[rank]] = 1.0
    return scores


def by_tick(own: float, seen: Floats, tick: float) -> Floats:
    """Return a score for each of ``seen``: lower if it is farther from ``own`` within a tick."""
    apart = np.mod(seen - own, tick)
    return -np.minimum(apart, tick - apart)


def pick(scores: Floats, generator: np.random.Generator) -> int:
    """Return the index of the highest score, chosen at random among ties."""
    return int(generator.choice(np.flatnonzero(scores == scores.max())))


def timing_hits(
    delays: Delays,
    clients: int,
    clocks: Clocks,
    *,
    span: Span,
    target: TargetClient,
    trials: int,
    generator: np.random.Generator,
) -> dict[TimingAttack, int]:
    """Play the game, and return how often each attack was right.

    Every trial has its own clients, clocks and rounds, so trials are independent.

    Args:
        delays: the time model.
        clients: n.
        clocks: how real clocks differ from the time model.
        span: whether the other position is in the same round or in the next.
        target: any client, or the one whose window opens last.
        trials: how often the game is played.
        generator: the source of all randomness.
    """
    known = Habits.draw(delays, clocks, _LAW, generator)
    law = [draw_windows(delays, clocks, known, generator) for _ in range(2)]
    hits: dict[TimingAttack, int] = dict.fromkeys(clocks.attacks, 0)
    for _ in range(trials):
        habits = Habits.draw(delays, clocks, clients, generator)
        first = draw_windows(delays, clocks, habits, generator)
        second = first if span == "within" else draw_windows(delays, clocks, habits, generator)
        whose = int(generator.integers(clients))
        if target == "slowest":
            whose = pick(first.opens, generator)
        shown = draw_arrivals(first, clocks, habits, generator)
        others = draw_arrivals(second, clocks, habits, generator)
        own = float(shown[whose])
        for attack in clocks.attacks:
            match attack:
                case "ranks":
                    scores = by_rank(whose, shown, others)
                case "law":
                    one = Windows(law[0].opens, first.delay)
                    two = one if span == "within" else law[1]
                    scores = likelihoods(own, others, one, Windows(two.opens, second.delay))
                case "windows":
                    scores = likelihoods(own, others, first, second)
                case "ticks":
                    scores = by_tick(own, others, clocks.tick_seconds)
            hits[attack] += pick(scores, generator) == whose
    return hits
