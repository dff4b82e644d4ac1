"""Compare mechanisms by the mean or the frequencies that they estimate, without any training.

Clients hold vectors of norm 1, or one category each. Every contestant is calibrated to the same
epsilon for all that a client sends, against the adversary of its channel, and estimates the mean of
the same values. All values are made up, so nothing here is a release.

The values of a mean: x_i = (u + v_i)/sqrt(2), with one unit vector u and unit vectors v_i that are
drawn for each client, so half of the squared norm is what clients share. Bounds are public: the
largest norms of 1,000 such vectors from another seed. The categories of frequencies follow Zipf's
law, and a category is also the vector that has a 1 at its place, for mechanisms on vectors.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.guarantees import HOUSE, Adversary
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.systems import whose_word
from fedldp.core.errors import ConfigError, FedldpError
from fedldp.core.facts import Fact, in_order
from fedldp.core.formatting import number
from fedldp.core.kinds import EPSILON_OF_MEAN
from fedldp.mechanisms import MechanismSettings, find_mechanism, mechanisms
from fedldp.mechanisms.categories import CategoryMechanism
from fedldp.protocol.keys import SimulationKeys, draws_of_seed
from fedldp.protocol.roles import Senders, State, Update
from fedldp.protocol.wire import Reports, Sensitive
from fedldp.reporting import words
from fedldp.simulation.plan import plan, problem_of
from fedldp.simulation.settings import from_mapping, named

Values = NDArray[np.float64]

BATCH = 250
"""How many clients report at once."""

_PUBLIC, _DRAWN = 2**31 - 1, 1000
"""The seed and the number of the vectors from which bounds follow; the seed is never measured."""

_FIRST = 16
"""The number of clients from whose values the closed form of the error is computed."""

_BIAS = 0.01
"""A mechanism counts as biased if its expectation is this much shorter or longer than the value."""

_ADVERSARIES: Mapping[str, Adversary] = {
    "named": "server",
    "shuffle": "shuffled-server",
    "sum": "summing-server",
    "central": "downlink",
}
"""Each channel's adversary, for whom epsilon holds."""


@dataclass(frozen=True)
class Estimation:
    """What is estimated.

    Attributes:
        size: the number of coordinates d, or of categories.
        clients: the number of clients n; each sends one report.
        categories: whether clients hold categories and frequencies are estimated.

    Raises:
        ConfigError: a number is out of range.
    """

    size: int
    clients: int
    categories: bool = False

    def __post_init__(self) -> None:
        """Check the numbers."""
        letter = "k" if self.categories else "d"
        for name, given, least in ((letter, self.size, 2), ("n", self.clients, 2)):
            if not least <= given <= 10**7:
                raise ConfigError(f"{name} = {given}: give an integer from {least} to 10,000,000")
        if self.size * self.clients > 2 * 10**9:
            raise ConfigError(
                f"{letter} = {self.size} and n = {self.clients}: their product is above 2 * 10^9; "
                "give smaller numbers"
            )

    @classmethod
    def of(cls, text: str, *, categories: bool = False) -> Estimation:
        """Return what a text such as "d=1000,n=10000" asks for; it may be a recipe's name.

        Raises:
            ConfigError: it is neither.
        """
        letter = "k" if categories else "d"
        if not categories and "=" not in text:
            config = named(text, {})
            problem = problem_of(config, None)
            return cls(config.layout(problem).size, config.round_size)
        found = dict(part.partition("=")[::2] for part in text.replace(" ", "").split(","))
        try:
            size, clients = int(found.pop(letter)), int(found.pop("n"))
        except (KeyError, ValueError):
            found = {"": ""}
        if found:
            raise ConfigError(f"{text}: write {letter}=1000,n=10000, with your own integers")
        return cls(size, clients, categories)

    def labels(self, seed: int) -> NDArray[np.int64]:
        """Return every client's category, shape (n,)."""
        shares = 1 / np.arange(1, self.size + 1)
        drawn = np.random.default_rng(seed).choice(self.size, self.clients, p=shares / shares.sum())  # noqa: TID251  # made-up vectors
        return drawn.astype(np.int64)

    def vectors(self, seed: int, clients: int | None = None) -> Iterator[Values]:
        """Yield clients' vectors of norm 1, some at a time, shape (clients, d)."""
        left = self.clients if clients is None else clients
        if self.categories:
            rows = self.labels(seed)[:left]
            for start in range(0, len(rows), BATCH):
                yield np.eye(self.size)[rows[start : start + BATCH]]
            return
        random = np.random.default_rng(seed)  # noqa: TID251  # made-up people
        shared = _unit(random.standard_normal((1, self.size)))
        while left:
            count = min(BATCH, left)
            own = _unit(random.standard_normal((count, self.size)))
            yield _unit(shared + own)
            left -= count

    def bounds(self) -> tuple[float, float]:
        """Return the largest magnitude and the largest L1 norm of public vectors."""
        if self.categories:
            return 1.0, 1.0
        made = [np.abs(each) for each in self.vectors(_PUBLIC, _DRAWN)]
        return max(float(e.max()) for e in made), max(float(e.sum(1).max()) for e in made)


