"""The entries of an SQLite ledger, and what is looked up in them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from fedldp.accounting.events import Event
from fedldp.accounting.ledger import AskedOtherwise, went_back

LOST = hashlib.sha256(b"questions that were lost with a ledger").digest()
"""Stands for the question of what may have been released, and is in no ledger any more."""


@dataclass(frozen=True)
class Release:
    """One entry of a ledger.

    Attributes:
        number: 1, 2, 3 and so on.
        run: identifies the run.
        round: of that run.
        exchange: of that round.
        question: SHA-256 of what was asked, in hexadecimal.
        event: what was released.
        cost: what it added to the budget.
        payload_sha256: of the bytes that were released, in hexadecimal.
        hash: SHA-256 of this entry and the hash of the one before, in hexadecimal.
    """

    number: int
    run: str
    round: int
    exchange: int
    question: str
    event: Event
    cost: float
    payload_sha256: str
    hash: str


def rounds_before(releases: list[Release], run: str, round: int) -> int:
    """Return in how many rounds of a run before ``round`` something was released."""
    return len({each.round for each in releases if each.run == run and each.round < round})


def known_release(
    past: list[Release], run: str, round: int, exchange: int, question: bytes
) -> Release | None:
    """Return the entry of what was released before for this very question, or None."""
    of_run = [entry for entry in past if entry.run == run]
    latest = max((entry.round for entry in of_run), default=round)
    if round < latest:
        raise went_back(run, round, latest)
    for entry in of_run:
        if (entry.round, entry.exchange) == (round, exchange):
            if entry.question != question.hex():
                raise AskedOtherwise(f"{place_of(entry)} was released for another question")
            return entry
    return None


def place_of(entry: Release) -> str:
    """Return where an entry was released, for people."""
    return f"run {entry.run} round {entry.round} exchange {entry.exchange}"
