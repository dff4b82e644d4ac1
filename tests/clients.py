"""Clients made by hand: for tests that hold a client step or an encoder in their hands."""

from __future__ import annotations

from pathlib import Path

from fedldp.data import Examples
from fedldp.parts import Client
from fedldp.parts.store import Store
from fedldp.randomness import Stream


def client_of(
    examples: Examples,
    index: int = 0,
    *,
    seed: int = 0,
    round: int = 1,
    folder: Path = Path("no client keeps anything here"),
) -> Client:
    """Return client ``index`` as a simulation with this seed would make it in ``round``."""

    def drawn(round: int, purpose: str) -> Stream:
        return Stream.simulation(seed=seed, round=round, client=index, purpose=purpose)

    return Client(
        index=index,
        examples=examples,
        stream=lambda purpose: drawn(round, purpose),
        setup=lambda purpose: drawn(0, purpose),
        store=Store(folder),
    )
