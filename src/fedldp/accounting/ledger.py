"""The client's privacy ledger: what it has released, and the refusal to release more.

The client's own ledger decides, whatever a server asks for. There is one protocol, and two stores:
``sqlite_ledger`` keeps one client's on its disk, ``memory_ledger`` those of a simulation's clients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from fedldp.accounting.check import check_count
from fedldp.accounting.events import Event
from fedldp.errors import ConfigError, PrivacyError

QUESTION_BYTES = 32
"""A question is known by its SHA-256 digest."""

LARGEST_RUN = 200
LARGEST_ROUND = 2**63 - 1  # of SQLite's integers; the same for an exchange


class OverBudget(PrivacyError):
    """The budget does not cover the event, or no budget does: nothing is proven for it."""


class AskedOtherwise(PrivacyError):
    """The same (run, round, exchange) was released for another question, or as another event."""


class NoLongerKept(PrivacyError):
    """A later round was released, so nothing of this one is kept any more."""


class OutOfTurn(PrivacyError):
    """The run has been answered in as many rounds as what is released is protected for."""


class LedgerUnusable(PrivacyError):
    """The ledger is damaged, locked, of another version, or cannot be written."""


class Ledger(Protocol):
    """One client's ledger.

    Guarantee: whatever ``release`` has returned is counted, and the sum of the costs never passes
    the budget. For one (run, round, exchange) only ever the same bytes are returned.

    A question is asked by (run, round, exchange), and is told from others by the SHA-256 digest of
    its bytes. Within a run rounds do not go back: only the latest round's answers are kept, all its
    exchanges; whatever is asked for an earlier round is refused. What is drawn once (``DrawnOnce``)
    costs once in each run.

    All methods raise ``LedgerUnusable`` where the store cannot be used, and ``ConfigError`` for a
    malformed argument; nothing was released then.
    """

    def recall(self, run: str, round: int, exchange: int, question: bytes) -> bytes | None:
        """Return what was answered to this very question before.

        None if nothing was released there; or by a store that keeps no bytes, if ``release`` can
        make the same ones again and check that.

        Raises:
            AskedOtherwise: it was released for another question.
            NoLongerKept: it is of an earlier round than the run's latest, or its bytes are gone.
        """

    def rounds_before(self, run: str, round: int) -> int:
        """Return in how many rounds of a run before ``round`` something was released."""

    def admit(self, run: str, round: int, exchange: int, event: Event) -> None:
        """Return if ``event`` may be released now, or was there, so that no client trains in vain.

        Raises:
            OverBudget: the budget does not cover the event.
            AskedOtherwise: the run drew another event under the same identity.
        """

    def release(
        self,
        run: str,
        round: int,
        exchange: int,
        question: bytes,
        event: Event,
        make: Callable[[], bytes],
        *,
        most_rounds: int | None = None,
    ) -> bytes:
        """Charge ``event``, and return the bytes to send once they are stored and synced.

        The same question again: the same bytes, at no further cost.

        Args:
            run: identifies the run; 1 to 200 printable characters.
            round: of that run, at least 0.
            exchange: of that round, at least 0.
            question: the SHA-256 digest of what was asked.
            event: what ``make`` will release.
            make: returns the randomised bytes; called at most once, and only if the budget covers
                the event, with the ledger locked.
            most_rounds: how many rounds of the run may be answered.

        Raises:
            OverBudget, AskedOtherwise, NoLongerKept: as above; nothing was released. An error of
                ``make`` is passed on, and costs nothing.
            OutOfTurn: so many rounds before this one were answered; nothing was released.
        """


def check_place(run: str, round: int, exchange: int, question: bytes) -> None:
    """Raise ConfigError unless these can name a release."""
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


def check_turn(rounds_before: int, most_rounds: int | None) -> None:
    """Raise OutOfTurn if ``rounds_before`` rounds were answered, and no more may be."""
    if most_rounds is not None and rounds_before >= most_rounds:
        raise OutOfTurn(f"{rounds_before} rounds were answered, of {most_rounds} at most")
