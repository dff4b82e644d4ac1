"""The socket of a site agent: one request and one answer per connection.

Only the agent's own user may connect, or the group that its operator names. That group is for the
SuperNode, which runs code that others sent and so must not run as the agent's user.
"""

from __future__ import annotations

import fcntl
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fedldp.core.errors import RunError, WireError
from fedldp.deployment.frames import read_frame, write_frame
from fedldp.deployment.rate_limited_log import RateLimitedLog
from fedldp.deployment.sockets import listen

log = logging.getLogger("fedldp.site")

_MOST_CONNECTIONS = 32
_SECONDS_TO_READ = 60.0
_LOOKS = 5
"""How many times to try to take a lock that another process holds, before raising an error."""


class Listening:
    """Answers every connection until it is told to stop.

    Args:
        path: the socket's path.
        group: a group that may connect, as well as the owner.
        answer: returns the answer to a message.
        largest: returns the current limit on a message's length, in bytes.

    Raises:
        ConfigError: nothing can listen there, or the group is unknown.
    """

    def __init__(
        self,
        path: Path,
        group: str | None,
        answer: Callable[[bytes], bytes],
        largest: Callable[[], int],
    ) -> None:
        self._answer, self._largest = answer, largest
        self._free = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        self._rate_limited = RateLimitedLog(log)
        self._path = path
        self._socket = listen(path, group)

    def serve(self, stop: threading.Event) -> None:
        """Answer until ``stop`` is set."""
        self._socket.settimeout(0.2)
        try:
            while not stop.is_set():
                try:
                    connection, _ = self._socket.accept()
                except TimeoutError:
                    continue
                if not self._free.acquire(blocking=False):
                    connection.close()  # the pipe tries again
                    continue
                threading.Thread(target=self._one, args=(connection,), daemon=True).start()
        finally:
            self.close()

    def close(self) -> None:
        """Stop listening, and remove the socket."""
        self._socket.close()
        self._path.unlink(missing_ok=True)

    def _one(self, connection: socket.socket) -> None:
        try:
            with connection:
                message = read_frame(connection, self._largest(), _SECONDS_TO_READ)
                write_frame(connection, self._answer(message), _SECONDS_TO_READ)
        except WireError as error:
            log.debug("a connection ended: %s", error)
        except Exception as error:  # the message counts as lost; the log never has its content
            self._rate_limited(f"a message could not be answered: {type(error).__name__}")
        finally:
            self._free.release()


@contextmanager
def alone(file: Path, what: str) -> Iterator[None]:
    """Hold the lock ``file``, created if missing, so that no other process does the same.

    Raises:
        RunError: another process holds the lock.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise RunError(f"{file}: {error.strerror}; check the folder") from error
    try:
        for left in reversed(range(_LOOKS)):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if not left:
                    raise RunError(
                        f"{file}: another {what} is running there; stop it first"
                    ) from error
                time.sleep(0.02)  # perhaps another process is only checking the lock
        yield
    finally:
        os.close(handle)


def is_held(file: Path) -> bool:
    """Return whether a process holds ``file`` through :func:`alone`, without creating the file."""
    try:
        handle = os.open(file, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False
