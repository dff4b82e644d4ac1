"""Settings that clients choose for themselves: one number for all, or a list with one per client.

A client receives only its own value, which is marked because other clients may have different
values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic import ConfigDict

from fedldp.accounting.releases import ClientIndices
from fedldp.core.errors import ConfigError
from fedldp.core.frozen_config import FrozenConfig


class ClientValue(FrozenConfig):
    """The value of one client, which does not know other clients' values."""

    model_config = ConfigDict(strict=True)

    own: float | int


def is_own(values: Any) -> bool:
    """Return whether a setting differs, or may differ, from client to client."""
    return isinstance(values, Sequence | ClientValue) and not isinstance(values, str)


def check_one_each(name: str, values: Any, num_clients: int) -> None:
    """Refuse a list that does not have one value for each client.

    Raises:
        ConfigError: the list has the wrong length.
    """
    if isinstance(values, Sequence) and len(values) != num_clients:
        raise ConfigError(
            f"{name} has {len(values)} values for num_clients = {num_clients}: give one value for "
            "all clients, or one per client"
        )


def of_client(values: float | Sequence[float] | ClientValue, client: int) -> float:
    """Return the value that a client chose."""
    if isinstance(values, ClientValue):
        return values.own
    return values[client] if isinstance(values, Sequence) else values


def of_equal_values(settings: Sequence[Any], num_clients: int) -> list[ClientIndices]:
    """Return the clients in groups that have equal values of all ``settings``.

    Clients ascend within a group, and groups ascend by their first client.

    >>> of_equal_values([2.0, [1.0, 3.0, 1.0]], 3)
    [array([0, 2]), array([1])]
    """
    lists = [each for each in settings if is_own(each) and not isinstance(each, ClientValue)]
    if not lists:
        return [range(num_clients)]
    kinds = np.zeros(num_clients, np.int64)
    for each in lists:
        _, own = np.unique(np.asarray(each), return_inverse=True)
        _, kinds = np.unique(kinds * (1 + own.max()) + own, return_inverse=True)
    order = np.argsort(kinds, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(kinds[order])) + 1)
    return sorted(groups, key=lambda group: int(group[0]))
