"""What a server sees of clients: bytes that leave their runtimes, read as the server reads them.

The adversary is the server of a run. It follows the protocol, knows everything public, and has its
own examples from the same source as the clients'. So it can simulate any client: with the
adversary's examples, and with or without a candidate. In every simulation it sees the same kind of
bytes as from a real client.

If the data name people, a candidate is a person with all of the person's rows: no client has some
of a person's rows while another client has the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedldp.algorithms.composition import Algorithm
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.release import Encoder
from fedldp.audit.harness import CPU, RUN, loop_of, policy_of, population_of, weakest
from fedldp.audit.inputs import check_one_sum
from fedldp.core.errors import ConfigError
from fedldp.core.locks import scratch
from fedldp.data import Dataset, Examples, Shares
from fedldp.ledgers.columns import MemoryLedger
from fedldp.mechanisms.none import Plain
from fedldp.protocol.client_runtime import ClientRuntime
from fedldp.protocol.client_store import MemoryStore
from fedldp.protocol.keys import SimulationKeys, draws_of_seed
from fedldp.protocol.roles import ClientRole, ServerRole, State
from fedldp.protocol.wire import (
    Refusal,
    Report,
    RoundRequest,
    pack_request,
    read_reply_to,
)
from fedldp.simulation.executors import Executor, InProcess
from fedldp.simulation.inputs import Inputs
from fedldp.simulation.plan import plan
from fedldp.training.exact_sums import whose_rows
from fedldp.training.tensors import one_thread

Floats = NDArray[np.float64]

_DRAWS = 16
"""The number of draws of the server's own randomness over which the estimate is averaged."""
_OTHERS = 200


