"""A log's lines that any sender could trigger, each at most once a minute."""

from __future__ import annotations

import logging
import threading
import time

_SECONDS = 60.0
_MOST = 1000


class RateLimitedLog:
    """Logs a line at most once a minute, with the number of times that it occurred in between.

    It is for lines that any sender could trigger.

    Args:
        log: the logger to write to.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._told: dict[str, tuple[float, int]] = {}

    def __call__(self, what: str, like: str | None = None, *, level: int = logging.WARNING) -> None:
        """Log ``what`` unless it or a line with the same ``like`` was logged in the last minute."""
        now, kind = time.monotonic(), like or what
        with self._lock:
            since, count = self._told.get(kind, (now - _SECONDS, 0))
            if now - since < _SECONDS:
                self._told[kind] = since, count + 1
                return
            if len(self._told) >= _MOST:
                self._told.clear()
            self._told[kind] = now, 0
        self._log.log(level, "%s%s", what, f" ({count} times before)" if count else "")
