"""The calibration and settings of NbAFL and of its extension by feature priority."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

from fedldp.algorithms.calibration import Calibration
from fedldp.algorithms.nbafl_noise import NbaflNoise, check_smallest, smallest_share
from fedldp.algorithms.preset import Settings
from fedldp.algorithms.problem import EpsilonMeaning, Problem
from fedldp.algorithms.server_update import Values
from fedldp.algorithms.settings import CLIP, WEIGHTING, Count, Offer
from fedldp.mechanisms.gaussian import Gaussian
from fedldp.protocol.roles import Draw

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
            smallest=smallest_share(
                settings.min_client_examples,
                partition=settings.partition,
                num_examples=problem.num_examples,
                num_clients=settings.num_clients,
                num_people=problem.people,
            ),
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


def downlink_noise(sigma: float, size: int, draw: Draw) -> Values:
    """Return the server's own noise of standard deviation ``sigma`` on ``size`` weights (eq. 5)."""
    own = Gaussian(sigma, sigma)
    return own.ball.step * own.noise(size, draw("downlink noise"))
