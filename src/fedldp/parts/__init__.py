"""Parts that several systems share: client steps, encoders, server steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fedldp.data import Examples
from fedldp.randomness import Stream


@dataclass(frozen=True)
class Client:
    """One client in one round, on its own side of the boundary.

    Attributes:
        index: its number, from 0; public.
        examples: its private examples.
        stream: gives the stream for a purpose, such as "batches" or "mechanism".
    """

    index: int
    examples: Examples = field(repr=False)
    stream: Callable[[str], Stream]
