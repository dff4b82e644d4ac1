"""The published noise of personalised LDP, which claims more than the clip proves."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar

from fedldp.algorithms.bounds import InBox
from fedldp.algorithms.calibration import Calibration
from fedldp.algorithms.per_client import of_client
from fedldp.algorithms.preset import Settings
from fedldp.algorithms.problem import EpsilonMeaning, Problem
from fedldp.core.bounding import Box
from fedldp.core.errors import ConfigError
from fedldp.mechanisms.gaussian import Gaussian, check_noise
from fedldp.mechanisms.grids import LARGEST_CLIP
from fedldp.mechanisms.sign import Sign, paper_sigma

MEANING = EpsilonMeaning("record", "claimed")


@dataclass(frozen=True, kw_only=True)
class PublishedNoise(Calibration):
    """The paper's sigma_i for each client, for Gaussian noise or for randomised signs.

    Opposite corners of the clip's box are 2 c_i sqrt(d) apart, which is the sensitivity for the
    Gaussian. Each sign counts as a separate bit, because every coordinate may be at either end of
    its range.

    Attributes:
        settings: the preset's settings; they have an epsilon.
        meaning: see ``Calibration``.
    """

    uses_rounds: ClassVar[bool] = True

    settings: Settings
    meaning: EpsilonMeaning = field(default=MEANING)

    @property
    def signs(self) -> bool:
        """Whether clients send signs."""
        return bool(self.settings.perturbation == "sign")

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", Sign if self.signs else Gaussian)

    def budget(self, client: int) -> tuple[float, float]:
        """Return (epsilon_i, delta_i) for a client."""
        settings = self.settings
        delta = settings.delta if settings.client_delta is None else settings.client_delta
        return of_client(settings.epsilon, client), of_client(delta, client)

    def largest_budget(self) -> tuple[float, float]:
        """Return the budget of the client with the largest epsilon."""
        return max(self.budget(client) for client in range(self.settings.num_clients))

    def sigma(self, client: int) -> float:
        """Return sigma_i."""
        epsilon, delta = self.budget(client)
        settings = self.settings
        if self.signs:
            return paper_sigma(epsilon, delta, sensitivity=2 * of_client(settings.clip, client))
        return moments_sigma(epsilon, delta, settings.sampling_probability, settings.rounds)

    def mechanism(self, problem: Problem, client: int) -> Gaussian | Sign:
        """Return the randomiser for one client; see ``Calibration``."""
        return self.of_size(client, self.settings.layout(problem).size)

    def of_size(self, client: int, size: int) -> Gaussian | Sign:
        """Return one client's randomiser for ``size`` weights.

        Raises:
            ConfigError: the randomiser cannot be built for the client's budget.
        """
        make = self._sign if self.signs else self._gaussian
        return make(client, of_client(self.settings.clip, client), self.sigma(client), size)

    def _gaussian(self, client: int, clip: float, sigma: float, size: int) -> Gaussian:
        norm = InBox(box=Box(clip)).limit(2, size)
        if norm > LARGEST_CLIP:
            raise ConfigError(
                f"clip = {clip:g} for client {client}: {size} weights then have norms up to "
                f"{norm:g}, above {LARGEST_CLIP:g}; give at most {LARGEST_CLIP / norm * clip:.6g}"
            )
        epsilon, delta = self.budget(client)
        given = (
            f"epsilon = {epsilon:g}, clip = {clip:g} and client_delta = {delta:g} (delta if not "
            f"set) for client {client}, with sampling_probability = "
            f"{self.settings.sampling_probability:g} and rounds = {self.settings.rounds}"
        )
        check_noise(norm, sigma, given=given, knob="epsilon or clip")
        return _gaussian(norm, sigma)

    def _sign(self, client: int, clip: float, sigma: float, size: int) -> Sign:
        try:
            return _sign(clip, sigma)
        except ConfigError as error:
            epsilon, delta = self.budget(client)
            raise ConfigError(
                f"epsilon = {epsilon:g} and client_delta = {delta:g} (delta if not set) for "
                f"client {client}: the noise is then {sigma / clip:g} times clip, too "
                f"{'much' if sigma > clip else 'little'} to randomise signs; give a "
                f"{'larger' if sigma > clip else 'smaller'} epsilon"
            ) from error


def moments_sigma(epsilon: float, delta: float, sampling_probability: float, rounds: int) -> float:
    """Return sigma_i of the Gaussian: sigma_i^2 = 4 q^2 R/(1-q) (2 ln(1/delta)/eps^2 + 1/eps).

    The sources show how the factors are grouped. The moments of R steps are at most R q^2 l
    (l+1)/((1-q) sigma^2) for a sensitivity of 1 (Abadi et al. 2016, Lemma 3). Their tail bound
    (Theorem 2) with l = 2 ln(1/delta)/eps requires a variance of 2 q^2 R/(1-q) (2 ln(1/delta)/eps^2
    + 1/eps). So the paper's expression is a variance, and its first two factors are one fraction.
    The paper has 4 in place of 2; we did not find the reason, and keep 4. The lemma holds only for
    q < 1/(16 sigma) and up to terms in q^3, and not for the paper's q of 0.8 and 0.9. Sigma does
    not depend on the clip.

    >>> round(moments_sigma(1.0, 1 / 500, 0.8, 10), 6)
    41.460097
    """
    q = sampling_probability
    tail = 2 * math.log(1 / delta) / epsilon**2 + 1 / epsilon
    return math.sqrt(4 * q**2 * rounds / (1 - q) * tail)


@lru_cache(maxsize=4096)
def _gaussian(norm: float, sigma: float) -> Gaussian:
    return Gaussian(norm, sigma)


@lru_cache(maxsize=4096)
def _sign(clip: float, sigma: float) -> Sign:
    return Sign(clip, sigma)
