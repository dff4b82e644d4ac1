"""Attacks on parameter shuffling: can the server tell which messages come from one client?

LDP-FL's claim of epsilon per weight assumes that the server cannot (Sun, Qian, Chen 2021, Section
4, Parameter Shuffling). The server sees (position, bits, arrival) of every message, but no sender.
We compare the probability of a correct link, with an exact interval, with guessing. The attacks
suit every system whose messages are shuffled.

By time, with realistic clocks. The game: one of n clients is the target. The server sees when one
of the target's messages arrives, and when all n clients' messages for another position arrive, in
the same round or in the next. It names the message that it believes to be from the target. Guessing
is right with probability 1/n.

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

By content, that is, by bits. The game: the server sees one message from a client, and all n
clients' messages for another position: another chunk of the same round, or the same chunk of the
next round. It names the message that it takes to come from the same client. Guessing is right with
probability 1/n.

The attack is the best linear attack for weak signals. An adversary trains shadow clients on its own
data, starting from the same broadcasts as the clients, and so learns how the deviations from the
mean are correlated. The shadows' deviations are X_1 and X_2, shape (s, c), at the two positions. A
bit b gives the estimate y = K (2 b - 1) of a coordinate, with a variance of about K^2. So, given
y_1, the expected deviation at the other position is

    X_2^T (X_1 X_1^T + s K^2 I)^-1 X_1 y_1,

and the scores are the products of this vector with the y_2 of all n messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedldp.algorithms.bounds import InRange
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.release import Encoder
from fedldp.algorithms.settings import Delays, is_own
from fedldp.audit.attacks.scenario import AttackScenario
from fedldp.audit.bounds import probability_at_least, probability_at_most
from fedldp.audit.efforts import QUICK, Effort
from fedldp.audit.harness import population_of
from fedldp.audit.observations import AuditKeys
from fedldp.audit.results import AttackResult, Estimate
from fedldp.core.errors import ConfigError
from fedldp.core.locks import scratch
from fedldp.mechanisms import BitMechanism
from fedldp.protocol.keys import draws_of_seed
from fedldp.protocol.roles import Update
from fedldp.protocol.wire import Broadcast, Sensitive
from fedldp.simulation.inputs import Inputs
from fedldp.simulation.population import Population
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


ROUNDS = 2
SHADOWS = 200


@dataclass(frozen=True, eq=False)
class TrainedValues:
    """What clients send in two successive rounds: normalised coordinates, before randomisation.

    Attributes:
        clients: the run's clients, shape (2, n, d).
        shadows: the adversary's own clients, minus their mean, shape (2, s, d).
    """

    clients: NDArray[np.float32]
    shadows: NDArray[np.float32]


def how_bits_are_made(config: RunConfig, problem: Problem) -> tuple[InRange, BitMechanism]:
    """Return the bound and the randomiser of a system in which all clients make bits in one way.

    Raises:
        ConfigError: a report is not one bit for each weight within a range.
    """
    encoder = config.algorithm(problem).encoder(0)
    if isinstance(encoder, Encoder):
        bound, mechanism = encoder.release.bound, encoder.release.mechanism
        if isinstance(bound, InRange) and isinstance(mechanism, BitMechanism):
            return bound, mechanism
    raise ConfigError(
        f"linkage: a report of {config.name()} is not one bit for each weight within a range; "
        "give a configuration whose reports are, such as the recipe quickstart"
    )


def _normalised(
    bound: InRange, broadcast: Broadcast, weights: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return weights, shape (n, d), as the coordinates from -1 to 1 that are randomised."""
    assert broadcast.ranges is not None
    sent = weights - broadcast.weights if bound.send == "update" else weights
    return np.clip(broadcast.ranges.normalise(sent), -1, 1)


