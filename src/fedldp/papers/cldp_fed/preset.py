"""CLDP-Fed: each weight's change, in whole steps, is replaced by a random number near it.

    Broadcast: weights W
        |
        v
    local_update  local SGD from W, on the k clients of the round
        |         Sensitive weights
        v
    encoder       v = round(10^precision D), D = weights - W clipped to [-c, c]; the number v' from
        |         -c 10^precision to c 10^precision with probability ~ exp(-alpha |v - v'|/2)
        |         Report: 8, 16, 32 or 64 bits for each weight
        v
    server_step   W + mean of v'/10^precision -> weights of the next Broadcast

Source: S. Truex, L. Liu, K.-H. Chow, M. E. Gursoy, W. Wei, "LDP-Fed: Federated Learning with Local
Differential Privacy", EdgeSys 2020. This is the variant with condensed privacy. Here all layers are
sent in every round; in the paper, a client may send only some of them, in cycles.

Condensed privacy, alpha, covers changes that differ by one step. The statement says how much of
this protection remains for changes that differ by up to 2 c 10^precision steps, in all weights at
once.
"""

from __future__ import annotations

from fedldp.accounting.statement import Claim
from fedldp.algorithms.bounds import Unbounded
from fedldp.algorithms.calibration import Fixed
from fedldp.algorithms.composition import Composition
from fedldp.algorithms.preset import Settings, preset
from fedldp.algorithms.settings import NormBound, Offers, Positive
from fedldp.papers.cldp_fed.mechanism import CLDP


class CldpFed(Offers):
    """The settings of CLDP-Fed."""

    alpha: Positive
    """budget of condensed privacy for one weight in one report, per step"""
    clip: NormBound = 1.0
    """c, the largest change of one weight; larger changes are clipped to c"""
    precision: int = 10
    """rho, the number of decimal digits; a step is 10^-rho"""


@preset(CldpFed, calibrated="alpha")
def cldp_fed(settings: Settings) -> Composition:
    """CLDP-Fed; ``clients_per_round`` is the k of its k-client selection."""
    return Composition(
        bound=Unbounded(send="update"),  # the mechanism clips each weight itself
        calibration=Fixed(every=CLDP(settings.alpha, settings.clip, settings.precision)),
        claim=Claim(
            epsilon=settings.alpha,
            delta=0.0,
            unit="weight",
            source="Truex, Liu, Chow, Gursoy, Wei 2020: alpha of condensed local privacy, for "
            f"changes that differ by one step of {10.0**-settings.precision:g}",
        ),
    )
