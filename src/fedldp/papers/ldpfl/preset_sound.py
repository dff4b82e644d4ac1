"""LDPFL with a budget per example that holds: every example is randomised once, label included.

    Broadcast: weights W
        |
        v
    local_update  the examples of this round, which no other round uses:
        |           features of a public encoder: histograms of oriented gradients, norm 1
        |           each example's gradient at the current weights, in one vector with its label,
        |           clipped to norm `clip` and randomised: pure epsilon
        |           a step along the mean of a batch of these gradients
        |         Sensitive weights
        v
    encoder       float32 weights, unchanged: post-processing of the randomised gradients
        |         Report: 32 d bits
        v
    server_step   uniform mean over the participants -> weights of the next Broadcast

What is proven: pure epsilon for one example (x, y), including its label, over the whole run, for
any number of rounds. The encoder is fixed, the choice of round and batch does not depend on any
example, and given the weights at which it is computed, the randomised gradient depends on (x, y)
alone. Everything that is sent later follows from that gradient. docs/papers/ldpfl.md has the
proof. A client keeps what it computed from a round's examples, so a repeated request for a round
causes no new draws.

It differs from LDPFL in four ways, each for a reason. The encoder is public: an encoder trained on
the client's examples would make the features of one example depend on all others. The label is
covered. The mechanism is calibrated to the whole vector, not bit by bit. And the gradient is
randomised, not the features: noise of this size makes features useless as inputs to a network, but
leaves the mean of many gradients of a linear classifier useful.

Source: ours, for the task of Chamikara et al. 2022 (``ldpfl``); the mechanism is PrivUnit (Bhowmick
et al. 2018), by default, and randomising gradients one by one follows Duchi, Jordan, Wainwright
2013, "Local Privacy and Statistical Minimax Rates".
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fedldp.accounting.guarantees import EpsilonMeaning
from fedldp.algorithms.calibration import Fixed
from fedldp.algorithms.composition import Composition
from fedldp.algorithms.features import ChosenFeatures
from fedldp.algorithms.preset import Settings, preset
from fedldp.algorithms.server_update import WeightedMean
from fedldp.algorithms.settings import LARGEST_BATCH, Count, NormBound, Offers, Positive
from fedldp.mechanisms.none import Plain
from fedldp.papers.ldpfl.parts import SUITABLE, RandomisedGradients


class LdpflSound(Offers):
    """The settings of sound LDPFL."""

    model: str = "linear"
    """the model that is trained on the features: a name from `fedldp list models`, or
    "module:callable" for your own"""
    epsilon: Positive
    """budget for one example, including its label, for the whole run"""
    mechanism: str = Field(
        "privunit",
        description=f"the mechanism that randomises an example's gradient: {SUITABLE}",
    )
    clip: NormBound = 1.0
    """largest norm of one example's gradient, in the mechanism's norm; longer gradients are scaled
    down to this norm"""
    batch_size: Annotated[Count, Field(le=LARGEST_BATCH)] = 1_000_000
    """number of examples in one step"""


@preset(LdpflSound)
def ldpfl_sound(settings: Settings) -> Composition:
    """Sound LDPFL; no publication claims anything about it."""
    return Composition(
        features=ChosenFeatures(kind="oriented-gradients", dataset=settings.dataset),
        local=RandomisedGradients(settings=settings),
        calibration=Fixed(every=Plain(), meaning=EpsilonMeaning("record", "proven")),
        estimate=WeightedMean(),
    )
