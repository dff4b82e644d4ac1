"""The audit of parameter shuffling: can the server tell which messages come from one client?

LDP-FL's claim of epsilon per weight assumes that the server cannot (Sun, Qian, Chen 2021, Section
4, Parameter Shuffling). The server sees (position, bits, arrival) of every message, but no sender.
The games and the attacks are in ``link_attacks``. This module computes the
probability of a correct link, with an exact interval, and compares it with guessing.

With a secure sum (``secure_sum``) there is nothing to link, although the server knows which client
each masked vector comes from: the masked vectors of n - 1 clients are uniform and independent of
everything that clients hold, the last vector only makes the total right, and the total contains no
single messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.settings import Delays, is_own
from fedldp.audit.bounds import check_confidence, probability_at_least, probability_at_most
from fedldp.audit.efforts import QUICK, Effort
from fedldp.audit.link_attacks import (
    CLOCKS,
    BitReports,
    Clocks,
    Span,
    TargetClient,
    TrainedValues,
    content_hits,
    masked_hits,
    timing_hits,
    train_values,
)
from fedldp.audit.observations import AuditKeys
from fedldp.audit.results import AttackResult, Audit, Estimate
from fedldp.core.errors import ConfigError
from fedldp.data import Dataset
from fedldp.mechanisms import BitMechanism
from fedldp.simulation.inputs import Inputs

_SPANS: tuple[Span, ...] = ("within", "across")
_MANY = 500
"""If a round has more clients than this, games on arrival times have fewer trials."""
_IN_WORDS = {"within": "within a round", "across": "from round to round"}


@dataclass(frozen=True, kw_only=True)
class _Count:
    """The hits of one game; a confidence level later turns them into an interval.

    Attributes:
        attack: how messages were linked.
        hits: correct links.
        trials: independent trials.
        figures: the figures of the game. "channel": what the server sees, a shuffler's messages or
            a secure sum's masked vectors; "span": whether both messages are from one round;
            "evidence": what the attack linked them by; "clocks": how real clocks differ from the
            time model; "target": any client, or the slowest; "clients": n, among whose messages the
            server picks one; "delay_seconds": the typical proposal for T; "chunk": coordinates in
            one message.
    """

    attack: str
    hits: int
    trials: int
    figures: dict[str, Any]

    def result(self, subject: str, confidence: float) -> AttackResult:
        """Return the share of correct links; the baseline is the share that guessing gives."""
        alpha = (1 - confidence) / 2
        low = probability_at_least(self.hits, self.trials, alpha)
        high = probability_at_most(self.hits, self.trials, alpha)
        guessing = 1 / self.figures["clients"]
        return AttackResult(
            subject=subject,
            kind="linkage",
            attack=self.attack,
            measure="links",
            measured=Estimate(value=self.hits / self.trials, low=low, high=high),
            baseline=guessing,
            confidence=confidence,
            trials=self.trials,
            verdict="linked" if low > guessing else "at chance",
            figures=self.figures | {"hits": self.hits},
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
) -> Audit[AttackResult]:
    """Try to link the messages of a configuration's shuffler, and of a secure sum in its place.

    Args:
        config: the configuration of a system that shuffles.
        dataset: the data; None: loaded by ``config.dataset``.
        data_dir: the data folder.
        effort: how much to try: ``QUICK`` or ``FULL``.
        confidence: the confidence level at which all intervals hold together.
        seed: the seed of all randomness except the clients' training, which uses the
            configuration's seed.
        tell: called with a progress line before each game.

    Raises:
        ConfigError: the system shuffles nothing, or an argument is out of range.
        FedldpError: the data cannot be loaded.
    """
    check_confidence(confidence)
    delays = _delays(config)
    if config.round_size < 2:
        raise ConfigError("linkage: a round has one client; give clients_per_round = 2 or more")
    if is_own(getattr(config, "epsilon", None)):
        raise ConfigError(
            "linkage: epsilon is a list, and different budgets tell messages apart; give one number"
        )
    inputs, keys = Inputs.of(config, dataset, data_dir), AuditKeys(seed)
    mechanism = BitReports.of(config, inputs.problem).mechanism
    found = [
        *_by_time(config, delays, effort, keys, tell),
        *_by_content(config, inputs, delays, mechanism, effort, keys, tell),
    ]
    each = 1 - (1 - confidence) / len(found)
    rows = tuple(one.result(config.name(), each) for one in found)
    return Audit(subject=config.name(), confidence=confidence, seed=seed, rows=rows)


def timing(
    delays: Delays,
    clients: int,
    clocks: Clocks,
    *,
    span: Span = "within",
    target: TargetClient = "any",
    trials: int = QUICK.timing_trials,
    confidence: float = 0.999,
    seed: int = 0,
) -> tuple[AttackResult, ...]:
    """Play one game on arrivals, with any time model and number of clients.

    All intervals hold together with ``confidence``.

    Raises:
        ConfigError: an argument is out of range.
    """
    check_confidence(confidence)
    for name, value, least in (("clients", clients, 2), ("trials", trials, 1)):
        if value < least:
            raise ConfigError(f"{name} = {value}: give {least} or more")
    found = list(_timing(delays, clients, clocks, span, target, trials, AuditKeys(seed)))
    return tuple(one.result("a shuffler", 1 - (1 - confidence) / len(found)) for one in found)


def _timing(
    delays: Delays, clients: int, clocks: Clocks, span: Span, target: TargetClient, trials: int,
    keys: AuditKeys,
) -> Iterator[_Count]:  # fmt: skip
    generator = keys.generator("timing", delays, clients, clocks, span, target)
    hits = timing_hits(
        delays, clients, clocks, span=span, target=target, trials=trials, generator=generator
    )
    for attack, right in hits.items():
        link = _link(delays, clients, delays.chunk, span) | {
            "evidence": "time", "clocks": clocks.name, "target": target,
        }  # fmt: skip
        yield _Count(attack=attack, hits=right, trials=trials, figures=link)


def _by_time(
    config: RunConfig, delays: Delays, effort: Effort, keys: AuditKeys, tell: Callable[[str], None]
) -> Iterator[_Count]:
    clients = config.round_size
    trials = max(
        effort.timing_trials // 10,
        min(effort.timing_trials, effort.timing_trials * _MANY // clients),
    )
    games: list[tuple[Clocks, Span, TargetClient]] = [
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
) -> tuple[AttackResult, ...]:
    """Play the games on bits, with all clients of a round and messages of any length.

    All intervals hold together with ``confidence``.

    Raises:
        ConfigError: an argument is out of range.
    """
    check_confidence(confidence)
    if trials < 1:
        raise ConfigError(f"trials = {trials}: give 1 or more")
    delays, mechanism = _delays(config), BitReports.of(config, inputs.problem).mechanism
    trained = train_values(config, inputs)
    size = trained.clients.shape[2]
    for chunk in chunks:
        if not 1 <= chunk <= size:
            raise ConfigError(f"chunk = {chunk}: the model has {size} weights; give 1 to {size}")
    found = list(_content(delays, mechanism, trained, chunks, trials, AuditKeys(seed)))
    return tuple(one.result(config.name(), 1 - (1 - confidence) / len(found)) for one in found)


def _content(
    delays: Delays,
    mechanism: BitMechanism,
    trained: TrainedValues,
    chunks: Sequence[int],
    trials: int,
    keys: AuditKeys,
) -> Iterator[_Count]:
    hits = content_hits(trained, mechanism, chunks, trials=trials, keys=keys)
    for (span, chunk), right in hits.items():
        link = _link(delays, trained.clients.shape[1], chunk, span) | _CONTENT
        yield _Count(attack=_SHADOWS, hits=right, trials=trials, figures=link)


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


def _by_content(
    config: RunConfig,
    inputs: Inputs,
    delays: Delays,
    mechanism: BitMechanism,
    effort: Effort,
    keys: AuditKeys,
    tell: Callable[[str], None],
) -> Iterator[_Count]:
    tell("linkage by content: training clients, and shadow clients")
    trained = train_values(config, inputs)
    trained = replace(trained, clients=trained.clients[:, : effort.content_clients])
    clients, size = trained.clients.shape[1:]
    tell(f"linkage by content: {clients} clients")
    chunks = chunks_of(delays.chunk, size)
    yield from _content(delays, mechanism, trained, chunks, effort.content_trials, keys)
    summed = min(effort.sum_clients, clients)
    tell(f"linkage behind a secure sum: {summed} clients")
    few = tuple(sorted({1, max(1, size // 50)}))
    hits, trials = masked_hits(
        trained, mechanism, few, clients=summed, sums=effort.sum_repeats, keys=keys
    )
    for (span, chunk), right in hits.items():
        link = _link(delays, summed, chunk, span) | _CONTENT | {"channel": "secure sum"}
        yield _Count(attack=_SHADOWS, hits=right, trials=trials[span, chunk], figures=link)


_SHADOWS = "shadow clients"
_CONTENT = {"evidence": "content", "clocks": "", "target": "any"}


def chunks_of(configured: int, size: int) -> tuple[int, ...]:
    """Return the message lengths to try: one weight, the configured length, and whole reports."""
    return tuple(sorted({1, configured, max(1, size // 10), size}))


def _link(delays: Delays, clients: int, chunk: int, span: Span) -> dict[str, Any]:
    return {
        "channel": "shuffler",
        "span": span,
        "clients": clients,
        "delay_seconds": delays.delay_seconds,
        "chunk": chunk,
    }


def what(told: Mapping[str, Any]) -> str:
    """Describe what was tried, given the JSON of a result."""
    whose = "the slowest client's messages" if told["target"] == "slowest" else "messages"
    by = f"{told['evidence']} ({told['attack']})"
    clocks = f"; {told['clocks']}" if told["clocks"] else ""
    return f"{told['channel']}: {whose} {_IN_WORDS[told['span']]}, by {by}{clocks}"


def lines(rows: Sequence[AttackResult]) -> Iterator[tuple[str, str, str, str]]:
    """Yield for each row, in words: what was tried, guessing, the interval, and the verdict."""
    for row in rows:
        told = row.as_json()
        interval = f"{told['low']:.4f} to {told['high']:.4f}"
        tried = f"{what(told)}; chunk {told['chunk']:,}"
        yield tried, f"{row.baseline:.4f}", interval, told["verdict"]
