"""Parts that several systems share: client steps, encoders, server steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fedldp.data import Examples
from fedldp.parts.store import Store
from fedldp.randomness import Stream


@dataclass(frozen=True)
class Client:
    """One client in one round, on its own side of the boundary.

    Attributes:
        index: its number, from 0; public.
        examples: its private examples.
        stream: gives the stream for a purpose in this round, such as "batches" or "mechanism".
        setup: gives the stream for a purpose that the client has once in the run.
        store: what it keeps from round to round.
    """

    index: int
    examples: Examples = field(repr=False)
    stream: Callable[[str], Stream]
    setup: Callable[[str], Stream]
    store: Store


@dataclass(frozen=True, kw_only=True)
class Score:
    """How a model did on some test examples.

    Attributes:
        right: how many it classified rightly.
        loss: its summed cross-entropy.
        total: how many there were.
    """

    right: int
    loss: float
    total: int
