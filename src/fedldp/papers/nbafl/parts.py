"""The noise levels, the calibration and the settings of NbAFL and its extension, feature priority.

Source: Wei, Li, Ding, Ma, Yang, Farokhi, Jin, Quek, Poor, "Federated Learning With Differential
Privacy: Algorithms and Performance Analysis", IEEE TIFS 2020; equation numbers are those of Talaei,
Izadi 2024, who restate the equations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal

from fedldp.accounting.guarantees import EpsilonMeaning
from fedldp.algorithms.calibration import Calibration
from fedldp.algorithms.composition import SUBSET, Algorithm, Local
from fedldp.algorithms.preset import Settings
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.server_update import Values
from fedldp.algorithms.settings import Count, NormBound, WeightingSettings
from fedldp.core.errors import ConfigError
from fedldp.core.randomness import Source, declare
from fedldp.mechanisms.gaussian import Gaussian, check_noise
from fedldp.protocol.roles import Draw

if TYPE_CHECKING:
    import torch

    from fedldp.papers.nbafl.training import ClippedSgd

declare(Source.ROUND, "downlink noise")


@dataclass(frozen=True, kw_only=True)
class NbaflNoise:
    """The noise of NbAFL, as published or as in its authors' code; neither proves any privacy.

    The formulas take the sensitivity of a clipped weight vector to be 2 bounded/smallest, as if
    training returned the exact minimiser of an average over the examples. SGD does not return it;
    the clip proves a sensitivity of 2 C. The code's formula is that of their paper on user-level
    privacy; its server adds no noise.

    Attributes:
        bounded: C, the bound on the norm of a weight vector; in the newer code, on the change that
            one step makes for one example.
        delta: the claimed delta.
        rounds: T, the number of rounds.
        exposures: L, the number of one client's uploads, at most ``rounds``.
        clients: N, the number of clients whose weights are averaged in a round.
        smallest: m, the number of examples in the smallest local data set.
        share: q, the share of the clients that take part in a round, for the formula of the code;
            None for eqs. 4 and 5.

    Raises:
        ConfigError: there are more exposures than rounds.

    Source: eqs. 4 and 5; https://github.com/AdamWei-boop/Federated-Learning-with-Local-Differential-Privacy.
    """

    bounded: float
    delta: float
    rounds: int
    exposures: int
    clients: int
    smallest: int
    share: float | None = None

    def __post_init__(self) -> None:
        if self.exposures > self.rounds:
            raise ConfigError(
                f"exposures = {self.exposures}: a client uploads at most once in each of rounds = "
                f"{self.rounds} rounds; give at most that many"
            )

    @property
    def _scale(self) -> float:
        # c times the sensitivity 2 C/m, with c = sqrt(2 ln(1.25/delta)).
        return math.sqrt(2 * math.log(1.25 / self.delta)) * 2 * self.bounded / self.smallest

    def uplink_sigma(self, epsilon: float) -> float:
        """Return the standard deviation of the noise on a client's weights.

        It is c L 2 C/(m epsilon) (eq. 4), or 2 C/m sqrt(2 q T ln(1/delta))/epsilon (the code).
        """
        if self.share is None:
            return self._scale * self.exposures / epsilon
        rounds = math.sqrt(2 * self.share * self.rounds * math.log(1 / self.delta))
        return 2 * self.bounded / self.smallest * rounds / epsilon

    def downlink_sigma(self, epsilon: float) -> float:
        """Return the standard deviation of the server's noise on the average (eq. 5), or 0."""
        excess = self.rounds**2 - self.exposures**2 * self.clients
        if self.share is not None or excess <= 0:
            return 0.0
        return self._scale * math.sqrt(excess) / (self.clients * epsilon)


class NbaflSettings(WeightingSettings):
    """The settings of ``NbaflCalibration``."""

    clip: NormBound
    """C, the largest norm of a client's weights; longer vectors are scaled down to this norm"""
    send: Literal["weights", "update"] = "weights"
    """what is clipped and sent: weights (as published), or update (their change from the broadcast)
    """
    exposures: Count | None = None
    """L, the number of uploads per client that the noise is sized for; if not set, the number of
    rounds, because every client uploads in every round"""
    min_client_examples: Count | None = None
    """m, the number of examples in the smallest local data set; if not set, the size of an equal
    share, which needs partition = iid and no client_column"""


