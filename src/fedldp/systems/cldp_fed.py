"""CLDP-Fed: each weight's change as a whole number of small steps, which near numbers replace.

    Broadcast: weights W
        |
        v
    client_step   local SGD from W, on the k clients of the round
        |         Sensitive weights
        v
    encoder       v = round(10^precision D), D = weights - W clipped to [-c, c]; the number v' from
        |         -c 10^precision to c 10^precision with probability ~ exp(-alpha |v - v'|/2)
        |         Report: 8, 16, 32 or 64 bits for each weight
        v
    server_step   W + mean of v'/10^precision -> weights of the next Broadcast

Source: S. Truex, L. Liu, K.-H. Chow, M. E. Gursoy, W. Wei, "LDP-Fed: Federated Learning with Local
Differential Privacy", EdgeSys 2020, the variant with condensed privacy. All layers are sent in
every round; there a client may send some of them, in cycles.

Condensed privacy, alpha, is about changes that differ by one step. What that leaves for changes
that differ by up to 2 c 10^precision steps, in all weights at once, is in the statement.
"""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from fedldp.accounting.statement import Claim
from fedldp.mechanisms.cldp import CLDP
from fedldp.systems._mean_change import MeanChangeConfig
from fedldp.systems.settings import NormBound, Positive


class CldpFedConfig(MeanChangeConfig):
    """Settings of CLDP-Fed; ``clients_per_round`` is the k of its k-client selection."""

    solved: ClassVar[str] = "alpha"

    system: Literal["cldp_fed"] = "cldp_fed"
    alpha: Positive = Field(description="condensed privacy of one weight of one report, per step")
    clip: NormBound = Field(1.0, description="c: bound on the change of one weight")
    precision: int = Field(10, description="rho: decimal digits; a step is 10^-rho")

    @model_validator(mode="after")
    def _check(self) -> Self:
        _ = self.mechanism
        return self

    @property
    def mechanism(self) -> CLDP:
        """The randomiser of every client."""
        return CLDP(self.alpha, self.clip, self.precision)

    def claim(self) -> Claim | None:
        """Return alpha, which the paper claims in place of an epsilon."""
        return Claim(
            epsilon=self.alpha,
            delta=0.0,
            unit="weight",
            source="Truex, Liu, Chow, Gursoy, Wei 2020: alpha of condensed local privacy, for "
            f"changes that differ by one step of {10.0**-self.precision:g}",
        )
