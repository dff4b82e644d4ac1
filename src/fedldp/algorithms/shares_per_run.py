"""The calibration of shares of noise, for a budget of all that a client sends in a run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from fedldp.algorithms.bounds import Rotated
from fedldp.algorithms.calibration import Calibration
from fedldp.algorithms.participation import Participation, most_rounds
from fedldp.algorithms.preset import Settings
from fedldp.algorithms.problem import EpsilonMeaning, Problem
from fedldp.mechanisms import Mechanism
from fedldp.mechanisms.gaussian_share import SharedGaussian, largest_mu, shared_gaussian


@dataclass(frozen=True, kw_only=True)
class SharesPerRun(Calibration):
    """Shares of noise for a budget of as many rounds as a client takes part in at most.

    Attributes:
        settings: of the preset.
        bound: of a change.
        participation: who takes part when.
    """

    uses_rounds: ClassVar[bool] = True
    settings: Settings
    bound: Rotated
    participation: Participation
    meaning: EpsilonMeaning
    kind: type[Mechanism] = SharedGaussian

    def mechanism(self, problem: Problem, client: int) -> SharedGaussian:
        """Return what clips, rounds, and adds a share of the noise.

        Raises:
            ConfigError: the modulus cannot hold what ``epsilon`` asks for; the model is too large.
        """
        settings = self.settings
        return shared_gaussian(
            self.bound.size(settings.layout(problem).size),
            largest_mu(settings.epsilon, settings.delta)
            / math.sqrt(most_rounds(self.participation, client, settings.rounds)),
            shares=settings.fewest_in_round - settings.untrusted_clients,
            clients=settings.round_size,
            rounds=settings.rounds,
            bits=settings.bits,
        )
