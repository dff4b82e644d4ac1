"""What clients have released, and when they refuse to release more.

A client's own ledger decides, whatever a server asks for. There is one protocol with two stores:
``sqlite`` stores one client's ledger on its disk; ``columns`` stores the ledgers of a simulation's
clients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.events import Event
from fedldp.core.errors import ConfigError, NoLongerKept, OutOfTurn, PrivacyError
from fedldp.core.numbers import check_count

DIGEST_BYTES = 32
"""A request is identified by its SHA-256 digest."""

LARGEST_RUN = 200
LARGEST_ROUND = 2**63 - 1  # SQLite's largest integer; a phase has the same limit


class Place(NamedTuple):
    """Identifies an answer by its request, and by the run, round and phase of the request.

    Attributes:
        run: identifies the run; 1 to 200 printable characters.
        round: the round of that run, at least 0.
        phase: the phase of that round, at least 0.
        request: the SHA-256 digest of the request.
    """

    run: str
    round: int
    phase: int
    request: bytes


Clients: TypeAlias = "Sequence[int] | NDArray[np.integer]"
"""Client indices, without duplicates."""

Rows: TypeAlias = "Sequence[bytes] | NDArray[np.uint8]"
"""What clients send, one row per client; a single array if all rows have the same length."""

Verdict: TypeAlias = "bytes | PrivacyError | None"
"""None if a client may answer; otherwise its earlier answer, or its refusal."""

Released: TypeAlias = "Sequence[bytes | PrivacyError] | NDArray[np.uint8]"
"""What clients release, one row per client; a client that refuses has an error as its row."""

Holds = Callable[[int], bool]
"""A function that says whether a client still has the values that it drew once in the run."""


def always(client: int) -> bool:
    """Return True: the ``Holds`` for an event of which no part is drawn once."""
    return True


class Ledgers(Protocol):
    """The ledgers of one client, or of many.

    Guarantee: everything that ``release`` has returned for a client is charged, and the total cost
    never exceeds the client's budget. For one (run, round, phase) it returns the same bytes every
    time.

    A request belongs to a (run, round, phase) and is identified by the SHA-256 digest of its bytes.
    The rounds of a run only move forward: only the answers of the latest round are stored, for all
    its phases, and a request of an earlier round is refused. A value that is drawn once
    (``Memoized``) costs once per run.

    Both methods raise ``ConfigError`` for a malformed argument; nothing is released in that case.
    """

    def check(
        self,
        place: Place,
        event: Event,
        clients: Clients,
        max_rounds: int | None = None,
        holds: Holds = always,
    ) -> Sequence[Verdict]:
        """Return whether each client may release ``event``, so that none trains in vain.

        Args:
            place: identifies the answer.
            event: what the answer will release.
            clients: the clients that are asked.
            max_rounds: the largest number of rounds of the run that a client may answer.
            holds: see ``Holds``; called for events that are drawn once.

        Returns:
            One verdict for each client, in the order of ``clients``. None: the client may release.
            This is also the verdict on an earlier release if the store holds no bytes; ``release``
            then makes the bytes again and checks that they are the same. Bytes: the client's
            earlier answer to the same request. Otherwise, the first of these errors that applies.
            AskedOtherwise: this round and phase were released for another request, or the run drew
            another event under the same identity. NoLongerKept: the run has released a later round,
            or the client has lost the bytes or the values that it drew once. OutOfTurn:
            ``max_rounds`` earlier rounds were answered. OverBudget: the budget does not cover the
            event. LedgerUnusable: the store cannot be used.
        """

    def release(
        self,
        place: Place,
        event: Event,
        clients: Clients,
        make: Callable[[], Rows],
        max_rounds: int | None = None,
    ) -> Released:
        """Charge ``event`` to each client, sync all charges, and then return the rows to send.

        A repeated request gets the same bytes, at no additional cost.

        Args:
            place: identifies the answer.
            event: what ``make`` will release.
            clients: the clients that answer.
            make: returns the randomised bytes, one row for each client; called at most once, and
                only if every client may answer, with the ledger locked.
            max_rounds: the largest number of rounds of the run that a client may answer.

        Raises:
            PrivacyError: one of the clients may not answer (see ``check``); nothing was released.
                An error that ``make`` raises is passed on, and costs nothing.
        """


def check_place(place: Place) -> None:
    """Raise ConfigError unless ``place`` can identify a release."""
    run, round, phase, request = place
    check_run(run)
    for name, value in (("round", round), ("phase", phase)):
        check_count(name, value)
        if value > LARGEST_ROUND:
            raise ConfigError(f"{name} = {value}: give at most {LARGEST_ROUND}")
    if not isinstance(request, bytes) or len(request) != DIGEST_BYTES:
        raise ConfigError(f"request: give the {DIGEST_BYTES} bytes of its SHA-256 digest")


def check_run(run: str) -> None:
    """Raise ConfigError unless ``run``, which a server chooses and people read, is printable."""
    if not (isinstance(run, str) and 0 < len(run) <= LARGEST_RUN and run.isprintable()):
        raise ConfigError(f"run = {run!a:.250}: give 1 to {LARGEST_RUN} printable characters")


def went_back(run: str, round: int, latest: int) -> NoLongerKept:
    """Return the error for a round before the run's latest one."""
    return NoLongerKept(
        f"run {run} round {round}: round {latest} was released since, and answers from earlier "
        "rounds are not stored; nothing was released"
    )


def lost_draws(run: str) -> NoLongerKept:
    """Return the error for a client that no longer has what it drew once in a run."""
    return NoLongerKept(
        f"run {run}: the values that were drawn once are gone; nothing was released"
    )


def check_turn(rounds_before: int, max_rounds: int | None) -> None:
    """Raise OutOfTurn if ``max_rounds`` earlier rounds were answered."""
    if max_rounds is not None and rounds_before >= max_rounds:
        raise OutOfTurn(
            f"{rounds_before} rounds of this run were answered already; the maximum is {max_rounds}"
        )
