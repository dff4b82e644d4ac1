"""The two halves of a system, and what each may know.

    ClientSide    step      (Broadcast, Client) -> Sensitive       private data stays behind this
                  encoder   (Sensitive, Broadcast, Sender) -> Report       and states its own event
    ServerSide    initial   randomness -> State
                  publish   State -> Broadcast
                  aggregate (State, reports, randomness) -> the next State, and metrics

A client step sees examples, and what it returns is sealed. An encoder opens that, and sees no
example. The server's state is its own: clients see what it publishes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.events import Event
from fedldp.data.examples import Examples
from fedldp.randomness import Stream
from fedldp.wire import Broadcast, Incoming, Report, Reports, Sensitive, Vector

if TYPE_CHECKING:
    import torch

T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)

Arrays = Mapping[str, NDArray[Any]]
Draw = Callable[[str], Stream]
"""Gives the stream for a purpose, such as "batches" or "mechanism"."""

Draws = Callable[[int], Draw]
"""Gives the server's streams of a round; 0 is before the first."""


class Store(Protocol):
    """What a client keeps for the length of a run, on its own side."""

    def holds(self, name: str) -> bool:
        """Return whether arrays are kept as ``name`` for the run."""
        ...

    def known(self, name: str, round: int | None = None) -> Arrays | None:
        """Return the arrays kept as ``name``, if there are any."""
        ...

    def arrays(self, name: str, make: Callable[[], Arrays], *, round: int | None = None) -> Arrays:
        """Return the arrays kept as ``name``; where there are none, ``make`` and keep them.

        What is kept for a ``round`` goes once something is kept for a later one.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Client:
    """One client in one exchange of a round, as its step sees it.

    Attributes:
        index: its number, from 0; public.
        examples: its private examples.
        fresh: streams of this exchange, for noise and for the order of examples.
        kept: streams that are the same throughout the run, for what is drawn once.
        store: what it keeps from round to round.
        exchange: of a round that has several, from 0.
    """

    index: int
    examples: Examples = field(repr=False)
    fresh: Draw
    kept: Draw
    store: Store
    exchange: int = 0


@dataclass(frozen=True, kw_only=True)
class Sender:
    """The same client as its encoder sees it: without an example.

    Attributes:
        index: its number, from 0; public.
        num_examples: how many examples it has.
        fresh: see ``Client``.
        kept: see ``Client``.
        store: see ``Client``.
        exchange: see ``Client``.
    """

    index: int
    num_examples: Sensitive[int]
    fresh: Draw
    kept: Draw
    store: Store
    exchange: int = 0


Rows: TypeAlias = "NDArray[np.float32] | torch.Tensor"
"""Weights of several clients, float32, shape (n, d): a tensor where they lie on a GPU."""


@dataclass(frozen=True, kw_only=True)
class Clients:
    """Simulated clients that train at once, as their step sees them.

    Attributes:
        indices: their numbers.
        examples: those of all clients of the simulation.
        rows: for each of them, which examples are its own.
        fresh: gives for a purpose the stream of each; see ``Client``.
        alone: gives one of them as a ``Client``, by its place.
    """

    indices: Sequence[int]
    examples: Examples = field(repr=False)
    rows: Sequence[NDArray[np.int64]] = field(repr=False)
    fresh: Callable[[str], Sequence[Stream]]
    alone: Callable[[int], Client]

    def __len__(self) -> int:
        return len(self.indices)

    def __iter__(self) -> Iterator[Client]:
        return map(self.alone, range(len(self)))


@dataclass(frozen=True, kw_only=True)
class Senders:
    """Clients as their encoder sees them: without an example. One client is the case n = 1.

    Attributes:
        indices: their numbers, from 0; public.
        num_examples: how many examples each has, shape (n,).
        fresh: gives for a purpose the stream of each; see ``Client``.
        kept: likewise.
        store: gives what one of them keeps, by its place.
        exchange: see ``Client``.
    """

    indices: Sequence[int]
    num_examples: Sensitive[NDArray[np.int64]]
    fresh: Callable[[str], Sequence[Stream]]
    kept: Callable[[str], Sequence[Stream]]
    store: Callable[[int], Store]
    exchange: int = 0

    def __len__(self) -> int:
        return len(self.indices)


@dataclass(frozen=True, kw_only=True, eq=False)
class Update:
    """What clients computed from their examples; always sealed, see ``Sensitive``.

    Attributes:
        rows: the weights of each after training, shape (n, d); a row holds NaN where training
            failed or diverged.
        aux: whatever else was computed, by name, with n rows each.
    """

    rows: Rows
    aux: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def of_one(cls, weights: Vector | None, size: int) -> Update:
        """Return what one client computed.

        Args:
            weights: shape (d,); None where training failed.
            size: d, of the model.
        """
        if weights is None:
            weights = np.full(size, np.nan, np.float32)
        return cls(rows=weights[None])


class ClientStep(Protocol[T_co]):
    """Compute a client's sensitive update from the broadcast and its private examples."""

    def __call__(self, broadcast: Broadcast, client: Client) -> Sensitive[T_co]: ...


@runtime_checkable
class ManyStep(Protocol):
    """A client step that can train many clients of a simulation at once, which is faster.

    What it gives agrees with training one by one to float rounding.
    """

    def pays(self, most_examples: int) -> bool:
        """Return whether it is faster, where a client has so many examples at most."""
        ...

    def many(self, broadcast: Broadcast, clients: Clients) -> Sensitive[Rows]:
        """Return the weights of all of them."""
        ...


