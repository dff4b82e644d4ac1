"""Checks as data: what an extension point promises, how to look for a breach, and the remedy."""

from __future__ import annotations

import inspect
import sysconfig
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, Literal, TypeVar

import numpy as np

S = TypeVar("S")

FALSE_ALARM = 1e-9
"""The probability with which one statistic of a check calls an honest part wrong."""

_NOT_CHECKED = (
    Path(__file__).resolve().parents[1],
    *(Path(sysconfig.get_path(each)).resolve() for each in ("stdlib", "platlib", "purelib")),
)
"""The folders of this package and of libraries."""


class NotApplicable(Exception):
    """What a check asks has no meaning for this subject; the message says why."""


@dataclass(frozen=True)
class Check(Generic[S]):
    """One promise.

    Attributes:
        name: the promise in a few words.
        asks: yields, for one subject, each way in which the promise is broken; its docstring says
            what is promised.
        remedy: what to do about it.
        thorough: whether it takes too long to be asked with every change.
    """

    name: str
    asks: Callable[[S], Iterable[str]]
    remedy: str
    thorough: bool = False

    @property
    def promise(self) -> str:
        """What is promised."""
        return inspect.getdoc(self.asks) or ""

    def broken(self, subject: S) -> str:
        """Return the first way in which a subject breaks the promise; empty if it does not.

        Raises:
            NotApplicable: see there.
        """
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                return next(iter(self.asks(subject)), "")
            except NotApplicable:
                raise
            except Exception as error:  # whatever it raises, it does not keep its promise
                return f"{type(error).__name__}: {error}".splitlines()[0] + _place(error)


def _place(error: Exception) -> str:
    """Return where the checked code raised, outside of this package and of libraries, if it did."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename).resolve()
        if path.is_file() and not any(path.is_relative_to(each) for each in _NOT_CHECKED):
            return f" ({path.name}, line {frame.lineno}, in {frame.name})"
    return ""


@dataclass(frozen=True)
class Outcome:
    """What a check found.

    Attributes:
        name: the check's name.
        verdict: whether the promise is kept.
        text: how it is broken, and with what; or why it has no meaning.
        remedy: what to do; empty if the promise is not broken.
    """

    name: str
    verdict: Literal["ok", "fails", "not applicable"]
    text: str = ""
    remedy: str = ""


def outcomes(
    checks: Iterable[Check[S]], subjects: Sequence[S], *, thorough: bool = False
) -> Iterator[Outcome]:
    """Yield the outcome of each check on all subjects together, up to the first that breaks it.

    What an earlier check found as well is mended there, so later ones only refer to it.
    """
    first: dict[str, str] = {}
    for check in checks:
        if thorough or not check.thorough:
            found = outcome(check, subjects)
            what = found.text.rpartition(" [")[0]
            if found.verdict == "fails" and first.setdefault(what, check.name) != check.name:
                found = replace(found, remedy=f"the same as in: {first[what]}; mend that first")
            yield found


def outcome(check: Check[S], subjects: Sequence[S]) -> Outcome:
    """Return the outcome of one check."""
    unfit: list[str] = []
    for subject in subjects:
        try:
            told = check.broken(subject)
        except NotApplicable as reason:
            unfit.append(str(reason))
            continue
        if told:
            return Outcome(check.name, "fails", f"{told} [{subject}]", check.remedy)
    if len(unfit) == len(subjects):
        return Outcome(check.name, "not applicable", unfit[0] if unfit else "there is no instance")
    return Outcome(check.name, "ok")