@dataclass(frozen=True, kw_only=True)
class NbaflCalibration(Calibration):
    """The published noise levels, which claim more than the clip proves; see ``NbaflNoise``.

    Attributes:
        settings: the settings in ``OFFERS``, and the run's settings.
        epsilon: the mechanism's epsilon.
        setting: the name of the user's setting for this epsilon.
        as_code: whether the formula is that of the authors' code, with its ``example_clip``.
        meaning: see ``Calibration``.
    """

    uses_rounds: ClassVar[bool] = True

    settings: Settings
    epsilon: float
    setting: str = "epsilon"
    as_code: bool = False
    meaning: EpsilonMeaning | None = None

    def noise(self, problem: Problem) -> NbaflNoise:
        """Return the published noise levels."""
        settings, bounded, share = self.settings, self.settings.clip, None
        exposures = settings.exposures or settings.rounds
        if self.as_code:
            exposures, share = settings.rounds, settings.round_size / settings.num_clients
            if settings.example_clip is not None:
                bounded = settings.learning_rate * settings.example_clip
        return NbaflNoise(
            bounded=bounded,
            delta=settings.delta,
            rounds=settings.rounds,
            exposures=exposures,
            clients=settings.round_size,
            smallest=self.smallest(problem),
            share=share,
        )

    def smallest(self, problem: Problem) -> int:
        """Return m, the number of examples in the smallest local data set, from public facts.

        Raises:
            ConfigError: m is unknown, or larger than an equal share; or there are fewer examples
                than clients.
        """
        settings = self.settings
        least: int | None = settings.min_client_examples
        clients: int = settings.num_clients
        share = problem.num_examples // clients
        if least is not None and least > share:
            raise ConfigError(
                f"min_client_examples = {least}: in equal shares of {problem.num_examples} "
                f"training examples, each of num_clients = {clients} clients has {share}; give at "
                "most that many"
            )
        if least is not None:
            return least
        column = settings.client_column
        if settings.partition != "iid" or problem.people is not None or column is not None:
            how = "client_column" if column else "partition"
            people = "" if problem.people is None else ", and all rows of a person at one client,"
            raise ConfigError(
                f"min_client_examples is not set: with {how} = {getattr(settings, how)}{people} "
                "the size of the smallest local data set is not a public fact; set a lower bound"
            )
        if share == 0:
            raise ConfigError(
                f"num_clients = {clients}: there are only {problem.num_examples} training "
                "examples; give fewer clients"
            )
        return share

    def mechanism(self, problem: Problem, client: int) -> Gaussian:
        """Return the randomiser, which is the same for all clients.

        Raises:
            ConfigError: it cannot be built for the budget.
        """
        noise, clip = self.noise(problem), self.settings.clip
        sigma = noise.uplink_sigma(self.epsilon)
        repeats = f"exposures = {noise.exposures} (rounds if not set)"
        given = (
            f"{self.setting} = {self.epsilon:g}, delta = {noise.delta:g}, "
            f"{f'rounds = {noise.rounds}' if self.as_code else repeats} and min_client_examples = "
            f"{noise.smallest} (num_examples/num_clients if not set)"
        )
        check_noise(clip, sigma, given=given, knob=self.setting)
        return Gaussian(clip, sigma)

    def check_shares(self, sizes: Sequence[int]) -> None:
        """Refuse a client with fewer examples than ``min_client_examples``, or than an equal share.

        Raises:
            ConfigError: the noise would be too small.
        """
        least = self.settings.min_client_examples
        if least is not None and least > min(sizes):
            raise ConfigError(
                f"min_client_examples = {least}: with this partition and seed the smallest client "
                f"has {min(sizes)} examples; give at most that many"
            )
        if least is None and sum(sizes) // len(sizes) > min(sizes):
            raise ConfigError(
                f"min_client_examples is not set: the smallest client has {min(sizes)} examples, "
                f"fewer than an equal share of {sum(sizes)}; set a lower bound"
            )

    def downlink_noise(self, problem: Problem) -> Callable[[int, Draw], Values] | None:
        """Return the server's own noise, if there is any (eq. 5)."""
        sigma = self.noise(problem).downlink_sigma(self.epsilon)
        return partial(downlink_noise, sigma) if sigma else None


@dataclass(frozen=True, kw_only=True)
class ClippedSteps(Local):
    """SGD in which each example's gradient is scaled down to the norm ``example_clip``.

    Attributes:
        settings: the preset's settings.
    """

    uses: ClassVar[frozenset[str]] = frozenset({"class_weights", *SUBSET})
    alone: ClassVar[Literal["row"]] = "row"

    settings: Settings

    def __call__(self, algorithm: Algorithm, device: torch.device) -> ClippedSgd:
        """Return the steps."""
        from fedldp.papers.nbafl.training import ClippedSgd

        return ClippedSgd(algorithm.sgd(device), self.settings.example_clip)


def downlink_noise(sigma: float, size: int, draw: Draw) -> Values:
    """Return the server's own noise of standard deviation ``sigma`` on ``size`` weights (eq. 5)."""
    own = Gaussian(sigma, sigma)
    return own.ball.step * own.noise(size, draw("downlink noise"))
