"""The calibration of noise shares, for a budget on everything that a client sends in a run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

from fedldp.accounting.guarantees import LEAST_FOR_MU
from fedldp.algorithms.bounds import Rotated
from fedldp.algorithms.calibration import Calibration
from fedldp.algorithms.participation import Participation, most_rounds
from fedldp.algorithms.preset import Settings
from fedldp.algorithms.problem import EpsilonMeaning, Problem
from fedldp.core.errors import ConfigError
from fedldp.mechanisms import Mechanism
from fedldp.mechanisms.gaussian_share import SharedGaussian, largest_mu, shared_gaussian


@dataclass(frozen=True, kw_only=True)
class SharesPerRun(Calibration):
    """Shares of noise for a budget that covers all rounds in which a client may take part.

    Attributes:
        settings: the preset's settings.
        bound: the bound on what is sent.
        participation: who takes part in which round.
        bits: the number of bits in the sum's modulus.

    Raises:
        ConfigError: delta is too small.
    """

    uses_rounds: ClassVar[bool] = True
    settings: Settings
    bound: Rotated
    participation: Participation
    bits: int
    meaning: EpsilonMeaning = field(
        default=EpsilonMeaning("client-run", "proven", "summing-server")
    )
    kind: type[Mechanism] = SharedGaussian

    def __post_init__(self) -> None:
        if self.settings.delta < LEAST_FOR_MU:
            raise ConfigError(f"delta = {self.settings.delta:g}: give at least {LEAST_FOR_MU:g}")

    def mechanism(self, problem: Problem, client: int) -> SharedGaussian:
        """Return the mechanism that clips, rounds, and adds a share of the noise.

        Raises:
            ConfigError: the modulus is too small for ``epsilon``, or the model is too large.
        """
        settings, layout = self.settings, self.settings.layout(problem)
        return shared_gaussian(
            self.bound.bound_to(layout).size(layout.size),
            largest_mu(settings.epsilon, settings.delta)
            / math.sqrt(most_rounds(self.participation, client, settings.rounds)),
            shares=settings.fewest_in_sum - settings.untrusted_clients,
            clients=settings.round_size,
            rounds=settings.rounds,
            bits=self.bits,
        )
