"""Settings that clients choose for themselves: one number for all, or a list with one for each.

What a client is told is neither: its own value, marked as such, for others have other ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from fedldp.errors import ConfigError


class Own(BaseModel):
    """The value of one client, which does not know those of the others."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    own: float | int


def is_own(values: Any) -> bool:
    """Return whether a setting differs, or may differ, from client to client."""
    return isinstance(values, Sequence | Own) and not isinstance(values, str)


def check_one_each(name: str, values: Any, num_clients: int) -> None:
    """Refuse a list that does not have one value for each client.

    Raises:
        ConfigError: its length is another.
    """
    if isinstance(values, Sequence) and len(values) != num_clients:
        raise ConfigError(
            f"{name} has {len(values)} values for num_clients = {num_clients}: "
            "give one for all, or one for each client"
        )


def of_client(values: float | Sequence[float] | Own, client: int) -> float:
    """Return the value that a client chose."""
    if isinstance(values, Own):
        return values.own
    return values[client] if isinstance(values, Sequence) else values
