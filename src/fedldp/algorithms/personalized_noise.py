"""The noise of personalised LDP as published, which claims what the clip does not prove."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar

from fedldp.algorithms.bounds import InBox
from fedldp.algorithms.calibration import Calibration
from fedldp.algorithms.choices import check_each
from fedldp.algorithms.per_client import of_client
from fedldp.algorithms.preset import Settings
from fedldp.algorithms.problem import EpsilonMeaning, Problem
from fedldp.core.bounding import Box
from fedldp.core.errors import ConfigError
from fedldp.mechanisms.gaussian import Gaussian, check_noise
from fedldp.mechanisms.grids import LARGEST_CLIP
from fedldp.mechanisms.sign import Sign, paper_sigma

MEANING = EpsilonMeaning("record", "claimed")


def has_noise(settings: Settings) -> bool:
    """Return whether clients randomise anything."""
    return settings.perturbation in ("gaussian", "sign")


def sends_signs(settings: Settings) -> bool:
    """Return whether clients and server reduce weights to their signs."""
    return settings.perturbation in ("sign", "bare-sign")


def check(settings: Settings) -> None:
    """Refuse settings that do not fit each other.

    Raises:
        ConfigError: they do not.
    """
    check_each(settings)
    named = f"perturbation = {settings.perturbation}"
    if not has_noise(settings) and settings.aggregation != "mean":
        raise ConfigError(
            f"aggregation = {settings.aggregation}: it weighs clients by their noise, and {named} "
            "has none; set aggregation = mean"
        )
    if has_noise(settings) and settings.epsilon is None:
        raise ConfigError(
            f"epsilon is not set, and {named} needs it: give one number for all, or one for each "
            "client"
        )
    none = settings.server_optimizer == "none"
    if sends_signs(settings) and not (none and settings.server_rate == 1):
        setting = (
            f"server_rate = {settings.server_rate:g}"
            if none
            else f"server_optimizer = {settings.server_optimizer}"
        )
        raise ConfigError(
            f"{setting} and {named}: the server takes the sign of the mean for the next weights, "
            "which no step leads to; set server_optimizer = none and server_rate = 1, or "
            "perturbation = gaussian"
        )
    if settings.perturbation == "gaussian" and settings.sampling_probability == 1:
        raise ConfigError(
            "sampling_probability = 1: the paper's sigma divides by 1 - q; give less than 1 "
            "where perturbation = gaussian"
        )
    drawn = settings.clients_per_round
    if settings.aggregation == "selection" and drawn not in (None, settings.num_clients):
        raise ConfigError(
            f"clients_per_round = {drawn}: with aggregation = selection the server selects among "
            "the reports of all clients; leave it out"
        )
    if settings.aggregation == "selection" and settings.participation == "once":
        raise ConfigError(
            "participation = once and aggregation = selection: the server selects among the "
            "reports of all clients; set participation = all"
        )


def unused(settings: Settings) -> Mapping[str, str]:
    """Return the settings that change nothing beside the others, and why."""
    found = {}
    if not has_noise(settings):
        reason = f"perturbation = {settings.perturbation} has no noise"
        found = {"epsilon": reason, "client_delta": reason}
    if settings.aggregation != "selection":
        found["empty_selection"] = f"aggregation = {settings.aggregation} selects nobody"
    return found


@dataclass(frozen=True, kw_only=True)
class PublishedNoise(Calibration):
    """The paper's sigma_i of each client, for Gaussian noise or for randomised signs.

    The box of the clip has corners 2 c_i sqrt(d) apart, which is the Gaussian's sensitivity. Each
    sign is a bit of its own, as every coordinate may be at either end of its range.

    Attributes:
        settings: of the preset; they have an epsilon.
        meaning: see ``Calibration``.
    """

    uses_rounds: ClassVar[bool] = True

    settings: Settings
    meaning: EpsilonMeaning = field(default=MEANING)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", Sign if sends_signs(self.settings) else Gaussian)

    def budget(self, client: int) -> tuple[float, float]:
        """Return (epsilon_i, delta_i) of a client."""
        settings = self.settings
        delta = settings.delta if settings.client_delta is None else settings.client_delta
        return of_client(settings.epsilon, client), of_client(delta, client)

    def largest_budget(self) -> tuple[float, float]:
        """Return the budget of the client that has the largest epsilon."""
        return max(self.budget(client) for client in range(self.settings.num_clients))

    def sigma(self, client: int) -> float:
        """Return sigma_i."""
        epsilon, delta = self.budget(client)
        settings = self.settings
        if sends_signs(self.settings):
            return paper_sigma(epsilon, delta, sensitivity=2 * of_client(settings.clip, client))
        return moments_sigma(epsilon, delta, settings.sampling_probability, settings.rounds)

    def mechanism(self, problem: Problem, client: int) -> Gaussian | Sign:
        """Return the randomiser of one client; see ``Calibration``."""
        return self.of_size(client, self.settings.layout(problem).size)

    def of_size(self, client: int, size: int) -> Gaussian | Sign:
        """Return the randomiser of one client for ``size`` weights.

        Raises:
            ConfigError: it does not go so far.
        """
        make = self._sign if sends_signs(self.settings) else self._gaussian
        return make(client, of_client(self.settings.clip, client), self.sigma(client), size)

    def _gaussian(self, client: int, clip: float, sigma: float, size: int) -> Gaussian:
        norm = InBox(box=Box(clip)).limit(2, size)
        if norm > LARGEST_CLIP:
            raise ConfigError(
                f"clip = {clip:g} of client {client}: {size} weights then have norms up to "
                f"{norm:g}, above {LARGEST_CLIP:g}; give at most {LARGEST_CLIP / norm * clip:.6g}"
            )
        epsilon, delta = self.budget(client)
        given = (
            f"epsilon = {epsilon:g}, clip = {clip:g} and client_delta = {delta:g} (delta, where it "
            f"is not set) of client {client}, with sampling_probability = "
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
                f"epsilon = {epsilon:g} and client_delta = {delta:g} (delta, where it is not set) "
                f"of client {client}: that makes noise of {sigma / clip:g} times clip, too "
                f"{'much' if sigma > clip else 'little'} to randomise signs; give a "
                f"{'larger' if sigma > clip else 'smaller'} epsilon"
            ) from error


def moments_sigma(epsilon: float, delta: float, sampling_probability: float, rounds: int) -> float:
    """Return sigma_i of the Gaussian: sigma_i^2 = 4 q^2 R/(1-q) (2 ln(1/delta)/eps^2 + 1/eps).

    The grouping follows from the sources. The moments of R steps are at most
    R q^2 l (l+1)/((1-q) sigma^2) for a sensitivity of 1 (Abadi et al. 2016, Lemma 3), and their
    tail bound (Theorem 2) with l = 2 ln(1/delta)/eps asks for a variance of
    2 q^2 R/(1-q) (2 ln(1/delta)/eps^2 + 1/eps). So the paper's expression is a variance, and its
    first two factors are one fraction. It has 4 for 2, whose reason we did not find; 4 is kept.
    The lemma holds only for q < 1/(16 sigma) and up to terms in q^3, and not for the paper's q of
    0.8 and 0.9. Sigma does not depend on the clip.

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
