"""Log lines as JSON objects, for programs that collect them."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime


class JsonLines(logging.Formatter):
    """Writes one JSON object per line, always with the keys time, level, logger and message."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        message = record.getMessage()
        if record.exc_info and record.exc_info[0] is not None:
            message = f"{message}: {record.exc_info[0].__name__}: {record.exc_info[1]}"
        at = datetime.fromtimestamp(record.created, UTC)
        return json.dumps(
            {
                "time": at.isoformat(timespec="milliseconds"),
                "level": record.levelname.lower(),
                "logger": record.name,
                "message": " ".join(message.split()),
            }
        )