def train_values(config: RunConfig, inputs: Inputs) -> TrainedValues:
    """Train the clients of the first two rounds, and shadows, from the same broadcasts.

    The shadows get the test set, in shares of the same size as the clients'. The clients are the
    first of the run, as many as take part in one round; they take part in both rounds.
    """
    count, (bound, _) = config.round_size, how_bits_are_made(config, inputs.problem)
    with scratch() as folder:
        population = population_of(config, inputs, folder)
        shadows = [population_of(*each, folder) for each in _shadows(config, inputs)]
        draws = draws_of_seed(config.seed)
        server = config.algorithm(inputs.problem).server()
        state = server.initial(draws(0))
        rounds, imitated = [], []
        for round in range(1, ROUNDS + 1):
            broadcast = server.publish(state)
            weights = _weights(population, broadcast, range(count))
            rounds.append(_normalised(bound, broadcast, weights))
            own = [_weights(each, broadcast, range(each.config.num_clients)) for each in shadows]
            found = _normalised(bound, broadcast, np.concatenate(own))
            imitated.append(found - found.mean(0))
            encoder = population.encoders[0]
            senders = population.senders(range(count), round, 0)
            reports = encoder(Sensitive(Update(rows=weights)), broadcast, senders)
            state, _ = server.aggregate(state, iter([reports]), draws(round))
    return TrainedValues(np.stack(rounds), np.stack(imitated))


