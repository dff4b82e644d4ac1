"""What crosses a client's boundary: a RoundRequest comes in, one RoundReply goes out.

Nothing else crosses the boundary. A RoundRequest holds a Broadcast, the name of its run, and the
number of the phase that it begins. A RoundReply is a Report or a Refusal. ``codec`` turns both into
bytes and back.

``Sensitive`` marks a value that must stay inside. Only an encoder opens it. It refuses to be
pickled, so it cannot even reach another process of the simulator.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Generic, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedldp.core.bounding import Ranges
from fedldp.core.errors import PrivacyError

Vector = NDArray[np.float32]
T_co = TypeVar("T_co", covariant=True)


class Sensitive(Generic[T_co]):
    """A value that was computed from private data and has not been randomised."""

    __slots__ = ("_value",)

    def __init__(self, value: T_co) -> None:
        self._value = value

    def open(self) -> T_co:
        """Return the value. Only encoders call this, and the accounting covers what they return."""
        return self._value

    def __repr__(self) -> str:
        return "Sensitive(...)"

    def __reduce__(self) -> NoReturn:
        raise PrivacyError("a sensitive value may not leave its client: encode it into a Report")


@dataclass(frozen=True, kw_only=True)
class Broadcast:
    """What the server sends to every client at the start of a round; all of it is public.

    The arrays of a broadcast that was read from bytes are read-only.

    Attributes:
        round: the round, counted from 1.
        weights: the global model, float32, finite, shape (d,), in the order of the model's layout;
            shape (0,) in a phase of a dialogue that does not need them.
        ranges: the centre and radius of every parameter tensor, if the system needs them.
        public: everything else that a system sends to its clients, by name. It was computed from
            earlier releases or set before the run.
    """

    round: int
    weights: Vector
    ranges: Ranges | None = None
    public: Mapping[str, NDArray[Any]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RoundRequest:
    """What a client is asked: the run, the phase and the broadcast; all of it is public.

    Attributes:
        run: the name of its run, 1 to 200 printable characters.
        phase: which phase of the round, counted from 0; most systems have one phase in a round.
        broadcast: what the server sends to every client, including the round.
        own: additional public arrays for individual clients, by client and by name. Only the
            server's request has all of them; the message to a client has only that client's arrays.
    """

    run: str
    phase: int
    broadcast: Broadcast
    own: Mapping[int, Mapping[str, NDArray[Any]]] = field(default_factory=dict)

    def to(self, client: int) -> RoundRequest:
        """Return the request as one client receives it."""
        if not self.own:
            return self
        public = {**self.broadcast.public, **self.own.get(client, {})}
        return replace(self, broadcast=replace(self.broadcast, public=public), own={})

    def only(self, clients: Iterable[int]) -> RoundRequest:
        """Return the request without the individual arrays of clients other than these."""
        own = {client: self.own[client] for client in clients if client in self.own}
        return replace(self, own=own)


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything that one client releases in one phase of a round.

    Attributes:
        round: the round of the broadcast that it answers.
        size: the number of coordinates, d.
        payload: the packed content, which the mechanism defines.
        chunk: coordinates in one message. If chunk < size, a report travels as ceil(size/chunk)
            messages, each labelled with its position; otherwise it is one message.
        weight: the weight in the server's average, where the client releases one.
        epsilon: the budget with which the payload was randomised, where clients' budgets differ.
        client: the sender, where the server must tell clients apart; never with a shuffler.
    """

    round: int
    size: int
    payload: bytes
    chunk: int
    weight: float | None = None
    epsilon: float | None = None
    client: int | None = None

    @property
    def num_messages(self) -> int:
        """The number of messages in which the report travels."""
        return -(-self.size // self.chunk)

    @property
    def label_bits(self) -> int:
        """Bits of the position labels of all messages in which the report travels."""
        return label_bits(self.size, self.chunk)

    @property
    def uplink_bits(self) -> int:
        """Bits sent: the payload, the position label of every message, and a weight in 64 bits.

        This counts what a mechanism sends. It differs from 8 times the length of ``pack_reply``,
        which packs the report as a whole: the packed report has an envelope, and has no position
        labels, which belong to the messages that a shuffler takes in. Exactly, with ``run`` in
        UTF-8,

            8 * len(pack_reply(report, run=run, phase=phase))
                = uplink_bits - label_bits + 8 * (48 + len(run) + more),

        where ``more`` is 8 bytes for an ``epsilon`` plus 8 for a ``client``, if the report has
        them.
        """
        return 8 * len(self.payload) + self.label_bits + (0 if self.weight is None else 64)


def label_bits(size: int, chunk: int) -> int:
    """Return the bits of the position labels of one report of ``size`` coordinates."""
    messages = -(-size // chunk)
    return messages * (messages - 1).bit_length()


@dataclass(frozen=True, kw_only=True)
class Reports:
    """Reports of several clients, as columns; all have the same round, size, chunk and budget.

    Attributes:
        round: the round of the reports; ``Report`` explains this and the following attributes.
        size: the size of each report.
        payloads: their packed contents, uint8, shape (n, bytes per payload).
        chunk: the chunk of each report.
        weight: the weight of each report, float64, shape (n,), where clients release weights.
        epsilon: the epsilon of each report.
        client: the sender of each report, int64, shape (n,), where reports name their senders.
    """

    round: int
    size: int
    payloads: NDArray[np.uint8]
    chunk: int
    weight: NDArray[np.float64] | None = None
    epsilon: float | None = None
    client: NDArray[np.int64] | None = None

    @classmethod
    def of(cls, reports: Sequence[Report]) -> Reports:
        """Return one or more reports as columns; only payloads, weights and senders may differ."""
        first = reports[0]
        return cls(
            round=first.round,
            size=first.size,
            payloads=np.array([np.frombuffer(one.payload, np.uint8) for one in reports]),
            chunk=first.chunk,
            weight=None if first.weight is None else np.array([one.weight for one in reports]),
            epsilon=first.epsilon,
            client=None if first.client is None else np.array([one.client for one in reports]),
        )

    def __len__(self) -> int:
        return len(self.payloads)

    def __iter__(self) -> Iterator[Report]:
        for place, payload in enumerate(self.payloads):
            yield Report(
                round=self.round,
                size=self.size,
                payload=payload.tobytes(),
                chunk=self.chunk,
                weight=None if self.weight is None else float(self.weight[place]),
                epsilon=self.epsilon,
                client=None if self.client is None else int(self.client[place]),
            )

    def chosen(self, which: NDArray[np.bool_]) -> Reports:
        """Return the reports for which ``which``, shape (n,), is true."""
        return replace(
            self,
            payloads=self.payloads[which],
            weight=None if self.weight is None else self.weight[which],
            client=None if self.client is None else self.client[which],
        )

    @property
    def uplink_bits(self) -> int:
        """Bits sent by all of them; see ``Report.uplink_bits``."""
        bits: int = 8 * self.payloads.shape[1] + label_bits(self.size, self.chunk)
        return len(self) * (bits + (0 if self.weight is None else 64))


class Reason(StrEnum):
    """Why a client refuses. The codec numbers reasons in this order: add new ones at the end."""

    MALFORMED = "malformed"
    UNKNOWN_RUN = "unknown-run"
    WRONG_ROUND = "wrong-round"
    OUT_OF_RANGE = "out-of-range"
    ASKED_OTHERWISE = "asked-otherwise"
    OVER_BUDGET = "over-budget"
    NOT_KEPT = "not-kept"
    LEDGER = "ledger"
    POLICY = "policy"
    OTHER_WEIGHTS = "other-weights"


@dataclass(frozen=True)
class Refusal:
    """A client's answer when it gives no report.

    It has no free text. A code from a short list depends on nothing private, provided that the
    decision to refuse does not.

    Attributes:
        round: the round of the broadcast that it answers; 0 if the request could not be read.
        reason: one of a fixed list.
    """

    round: int
    reason: Reason


RoundReply = Report | Refusal


@dataclass(frozen=True, kw_only=True)
class Counted:
    """What a shuffler delivers of one round's messages: their counts, without senders.

    Nobody needs the order of the messages.

    Attributes:
        round: the round.
        size: the number of coordinates of a whole report, d.
        chunk: coordinates in one message.
        ones: how many of the bits at each coordinate were 1, int64, shape (d,).
        reports: how many whole reports were counted, n.
        epsilon: the budget that all these messages share, where clients' budgets differ.
    """

    round: int
    size: int
    chunk: int
    ones: NDArray[np.int64]
    reports: int
    epsilon: float | None = None

    @property
    def num_messages(self) -> int:
        """The number of messages in which each report travelled."""
        return -(-self.size // self.chunk)

    @property
    def uplink_bits(self) -> int:
        """Bits that the clients sent for these messages: content and position labels."""
        return self.reports * (self.size + label_bits(self.size, self.chunk))


Incoming = Iterable[Report | Reports | Counted]
"""What the server step reads: a stream, consumed once."""


@dataclass(frozen=True)
class Layout:
    """The layout of a model's parameters in one flat vector.

    Attributes:
        names: the parameters' names, in order.
        shapes: their shapes.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    sizes: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", tuple(int(np.prod(shape)) for shape in self.shapes))

    @property
    def size(self) -> int:
        """The number of coordinates, d."""
        return sum(self.sizes)

    def split(self, vector: Vector) -> dict[str, Vector]:
        """Return views of ``vector``, shape (d,), by parameter name, each in its own shape."""
        pieces = np.split(vector, np.cumsum(self.sizes)[:-1])
        return {
            name: piece.reshape(shape)
            for name, piece, shape in zip(self.names, pieces, self.shapes, strict=True)
        }
