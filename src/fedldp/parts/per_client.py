"""Settings that clients choose for themselves: one number for all, or a list with one for each."""

from __future__ import annotations

from collections.abc import Sequence

from fedldp.errors import ConfigError


def check_one_each(name: str, values: float | Sequence[float] | None, num_clients: int) -> None:
    """Refuse a list that does not have one value for each client.

    Raises:
        ConfigError: its length is another.
    """
    if isinstance(values, Sequence) and len(values) != num_clients:
        raise ConfigError(
            f"{name} has {len(values)} values for num_clients = {num_clients}: "
            "give one for all, or one for each client"
        )


def of_client(values: float | Sequence[float], client: int) -> float:
    """Return the value that a client chose."""
    return values[client] if isinstance(values, Sequence) else values
