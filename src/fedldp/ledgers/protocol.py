"""What clients have released, and the refusal to release more.

A client's own ledger decides, whatever a server asks for. There is one protocol, and two stores:
``sqlite`` keeps one client's on its disk, ``columns`` those of a simulation's clients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.events import Event
from fedldp.core.errors import ConfigError, NoLongerKept, OutOfTurn, PrivacyError
from fedldp.core.numbers import check_count

QUESTION_BYTES = 32
"""A question is known by its SHA-256 digest."""

LARGEST_RUN = 200
LARGEST_ROUND = 2**63 - 1  # of SQLite's integers; the same for an exchange


class Place(NamedTuple):
    """Where an answer stands: what was asked, and in which round of which run.

    Attributes:
        run: identifies the run; 1 to 200 printable characters.
        round: of that run, at least 0.
        exchange: of that round, at least 0.
        question: the SHA-256 digest of what was asked.
    """

    run: str
    round: int
    exchange: int
    question: bytes


Clients: TypeAlias = "Sequence[int] | NDArray[np.integer]"
"""Indices of clients, each once."""

Rows: TypeAlias = "Sequence[bytes] | NDArray[np.uint8]"
"""What clients send, one row for each; one array where all rows have one length."""

Verdict: TypeAlias = "bytes | PrivacyError | None"
"""May a client answer? None: yes. Else what it answered before, or why it refuses."""

Released: TypeAlias = "Sequence[bytes | PrivacyError] | NDArray[np.uint8]"
"""What leaves, one row for each client; an error stands for that of a client that refuses."""

Holds = Callable[[int], bool]
"""Whether a client still has what it drew once in the run."""


def always(client: int) -> bool:
    """Return that a client has it: for what is never drawn once."""
    return True


class Ledgers(Protocol):
    """The ledgers of one client, or of many.

    Guarantee: whatever ``release`` has returned for a client is counted, and the sum of its costs
    never passes the client's budget. For one (run, round, exchange) it returns the same bytes
    every time.

    A question is asked by (run, round, exchange), and is told from others by the SHA-256 digest of
    its bytes. Within a run rounds do not go back: only the latest round's answers are kept, all its
    exchanges; whatever is asked for an earlier round is refused. What is drawn once (``Memoized``)
    costs once in each run.

    Both methods raise ``ConfigError`` for a malformed argument; nothing was released then.
    """

    def check(
        self,
        place: Place,
        event: Event,
        clients: Clients,
        max_rounds: int | None = None,
        holds: Holds = always,
    ) -> Sequence[Verdict]:
        """Return for each client whether it may release ``event`` now, so that none trains in vain.

        Args:
            place: of the answer.
            event: what it will release.
            clients: who is asked.
            max_rounds: how many rounds of the run a client may answer.
            holds: see ``Holds``; asked for events that are drawn once.

        Returns:
            Of each client, in their order: None if it may, also where a store that keeps no bytes
            has released it before: ``release`` makes the same bytes again and checks that. The
            bytes that it answered to this very question before. Or the first that applies of
            AskedOtherwise: it was released for another question, or the run drew another event
            under the same identity. NoLongerKept: it is of an earlier round than the run's latest,
            its bytes are gone, or what was drawn once is. OutOfTurn: so many rounds before this one
            were answered. OverBudget: the budget does not cover the event. LedgerUnusable: the
            store cannot be used.
        """

    def release(
        self,
        place: Place,
        event: Event,
        clients: Clients,
        make: Callable[[], Rows],
        max_rounds: int | None = None,
    ) -> Released:
        """Charge ``event`` to each client, and return the rows to send once all are synced.

        The same question again: the same bytes, at no further cost.

        Args:
            place: of the answer.
            event: what ``make`` will release.
            clients: who answers.
            make: returns the randomised bytes, one row for each client; called at most once, and
                only if every client may answer, with the ledger locked.
            max_rounds: how many rounds of the run a client may answer.

        Raises:
            PrivacyError: as ``check`` says of one of the clients; nothing was released. An error of
                ``make`` is passed on, and costs nothing.
        """


def check_place(place: Place) -> None:
    """Raise ConfigError unless this can name a release."""
    run, round, exchange, question = place
    check_run(run)
    for name, value in (("round", round), ("exchange", exchange)):
        check_count(name, value)
        if value > LARGEST_ROUND:
            raise ConfigError(f"{name} = {value}: give at most {LARGEST_ROUND}")
    if not isinstance(question, bytes) or len(question) != QUESTION_BYTES:
        raise ConfigError(f"question: give the {QUESTION_BYTES} bytes of its SHA-256 digest")


def check_run(run: str) -> None:
    """Raise ConfigError unless ``run`` can be shown: a server chooses it, people read it."""
    if not (isinstance(run, str) and 0 < len(run) <= LARGEST_RUN and run.isprintable()):
        raise ConfigError(f"run = {run!a:.250}: give 1 to {LARGEST_RUN} printable characters")


def went_back(run: str, round: int, latest: int) -> NoLongerKept:
    """Return the error for a round that is before the run's latest one."""
    return NoLongerKept(
        f"run {run} round {round}: round {latest} was released since, and of an earlier one "
        "nothing is kept; nothing was released"
    )


def lost_draws(run: str) -> NoLongerKept:
    """Return the error for a client that does not have any more what it drew once in a run."""
    return NoLongerKept(f"run {run}: what was drawn once in it is gone; nothing was released")


def check_turn(rounds_before: int, max_rounds: int | None) -> None:
    """Raise OutOfTurn if ``rounds_before`` rounds were answered, and no more may be."""
    if max_rounds is not None and rounds_before >= max_rounds:
        raise OutOfTurn(f"{rounds_before} rounds were answered, of {max_rounds} at most")