class Encoder(Protocol[T_contra]):
    """Turn a sensitive update into what may leave one client, and say what that releases.

    Whether an answer comes, and how long it is, may not depend on the update.
    """

    def event(self, exchange: int = 0) -> Event:
        """Return what one answer releases, whatever the broadcast was; it is what is charged."""
        ...

    def __call__(
        self, update: Sensitive[T_contra], broadcast: Broadcast, sender: Sender
    ) -> Report: ...


@runtime_checkable
class ManyEncoder(Protocol):
    """An encoder of the updates of n clients.

    Each report is the one that the client would send on its own, to the last bit.
    """

    def many(self, update: Sensitive[Update], broadcast: Broadcast, senders: Senders) -> Reports:
        """Return a report for each row of the update, in their order."""
        ...


@dataclass(frozen=True, kw_only=True)
class ClientSide:
    """A system's half that runs on a client.

    Attributes:
        step: see ``ClientStep``.
        encoder: see ``Encoder``; it is one client's own.
        exchanges: questions in one round.
        reporting: the one of them whose answer is the system's report: its encoder draws in it what
            it would draw in the only one.
        turns: how many rounds what the client sends is protected for, where that is fewer than all.
        most_examples: of a client, where what its answers release counts so many at most.
        num_classes: labels are 0 to num_classes - 1.
    """

    step: ClientStep[Any]
    encoder: Encoder[Any]
    exchanges: int = 1
    reporting: int = 0
    turns: int | None = None
    most_examples: int | None = None
    num_classes: int | None = None


@dataclass(frozen=True, kw_only=True)
class State:
    """What the server keeps from round to round.

    Attributes:
        round: the one that comes next, from 1.
        weights: the global model, float32, shape (d,).
        arrays: whatever else a system keeps, by name.
    """

    round: int = 1
    weights: Vector
    arrays: Arrays = field(default_factory=dict)

    def next(self, weights: NDArray[np.floating], **arrays: NDArray[Any]) -> State:
        """Return the state for the next round, with some arrays replaced."""
        return replace(
            self,
            round=self.round + 1,
            weights=weights.astype(np.float32),
            arrays={**self.arrays, **arrays},
        )


Metrics = Mapping[str, float]
"""A system's own figures on a round, by name."""


class Initial(Protocol):
    """Return the state before the first round; ``draw`` is the server's randomness."""

    def __call__(self, draw: Draw) -> State: ...


class Aggregate(Protocol):
    """Compute the next state from a stream of reports, in O(d) memory; ``draw`` is the server's."""

    def __call__(self, state: State, reports: Incoming, draw: Draw) -> tuple[State, Metrics]: ...


class Ask(Protocol):
    """Put one exchange's question to clients; yield their reports, in any order, perhaps fewer."""

    def __call__(self, exchange: int, broadcast: Broadcast, clients: Sequence[int]) -> Incoming: ...


class Dialogue(Protocol):
    """The server's side of a round that takes several exchanges; returns its outcome."""

    def __call__(
        self, ask: Ask, broadcast: Broadcast, clients: Sequence[int], draw: Draw
    ) -> Incoming: ...


def publish_weights(state: State) -> Broadcast:
    """Return a broadcast of the weights and nothing else, which is all that most systems tell."""
    return Broadcast(round=state.round, weights=state.weights)


def last_weights(state: State) -> Vector:
    """Return the weights of a state: of most servers the model is what they broadcast last."""
    return state.weights


@dataclass(frozen=True, kw_only=True)
class ServerSide:
    """A system's half that runs on the server.

    Attributes:
        initial: see ``Initial``.
        publish: gives the round's broadcast from the state.
        aggregate: see ``Aggregate``.
        dialogue: of a round; one exchange where it is None.
        downlink: what one broadcast releases of the clients to those who see nothing else and
            trust the server, where the server itself adds noise.
        result: gives the weights that are tested, and kept as the run's model.
        plain: ``aggregate`` without an optimiser, by which one report can be read, where there is
            one.
    """

    initial: Initial
    publish: Callable[[State], Broadcast] = publish_weights
    aggregate: Aggregate
    dialogue: Dialogue | None = None
    downlink: Event | None = None
    result: Callable[[State], Vector] = last_weights
    plain: Aggregate | None = None

    def tested(self, state: State) -> Broadcast:
        """Return what a test is given: the broadcast, with the weights of ``result``."""
        return replace(self.publish(state), weights=self.result(state))

    def read(self, state: State, reports: Incoming, draw: Draw) -> Vector:
        """Return the weights that reports lead to where no optimiser comes after their mean.

        It is for those who look at reports one by one, for which a server's own memory of earlier
        rounds means nothing.
        """
        aggregate = self.aggregate if self.plain is None else self.plain
        return aggregate(state, reports, draw)[0].weights


@dataclass(frozen=True, kw_only=True)
class Score:
    """How a model did on some test examples.

    Attributes:
        right: how many it classified rightly.
        loss: its summed cross-entropy.
        total: how many there were.
        confusion: how many of each true class (row) were taken for each class (column), shape
            (classes, classes); None where the test or its classes are not for a record.
        own_right: how many of them a model of the client's own classified rightly, if it has one
            that this test may show.
    """

    right: int
    loss: float
    total: int
    confusion: NDArray[np.int64] | None = field(default=None, compare=False)
    own_right: int | None = None


class Tester(Protocol):
    """Measure the global model on one simulated client's side; ``test`` is the public test set.

    A measurement of the simulator: its result is no message. Who is shown it learns of whatever it
    passes through, which is a release if that was trained on private examples: the system's event
    says so then.
    """

    def __call__(self, broadcast: Broadcast, client: Client, test: Examples) -> Score: ...
