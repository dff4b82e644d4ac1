"""PrivUnit FL: a random direction near the direction of the client's update, and a noisy length.

    Broadcast: weights W
        |
        v
    local_update  local SGD from W
        |         Sensitive weights
        v
    encoder       D = weights - W, scaled down to the norm `clip`; PrivUnit2 of D/||D|| and ScalarDP
        |         of ||D||: the mechanism `privunit_scalar`
        |         Report: 32 d bits, and 8 or 16 for the length
        v
    server_step   W + mean of the unbiased estimates of D -> weights of the next Broadcast

Source: Bhowmick, Duchi, Freudiger, Kapoor, Rogers, "Protection Against Reconstruction and Its
Applications in Private Federated Learning", 2018, section 4. Their budgets are large (500 for
MNIST), against adversaries who know little beforehand and want to reconstruct data. Here a budget
holds against anyone.

LDP-FL with mechanism = privunit is another system: there one budget protects one direction, with
the length as an additional coordinate, and clients may send weights instead of changes.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fedldp.accounting.guarantees import EpsilonMeaning
from fedldp.accounting.statement import Claim
from fedldp.algorithms.bounds import Unbounded
from fedldp.algorithms.calibration import Fixed
from fedldp.algorithms.composition import Composition
from fedldp.algorithms.preset import Settings, preset
from fedldp.algorithms.settings import NormBound, Offers
from fedldp.papers.privunit_fl.mechanism import PrivUnitScalar

Budget = Annotated[float, Field(ge=1e-3, le=1e38, allow_inf_nan=False)]


class PrivUnitFl(Offers):
    """The settings of PrivUnit FL."""

    epsilon: Budget
    """budget for a client's report in one round, for direction and length together"""
    clip: NormBound = 1.0
    """largest L2 norm of one update; longer updates are scaled down to this norm"""


@preset(PrivUnitFl)
def privunit_fl(settings: Settings) -> Composition:
    """PrivUnit FL; its budget is proven for real numbers."""
    mechanism = PrivUnitScalar(settings.epsilon, settings.clip)
    return Composition(
        bound=Unbounded(send="update"),  # the mechanism bounds the norm itself
        calibration=Fixed(every=mechanism, meaning=EpsilonMeaning("client-round", "proven")),
        claim=Claim(
            epsilon=settings.epsilon,
            delta=0.0,
            unit="client-round",
            source="Bhowmick, Duchi, Freudiger, Kapoor, Rogers 2018, section 4: PrivUnit2 and "
            "ScalarDP, composed",
        ),
    )
