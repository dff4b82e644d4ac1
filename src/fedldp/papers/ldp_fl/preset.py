"""LDP-FL: one randomised bit for each weight, sent by itself through a shuffler.

    Broadcast: weights W, ranges (c, r) of every layer
        |
        v
    local_update  local SGD from W
        |         Sensitive weights
        v
    encoder       x = (w - c)/r, clipped to [-1, 1]; two-point randomiser (eq. 2)
        |         Report: d bits, as messages of `chunk` coordinates
        v
    shuffler      Algorithm 3, for bits: messages from all clients in order of arrival
        |
        v
    server_step   count of ones per coordinate -> mean = c + r K (2 ones/n - 1) (line 10)
                  adaptive ranges from the mean (lines 11-13) -> next Broadcast

Source: L. Sun, J. Qian, X. Chen, "LDP-FL: Practical Private Aggregation in Federated Learning with
Local Differential Privacy", IJCAI 2021. The paper states neither the batch size nor the local
epochs, and does not say which small VGG it trains. Clients' ranges are computed only from the
server's weights, never from private ones.
"""

from __future__ import annotations

from typing import Annotated, Literal

from fedldp.accounting.statement import Claim
from fedldp.algorithms.bounds import InRange, RangeSettings
from fedldp.algorithms.calibration import PerReport
from fedldp.algorithms.channel import Channel
from fedldp.algorithms.composition import Composition, Sgd
from fedldp.algorithms.preset import Settings, preset
from fedldp.algorithms.server_update import OwnMean
from fedldp.algorithms.settings import (
    AugmentationSettings,
    ClientValue,
    Mark,
    MomentumSettings,
    Offers,
    Positive,
    check_one_each,
    of_client,
)
from fedldp.mechanisms import BitMechanism


class LdpFl(Offers):
    """The settings of LDP-FL, besides those of ranges and of SGD."""

    mechanism: str = "two_point"
    """the mechanism that randomises reports: a name from `fedldp list mechanisms`, or
    "module:Class" for your own; the paper uses two_point"""
    epsilon: Annotated[Positive | list[Positive] | ClientValue, Mark.PER_CLIENT]
    """budget for one weight (two_point, sign, k_rr, unary, cldp), or for a client's report in one
    round (all other mechanisms); a list gives each client its own budget"""
    clip: Positive = 1.0
    """largest norm of the vector scaled to the ranges, for mechanisms that randomise whole vectors
    """
    send: Literal["weights", "update"] = "weights"
    """what clients send: weights (as in the paper), or update (their change from the broadcast)"""


@preset(LdpFl, MomentumSettings, AugmentationSettings, RangeSettings)
def ldp_fl(settings: Settings) -> Composition:
    """LDP-FL; its paper has no claim on mechanisms other than two_point.

    Reports of one bit for each weight go through the shuffler, unless ``channel`` says otherwise.
    """
    check_one_each("epsilon", settings.epsilon, settings.num_clients)
    calibration = PerReport(settings=settings)
    shuffles = issubclass(calibration.kind, BitMechanism) and settings.channel != "named"
    bound = InRange.of(settings)
    return Composition(
        local=Sgd(momentum=settings.momentum, augmentation=settings.augmentation),
        bound=bound,
        calibration=calibration,
        channel=Channel.of(settings, "shuffle" if shuffles else "named"),
        estimate=OwnMean(scale=calibration.scale),
        claim=claim(settings),
        unused=bound.unused,
    )


def claim(settings: Settings) -> Claim | None:
    """Return the paper's claim, epsilon per weight."""
    if settings.mechanism != "two_point":
        return None
    epsilon = settings.epsilon
    return Claim(
        epsilon=max(epsilon) if isinstance(epsilon, list) else of_client(epsilon, 0),
        delta=0.0,
        unit="weight",
        source="Sun, Qian, Chen 2021, Theorem 1 and Section 4, Parameter Shuffling",
    )
