"""Known answers: results that were computed independently of this package."""

from __future__ import annotations

import threading
from collections.abc import Callable

from fedldp.core.errors import FedldpError


def check(name: str, computed: float, known: float, tolerance: float) -> None:
    """Compare one result with a known answer; a paper's numerics call it when they are imported.

    Raises:
        FedldpError: the result differs, so no guarantee can be trusted.
    """
    if not abs(computed - known) <= tolerance * known:
        raise FedldpError(
            f"the accounting self-test failed: {name} gave {computed!r} instead of {known!r}; "
            "no guarantee can be trusted: reinstall numpy and scipy"
        )


class Test:
    """A slow part's own test, which the part calls before its first result is told.

    So a run that does not need the part saves up to a second.
    """

    def __init__(self, checks: Callable[[], None]) -> None:
        self.begun = False
        self._checks, self._lock = checks, threading.RLock()

    def __call__(self) -> None:
        """Compare the part's results with known answers, unless that was done before.

        Raises:
            FedldpError: a result differs, so no guarantee can be trusted.
        """
        with self._lock:
            if self.begun:
                return
            self.begun = True  # because the checks use the part, too
            try:
                self._checks()
            except BaseException:
                self.begun = False
                raise
