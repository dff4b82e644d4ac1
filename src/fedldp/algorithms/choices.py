"""Settings that clients choose for themselves: epsilon and delta of their budgets, and their clips.

A server knows the choices of all clients; a client knows only its own choices.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedldp.algorithms.per_client import ClientValue, check_one_each
from fedldp.algorithms.run_settings import RunSettings
from fedldp.algorithms.settings import Delta, NormBound, Offer, Positive
from fedldp.core.errors import ConfigError

Choice = float | Sequence[float] | ClientValue
"""One value for all clients, a list with one value per client, or one client's own value."""

EPSILON = Offer("epsilon", Positive | list[Positive] | ClientValue, per_client=True)
CLIENT_DELTA = Offer(
    "client_delta", Delta | list[Delta] | ClientValue | None, default=None, per_client=True
)
CLIP = Offer("clip", NormBound | list[NormBound] | ClientValue, per_client=True)


def check_each(settings: RunSettings) -> None:
    """Refuse lists that do not have one value for each client.

    Raises:
        ConfigError: a list has the wrong length.
    """
    for name in settings.per_client:
        check_one_each(name, getattr(settings, name), settings.num_clients)


def check_whole(settings: RunSettings) -> None:
    """Refuse one client's own settings where the choices of all clients are needed.

    Raises:
        ConfigError: a setting has only one client's own value.
    """
    for name in settings.per_client:
        value = getattr(settings, name)
        if isinstance(value, ClientValue):
            raise ConfigError(
                f"{name} = {value.own} is the value of one client, but a server needs the values "
                "of all clients; give one value for all, or a list with one value per client"
            )