@dataclass(frozen=True, kw_only=True)
class MeanRow:
    """One contestant at one epsilon.

    Attributes:
        name: the mechanism, or the recipe.
        channel: how reports reach the server.
        adversary: against whom epsilon holds.
        epsilon: the epsilon that was asked for.
        proven: the epsilon of its statement; None if it was refused.
        stated_by: who states it: "fedldp", or the user's own code.
        mse: the squared L2 distance from the true mean, averaged over seeds.
        error: the standard error of ``mse``; None for one seed.
        closed: what the closed form of the variance says ``mse`` is; None if there is none.
        bytes: the bytes of one report.
        cpu_client, cpu_server: CPU microseconds for one report.
        refused: why there are no figures, or None.
        conditions: what its epsilon rests on.
    """

    name: str
    channel: str
    adversary: str
    epsilon: float
    stated_by: str = HOUSE
    proven: float | None = None
    mse: float | None = None
    error: float | None = None
    closed: float | None = None
    bytes: float | None = None
    cpu_client: float | None = None
    cpu_server: float | None = None
    refused: str | None = None
    conditions: tuple[Fact, ...] = ()


@dataclass(frozen=True)
class MeanTable:
    """The result of ``compare_means``.

    Attributes:
        of: what was estimated.
        delta: the largest delta.
        seeds: the seeds.
        rows: by epsilon and channel, the smallest error first; then those that were refused.
    """

    of: Estimation
    delta: float
    seeds: tuple[int, ...]
    rows: Sequence[MeanRow] = field(repr=False)

    def document(self) -> dict[str, Any]:
        """Return the document that ``--json`` prints."""
        of = {"categories": self.of.size} if self.of.categories else {"size": self.of.size}
        return {
            **of, "clients": self.of.clients, "delta": self.delta, "seeds": list(self.seeds),
            "rows": [vars(row) | {"conditions": words.facts(row.conditions)} for row in self.rows],
            "notes": self.notes(),
        }  # fmt: skip

    def shown(self) -> tuple[list[str], list[list[str]]]:
        """Return the table to display: its column headings and its rows."""
        best = {
            (row.epsilon, row.channel): row.mse
            for row in reversed(self.rows)
            if row.mse is not None
        }
        head = ["mechanism", "channel", "epsilon", "MSE", "of the best", "closed form", "bytes",
                "client us", "server us", "proven epsilon", "stated by"]  # fmt: skip
        found = []
        for row in self.rows:
            if row.mse is None:
                found.append(
                    [row.name, row.channel, f"{row.epsilon:g}", "refused", row.refused or ""]
                )
                found[-1] += [""] * (len(head) - len(found[-1]))
                continue
            spread = "" if row.error is None else f" \u00b1 {row.error:.1g}"
            least = best[row.epsilon, row.channel]
            found.append(
                [
                    row.name, row.channel, f"{row.epsilon:g}", f"{row.mse:.3g}{spread}",
                    f"{row.mse / least:.3g} x" if least else "-",
                    "-" if row.closed is None else f"{row.closed:.3g}",
                    f"{row.bytes:,.0f}", f"{row.cpu_client:,.0f}", f"{row.cpu_server:,.1f}",
                    number(row.proven), row.stated_by,
                ]
            )  # fmt: skip
        return head, found

    def notes(self) -> list[str]:
        """Return, in sentences, what a reader of the numbers must know."""
        what = (
            f"frequencies of {self.of.size:,} categories"
            if self.of.categories
            else f"the mean of vectors of norm 1 with {self.of.size:,} coordinates"
        )
        seeds = ", ".join(map(str, self.seeds))
        return [
            f"MSE: the squared distance from {what}, from one report of each of "
            f"{self.of.clients:,} clients; a mean over the seeds {seeds}, with its standard error",
            words.line(EPSILON_OF_MEAN(delta=self.delta)),
            *words.by_rows("condition", {
                f"{row.name} ({row.channel})": row.conditions for row in self.rows if row.proven
            }),
            "all values are made up, and none is released",
        ]  # fmt: skip


