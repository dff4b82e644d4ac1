"""The socket of a site agent: one request and one answer per connection.

Only the agent's own user may connect, or the group that its operator names. That group is for the
SuperNode, which runs code that others sent and so must not run as the agent's user.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from pathlib import Path

from fedldp.core.errors import WireError
from fedldp.deployment.frames import read_frame, write_frame
from fedldp.deployment.rate_limited_log import RateLimitedLog
from fedldp.deployment.sockets import listen

log = logging.getLogger("fedldp.site")

_MOST_CONNECTIONS = 32
_SECONDS_TO_READ = 60.0


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
