"""PrivUnit FL: a random direction near that of the client's update, and its length, noisy as well.

    Broadcast: weights W
        |
        v
    client_step   local SGD from W
        |         Sensitive weights
        v
    encoder       D = weights - W, scaled down to the norm `clip`; PrivUnit2 of D/||D|| and ScalarDP
        |         of ||D||: the mechanism `privunit_scalar`
        |         Report: 32 d bits, and 8 or 16 for the length
        v
    server_step   W + mean of the unbiased estimates of D -> weights of the next Broadcast

Source: Bhowmick, Duchi, Freudiger, Kapoor, Rogers, "Protection Against Reconstruction and Its
Applications in Private Federated Learning", 2018, section 4. Their budgets are large (500 for
MNIST), for adversaries who know little beforehand and want to reconstruct data; here a budget is
what it is against anyone.

LDP-FL with mechanism = privunit is another system: there one budget protects one direction, which
has the length in it as a further coordinate, and weights may be sent in place of changes.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fedldp.accounting.statement import Claim
from fedldp.mechanisms.privunit_scalar import PrivUnitScalar
from fedldp.systems._mean_change import MeanChangeConfig
from fedldp.systems.base import EpsilonMeaning
from fedldp.systems.settings import NormBound


class PrivUnitFlConfig(MeanChangeConfig):
    """Settings of PrivUnit FL."""

    system: Literal["privunit_fl"] = "privunit_fl"
    epsilon: Annotated[float, Field(ge=1e-3, le=1e38, allow_inf_nan=False)] = Field(
        description="budget of a client's report in one round, direction and length"
    )
    length_share: Annotated[float, Field(ge=0.01, le=0.9, allow_inf_nan=False)] = Field(
        0.1, description="share of epsilon that is for the length, up to 32"
    )
    clip: NormBound = Field(1.0, description="norm bound of one update")

    @property
    def mechanism(self) -> PrivUnitScalar:
        """The randomiser of every client."""
        return PrivUnitScalar(self.epsilon, self.clip, self.length_share)

    @property
    def epsilon_meaning(self) -> EpsilonMeaning:
        """One report, direction and length together; proven, for real numbers."""
        return EpsilonMeaning("client-round", "proven")

    def claim(self) -> Claim | None:
        """Return the paper's claim for one report: the sum of both budgets."""
        return Claim(
            epsilon=self.epsilon,
            delta=0.0,
            unit="client-round",
            source="Bhowmick, Duchi, Freudiger, Kapoor, Rogers 2018, section 4: PrivUnit2 and "
            "ScalarDP, composed",
        )
