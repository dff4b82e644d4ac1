"""The noise levels that NbAFL and its extension by feature priority share.

Source: Wei, Li, Ding, Ma, Yang, Farokhi, Jin, Quek, Poor, "Federated Learning With Differential
Privacy: Algorithms and Performance Analysis", IEEE TIFS 2020; equation numbers are those of Talaei,
Izadi 2024, who restate the equations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedldp.core.errors import ConfigError
from fedldp.mechanisms.gaussian import Gaussian, check_noise


def smallest_share(
    setting: int | None,
    *,
    partition: str,
    num_examples: int,
    num_clients: int,
    num_people: int | None = None,
) -> int:
    """Return m, the number of examples in the smallest local data set, from public facts.

    Raises:
        ConfigError: m is unknown, or larger than an equal share; or there are fewer examples than
            clients.
    """
    share = num_examples // num_clients
    if setting is not None:
        if setting > share:
            raise ConfigError(
                f"min_client_examples = {setting}: in equal shares of {num_examples} training "
                f"examples, each of num_clients = {num_clients} clients has {share}; give at most "
                "that many"
            )
        return setting
    if partition != "iid":
        raise ConfigError(
            f"min_client_examples is not set: with partition = {partition} the size of the "
            "smallest local data set is not a public fact; set a lower bound"
        )
    if num_people is not None:
        raise ConfigError(
            "min_client_examples is not set: all rows of a person go to one client, and people "
            "have different numbers of rows, so the size of the smallest local data set is not a "
            "public fact; set a lower bound"
        )
    if share == 0:
        raise ConfigError(
            f"num_clients = {num_clients}: there are only {num_examples} training examples; give "
            "fewer clients"
        )
    return share


def check_smallest(setting: int | None, sizes: Sequence[int]) -> None:
    """Refuse an m that is larger than the number of examples of some simulated client.

    Args:
        setting: m, if it is set.
        sizes: how many examples each client has.

    Raises:
        ConfigError: the noise would be too small.
    """
    if setting is not None and setting > min(sizes):
        raise ConfigError(
            f"min_client_examples = {setting}: with this partition and seed the smallest client "
            f"has {min(sizes)} examples; give at most that many"
        )


@dataclass(frozen=True, kw_only=True)
class NbaflNoise:
    """The noise of NbAFL, as published; its formulas do not prove any privacy.

    The formulas take the sensitivity of a clipped weight vector to be 2 clip/smallest, as if
    training returned the exact minimiser of an average over the examples. SGD does not return it;
    the clip proves a sensitivity of 2 clip.

    Attributes:
        clip: C, the bound on the norm of a weight vector.
        delta: the claimed delta.
        rounds: T, the number of rounds.
        exposures: L, the number of one client's uploads, at most ``rounds``.
        clients: N, the number of clients whose weights are averaged in a round.
        smallest: m, the number of examples in the smallest local data set.

    Raises:
        ConfigError: there are more exposures than rounds.
    """

    clip: float
    delta: float
    rounds: int
    exposures: int
    clients: int
    smallest: int

    def __post_init__(self) -> None:
        if self.exposures > self.rounds:
            raise ConfigError(
                f"exposures = {self.exposures}: a client uploads at most once in each of rounds = "
                f"{self.rounds} rounds; give at most that many"
            )

    @property
    def _scale(self) -> float:
        # c times the sensitivity 2 C/m, with c = sqrt(2 ln(1.25/delta)).
        return math.sqrt(2 * math.log(1.25 / self.delta)) * 2 * self.clip / self.smallest

    def uplink_sigma(self, epsilon: float) -> float:
        """Return the standard deviation of the noise on a client's weights (eq. 4)."""
        return self._scale * self.exposures / epsilon

    def mechanism(self, epsilon: float, setting: str = "epsilon") -> Gaussian:
        """Return the mechanism that clips a client's vector and adds the noise for ``epsilon``.

        Args:
            epsilon: the budget.
            setting: the name of the user's setting for the budget.

        Raises:
            ConfigError: the mechanism cannot be built for the budget.
        """
        given = (
            f"{setting} = {epsilon:g}, delta = {self.delta:g}, exposures = {self.exposures} "
            "(rounds if not set) and min_client_examples = "
            f"{self.smallest} (num_examples/num_clients if not set)"
        )
        sigma = self.uplink_sigma(epsilon)
        check_noise(self.clip, sigma, given=given, knob=setting)
        return Gaussian(self.clip, sigma)

    def downlink_sigma(self, epsilon: float) -> float:
        """Return the standard deviation of the server's noise on the average (eq. 5), or 0."""
        excess = self.rounds**2 - self.exposures**2 * self.clients
        return self._scale * math.sqrt(max(excess, 0)) / (self.clients * epsilon)
