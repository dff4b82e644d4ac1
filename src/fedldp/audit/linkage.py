"""The audit of parameter shuffling: can the server tell which messages are of one client?

LDP-FL's claim of epsilon per weight rests on that it cannot (Sun, Qian, Chen 2021, Section 4,
Parameter Shuffling). The server sees (position, bits, arrival) of every message, and no sender. The
games and the attacks are those of ``arrivals`` and ``contents``; here are the probabilities that
they were right, with exact intervals, beside that of guessing.

Behind a secure sum (``parts.secure_sum``) there is nothing to link: of n - 1 clients' masked
vectors each is uniform and independent of everything that clients hold, the last makes the total
right, and the total has no messages. The server does know whose each vector is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.settings import Delays
from fedldp.audit.arrivals import CLOCKS, Clocks, Span, Target, timing_hits
from fedldp.audit.bounds import check_confidence, probability_at_least, probability_at_most
from fedldp.audit.contents import Bits, Inside, content_hits, masked_hits, trained
from fedldp.audit.efforts import QUICK, Effort
from fedldp.audit.seen import Keys
from fedldp.data import Dataset
from fedldp.errors import ConfigError
from fedldp.mechanisms import BitMechanism
from fedldp.parts.per_client import is_own
from fedldp.simulation.inputs import Inputs

Channel = Literal["shuffler", "secure sum"]
Evidence = Literal["time", "content"]

_SPANS: tuple[Span, ...] = ("within", "across")
_MANY = 500
"""Clients of a round, above which there are fewer trials."""
_IN_WORDS = {"within": "within a round", "across": "from round to round"}


@dataclass(frozen=True, kw_only=True)
class Link:
    """One line: how often an attack linked two messages of a client.

    Attributes:
        channel: what the server sees: a shuffler's messages, or a secure sum's masked vectors.
        span: whether both messages are of one round.
        evidence: what it linked them by.
        attack: how.
        clocks: how real clocks differ from the time model; nothing, where the evidence is content.
        target: any client, or the slowest.
        clients: n, of whose messages the server picks one.
        delay_seconds: the typical proposal for T.
        chunk: coordinates in one message.
        guessing: probability of a correct link without an attack, 1/n.
        hits: correct links.
        trials: independent ones.
        low: the probability of a correct link is at least this,
        high: and at most this, with ``confidence``.
        confidence: of the interval.
        verdict: "linked" where ``low`` is above guessing.
    """

    channel: Channel
    span: Span
    evidence: Evidence
    attack: str
    clocks: str
    target: Target
    clients: int
    delay_seconds: float
    chunk: int
    guessing: float
    hits: int
    trials: int
    low: float
    high: float
    confidence: float
    verdict: Literal["linked", "at chance"]

    @property
    def advantage(self) -> float:
        """The share of correct links, less that of guessing."""
        return self.hits / self.trials - self.guessing

    @property
    def what(self) -> str:
        """What was tried, for the reader."""
        whose = "the slowest client's messages" if self.target == "slowest" else "messages"
        by = f"{self.evidence} ({self.attack})"
        clocks = f"; {self.clocks}" if self.clocks else ""
        return f"{self.channel}: {whose} {_IN_WORDS[self.span]}, by {by}{clocks}"


@dataclass(frozen=True, kw_only=True)
class Linkage:
    """All lines; with probability ``confidence`` at least, all intervals hold together."""

    system: str
    confidence: float
    seed: int
    rows: tuple[Link, ...]

    @property
    def verdict(self) -> Literal["linked", "at chance"]:
        """Whether anything was linked."""
        return "linked" if any(row.verdict == "linked" for row in self.rows) else "at chance"

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "system": self.system,
            "verdict": self.verdict,
            "confidence": self.confidence,
            "seed": self.seed,
            "rows": [{**asdict(row), "advantage": row.advantage} for row in self.rows],
        }


@dataclass(frozen=True, kw_only=True)
class _Found:
    """A line whose interval awaits its confidence."""

    link: dict[str, Any]
    hits: int
    trials: int

    def row(self, confidence: float) -> Link:
        alpha = (1 - confidence) / 2
        low = probability_at_least(self.hits, self.trials, alpha)
        guessing = 1 / self.link["clients"]
        return Link(
            **self.link,
            guessing=guessing,
            hits=self.hits,
            trials=self.trials,
            low=low,
            high=probability_at_most(self.hits, self.trials, alpha),
            confidence=confidence,
            verdict="linked" if low > guessing else "at chance",
        )


def linkage(
    config: RunConfig,
    dataset: Dataset | None = None,
    *,
    data_dir: Path | None = None,
    effort: Effort = QUICK,
    confidence: float = 0.999,
    seed: int = 0,
    tell: Callable[[str], None] = lambda line: None,
) -> Linkage:
    """Try to link messages of a configuration's shuffler, and of a secure sum in its place.

    Args:
        config: of a system that shuffles.
        dataset: the data; loaded by ``config.dataset`` where it is not given.
        data_dir: the data folder.
        effort: how much is tried: ``QUICK`` or ``FULL``.
        confidence: that all intervals hold together.
        seed: of all randomness; the clients' training has the configuration's.
        tell: called with a line of progress before each game.

    Raises:
        ConfigError: the system shuffles nothing, or an argument is out of range.
        FedldpError: the data cannot be had.
    """
    check_confidence(confidence)
    delays = _delays(config)
    if config.round_size < 2:
        raise ConfigError("linkage: a round has one client; give clients_per_round = 2 or more")
    if is_own(getattr(config, "epsilon", None)):
        raise ConfigError(
            "linkage: epsilon is a list, and messages with different budgets are told apart; give "
            "one number"
        )
    inputs, keys = Inputs.of(config, dataset, data_dir), Keys(seed)
    mechanism = Bits.of(config, inputs.problem).mechanism
    found = [
        *_by_time(config, delays, effort, keys, tell),
        *_by_content(config, inputs, delays, mechanism, effort, keys, tell),
    ]
    each = 1 - (1 - confidence) / len(found)
    rows = tuple(one.row(each) for one in found)
    return Linkage(system=config.name(), confidence=confidence, seed=seed, rows=rows)


def timing(
    delays: Delays,
    clients: int,
    clocks: Clocks,
    *,
    span: Span = "within",
    target: Target = "any",
    trials: int = QUICK.timing_trials,
    confidence: float = 0.999,
    seed: int = 0,
) -> tuple[Link, ...]:
    """Play one game on arrivals, of any time model and number of clients; a line per attack.

    All intervals hold together with ``confidence``.

    Raises:
        ConfigError: an argument is out of range.
    """
    check_confidence(confidence)
    for name, value, least in (("clients", clients, 2), ("trials", trials, 1)):
        if value < least:
            raise ConfigError(f"{name} = {value}: give {least} or more")
    found = list(_timing(delays, clients, clocks, span, target, trials, Keys(seed)))
    return tuple(one.row(1 - (1 - confidence) / len(found)) for one in found)


def _timing(
    delays: Delays, clients: int, clocks: Clocks, span: Span, target: Target, trials: int,
    keys: Keys,
) -> Iterator[_Found]:  # fmt: skip
    generator = keys.generator("timing", delays, clients, clocks, span, target)
    hits = timing_hits(
        delays, clients, clocks, span=span, target=target, trials=trials, generator=generator
    )
    for attack, right in hits.items():
        link = _link(delays, clients, delays.chunk, span) | {
            "evidence": "time", "attack": attack, "clocks": clocks.name, "target": target,
        }  # fmt: skip
        yield _Found(link=link, hits=right, trials=trials)


def _by_time(
    config: RunConfig, delays: Delays, effort: Effort, keys: Keys, tell: Callable[[str], None]
) -> Iterator[_Found]:
    clients = config.round_size
    trials = max(
        effort.timing_trials // 10,
        min(effort.timing_trials, effort.timing_trials * _MANY // clients),
    )
    games: list[tuple[Clocks, Span, Target]] = [
        (clocks, span, "any") for clocks in CLOCKS for span in _SPANS
    ]
    if delays.prediction_error:
        name = f"own times predicted with error {delays.prediction_error:g}, as configured"
        games += [(Clocks(name=name), span, "any") for span in _SPANS]
    games += [(clocks, "within", "slowest") for clocks in CLOCKS]
    for clocks, span, target in games:
        tell(f"linkage by time {_IN_WORDS[span]}: {clocks.name}")
        yield from _timing(delays, clients, clocks, span, target, trials, keys)


def content(
    config: RunConfig,
    inputs: Inputs,
    chunks: Sequence[int],
    *,
    trials: int = QUICK.content_trials,
    confidence: float = 0.999,
    seed: int = 0,
) -> tuple[Link, ...]:
    """Play the games on bits, with all clients of a round and messages of any length.

    All intervals hold together with ``confidence``.

    Raises:
        ConfigError: an argument is out of range.
    """
    check_confidence(confidence)
    if trials < 1:
        raise ConfigError(f"trials = {trials}: give 1 or more")
    delays, mechanism = _delays(config), Bits.of(config, inputs.problem).mechanism
    inside = trained(config, inputs)
    size = inside.clients.shape[2]
    for chunk in chunks:
        if not 1 <= chunk <= size:
            raise ConfigError(f"chunk = {chunk}: the model has {size} weights; give 1 to {size}")
    found = list(_content(delays, mechanism, inside, chunks, trials, Keys(seed)))
    return tuple(one.row(1 - (1 - confidence) / len(found)) for one in found)


def _content(
    delays: Delays,
    mechanism: BitMechanism,
    inside: Inside,
    chunks: Sequence[int],
    trials: int,
    keys: Keys,
) -> Iterator[_Found]:
    hits = content_hits(inside, mechanism, chunks, trials=trials, keys=keys)
    for (span, chunk), right in hits.items():
        link = _link(delays, inside.clients.shape[1], chunk, span) | _CONTENT
        yield _Found(link=link, hits=right, trials=trials)


def _delays(config: RunConfig) -> Delays:
    """Return the time model of a configuration's shuffler.

    Raises:
        ConfigError: it has none.
    """
    delays = config.delays()
    if delays is None:
        raise ConfigError(
            f"linkage: the server of {config.name()} knows whose each report is; give a "
            "configuration whose messages are shuffled"
        )
    return delays


def _by_content(
    config: RunConfig,
    inputs: Inputs,
    delays: Delays,
    mechanism: BitMechanism,
    effort: Effort,
    keys: Keys,
    tell: Callable[[str], None],
) -> Iterator[_Found]:
    tell("linkage by content: training clients, and shadow clients")
    inside = trained(config, inputs)
    inside = replace(inside, clients=inside.clients[:, : effort.content_clients])
    clients, size = inside.clients.shape[1:]
    tell(f"linkage by content: {clients} clients")
    chunks = chunks_of(delays.chunk, size)
    yield from _content(delays, mechanism, inside, chunks, effort.content_trials, keys)
    summed = min(effort.sum_clients, clients)
    tell(f"linkage behind a secure sum: {summed} clients")
    few = tuple(sorted({1, max(1, size // 50)}))
    hits, trials = masked_hits(
        inside, mechanism, few, clients=summed, sums=effort.sum_repeats, keys=keys
    )
    for (span, chunk), right in hits.items():
        link = _link(delays, summed, chunk, span) | _CONTENT | {"channel": "secure sum"}
        yield _Found(link=link, hits=right, trials=trials[span, chunk])


_CONTENT = {"evidence": "content", "attack": "shadow clients", "clocks": "", "target": "any"}


def chunks_of(configured: int, size: int) -> tuple[int, ...]:
    """Return the lengths of messages that are tried: single weights, the configured, whole."""
    return tuple(sorted({1, configured, max(1, size // 10), size}))


def _link(delays: Delays, clients: int, chunk: int, span: Span) -> dict[str, Any]:
    return {
        "channel": "shuffler",
        "span": span,
        "clients": clients,
        "delay_seconds": delays.delay_seconds,
        "chunk": chunk,
    }


def lines(rows: Sequence[Link]) -> Iterator[tuple[str, str, str, str]]:
    """Yield for each row, in words: what was tried, guessing, the interval, and the verdict."""
    for row in rows:
        interval = f"{row.low:.4f} to {row.high:.4f}"
        yield f"{row.what}; chunk {row.chunk:,}", f"{row.guessing:.4f}", interval, row.verdict
