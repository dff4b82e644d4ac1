"""The two halves of a system, and what each may know.

    ClientRole    update    (Broadcast, Batch) -> Sensitive        private data stays behind this
                  encoder   (Sensitive, Broadcast, Senders) -> Reports     and states its own event
    ServerRole    initial   randomness -> State
                  publish   State -> Broadcast
                  aggregate (State, reports, randomness) -> the next State, and metrics

A local update sees examples and returns a sealed value. An encoder opens that value and sees no
example. The server's state stays with the server: clients see only what the server publishes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.events import Event
from fedldp.core.randomness import Stream
from fedldp.data.examples import Examples
from fedldp.protocol.wire import Broadcast, Incoming, Reports, Sensitive, Vector

Arrays = Mapping[str, NDArray[Any]]
Draw = Callable[[str], Stream]
"""Returns the stream for a purpose, such as "batches" or "mechanism"."""

Draws = Callable[[int], Draw]
"""Returns the server's streams for a round; round 0 is for draws before the first round."""


class Store(ABC):
    """What a client keeps for the duration of a run; what was kept first stays."""

    @abstractmethod
    def known(self, name: str, round: int | None = None) -> Arrays | None:
        """Return the arrays kept as ``name``, if there are any."""

    @abstractmethod
    def _keep(self, name: str, made: Arrays, round: int | None) -> Arrays:
        """Keep arrays, unless some are kept by now; return what is kept."""

    def arrays(self, name: str, make: Callable[[], Arrays], *, round: int | None = None) -> Arrays:
        """Return the arrays kept as ``name``; if there are none, keep what ``make`` returns.

        Arrays kept for a ``round`` are removed once something is kept for a later one. If two
        processes make the same arrays at once, both get those that were kept first.
        """
        found = self.known(name, round)
        return self._keep(name, make(), round) if found is None else found


@dataclass(frozen=True, kw_only=True)
class Client:
    """One client in one round, as its local update sees it.

    Attributes:
        index: the client's number, from 0; public.
        examples: the client's private examples.
        fresh: streams of this round, for noise and for the order of examples.
        kept: streams that are the same throughout the run, for choices that are drawn only once.
        store: what the client keeps from round to round.
    """

    index: int
    examples: Examples = field(repr=False)
    fresh: Draw
    kept: Draw
    store: Store


