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

from fedldp.algorithms.calibration import Calibration
from fedldp.algorithms.composition import Algorithm, Local
from fedldp.algorithms.preset import Settings
from fedldp.algorithms.problem import EpsilonMeaning, Problem
from fedldp.algorithms.server_update import Values
from fedldp.algorithms.settings import CLIP, WEIGHTING, Count, Offer
from fedldp.core.errors import ConfigError
from fedldp.core.randomness import Source, declare
from fedldp.mechanisms.gaussian import Gaussian, check_noise
from fedldp.protocol.roles import Draw

if TYPE_CHECKING:
    import torch

    from fedldp.papers.nbafl.training import ClippedSgd

declare(Source.ROUND, "downlink noise")


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
    def _repeats(self) -> str:
        return f"exposures = {self.exposures} (rounds if not set)"

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
            f"{setting} = {epsilon:g}, delta = {self.delta:g}, {self._repeats} and "
            f"min_client_examples = {self.smallest} (num_examples/num_clients if not set)"
        )
        sigma = self.uplink_sigma(epsilon)
        check_noise(self.clip, sigma, given=given, knob=setting)
        return Gaussian(self.clip, sigma)

    def downlink_sigma(self, epsilon: float) -> float:
        """Return the standard deviation of the server's noise on the average (eq. 5), or 0."""
        excess = self.rounds**2 - self.exposures**2 * self.clients
        return self._scale * math.sqrt(max(excess, 0)) / (self.clients * epsilon)


@dataclass(frozen=True, kw_only=True)
class NoiseOfCode(NbaflNoise):
    """The noise in the code of NbAFL's authors; its formula does not prove any privacy either.

    The formula is that of their paper on user-level privacy. The server adds no noise.

    Attributes:
        bounded: what takes the place of C: a bound on a client's weights, or on the change that one
            step makes for one example.
        share: q, the share of the clients that take part in a round.

    Source: https://github.com/AdamWei-boop/Federated-Learning-with-Local-Differential-Privacy.
    """

    bounded: float
    share: float

    @property
    def _repeats(self) -> str:
        return f"rounds = {self.rounds}"

    def uplink_sigma(self, epsilon: float) -> float:
        """Return 2 C/m sqrt(2 q T ln(1/delta))/epsilon."""
        rounds = math.sqrt(2 * self.share * self.rounds * math.log(1 / self.delta))
        return 2 * self.bounded / self.smallest * rounds / epsilon

    def downlink_sigma(self, epsilon: float) -> float:
        """Return 0."""
        return 0.0


OFFERS = (
    CLIP.but(
        meaning="C, the largest norm of a client's weights; longer vectors are scaled down to "
        "this norm"
    ),
    Offer(
        "send",
        Literal["weights", "update"],
        "what is clipped and sent: weights (as published), or update (their change from the "
        "broadcast)",
        "weights",
    ),
    Offer(
        "exposures",
        Count | None,
        "L, the number of uploads per client that the noise is sized for; if not set, the number "
        "of rounds, because every client uploads in every round",
        None,
    ),
    Offer(
        "min_client_examples",
        Count | None,
        "m, the number of examples in the smallest local data set; if not set, the size of an "
        "equal share, which needs partition = iid",
        None,
    ),
    WEIGHTING,
)


@dataclass(frozen=True, kw_only=True)
class NbaflCalibration(Calibration):
    """The published noise levels, which claim more than the clip proves; see ``NbaflNoise``.

    Attributes:
        settings: the settings in ``OFFERS``, and the run's settings.
        epsilon: the mechanism's epsilon.
        setting: the name of the user's setting for this epsilon.
        meaning: see ``Calibration``.
    """

    uses_rounds: ClassVar[bool] = True
    data_may_refuse: ClassVar[bool] = True  # a client may get too few examples

    settings: Settings
    epsilon: float
    setting: str = "epsilon"
    meaning: EpsilonMeaning | None = None

    def noise(self, problem: Problem) -> NbaflNoise:
        """Return the published noise levels."""
        settings = self.settings
        return NbaflNoise(
            clip=settings.clip,
            delta=settings.delta,
            rounds=settings.rounds,
            exposures=settings.exposures or settings.rounds,
            clients=settings.round_size,
            smallest=self.smallest(problem),
        )

    def smallest(self, problem: Problem) -> int:
        """Return m; see ``smallest_share``."""
        settings = self.settings
        return smallest_share(
            settings.min_client_examples,
            partition=settings.partition,
            num_examples=problem.num_examples,
            num_clients=settings.num_clients,
            num_people=problem.people,
        )

    def mechanism(self, problem: Problem, client: int) -> Gaussian:
        """Return the randomiser, which is the same for all clients."""
        return self.noise(problem).mechanism(self.epsilon, self.setting)

    def check_shares(self, sizes: Sequence[int]) -> None:
        """Refuse a client with fewer examples than ``min_client_examples``."""
        check_smallest(self.settings.min_client_examples, sizes)

    def downlink_noise(self, problem: Problem) -> Callable[[int, Draw], Values] | None:
        """Return the server's own noise, if there is any (eq. 5)."""
        sigma = self.noise(problem).downlink_sigma(self.epsilon)
        return partial(downlink_noise, sigma) if sigma else None


@dataclass(frozen=True, kw_only=True)
class CodeCalibration(NbaflCalibration):
    """The noise levels in the code of NbAFL's authors; see ``NoiseOfCode``."""

    def noise(self, problem: Problem) -> NbaflNoise:
        """Return the noise levels."""
        settings = self.settings
        bounded = settings.clip
        if settings.example_clip is not None:
            bounded = settings.learning_rate * settings.example_clip
        return NoiseOfCode(
            clip=settings.clip,
            delta=settings.delta,
            rounds=settings.rounds,
            exposures=settings.rounds,
            clients=settings.round_size,
            smallest=self.smallest(problem),
            bounded=bounded,
            share=settings.round_size / settings.num_clients,
        )


@dataclass(frozen=True, kw_only=True)
class ClippedSteps(Local):
    """SGD in which each example's gradient is scaled down to the norm ``example_clip``.

    Attributes:
        settings: the preset's settings.
    """

    weighs_classes: ClassVar[bool] = True
    trains_part: ClassVar[bool] = True
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
