"""The exceptions that fedldp raises for its user. Any other exception that escapes is a bug."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar


class FedldpError(Exception):
    """Base of all errors that have a remedy; the message is one line for the user.

    Attributes:
        exit_status: the exit status of a command that fails with this error.
        place: the round and the client of a simulation in which it occurred, once its message names
            them.
    """

    exit_status: ClassVar[int] = 2
    place: tuple[int, int] | None = None


class ConfigError(FedldpError):
    """A setting is unknown, malformed or out of range."""


class UnfitEvent(ConfigError):
    """An event is not what a mechanism may state, or a target asks for, whatever the budget."""


class PrivacyError(FedldpError):
    """A value must not be released, so nothing has left the client."""


class OverBudget(PrivacyError):
    """The budget does not cover the event, or no budget can, because nothing is proven for it."""


class AskedOtherwise(PrivacyError):
    """The same (run, round, phase) was already released for another request or event."""


class NoLongerKept(PrivacyError):
    """A later round was released, so nothing from this round is kept any more."""


class OutOfTurn(PrivacyError):
    """The client has already answered as many rounds of this run as its guarantee covers."""


class LedgerUnusable(PrivacyError):
    """The ledger is damaged, locked, of another version, or cannot be written."""


class LedgerLost(LedgerUnusable):
    """The ledger has disappeared, and the secret with it: nobody knows what was spent."""


class StoreUnusable(PrivacyError):
    """A file that a client keeps for its run is damaged, or cannot be read or written."""


class WireError(FedldpError):
    """A message is malformed, of another version, or does not answer the request."""


class DataError(FedldpError):
    """A data set is malformed or damaged."""


class SeveralErrors(DataError):
    """A table has several mistakes; the message has a line for each.

    Attributes:
        lines: the message of each mistake, on one line.
    """

    def __init__(self, *lines: str) -> None:
        super().__init__(*lines)
        self.lines = lines

    def __str__(self) -> str:
        return "\n".join(self.lines)


class DataMissing(DataError):
    """A data set's file is not in the data folder.

    Args:
        what: what is missing.
        remedy: what the user can do.
    """

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(f"{what}; {remedy}" if remedy else what)
        self.what = what


class RunError(FedldpError):
    """A run folder cannot be used, or a run was cut short."""


class EndedForGood(RunError):
    """A run failed and, if restarted, would fail the same way until somebody fixes the cause."""

    exit_status: ClassVar[int] = 78
    """``EX_CONFIG`` of sysexits.h; systemd does not restart a service that exits with it."""


class Diverged(RunError):
    """A run was cut short because its numbers grew too large to represent or to broadcast."""


@contextmanager
def os_errors(what: str, remedy: str, kind: type[FedldpError] = ConfigError) -> Iterator[None]:
    """Raise an error of the operating system in a ``with`` block as one of ``kind``.

    Args:
        what: what failed, such as "policy site.toml".
        remedy: what the user can do.
        kind: the error to raise.
    """
    try:
        yield
    except OSError as error:
        raise kind(f"{what}: {error.strerror}; {remedy}") from error


class Noted:
    """The errors of several checks, of which a user hears all at once."""

    def __init__(self) -> None:
        self._found: dict[str, FedldpError] = {}  # by message, because two checks may say the same

    @contextmanager
    def check(self) -> Iterator[None]:
        """Note what the checks in a ``with`` block refuse, and go on after the block."""
        try:
            yield
        except SeveralErrors as several:
            self._found |= dict.fromkeys(several.lines, several)
        except FedldpError as error:
            self.note(error)

    def note(self, *errors: FedldpError) -> None:
        """Note errors."""
        for error in errors:
            self._found.setdefault(one_line(error), error)

    def __bool__(self) -> bool:
        return bool(self._found)

    def refuse(self) -> None:
        """Raise what was noted: a single error as it is, several as ``SeveralErrors``."""
        if len(self._found) > 1:
            raise SeveralErrors(*self._found)
        for error in self._found.values():
            raise error


def one_line(error: BaseException) -> str:
    """Return an error's message on one line."""
    return " ".join(str(error).split())


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, or the error's class name if it has no text."""
    return (str(error).splitlines() or [type(error).__name__])[0]