@dataclass(frozen=True, kw_only=True)
class Sender:
    """The same client as its encoder sees it: without examples.

    Attributes:
        index: the client's number, from 0; public.
        num_examples: how many examples the client has.
        fresh: see ``Client``.
        kept: see ``Client``.
        store: see ``Client``.
        phase: the phase, counted from 0, in a round with several phases.
    """

    index: int
    num_examples: Sensitive[int]
    fresh: Draw
    kept: Draw
    store: Store
    phase: int = 0


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Clients as their local update sees them; no other type holds examples of several clients.

    Attributes:
        indices: their numbers, from 0; public.
        examples: the examples of all these clients, and possibly of others.
        rows: which of these examples belong to each client.
        fresh: returns the fresh stream of each client for a purpose; see ``Client``.
        kept: returns the kept stream of each client for a purpose; see ``Client``.
        alone: returns one client, given its index in the batch, with its store; for once-only
            choices and for code that handles clients one after another.
    """

    indices: Sequence[int]
    examples: Examples = field(repr=False)
    rows: Sequence[NDArray[np.int64]] = field(repr=False)
    fresh: Callable[[str], Sequence[Stream]]
    kept: Callable[[str], Sequence[Stream]]
    alone: Callable[[int], Client]

    @classmethod
    def of_one(cls, client: Client) -> Batch:
        """Return a batch of one client, as at a site."""
        return cls(
            indices=[client.index],
            examples=client.examples,
            rows=[np.arange(len(client.examples))],
            fresh=lambda purpose: [client.fresh(purpose)],
            kept=lambda purpose: [client.kept(purpose)],
            alone=lambda place: client,
        )

    def __len__(self) -> int:
        return len(self.indices)

    def __iter__(self) -> Iterator[Client]:
        return map(self.alone, range(len(self)))


@dataclass(frozen=True, kw_only=True)
class Senders:
    """Clients as their encoder sees them: without examples. A single client is the case n = 1.

    Attributes:
        indices: their numbers, from 0; public.
        num_examples: how many examples each client has, shape (n,).
        fresh: returns the fresh stream of each client for a purpose; see ``Client``.
        kept: returns the kept stream of each client for a purpose; see ``Client``.
        store: returns the store of one client, given its index among these clients.
        phase: see ``Sender``.
    """

    indices: Sequence[int]
    num_examples: Sensitive[NDArray[np.int64]]
    fresh: Callable[[str], Sequence[Stream]]
    kept: Callable[[str], Sequence[Stream]]
    store: Callable[[int], Store]
    phase: int = 0

    def __len__(self) -> int:
        return len(self.indices)


@dataclass(frozen=True, kw_only=True, eq=False)
class Update:
    """What clients computed from their examples; always sealed, see ``Sensitive``.

    Attributes:
        rows: each client's weights after training, float32, shape (n, d); a row holds NaN where
            training failed or diverged.
        aux: additional arrays that were computed, by name, with n rows each.
    """

    rows: NDArray[np.float32]
    aux: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def of_one(cls, found: Update | Vector | None, size: int) -> Update:
        """Return the update of a single client.

        Args:
            found: the update itself, or the weights, shape (d,); None where training failed.
            size: d, the size of the model.
        """
        if isinstance(found, Update):
            return found
        weights = np.full(size, np.nan, np.float32) if found is None else found
        return cls(rows=weights[None])

    def alone(self, place: int) -> Update:
        """Return what the client at position ``place`` computed."""
        return self.at(slice(place, place + 1))

    def at(self, places: NDArray[np.int64] | slice) -> Update:
        """Return what the clients at the positions ``places`` computed."""
        rows = self.rows[places]
        return Update(rows=rows, aux={name: a[places] for name, a in self.aux.items()})


class LocalUpdate(Protocol):
    """Compute clients' sensitive updates from the broadcast and their private examples."""

    def group(self, most_examples: int) -> int:
        """Return how many clients train together in a simulation; only the configuration matters.

        Unless an update says otherwise, clients train one after another.

        Args:
            most_examples: the largest number of examples that a client has.

        Returns:
            ``batched_sgd.GROUP`` where training together is faster, else 1.
        """
        return 1

    def __call__(self, broadcast: Broadcast, batch: Batch, group: int = 1) -> Sensitive[Update]:
        """Return an update with one row for each client.

        Args:
            broadcast: the broadcast of the round.
            batch: the clients; at most ``group`` of them, unless ``group`` is 1.
            group: the result of the method ``group``; or 1 to train clients one after another, with
                the same result up to float rounding.
        """
        ...


class Encoder(Protocol):
    """Turn sensitive updates into what may leave their clients, and state what this releases.

    Whether there is an answer, and its length, must not depend on the update.
    """

    def event(self, phase: int = 0, round: int = 1) -> Event:
        """Return what one client's answer in a round releases; this event is charged.

        It is the same for every broadcast of that round.
        """
        ...

    def __call__(
        self, update: Sensitive[Update], broadcast: Broadcast, senders: Senders
    ) -> Reports:
        """Return a report for each row of the update, in the order of the rows.

        Each report is bit for bit the one that the client would send if it were encoded alone.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class ClientRole:
    """The half of a system that runs on a client.

    Attributes:
        local_update: see ``LocalUpdate``.
        encoder: see ``Encoder``; each client has its own.
        phases: the number of requests in one round.
        reporting: the phase whose answer is the system's report; in this phase, the encoder draws
            what it would draw in a round of one phase.
        trains_in: the phase in which the client trains.
        max_participations: the largest number of rounds in which the client may take part, if its
            guarantee does not cover all rounds.
        most_examples: the most examples that a client may have, if the charged event assumes such a
            limit.
        num_classes: labels are 0 to num_classes - 1.
        first_rounds: the first round of each stage; answers in all rounds of a stage release the
            same.
    """

    local_update: LocalUpdate
    encoder: Encoder
    phases: int = 1
    reporting: int = 0
    trains_in: int = 0
    max_participations: int | None = None
    most_examples: int | None = None
    num_classes: int | None = None
    first_rounds: tuple[int, ...] = (1,)


@dataclass(frozen=True, kw_only=True)
class State:
    """What the server keeps from round to round.

    Attributes:
        round: the number of the next round, counted from 1.
        weights: the global model, float32, shape (d,).
        arrays: everything else that the system keeps, by name.
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
"""A system's own metrics for a round, by name; see ``HALF_WIDTH``."""

HALF_WIDTH = ", 95 % half-width"
"""The end of the name of a metric that is half of another's 95 % interval.

A figure that noise hides has this metric alone: it was not seen.
"""

BELOW = ", of which below"
"""The end of the name of a metric that is how far another's 95 % interval reaches down.

A figure has it only if its interval is not symmetric. The half-width is then how far it reaches up.
"""