def compare_means(
    of: Estimation,
    epsilons: Iterable[float],
    *,
    contestants: Sequence[str] = (),
    delta: float = 1e-5,
    seeds: Sequence[int] = (0, 1, 2),
    say: Callable[[str], None] = lambda line: None,
) -> MeanTable:
    """Return the errors of mechanisms at equal epsilons; see the module's docstring.

    Args:
        of: what is estimated.
        epsilons: the epsilons, above 0.
        contestants: names of mechanisms and "module:Class" of your own; all mechanisms if empty.
            Your own are compared with all others.
        delta: the largest delta.
        seeds: the seeds of values and noise.
        say: called with a line about every contestant.

    Raises:
        ConfigError: an argument is wrong.
    """
    known = [name for name in mechanisms() if name != "none"]
    own = [name for name in contestants if ":" in name]
    chosen = list(contestants) if len(own) < len(contestants) else [*own, *known]
    for name in chosen:
        find_mechanism(name)
    levels = sorted(set(epsilons))
    if not levels or not all(0 < each < 1e6 for each in levels):
        raise ConfigError("epsilon: give one or more numbers above 0, such as 1,4")
    if not seeds or _PUBLIC in seeds:
        raise ConfigError(f"seeds: give at least one, other than {_PUBLIC}")
    bounds, rows = of.bounds(), []
    for epsilon in levels:
        for channel in _ADVERSARIES:
            made = []
            for name in chosen if channel in ("named", "shuffle") else [channel]:
                row = _measured(of, name, channel, epsilon, delta, seeds, bounds)
                if row is None:
                    continue
                made.append(row)
                told = row.refused or f"MSE {row.mse:.3g}"
                say(f"{row.name}, {channel}, at {epsilon:g}: {told}")
            if of.categories and channel == "named":
                made += _of_categories(of, chosen, epsilon, seeds)
            rows += sorted(made, key=lambda row: (row.mse is None, row.mse or 0.0))
    return MeanTable(of, delta, tuple(seeds), rows)


