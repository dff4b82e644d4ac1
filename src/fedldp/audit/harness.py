"""The client harness: the real client runtime of one attacked client answers real requests.

The code between the request's bytes and the answer's bytes is the same as in a deployment: policy,
turns, ledger, store, training, encoder, packing. Two things differ, and neither makes the adversary
weaker. The client's keys come from the audit's seed, so that a game can be repeated; its streams
are still of the kind that a deployment uses if the mechanism accepts them. And if training draws
nothing but the order of examples, the harness trains once for each canary and request: an adversary
that knows this order learns no less.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fedldp.accounting.accountants import protects_in_training, real_arithmetic_only
from fedldp.accounting.events import Event
from fedldp.algorithms.bounds import Chart
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.people import MeanOfPeople
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.release import Release
from fedldp.algorithms.server_update import Around, Estimate, Estimated
from fedldp.audit.inputs import Canary
from fedldp.core.randomness import KEY_BYTES, Stream
from fedldp.data.examples import Examples
from fedldp.ledgers.columns import MemoryLedger
from fedldp.protocol.client_runtime import ClientRuntime, Policy
from fedldp.protocol.client_store import MemoryStore
from fedldp.protocol.keys import TrialKeys, draws_of_seed
from fedldp.protocol.roles import (
    Batch,
    Client,
    ClientRole,
    Draw,
    LocalUpdate,
    ServerRole,
    State,
    Update,
)
from fedldp.protocol.server_loop import Evaluator, Loop, Transport
from fedldp.protocol.wire import (
    Broadcast,
    Incoming,
    RoundRequest,
    Sensitive,
    pack_request,
)
from fedldp.simulation.inputs import Inputs
from fedldp.simulation.participation import participants
from fedldp.simulation.population import Population

RUN = "audit"
CPU = torch.device("cpu")

_PUBLIC_ORDER = {"augmentation", "batches", "model"}
"""The purposes for which a step without noise draws: the order of examples, and dropout."""


def weakest(config: RunConfig) -> int:
    """Return a client among those with the least protection: the first with the most epsilon."""

    def cost(client: int) -> tuple[float, ...]:
        values = [getattr(config, name) for name in config.per_client]
        return tuple(value[client] for value in values if isinstance(value, Sequence))

    return max((int(group[0]) for group in config.encoder_groups()), key=cost)


def population_of(config: RunConfig, inputs: Inputs, folder: Path) -> Population:
    """Return the clients of a played run, which keep their files in ``folder``.

    Args:
        config: the run's configuration, with its schedule.
        inputs: the run's data, and the examples of each client.
        folder: where clients keep their files; it is removed after the run.
    """
    return Population(
        config=config,
        problem=inputs.problem,
        dataset=inputs.dataset,
        members=inputs.members,
        device=CPU,
        folder=folder,
        run=RUN,
    )


def loop_of(
    config: RunConfig,
    server: ServerRole,
    transport: Transport,
    rounds: int,
    evaluate: Evaluator = lambda broadcast: None,
) -> Loop:
    """Return the loop of a played run; see ``Loop``."""
    draws = draws_of_seed(config.seed)
    return Loop(
        run=RUN,
        server=server,
        rounds=rounds,
        participants=lambda round: participants(config, round, draws),
        transport=transport,
        draws=draws,
        evaluate=evaluate,
    )


def policy_of(
    config: RunConfig, problem: Problem, *, phases: int = 1, trains_in: int = 0
) -> Policy:
    """Return the policy that a client of a played run has agreed to."""
    return Policy(
        run=RUN,
        rounds=config.rounds,
        phases=phases,
        trains_in=trains_in,
        layout=config.layout(problem),
    )


@dataclass(frozen=True, eq=False)
class AttackedClient:
    """One client of a system, to which a game sends requests.

    Attributes:
        config: the configuration, with what the server draws before a run.
        problem: the shape of its data.
        index: the client's number.
        factor: the factor by which all numbers that the server sends are multiplied; 1 for an
            honest server. What is proven against a server holds whatever it sends.
    """

    config: RunConfig
    problem: Problem
    index: int
    factor: float = 1.0
    _known: dict[tuple[int, int], tuple[Canary, Update]] = field(
        default_factory=dict, init=False, repr=False
    )

    @cached_property
    def role(self) -> ClientRole:
        """The client's role, as in the run."""
        return self.config.for_client(self.index).algorithm(self.problem).client(self.index, CPU)

    @cached_property
    def server(self) -> ServerRole:
        """The server's role."""
        return self.config.algorithm(self.problem).server()

    @cached_property
    def first(self) -> State:
        """The server's state before the first round."""
        return self.server.initial(draws_of_seed(0)(0))

    @cached_property
    def policy(self) -> Policy:
        """What the client agreed to."""
        role = self.role
        return policy_of(self.config, self.problem, phases=role.phases, trains_in=role.trains_in)

    @cached_property
    def events(self) -> tuple[tuple[Event, ...], ...]:
        """What the client's answers release, by phase, in the first round of each stage."""
        return tuple(
            tuple(self.role.encoder.event(at, stage[0]) for at in range(self.role.phases))
            for stage in self.config.composition.stages_of(self.config.rounds)
        )

    @cached_property
    def real_arithmetic_only(self) -> bool:
        """Whether the client's mechanisms accept only the streams of simulations."""
        return any(map(real_arithmetic_only, itertools.chain(*self.events)))

    def state(self, round: int) -> State:
        """Return the server's state in a round; its weights differ from round to round."""
        weights = self.first.weights
        if self.config.composition.trained is not None and not weights.any():
            weights = np.linspace(-1, 1, weights.size, dtype=np.float32)  # so that scores differ
        weights = weights * np.float32(self.factor * 0.75 ** (round - 1))
        return replace(self.first, round=round, weights=weights)

    def broadcast(self, round: int) -> Broadcast:
        """Return what the server broadcasts in a round."""
        told = self.server.publish(self.state(round))
        if self.factor == 1:
            return told
        ranges, public = told.ranges, told.public
        if ranges is not None:
            ranges = replace(
                ranges, centers=ranges.centers * self.factor, radii=ranges.radii * self.factor
            )
        louder = {
            name: np.asarray(value * self.factor, value.dtype)
            for name, value in public.items()
            if np.issubdtype(value.dtype, np.floating)
        }
        return replace(told, ranges=ranges, public={**public, **louder})

    def request(self, round: int) -> bytes:
        """Return the request that asks the client for its report in a round."""
        broadcast = self.broadcast(round)
        return pack_request(RoundRequest(run=RUN, phase=0, broadcast=broadcast))

    @cached_property
    def trains_once(self) -> bool:
        """Whether training draws only for ``_PUBLIC_ORDER``, and its result depends on no draw.

        The harness trains three times on one example with different keys, and observes the draws.
        """
        drawn: set[str] = set()
        found: set[bytes] = set()
        for number in range(3):
            store = MemoryStore()
            client = self._client(self._one_example, 1, number, drawn, store)
            try:
                update = _train(self.role.local_update, self.broadcast(1), client)
            except Exception:  # a step that fails on one example must run in every trial
                return False
            if store.made:
                return False
            found.add(
                b"".join(np.asarray(e).tobytes() for e in (update.rows, *update.aux.values()))
            )
        return drawn <= _PUBLIC_ORDER and len(found) == 1

    def _client(
        self,
        examples: Examples,
        round: int,
        number: int = 0,
        drawn: set[str] | None = None,
        store: MemoryStore | None = None,
    ) -> Client:
        """Return the client, with numbered keys; ``drawn`` gets what it draws for."""
        keys = TrialKeys(bytes([number]) * 32, self.real_arithmetic_only)
        noted = set() if drawn is None else drawn

        def fresh(purpose: str) -> Stream:
            noted.add(purpose)
            return keys.fresh(round, 0, purpose)

        def kept(purpose: str) -> Stream:
            noted.add(f"kept {purpose}")
            return keys.kept(purpose)

        return Client(
            index=self.index, examples=examples, fresh=fresh, kept=kept,
            store=store or MemoryStore(),
        )  # fmt: skip

    @cached_property
    def takes_updates(self) -> bool:
        """Whether an update can replace the trained one: True if protection follows training."""
        if not self.trains_once and any(
            protects_in_training(events[self.role.reporting]) for events in self.events
        ):
            return False
        sent = self.sent(self.trained(Canary(self._one_example), 1))
        return sent is not None and sent.shape == (self.sent_size,)

    @cached_property
    def release(self) -> Release:
        """What the client's reports are made with."""
        return self.config.algorithm(self.problem).release(self.index)

    @cached_property
    def sent_size(self) -> int:
        """How many numbers of an update are sent: weights, or the numbers sent in their place."""
        if self.release.sends is None:
            return int(self.first.weights.size)
        chart = self.release.bound.chart
        return self.release.coordinates if chart is None else chart.size

    def sent(self, update: Update) -> NDArray[np.floating] | None:
        """Return the numbers of an update that are sent; None if the update lacks them."""
        rows = update.rows if self.release.sends is None else update.aux.get(self.release.sends)
        return None if rows is None else rows[0]

    @cached_property
    def estimate_of_sent(self) -> Estimate | None:
        """The estimator of numbers sent in place of weights; None where weights are sent.

        The server turns such numbers into a model, in which little of the difference between two
        inputs remains. An adversary need not compute the model. In rounds that ask questions, the
        server changes no weights.
        """
        release = self.release
        if release.sends is None:
            return None
        estimate = self.config.composition.estimate
        if isinstance(estimate, MeanOfPeople) and estimate.asks:
            return _AllSums(inner=estimate).reading(release)
        bound = release.bound
        if bound.chart is not None:
            bound = replace(bound, chart=_AsSent(size=self.sent_size))
        return estimate.reading(replace(release, bound=bound))

    @cached_property
    def _one_example(self) -> Examples:
        shape = (1, *self.problem.input_shape)
        return Examples(np.full(shape, 0.5, np.float32), np.zeros(1, np.int64))

    @cached_property
    def unchanged(self) -> Canary:
        """A client whose training changes nothing."""
        return Canary(self._one_example, lambda size, round: np.zeros(size))

    def trained(self, canary: Canary, round: int) -> Update:
        """Return the result of training on a canary in a round, for a system that trains once."""
        place = (id(canary), round)
        if place not in self._known:
            client = self._client(canary.examples, round)
            with np.errstate(all="ignore"):
                value = _train(self.role.local_update, self.broadcast(round), client)
            self._known[place] = canary, self._changed(value, canary, round)
        return self._known[place][1]

    def _changed(self, value: Update, canary: Canary, round: int) -> Update:
        """Return an update with the canary's values in it; NaN stands for failed training."""
        if canary.change is None:
            return value
        state, sends = self.state(round), self.release.sends
        change = canary.change(self.sent_size, round)
        if sends is None:
            with np.errstate(over="ignore", invalid="ignore"):
                weights = (state.weights + change).astype(np.float32)
            return replace(value, rows=weights[None])
        failed = np.full_like(np.asarray(value.rows), np.nan)
        rows = value.rows if np.isfinite(change).all() else failed
        return replace(value, rows=rows, aux={**value.aux, sends: np.nan_to_num(change)[None]})

    def plainly(self, broadcast: Broadcast, examples: Examples) -> NDArray[np.floating] | None:
        """Return the result of training without any protection; None if it is unknown.

        The result shows an adversary in which direction to look.
        """
        client = self._client(examples, broadcast.round)
        step = self.role.local_update if self.trains_once else self._plain
        try:
            found = self.sent(_train(step, broadcast, client))
        except Exception:  # the model may take inputs other than features
            return None
        return found if found is not None and found.shape == (self.sent_size,) else None

    @cached_property
    def _plain(self) -> LocalUpdate:
        return self.config.algorithm(self.problem).sgd(CPU)

    def runtime(self, canary: Canary, keys: TrialKeys, *, trains: bool = False) -> ClientRuntime:
        """Return the runtime of a client that has a canary.

        Args:
            canary: what the client has.
            keys: the keys of the trial.
            trains: whether it trains for every request, even if training once would suffice.
        """
        once = not trains and (self.trains_once or canary.change is not None)
        step: LocalUpdate = _Trained(self, canary) if once else self.role.local_update
        return ClientRuntime.of_one(
            index=self.index,
            examples=canary.examples,
            # A copy, because what an encoder remembers about one client must not reach the next.
            role=replace(self.role, local_update=step, encoder=copy.deepcopy(self.role.encoder)),
            policy=self.policy,
            keys=keys,
            store=MemoryStore(),
            ledgers=MemoryLedger(keeps_answers=True),
            failed=lambda error: None,  # as at a site, where a failure has no separate answer
        )