PRIVATELY = "private "
"""The beginning of the names of figures that people were asked for and a statement covers."""


class Initial(Protocol):
    """Return the state before the first round; ``draw`` is the server's randomness."""

    def __call__(self, draw: Draw) -> State: ...


class ServerStep(Protocol):
    """Compute the next state from a stream of reports in O(d) memory; ``draw``: see ``Initial``."""

    def __call__(self, state: State, reports: Incoming, draw: Draw) -> tuple[State, Metrics]: ...


class Ask(Protocol):
    """Send one phase's request to clients; yield reports in any order. Some may be missing."""

    def __call__(
        self,
        phase: int,
        broadcast: Broadcast,
        clients: Sequence[int],
        own: Mapping[int, Arrays] = ...,
    ) -> Incoming:
        """Send the request; ``own`` has arrays for individual clients: see ``RoundRequest``."""
        ...


class Dialogue(Protocol):
    """The server's part in a round of several phases; it returns what the server step reads."""

    def __call__(
        self, ask: Ask, broadcast: Broadcast, clients: Sequence[int], draw: Draw
    ) -> Incoming: ...


def publish_weights(state: State) -> Broadcast:
    """Return a broadcast of the weights alone, which is all that most systems publish."""
    return Broadcast(round=state.round, weights=state.weights)


def last_weights(state: State) -> Vector:
    """Return the weights of a state: most servers keep the last broadcast as their model."""
    return state.weights


@dataclass(frozen=True, kw_only=True)
class ServerRole:
    """The half of a system that runs on the server.

    Attributes:
        initial: see ``Initial``.
        publish: returns the round's broadcast, given the state.
        aggregate: see ``ServerStep``.
        dialogue: runs a round of several phases; None for a round of one phase.
        downlink: what the broadcast that follows a round releases about the clients to someone who
            sees nothing else and trusts the server; None unless the server itself adds noise.
        result: returns the weights that are tested and kept as the run's model.
        plain: ``aggregate`` without the optimiser, to examine a single report; None if there is no
            optimiser.
        skipped: returns the state in which a later round begins, if the rounds from the state's to
            that one are left out.
    """

    initial: Initial
    publish: Callable[[State], Broadcast] = publish_weights
    aggregate: ServerStep
    dialogue: Dialogue | None = None
    downlink: Callable[[int], Event] | None = None
    result: Callable[[State], Vector] = last_weights
    plain: ServerStep | None = None
    skipped: Callable[[State, int], State] = lambda state, round: replace(state, round=round)

    def tested(self, state: State) -> Broadcast:
        """Return what is tested: the broadcast, with the weights of ``result``."""
        return replace(self.publish(state), weights=self.result(state))

    def read(self, state: State, reports: Incoming, draw: Draw) -> Vector:
        """Return the weights that follow from reports if no optimiser is applied to their mean.

        This is for examining single reports, for which the optimiser's memory of earlier rounds is
        meaningless.
        """
        aggregate = self.aggregate if self.plain is None else self.plain
        return aggregate(state, reports, draw)[0].weights


@dataclass(frozen=True, kw_only=True)
class Score:
    """A model's score on some test examples.

    Attributes:
        right: how many examples it classified correctly.
        loss: its cross-entropy, summed over the examples; for labels that are numbers, half the
            squared error in units of half their range.
        total: how many examples there were.
        confusion: how many examples of each true class (row) were assigned to each class (column),
            shape (classes, classes); None where the test or its classes must not be recorded.
        own_right: how many examples the client's own model classified correctly, if it has one and
            this test may reveal the result.
        labels: the examples' labels, shape (total,); None where ``confusion`` is None, for the same
            reasons.
        probabilities: the model's probability of each class, shape (total, classes); or None. For
            labels that are numbers, the model's outputs, shape (total, 1).
    """

    right: int
    loss: float
    total: int
    confusion: NDArray[np.int64] | None = field(default=None, compare=False)
    own_right: int | None = None
    labels: NDArray[np.int64] | None = field(default=None, compare=False)
    probabilities: NDArray[np.float64] | None = field(default=None, compare=False)


class Tester(Protocol):
    """Measure the global model at one simulated client; ``test`` is the public test set.

    The simulator makes this measurement, and its result is not a message. Anyone who sees the
    result learns about every part of the client that the test uses. If such a part was trained on
    private examples, the result is a release, and the system's event states it.
    """

    def __call__(self, broadcast: Broadcast, client: Client, test: Examples) -> Score: ...