def _measured(
    of: Estimation,
    name: str,
    channel: str,
    epsilon: float,
    delta: float,
    seeds: Sequence[int],
    bounds: tuple[float, float],
) -> MeanRow | None:
    """Return a mechanism's row; None if it does not fit the channel."""
    shown = {"sum": "gaussian_share", "central": "central_dp"}.get(channel, name)
    start: dict[str, Any] = {"name": shown, "channel": channel, "adversary": _ADVERSARIES[channel],
                             "epsilon": epsilon}  # fmt: skip
    try:
        settings = _settings(of, name, channel, bounds)
        target = {"unit": "client-run", "adversary": _ADVERSARIES[channel], "epsilon": epsilon,
                  "delta": delta}  # fmt: skip
        config = from_mapping({**settings, "delta": delta, "target": target})
        # One weight for each class, so that any number of weights is possible.
        problem = Problem((1,), of.size, of.clients, num_clients=of.clients)
        planned = plan(config, problem)
    except FedldpError as error:
        if channel == "shuffle":  # most mechanisms have no such report
            return None
        return MeanRow(**start, refused=str(error))
    lines = [
        line
        for line in planned.privacy.guarantees
        if (line.unit, line.adversary) == ("client-run", _ADVERSARIES[channel])
    ]
    best = min(lines, key=lambda line: math.inf if line.epsilon is None else line.epsilon)
    found = [_estimated(of, planned.scheduled, problem, seed) for seed in seeds]
    if channel == "central":
        found = [replace(each, closed=None) for each in found]
    stated_by, conditions = whose_word(config), tuple(in_order(best.assumptions))
    return _row(of, found, **start, stated_by=stated_by, proven=best.epsilon, conditions=conditions)


def _settings(
    of: Estimation, name: str, channel: str, bounds: tuple[float, float]
) -> dict[str, Any]:
    """Return the settings of a run whose one round estimates the mean."""
    shared = {"dataset": "digits", "model": "linear", "num_clients": of.clients, "rounds": 1,
              "learning_rate": 1.0, "num_examples": of.clients}  # fmt: skip
    if channel == "central":
        return {**shared, "system": "central_dp", "clip": 1.0, "noise": "discrete-gaussian"}
    found = {**shared, "system": "composed", "send": "update", "participation": "all",
             "average": 0.0}  # fmt: skip
    if channel == "sum":
        return {**found, "mechanism": "gaussian_share", "bound": "norm", "clip": 1.0,
                "channel": "sum"}  # fmt: skip
    found |= {"mechanism": name} | ({"channel": "shuffle"} if channel == "shuffle" else {})
    kind = find_mechanism(name)
    most, most_l1 = bounds
    asked = MechanismSettings(epsilon=1.0, delta=1e-5, clip=1.0, size=of.size)
    even = np.full(of.size, 1e3 / np.sqrt(of.size))
    norm = float(np.linalg.norm(kind.from_settings(asked).bound(even)))
    if norm > 1.01:  # it bounds each coordinate by 1, and no norm
        return {**found, "bound": "range", "range_radius": 1.001 * most}
    return {**found, "bound": "norm", "clip": 1.0 if norm > 0.99 else 1.001 * most_l1}


@dataclass(frozen=True)
class _Found:
    """What one seed tells: the squared error, its closed form, bytes, and CPU seconds."""

    squared: float
    closed: float | None
    bytes: float
    client: float
    server: float


def _row(of: Estimation, found: Sequence[_Found], **start: Any) -> MeanRow:
    """Return a contestant's row, from what each seed tells."""
    errors = np.array([each.squared for each in found])
    return MeanRow(
        **start,
        mse=float(errors.mean()),
        error=float(errors.std(ddof=1) / np.sqrt(errors.size)) if errors.size > 1 else None,
        closed=found[0].closed,
        bytes=found[0].bytes,
        cpu_client=1e6 * min(each.client for each in found) / of.clients,
        cpu_server=1e6 * min(each.server for each in found) / of.clients,
    )