@dataclass(frozen=True)
class _Trained(LocalUpdate):
    """A local update that returns the result of earlier training."""

    attacked: AttackedClient
    canary: Canary

    def __call__(self, broadcast: Broadcast, batch: Batch, group: int = 1) -> Sensitive[Update]:
        return Sensitive(copy.deepcopy(self.attacked.trained(self.canary, broadcast.round)))


class _AllSums(Around):
    """An estimator of all numbers of a noisy sum over people, whatever they are used for."""

    def __call__(self, state: State, reports: Incoming, draw: Draw) -> Estimated:
        assert isinstance(self.inner, MeanOfPeople)
        mean, _, _ = self.inner.noisy_mean(state, reports, draw)
        return Estimated(values=mean)


@dataclass(frozen=True)
class _AsSent(Chart):
    """A chart that leaves numbers sent in place of weights unchanged."""

    size: int = 0

    def apply(self, rows: NDArray[np.floating]) -> NDArray[np.floating]:
        return rows

    def restore(self, mean: NDArray[np.float64]) -> NDArray[np.float64]:
        return mean


def update_of(
    step: LocalUpdate, broadcast: Broadcast, examples: Examples, simulated: bytes | None = None
) -> Update:
    """Return the update that a client computes from examples, with the same randomness each time.

    Args:
        step: the local update.
        broadcast: the broadcast that it answers.
        examples: the examples of the client.
        simulated: the key of its randomness, for steps that run only in simulations.
    """

    def stream(purpose: str) -> Stream:
        return Stream(simulated or bytes(KEY_BYTES), simulated=simulated is not None)

    client = Client(
        index=0, examples=examples, fresh=stream, kept=stream, store=MemoryStore()
    )  # fmt: skip
    return _train(step, broadcast, client)


def _train(step: LocalUpdate, broadcast: Broadcast, client: Client) -> Update:
    return step(broadcast, Batch.of_one(client)).open()
