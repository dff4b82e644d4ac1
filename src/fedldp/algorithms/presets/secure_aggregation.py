"""Secure aggregation: FedAvg whose server sees only the sum of the clients' weights.

    Broadcast: weights
        |
        v
    dialogue      of ``secure_sum.client``, four phases in one round:
        |           advertise    two public keys of each client
        |           share keys   sealed Shamir shares of its two secrets
        |           masked input local update: local SGD; encoder: fixed point + masks, modular
        |           unmask       shares that remove the masks of clients that stayed and that left
        |         Report: the sum of codes of the clients that stayed, exact
        v
    server_step   sum/count -> weights of the next Broadcast

Clients may drop out at any point, as long as ``threshold`` stay; ``dropout`` simulates that. A
round in which fewer stay has no sum, and leaves the weights unchanged. The sum itself is exact and
unprotected: this is not differential privacy. ``secure_sum.client`` says what a cheating server
could do.

Source: Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning", CCS
2017, the honest-but-curious protocol. The mean is uniform, because example counts would be sent in
the clear.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fedldp.algorithms.bounds import InBox
from fedldp.algorithms.calibration import Fixed
from fedldp.algorithms.channel import MaskedSum
from fedldp.algorithms.composition import Composition
from fedldp.algorithms.preset import Settings, preset
from fedldp.algorithms.settings import Mark, Offers, Positive
from fedldp.core.errors import ConfigError
from fedldp.mechanisms.codes import ClippedCodes


class SecureAggregation(Offers):
    """The settings of secure aggregation."""

    clip: Positive = 8.0
    """largest magnitude of one weight; larger weights are clipped to it"""
    dropout: Annotated[float, Field(ge=0, lt=1), Mark.SIMULATED] = 0.0
    """probability that a simulated client leaves in the middle of a round"""


@preset(SecureAggregation)
def secure_aggregation(settings: Settings) -> Composition:
    """Secure aggregation, which claims no differential privacy."""
    clients = settings.round_size
    if clients == 1:
        name = "num_clients" if settings.clients_per_round is None else "clients_per_round"
        raise ConfigError(f"{name} = 1: the sum of one report hides nothing; give 2 or more")
    codes = ClippedCodes(clip=settings.clip)
    channel = MaskedSum(dropout=settings.dropout, committees=settings.committees)
    channel.check(codes.summing(1, channel.committees.most), settings.fewest_in_sum)
    return Composition(
        bound=InBox(most=settings.clip),
        calibration=Fixed(every=codes),
        channel=channel,
    )
