"""What NbAFL and its extension by feature priority have in common: settings and the server."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal

from pydantic import Field

from fedldp.algorithms.server_update import Values, Weighted, read_report
from fedldp.mechanisms.gaussian import Gaussian
from fedldp.parts.nbafl import NbaflNoise, check_smallest, smallest_share
from fedldp.parts.sides import Draw, ServerSide
from fedldp.systems._server import MeanServerConfig
from fedldp.systems.base import Problem
from fedldp.systems.settings import Count, NormBound


class NbaflSettings(MeanServerConfig):
    """Settings of systems that have the noise of NbAFL."""

    clip: NormBound = Field(description="C, the bound on the norm of a client's weights")
    send: Literal["weights", "update"] = Field(
        "weights",
        description="clip and send weights (as published), or their change from the broadcast",
    )
    exposures: Count | None = Field(
        None,
        description="L, the uploads of one client that the noise is sized for; rounds where it is "
        "not set, for every client uploads in every round",
    )
    min_client_examples: Count | None = Field(
        None,
        description="m, the size of the smallest local data set; with partition = iid that of "
        "equal shares where it is not set",
    )
    weighting: Literal["uniform", "examples"] = Field(
        "uniform",
        description="weight of a client in the average: one, or its example count, which it then "
        "releases",
    )

    @property
    def by_examples(self) -> bool:
        """Whether a client sends its example count."""
        return self.weighting == "examples"

    def noise(self, problem: Problem) -> NbaflNoise:
        """Return the published noise levels."""
        return NbaflNoise(
            clip=self.clip,
            delta=self.delta,
            rounds=self.rounds,
            exposures=self.exposures or self.rounds,
            clients=self.round_size,
            smallest=smallest_share(
                self.min_client_examples,
                partition=self.partition,
                num_examples=problem.num_examples,
                num_clients=self.num_clients,
            ),
        )

    @property
    def data_may_refuse(self) -> bool:
        """Whether the data may refuse a run: a client may get too few examples."""
        return True

    def check_shares(self, sizes: Sequence[int]) -> None:
        """Refuse a client with fewer examples than ``min_client_examples``."""
        check_smallest(self.min_client_examples, sizes)

    def averaging(self, problem: Problem, mechanism: Gaussian, epsilon: float) -> ServerSide:
        """Return the server that reads ``mechanism`` and has the noise of ``epsilon`` itself."""
        sigma = self.noise(problem).downlink_sigma(epsilon)
        mean = Weighted(
            read=partial(read_report, mechanism), gives=self.send, by_examples=self.by_examples
        )
        update = self.server_update(mean, noise=partial(downlink_noise, sigma) if sigma else None)
        return update.side(lambda draw: self.first_state(problem, draw))


def downlink_noise(sigma: float, size: int, draw: Draw) -> Values:
    """Return the server's own noise of deviation ``sigma`` on ``size`` weights (eq. 5)."""
    own = Gaussian(sigma, sigma)
    return own.ball.step * own.noise(size, draw("downlink noise"))