def _shadows(config: RunConfig, inputs: Inputs) -> Iterator[tuple[RunConfig, Inputs]]:
    data = inputs.dataset
    public = replace(data, train=data.test, clients=None)
    share = len(data.test) / inputs.problem.num_examples
    each = int(np.clip(config.num_clients * share, 2, SHADOWS))
    for number in range(-(-SHADOWS // each)):
        own = config.changed(
            num_clients=each, clients_per_round=None, participation="all", num_examples=None,
            standardise=False, untrusted_clients=0, seed=config.seed + 1 + number,
        )  # fmt: skip
        yield own, Inputs.of(own, public, None)


def _weights(
    population: Population, broadcast: Broadcast, indices: Sequence[int]
) -> NDArray[np.float32]:
    """Return the weights of some clients after training, shape (n, d)."""
    group, found = population.group, []
    for start in range(0, len(indices), group):
        batch = population.batch(indices[start : start + group], broadcast.round)
        found.append(population.local_update(broadcast, batch, group).open().rows)
    return np.concatenate(found)


Place = tuple[int, slice]
"""The round and the coordinates of a message."""


def content_hits(
    trained: TrainedValues,
    mechanism: BitMechanism,
    chunks: Sequence[int],
    *,
    trials: int,
    keys: AuditKeys,
) -> dict[tuple[Span, int], int]:
    """Play the game with the shuffler's messages; return how often the attack was right.

    All clients randomise again in every trial, so the trials are independent, given the weights.

    Args:
        trained: the clients' values, and the adversary's shadows.
        mechanism: the randomiser.
        chunks: numbers of coordinates per message; every trial tries each of them.
        trials: how often the game is played.
        keys: the source of all randomness.
    """
    _, clients, size = trained.clients.shape
    generator = keys.generator("content")
    hits: dict[tuple[Span, int], int] = {
        (span, chunk): 0
        for chunk in chunks
        for span in _IN_WORDS
        if span == "across" or chunk < size  # a whole report is the only message of its round
    }
    draws = [keys.draws(clients * trials, "content", at, simulated=False) for at in range(ROUNDS)]
    for trial in range(trials):
        seen = []
        for values, draw in zip(trained.clients, draws, strict=True):
            streams = draw.streams(trial * clients, (trial + 1) * clients)
            bits = np.unpackbits(mechanism.encode_many(values, streams), axis=1, count=size)
            found = mechanism.scale * (2 * bits.astype(np.float64) - 1)
            seen.append(found - found.mean(0))
        for span, chunk in hits:
            whose = int(generator.integers(clients))
            (one, own), (two, others) = _places(span, chunk, size, generator)
            first = trained.shadows[one][:, own].astype(np.float64)
            second = trained.shadows[two][:, others].astype(np.float64)
            noise = len(first) * mechanism.scale**2 * np.eye(len(first))
            shown = np.linalg.solve(first @ first.T + noise, first @ seen[one][whose, own])
            scores = seen[two][:, others] @ (second.T @ shown)
            hits[span, chunk] += pick(scores, generator) == whose
    return hits


def _places(
    span: Span, chunk: int, size: int, generator: np.random.Generator
) -> tuple[Place, Place]:
    """Draw the round and the coordinates of both messages."""
    first, second = 0, 1
    if span == "across":
        message = other = int(generator.integers(-(-size // chunk)))
    else:
        second = 0
        message, other = generator.choice(-(-size // chunk), 2, replace=False).tolist()
    return (
        (first, slice(message * chunk, (message + 1) * chunk)),
        (second, slice(other * chunk, (other + 1) * chunk)),
    )


# Results

CONFIDENCE = 0.999
"""The confidence level at which all intervals of one call hold together."""

_MANY = 500
"""If a round has more clients than this, games on arrival times have fewer trials."""
_IN_WORDS: Mapping[Span, str] = {"within": "within a round", "across": "from round to round"}


class LinkageCount(NamedTuple):
    """How often one attack was right, with the figures of its game.

    "span": whether both messages are from one round; "evidence": what the attack linked them by;
    "clocks": how real clocks differ from the time model; "target": any client, or the slowest;
    "clients": n, among whose messages the server picks one; "delay_seconds": the typical proposal
    for T; "chunk": coordinates in one message.
    """

    attack: str
    hits: int
    trials: int
    figures: dict[str, Any]


def attacks(scenario: AttackScenario, effort: Effort) -> list[AttackResult]:
    """Return attempts to link a system's messages; empty if no messages are shuffled."""
    config = scenario.config
    if config.composition.channel.delays is None or is_own(getattr(config, "epsilon", None)):
        return []
    return list(linkage(config, scenario.inputs, effort=effort, seed=scenario.seed))


def linkage(
    config: RunConfig, inputs: Inputs | None = None, *, effort: Effort = QUICK, seed: int = 0
) -> tuple[AttackResult, ...]:
    """Try to link the messages of a configuration's shuffler.

    Args:
        config: the configuration of a system that shuffles.
        inputs: the run's data; None: loaded by ``config.dataset``.
        effort: how much to try: ``QUICK`` or ``FULL``.
        seed: the seed of all randomness except the clients' training, which uses the
            configuration's seed.

    Raises:
        ConfigError: the system shuffles nothing.
        FedldpError: the data cannot be loaded.
    """
    delays = _delays(config)
    if config.round_size < 2:
        raise ConfigError("linkage: a round has one client; give clients_per_round = 2 or more")
    if is_own(getattr(config, "epsilon", None)):
        raise ConfigError(
            "linkage: epsilon is a list, and different budgets tell messages apart; give one number"
        )
    inputs, keys = inputs or Inputs.of(config, None, None), AuditKeys(seed)
    _, mechanism = how_bits_are_made(config, inputs.problem)
    trained = train_values(config, inputs)
    trained = replace(trained, clients=trained.clients[:, : effort.content_clients])
    size = trained.clients.shape[2]
    # One weight, the configured length, a tenth of a report, and whole reports.
    chunks = sorted({1, delays.chunk, max(1, size // 10), size})
    return judged(
        config.name(),
        [
            *_by_time(config, delays, effort, keys),
            *by_content(delays, mechanism, trained, chunks, effort.content_trials, keys),
        ],
    )


def judged(subject: str, found: Iterable[LinkageCount]) -> tuple[AttackResult, ...]:
    """Return the shares of correct links, whose intervals hold together with ``CONFIDENCE``."""
    counts = list(found)
    confidence = 1 - (1 - CONFIDENCE) / len(counts)
    alpha = (1 - confidence) / 2
    rows = []
    for attack, hits, trials, figures in counts:
        low = probability_at_least(hits, trials, alpha)
        high = probability_at_most(hits, trials, alpha)
        guessing = 1 / figures["clients"]
        rows.append(
            AttackResult(
                subject=subject,
                kind="linkage",
                attack=attack,
                measure="links",
                measured=Estimate(value=hits / trials, low=low, high=high),
                baseline=guessing,
                setting=what({**figures, "attack": attack}),
                confidence=confidence,
                trials=trials,
                verdict="linked" if low > guessing else "at chance",
                figures=figures | {"hits": hits},
            )
        )
    return tuple(rows)


def timing(
    delays: Delays, clients: int, clocks: Clocks, span: Span, target: TargetClient, trials: int,
    keys: AuditKeys,
) -> Iterator[LinkageCount]:  # fmt: skip
    """Play the game on arrivals, and yield how often each attack was right.

    Every trial has its own clients, clocks and rounds, so trials are independent.

    Args:
        delays: the time model.
        clients: n.
        clocks: how real clocks differ from the time model.
        span: whether the other position is in the same round or in the next.
        target: any client, or the one whose window opens last.
        trials: how often the game is played.
        keys: the source of all randomness.
    """
    generator = keys.generator("timing", delays, clients, clocks, span, target)
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
    figures = _figures(
        delays, span, clients, delays.chunk, evidence="time", clocks=clocks.name, target=target
    )
    for attack, right in hits.items():
        yield LinkageCount(attack, right, trials, figures)


def _by_time(
    config: RunConfig, delays: Delays, effort: Effort, keys: AuditKeys
) -> Iterator[LinkageCount]:
    clients = config.round_size
    trials = max(
        effort.timing_trials // 10,
        min(effort.timing_trials, effort.timing_trials * _MANY // clients),
    )
    games: list[tuple[Clocks, Span, TargetClient]] = [
        (clocks, span, "any") for clocks in CLOCKS for span in _IN_WORDS
    ]
    if delays.prediction_error:
        name = f"own times predicted with error {delays.prediction_error:g}, as configured"
        games += [(Clocks(name=name), span, "any") for span in _IN_WORDS]
    games += [(clocks, "within", "slowest") for clocks in CLOCKS]
    for clocks, span, target in games:
        yield from timing(delays, clients, clocks, span, target, trials, keys)


def by_content(
    delays: Delays,
    mechanism: BitMechanism,
    trained: TrainedValues,
    chunks: Sequence[int],
    trials: int,
    keys: AuditKeys,
) -> Iterator[LinkageCount]:
    """Play the games on bits, and yield how often the attack was right; see ``content_hits``."""
    hits = content_hits(trained, mechanism, chunks, trials=trials, keys=keys)
    for (span, chunk), right in hits.items():
        figures = _figures(delays, span, trained.clients.shape[1], chunk)
        yield LinkageCount("shadow clients", right, trials, figures)


def _figures(
    delays: Delays, span: Span, clients: int, chunk: int, *, evidence: str = "content",
    clocks: str = "", target: TargetClient = "any",
) -> dict[str, Any]:  # fmt: skip
    return {
        "span": span, "evidence": evidence, "clocks": clocks, "target": target,
        "clients": clients, "delay_seconds": delays.delay_seconds, "chunk": chunk,
    }  # fmt: skip


def _delays(config: RunConfig) -> Delays:
    """Return the time model of a configuration's shuffler.

    Raises:
        ConfigError: the configuration has no time model.
    """
    channel = config.composition.channel
    delays = channel.delays
    if channel.shuffles_reports:
        raise ConfigError(
            f"linkage: whole reports of {config.name()} arrive together, sorted by their "
            "bytes, so arrival times cannot link them; give a configuration that shuffles messages"
        )
    if delays is None:
        raise ConfigError(
            f"linkage: the server of {config.name()} knows who sends each report; give a "
            "configuration whose messages are shuffled"
        )
    return delays


def what(told: Mapping[str, Any]) -> str:
    """Describe what was tried, given the figures of a result and its attack."""
    whose = "the slowest client's messages" if told["target"] == "slowest" else "messages"
    by = f"{told['evidence']} ({told['attack']})"
    clocks = f"; {told['clocks']}" if told["clocks"] else ""
    return f"{whose} {_IN_WORDS[told['span']]}, by {by}{clocks}"