def _estimated(of: Estimation, config: RunConfig, problem: Problem, seed: int) -> _Found:
    """Return the error of one round in which clients send vectors instead of trained weights."""
    algorithm, draws = config.algorithm(problem), draws_of_seed(seed)
    encoder, server = algorithm.report_encoder(0), algorithm.server()
    state = State(weights=np.zeros(of.size, np.float32), arrays=server.initial(draws(0)).arrays)
    broadcast = server.publish(state)
    total, client, sent = np.zeros(of.size), 0.0, 0.0

    def reports() -> Iterator[Reports]:
        nonlocal total, client, sent
        first = 0
        for rows in of.vectors(seed):
            indices = range(first, first + len(rows))
            senders = Senders(
                indices=indices,
                num_examples=Sensitive(np.ones(len(rows), np.int64)),
                fresh=lambda purpose, indices=indices: [  # type: ignore[misc]
                    SimulationKeys(seed, index).fresh(1, 0, purpose) for index in indices
                ],
                kept=lambda purpose, indices=indices: [  # type: ignore[misc]
                    SimulationKeys(seed, index).kept(purpose) for index in indices
                ],
                store=_no_store,
            )
            begun = time.process_time()
            made = encoder(Sensitive(Update(rows=rows.astype(np.float32))), broadcast, senders)
            client += time.process_time() - begun
            total += rows.sum(0)
            sent += made.uplink_bits / 8
            first += len(rows)
            yield made

    begun = time.process_time()
    following, _ = server.aggregate(state, reports(), draws(1))
    server_seconds = time.process_time() - begun - client
    distance = following.weights.astype(np.float64) - total / of.clients
    some = next(iter(of.vectors(seed)))[:_FIRST].astype(np.float32)
    release = encoder.release
    variance = np.mean(
        [release.mechanism.variance(row) for row in release.bound.apply(some, broadcast)], axis=0
    )
    scale = np.linalg.norm(release.bound.restore(np.sqrt(variance / of.clients), state))
    biased = any(
        np.linalg.norm(release.mechanism.expected(row) - row) > _BIAS * np.linalg.norm(row)
        for row in release.bound.apply(some, broadcast)
    )
    return _Found(
        squared=float(distance @ distance),
        closed=None if biased else float(scale**2),
        bytes=sent / of.clients,
        client=client,
        server=max(0.0, server_seconds),
    )


def _no_store(place: int) -> Any:
    raise ConfigError("mean: this mechanism keeps values from round to round; leave it out")


def _of_categories(
    of: Estimation, names: Sequence[str], epsilon: float, seeds: Sequence[int]
) -> Iterator[MeanRow]:
    """Yield the rows of mechanisms on categories, which report each client's category itself."""
    for name in names:
        kind = find_mechanism(name)
        if not issubclass(kind, CategoryMechanism):
            continue
        start: dict[str, Any] = {"name": f"{name} (category)", "channel": "named",
                                 "adversary": "server", "epsilon": epsilon}  # fmt: skip
        try:
            mechanism = kind(epsilon, of.size)  # type: ignore[call-arg]
        except ConfigError as error:
            yield MeanRow(**start, refused=str(error))
            continue
        q, gain, found = mechanism.other_probability, mechanism.gain, []
        p = q + gain
        closed = (p * (1 - p) + (of.size - 1) * q * (1 - q)) / (of.clients * gain**2)
        size = float(-(-mechanism.payload_bits(1) // 8))
        for seed in seeds:
            labels = of.labels(seed)
            begun = time.process_time()
            stream = SimulationKeys(seed, 0).fresh(1, 0, "mechanism")
            counts = np.zeros(of.size)
            for start_at in range(0, of.clients, BATCH):
                made = mechanism.randomise(labels[start_at : start_at + BATCH], stream)
                counts += np.bincount(made, minlength=of.size) if made.ndim == 1 else made.sum(0)
            seconds = time.process_time() - begun
            true = np.bincount(labels, minlength=of.size) / of.clients
            squared = float(np.sum(((counts / of.clients - q) / gain - true) ** 2))
            found.append(_Found(squared, closed, size, seconds, 0.0))
        yield _row(of, found, **start, proven=mechanism.realised_epsilon)


def _unit(rows: Values) -> Values:
    found: Values = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return found