@dataclass(frozen=True, kw_only=True, eq=False)
class AttackScenario:
    """A run's server, and examples that it and the clients have.

    Attributes:
        config: the run's configuration, with its schedule.
        inputs: the run's data.
        seed: the seed of the attack.
        size: number of examples of the attacked client, or of people, if the data name people.
        pool: candidates whose membership is inferred, twice as many as ``size``.
        public: the adversary's own examples.
        private: examples of clients.
        rounds: the number of rounds that the adversary looks at.
        visits: the most work that whole runs may take, in examples trained on, times weights; if a
            run would take more, its clients get fewer examples.
    """

    config: RunConfig
    inputs: Inputs
    seed: int
    size: int
    pool: Examples
    public: Examples
    private: Examples
    rounds: int
    visits: float
    _banks: dict[int, list[Report]] = field(default_factory=dict, init=False)

    @classmethod
    def of(
        cls,
        config: RunConfig,
        dataset: Dataset | None,
        *,
        seed: int,
        most_examples: int,
        rounds: int,
        visits: float = 1e9,
    ) -> AttackScenario:
        """Return the scenario of a configuration.

        Args:
            config: what is attacked.
            dataset: the data; None: loaded by ``config.dataset``.
            seed: the seed of the attack.
            most_examples: the largest number of examples of the attacked client.
            rounds: the largest number of rounds that are examined.
            visits: see the attribute.

        Raises:
            FedldpError: the data cannot be loaded, do not fit, or have fewer than 12 examples or 6
                people.
        """
        check_one_sum(config)
        inputs = Inputs.of(config, dataset, None)
        if config.target is not None:
            config = plan(config, inputs.problem).config
        elif inputs.problem.num_clients is not None:
            config = config.changed(num_clients=inputs.problem.num_clients)
        config = config.with_schedule(draws_of_seed(config.seed))
        train = inputs.dataset.train
        if len(train) < 12:
            raise ConfigError(f"dataset: it has {len(train)} training examples; give 12 or more")
        people = persons_in(train)
        if people < 6:
            raise ConfigError(f"dataset: its rows belong to {people} persons; give 6 or more")
        share = inputs.problem.num_examples // config.num_clients
        size = max(1, min(share, most_examples, len(train) // 6) * people // len(train))
        order = np.random.default_rng([seed, 1]).permutation(people)
        half = 2 * size + (people - 2 * size) // 2
        pool, public, private = (
            train.taken(rows_of(train, order[part]))
            for part in (slice(2 * size), slice(2 * size, half), slice(half, None))
        )
        return cls(
            config=config,
            inputs=inputs,
            seed=seed,
            size=size,
            pool=pool,
            public=public,
            private=private,
            rounds=min(
                rounds,
                config.rounds,
                config.composition.participation.max_rounds(weakest(config)) or config.rounds,
            ),
            visits=visits,
        )

    @property
    def problem(self) -> Problem:
        """The public facts about the data."""
        return self.inputs.problem

    @property
    def client(self) -> int:
        """The number of the attacked client: one with the largest budget."""
        return weakest(self.config)

    @property
    def sums(self) -> bool:
        """Whether a server that follows the protocol sees only sums of reports."""
        return self.config.composition.channel.kind == "sum"

    @property
    def against(self) -> str:
        """What the adversary sees, in words."""
        rounds = "" if self.rounds == 1 else f" in {self.rounds} rounds"
        if self.sums:
            total = "sums" if rounds else "the sum"
            return f"{total} of {self.config.round_size} clients' reports{rounds}"
        shuffles = self.config.composition.channel.kind == "shuffle"
        shuffled = ", before the shuffler" if shuffles else ""
        return f"one client's report{'s' if rounds else ''}{rounds}{shuffled}"

    @cached_property
    def role(self) -> ClientRole:
        """The client's role, without a secure sum, whose messages look random, except the total."""
        return self._algorithm.client(self.client, CPU)

    @cached_property
    def server(self) -> ServerRole:
        """The server's role, without a secure sum."""
        return self._algorithm.server()

    @property
    def _algorithm(self) -> Algorithm:
        found = self.config.algorithm(self.problem)
        return found.inside() if self.sums else found

    @cached_property
    def states(self) -> list[State]:
        """The server's state before each of the rounds, which no example of the pool influenced."""
        first = self.server.initial(draws_of_seed(self.config.seed)(0))
        if self.rounds == 1:
            return [first]
        train = self.inputs.dataset.train
        people = np.random.default_rng([self.seed, 1]).permutation(persons_in(train))
        rows = rows_of(train, people)
        stand_in = np.arange(len(train))
        others = rows[-min(len(self.pool), len(self.private)) :]  # row counts of persons differ
        stand_in[rows[: len(self.pool)]] = np.resize(others, len(self.pool))
        dataset = replace(self.inputs.dataset, train=train.taken(stand_in))
        inputs = replace(self.inputs, dataset=dataset, members=Shares.of(self.shares(1)))
        return published(self.config, inputs, rounds=self.rounds - 1)

    def shares(self, runs: int, rounds: int | None = None) -> list[NDArray[np.int64]]:
        """Return the clients' rows of the training set in ``runs`` runs, within ``visits``."""
        config = self.config
        passes = runs * (rounds or self.rounds) * config.round_size * config.local_epochs
        most = int(self.visits / (passes * config.layout(self.problem).size))
        train = self.inputs.dataset.train
        return [_first(train, np.asarray(share), max(2, most)) for share in self.inputs.members]

    def report_updates(self, examples: Examples, number: int) -> Floats:
        """Return what a client's reports say about its updates, shape (rounds, d).

        Args:
            examples: the client's examples.
            number: the number of the client, which determines its randomness.

        Returns:
            The server's estimates, as changes of the broadcast weights; zeros in rounds in which
                the client refuses.
        """
        reports = self.reports(examples, number)
        found = np.zeros((self.rounds, self.states[0].weights.size))
        for row, state, report in zip(found, self.states, reports, strict=False):
            if report is not None:
                row[:] = (
                    self._summed(state, report, number) if self.sums else self._read(state, report)
                )
        return found

    def reports(self, examples: Examples, number: int) -> list[Report | None]:
        """Return the reports of a client's runtime in each round; None if it refuses."""
        runtime = self.runtime(examples, number)
        found: list[Report | None] = []
        with one_thread():
            for state in self.states:
                request = RoundRequest(run=RUN, phase=0, broadcast=self.server.publish(state))
                answer = read_reply_to(request, runtime.answer(pack_request(request)))
                found.append(None if isinstance(answer, Refusal) else answer)
        return found

    def runtime(self, examples: Examples, number: int) -> ClientRuntime:
        """Return the runtime of a client that stores everything in memory."""
        return ClientRuntime.of_one(
            index=self.client,
            examples=examples,
            role=self.role,
            policy=policy_of(self.config, self.problem),
            keys=SimulationKeys(self.number(number), self.client),
            store=MemoryStore(),
            ledgers=_ledger(self.config),
        )

    def number(self, number: int) -> int:
        """Return the seed of a client's or run's randomness; each number has its own seed."""
        return 10**9 * (self.seed + 1) + number

    @property
    def counted(self) -> str:
        """What ``size`` counts, in words."""
        return "examples" if self.inputs.dataset.train.people is None else "persons"

    def some(self, examples: Examples, count: int, *labels: int) -> Examples:
        """Return ``count`` random examples; ``labels`` name the random stream that draws them."""
        generator = np.random.default_rng([self.seed, *labels])
        return examples.taken(generator.choice(len(examples), count, count > len(examples)))

    def _read(self, state: State, report: Report) -> Floats:
        """Return the server's estimate of one client's update from its report alone."""
        if _is_plain(self.role.encoder):  # in clear: the adversary needs no server rule
            return np.frombuffer(report.payload, "<f4").astype(np.float64) - state.weights
        found: list[Floats] = []
        for number in range(_DRAWS):
            draw = draws_of_seed(number)(state.round)
            following = self.server.read(state, [report], draw)
            if np.array_equal(following, state.weights):
                continue  # with these draws the server leaves the report out
            found.append(following.astype(np.float64))
            if len(found) > 1 and np.array_equal(found[0], found[1]):
                break  # the server itself adds no noise
        return np.mean(found, axis=0) - state.weights if found else np.zeros(state.weights.size)

    def _summed(self, state: State, report: Report, number: int) -> Floats:
        """Return what a round's sum says, on the scale of one client's update."""
        others = self.config.round_size - 1
        bank = self._bank(state.round)
        chosen = np.random.default_rng([self.seed, 2, number, state.round]).choice(
            len(bank), others, replace=len(bank) < others
        )
        summing = self.config.algorithm(self.problem).summing()
        assert summing is not None
        total = summing.summed(state.round, [report, *(bank[at] for at in chosen)])
        draw = draws_of_seed(number)(state.round)
        following = self.server.read(state, [total], draw)
        return (following.astype(np.float64) - state.weights) * (others + 1)

    def _bank(self, round: int) -> list[Report]:
        """Return other clients' reports in a round, from which each sum draws all but one."""
        if not self._banks:
            count = min(_OTHERS, max(20, 2 * self.config.round_size))
            for number in range(count):
                generator = np.random.default_rng([self.seed, 3, number])
                private = persons_in(self.private)
                chosen = generator.choice(private, self.size, self.size > private)
                examples = client_of(self.private, chosen)
                for at, report in enumerate(self.reports(examples, 10**8 + number)):
                    if report is not None:
                        self._banks.setdefault(at + 1, []).append(report)
        return self._banks[round]


def persons_in(examples: Examples) -> int:
    """Return the number of people, or of rows if the data name no people."""
    return int(whose_rows(examples).max(initial=-1)) + 1


def rows_of(examples: Examples, persons: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return the positions of some people's rows, one person after another."""
    if examples.people is None:
        return np.asarray(persons, np.int64)
    whose = whose_rows(examples)
    order, counts = np.argsort(whose, kind="stable"), np.bincount(whose)
    parts = np.split(order, np.cumsum(counts)[:-1])
    return np.concatenate([np.zeros(0, np.int64), *(parts[person] for person in persons)])


def client_of(examples: Examples, persons: NDArray[np.integer]) -> Examples:
    """Return a client's examples from some people; a person named twice counts as two."""
    found = examples.taken(rows_of(examples, persons))
    if examples.people is None:
        return found
    counts = np.bincount(whose_rows(examples))[persons]
    return replace(found, people=np.repeat(np.arange(len(persons)), counts))


def _first(train: Examples, rows: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Return a client's first rows; if the data name people, all rows of at least two people."""
    if train.people is None:
        return rows[:most]
    whose = train.people[rows]
    _, at, persons, counts = np.unique(
        whose, return_index=True, return_inverse=True, return_counts=True
    )
    in_turn = np.argsort(at)
    kept = in_turn[: max(2, int(np.sum(np.cumsum(counts[in_turn]) <= most)))]
    return rows[np.isin(persons, kept)]


def published(
    config: RunConfig, inputs: Inputs, *, rounds: int, seed: int | None = None
) -> list[State]:
    """Return the server's states of a run: before its first round, and after each round.

    Args:
        config: the run's configuration, with its schedule.
        inputs: the run's data, and which client has which examples.
        rounds: how many rounds to run.
        seed: the seed of all randomness except the partition; None: the configuration's seed.

    Raises:
        RunError: a round gave unusable weights.
    """
    seeded = config if seed is None else config.changed(seed=seed)
    server = seeded.algorithm(inputs.problem).server()
    states = [server.initial(draws_of_seed(config.seed)(0))]
    with scratch() as folder:
        population = population_of(seeded, inputs, folder)
        executor = Executor(population, _ledger(config))
        loop = loop_of(seeded, server, InProcess(executor.answers), rounds)
        loop.go(states[0], lambda state, record: states.append(state))
    return states


def _ledger(config: RunConfig) -> MemoryLedger:
    return MemoryLedger(config.budgets)


def _is_plain(encoder: object) -> bool:
    """Return whether reports are weights in clear."""
    return isinstance(encoder, Encoder) and isinstance(encoder.release.mechanism, Plain)
