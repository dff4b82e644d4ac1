"""Distributed discrete Gaussian: clients draw shares of central DP's noise, for a secure sum.

    Broadcast: weights W
        |
        v
    local_update  local SGD from W
        |         Sensitive weights w
        v
    encoder       x = (w - W)/clip, scaled down to norm 1; rotated at random, publicly; whole grid
        |         steps by conditional random rounding; plus a SHARE of discrete Gaussian noise
        |         Report: d words (d padded to a power of two), modulo 2^bits
        v
    secure sum    of the words modulo 2^bits: all that reaches a server that follows the protocol
        |
        v
    server_step   signed, rotated back, times clip/(radius n) -> W + mean change, next Broadcast

A single report has one share of noise, which protects little, as the server's line states. The sum
has all shares; the line for the `summing-server` states what the sum reveals, and `epsilon` sets
that line. A simulation computes the sum in the server step. A deployment masks exactly these words,
and always sums them.

If a round has fewer than all clients, they take turns in an order that is drawn once: nobody takes
part in more than ceil(rounds clients_per_round/num_clients) rounds, and every client counts its own
rounds. The guarantee does not rely on keeping secret who takes part.

Source: P. Kairouz, Z. Liu, T. Steinke, "The Distributed Discrete Gaussian Mechanism for Federated
Learning with Secure Aggregation", ICML 2021, Algorithms 1 and 2. The norm bound after rounding, the
distribution of sums of shares, and the modulus are those of this paper. Two things are ours: the
noise is computed from the closed form of the Gaussian (``numerics.gaussian.shares_mu``), and
rounding is not repeated if the rounded vector is too long.
"""

from __future__ import annotations

from fedldp.algorithms.bounds import Rotated
from fedldp.algorithms.calibration import SharesPerRun
from fedldp.algorithms.channel import Channel
from fedldp.algorithms.composition import Composition
from fedldp.algorithms.participation import participation_of
from fedldp.algorithms.preset import Settings, preset
from fedldp.algorithms.settings import NormBound, Offers, RunBudget


class DistributedGaussian(Offers):
    """The settings of the distributed Gaussian."""

    epsilon: RunBudget
    """epsilon, at delta, for everything that a client sends in a run, against a server that sees
    only sums; the noise from a round's untrusted_clients is not counted"""
    clip: NormBound = 1.0
    """largest L2 norm of one update; longer updates are scaled down to this norm"""


@preset(DistributedGaussian)
def distributed_gaussian(settings: Settings) -> Composition:
    """The distributed discrete Gaussian; the paper's bound, in zCDP, is below what is proven."""
    bound = Rotated(clip=settings.clip)
    turns = participation_of(settings, default="balanced")
    return Composition(
        bound=bound,
        calibration=SharesPerRun(settings=settings, bound=bound, participation=turns),
        participation=turns,
        channel=Channel(kind="sum"),
    )
