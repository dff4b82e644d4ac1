"""The exceptions that fedldp raises for its user; anything else that escapes is our own bug."""

from typing import ClassVar


class FedldpError(Exception):
    """Base of all errors with a remedy; the message is one line for the user.

    Attributes:
        exit_status: of a command that it ends.
    """

    exit_status: ClassVar[int] = 2


class ConfigError(FedldpError):
    """A setting is unknown, malformed or out of range."""


class UnfitEvent(ConfigError):
    """A mechanism states an event that no mechanism may state of its own report."""


class PrivacyError(FedldpError):
    """A value may not be released: nothing has left the client."""


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


class LedgerLost(LedgerUnusable):
    """The ledger was begun, and is gone, or what was drawn for it: nobody knows what is spent."""


class WireError(FedldpError):
    """A message is malformed, of another version, or no answer to the question that was asked."""


class DataError(FedldpError):
    """A data set is malformed or damaged."""


class DataMissing(DataError):
    """A data set's file is not in the data folder."""


class RunError(FedldpError):
    """A run folder cannot be used, or a run was cut short."""


class EndedForGood(RunError):
    """A run ended, and to start it again would end so again until a person has done something."""

    exit_status: ClassVar[int] = 78
    """``EX_CONFIG`` of sysexits.h, so that systemd does not start it again."""


class Diverged(RunError):
    """A run was cut short because its numbers grew beyond what can be held or answered."""


def first_line(error: Exception) -> str:
    """Return the first line of an error's text, or its kind where it says nothing."""
    return (str(error).splitlines() or [type(error).__name__])[0]
