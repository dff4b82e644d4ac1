"""What crosses a client's boundary: a Broadcast comes in, a Report goes out, and nothing else.

``Sensitive`` marks what must stay inside. Only an encoder opens it, and it refuses to be pickled,
so a sensitive value cannot even reach another process of the simulator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedldp.bounding import Ranges
from fedldp.errors import PrivacyError

Vector = NDArray[np.float32]
T = TypeVar("T")


class Sensitive(Generic[T]):
    """A value computed from private data, which has not been randomised yet."""

    __slots__ = ("_value",)

    def __init__(self, value: T) -> None:
        self._value = value

    def open(self) -> T:
        """Return the value. Only encoders call this; their output is what is accounted for."""
        return self._value

    def __repr__(self) -> str:
        return "Sensitive(...)"

    def __reduce__(self) -> NoReturn:
        raise PrivacyError("a sensitive value may not leave its client: encode it into a Report")


@dataclass(frozen=True, kw_only=True)
class Broadcast:
    """What the server tells every client at the start of a round; all of it is public.

    Attributes:
        round: the round, counted from 1.
        weights: the global model, float32, shape (d,), in the order of the model's layout.
        ranges: the centre and radius of every parameter tensor, where the system needs them.
        public: whatever else a system tells its clients, by name: computed from what was already
            released, or set before the run.
        notes: figures on the round before, for its record.
    """

    round: int
    weights: Vector
    ranges: Ranges | None = None
    public: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    notes: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Report:
    """All that one client releases in one round.

    Attributes:
        round: the round of the broadcast that it answers.
        size: the number of coordinates, d.
        payload: the packed content; its meaning is the mechanism's.
        chunk: coordinates in one message. A report travels as ceil(size/chunk) messages, each
            labelled with its position, where chunk < size; as one message where it is not.
        weight: the weight in the server's average, where the client releases one.
        epsilon: the budget that the payload was randomised with, where clients' budgets differ.
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
        """The number of messages that the report travels as."""
        return -(-self.size // self.chunk)

    @property
    def uplink_bits(self) -> int:
        """Bits sent: the payload, the position label of every message, and a weight in 64 bits."""
        labels = self.num_messages * (self.num_messages - 1).bit_length()
        return 8 * len(self.payload) + labels + (0 if self.weight is None else 64)


@dataclass(frozen=True, kw_only=True)
class Shuffled:
    """Messages of one round as a shuffler puts them out: in order of arrival, without senders.

    Attributes:
        round: the round.
        size: the number of coordinates of a whole report, d.
        chunk: coordinates in one message.
        positions: the label of every message, shape (m,): message p holds the coordinates from
            p * chunk on.
        bits: the content, 0 or 1, uint8, shape (m, chunk); zeros beyond coordinate d.
        arrival_seconds: since the start of the round, shape (m,), ascending.
        epsilon: the budget that all these messages share, where clients' budgets differ.
    """

    round: int
    size: int
    chunk: int
    positions: NDArray[np.int64]
    bits: NDArray[np.uint8]
    arrival_seconds: NDArray[np.float64]
    epsilon: float | None = None

    @property
    def uplink_bits(self) -> int:
        """Bits that the clients sent for these messages: content and position labels."""
        num_labels = -(-self.size // self.chunk)
        label = (num_labels - 1).bit_length()
        coordinates = np.minimum(self.chunk, self.size - self.positions * self.chunk)
        return int(coordinates.sum()) + label * len(self.positions)


Incoming = Iterable[Report | Shuffled]
"""What the server step reads: a stream, consumed once."""


@dataclass(frozen=True)
class Layout:
    """How a model's parameters lie in one vector.

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
        """Return views of ``vector``, shape (d,), by parameter name, each in its shape."""
        pieces = np.split(vector, np.cumsum(self.sizes)[:-1])
        return {
            name: piece.reshape(shape)
            for name, piece, shape in zip(self.names, pieces, self.shapes, strict=True)
        }
