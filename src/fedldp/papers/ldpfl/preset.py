"""LDPFL: every example's features as bits, randomised once, and a network trained on them.

    Broadcast: weights of the global network; a public encoder, if `encoder` is public
        |
        v
    local_update  once in the run, kept on the client's disk:
        |           own CNN, trained on the client's examples           (Algorithm 1, lines 2-4)
        |           features -> fixed-point bits, joined to one vector  (line 8, eq. 10)
        |           every bit randomised, as one report of r_f l bits   (lines 9-10, eq. 13)
        |           label randomised too, if `label_epsilon` is set
        |         each round: training of the global network on these bits   (line 19)
        |         Sensitive weights
        v
    encoder       float32 weights, unchanged (line 20): post-processing of the bits and labels
        |         Report: 32 d bits
        v
    server_step   uniform mean over the participants -> weights of the next Broadcast (line 21)
        |
        v
    tester        the client's CNN and bits for test examples, then the global network
                  with evaluation = clients, also how well the client's whole CNN does on them
                  (the metric local_accuracy; Figs. 2, 4, 6a, 8)

Source: M.A.P. Chamikara, D. Liu, S. Camtepe, S. Nepal, M. Grobler, P. Bertok, I. Khalil, "Local
Differential Privacy for Federated Learning", 2022. The hidden layers of its global network (the
setting `model`) are not in its text, nor is which image augmentation (``encoder_augmentation``) it
uses; both are in its authors' code, https://github.com/chamikara1986/LDPFL, whose settings the
recipes `*-code` have.

Besides the bits, the labels leave a client; the paper sends them in the clear. The CNN, its batch
norms, the tests and the number of examples stay at the client, although this number decides how
much a client trains. Through the CNN, a bit of any example depends on all of the client's examples,
unless the encoder is public. Any test score also depends on all of the client's examples, and
nothing randomises the score.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from fedldp.accounting.guarantees import EpsilonMeaning
from fedldp.accounting.statement import Claim
from fedldp.algorithms.calibration import Fixed
from fedldp.algorithms.composition import Composition
from fedldp.algorithms.preset import Settings, preset
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.server_update import FirstArrays, WeightedMean
from fedldp.algorithms.settings import Count, Offers, Positive
from fedldp.data.image_features import Augmentation
from fedldp.mechanisms.categories import LARGEST_EPSILON, SMALLEST_EPSILON
from fedldp.mechanisms.none import Plain
from fedldp.papers.ldpfl.architecture import Layers
from fedldp.papers.ldpfl.bits import FixedPoint, Rounding
from fedldp.papers.ldpfl.encoding import PublicEncoder, check_is_public, public_among, to_public
from fedldp.papers.ldpfl.mechanism_bits import RandomisedBits, Variant
from fedldp.papers.ldpfl.parts import Bits, OnBits
from fedldp.protocol.roles import Arrays, State

LabelEpsilon = Annotated[float, Field(ge=SMALLEST_EPSILON, le=LARGEST_EPSILON)]
Channels = Annotated[list[Annotated[int, Field(ge=1, le=1024)]], Field(min_length=1, max_length=8)]

_THEOREMS = {
    "theorem_2": "Theorem 2 (eq. 13)",
    "theorem_1": "Theorem 1",
    "symmetric": "eq. 11",
}


class Ldpfl(Offers):
    """The settings of LDPFL."""

    epsilon: Positive = 0.5
    """the budget that the paper claims for one example's features"""
    randomisation: Variant = "theorem_2"
    """how each bit is randomised: theorem_2 (the paper's runs), theorem_1, or symmetric (eq. 11)"""
    alpha: Positive = 10.0
    """alpha, the privacy budget coefficient in both theorems"""
    rounding: Rounding = "down"
    """how a feature becomes a multiple of 1/32: down (towards 0) or nearest (as in the authors'
    code)"""
    label_epsilon: LabelEpsilon | None = None
    """budget for one label; if not set, labels are used in the clear (as in the paper)"""
    encoder: Literal["own", "public"] = "own"
    """which encoder makes the features: own (every client trains its own, as in the paper) or
    public (one encoder for all clients)"""
    public_dataset: str | None = None
    """the data set on which a public encoder is trained; if not set, the encoder keeps its random
    weights"""
    encoder_channels: Channels = Field([32, 64])
    """number of channels in each of the encoder's blocks of two convolutions"""
    encoder_layers: Layers = "deep"
    """where the encoder has batch norms: deep (after every convolution, which preserves the image
    size: the paper's network for CIFAR-10, Fashion-MNIST and SVHN) or mnist (after the first
    convolution of each block and after its pooling: the paper's network for MNIST)"""
    encoder_epochs: Annotated[Count, Field(le=100_000)] = 50
    """number of epochs for which an encoder is trained"""
    encoder_batch_size: Count = 64
    """number of examples in one step of an encoder's training; the authors' code has 32"""
    encoder_augmentation: Augmentation = "none"
    """how a client augments the images on which it trains its own encoder: none; shift (each image
    is moved by up to a tenth of its side); rotate-shift (it is also rotated by up to 15 degrees);
    shift-flip or rotate-shift-flip (half of the images are also mirrored, for classes that
    mirroring does not change; the authors' code has rotate-shift-flip)"""
    encoder_decay: Annotated[float, Field(ge=0, le=1)] = 0.0
    """decay of the learning rate at which a client trains its own encoder, rate/(1 + decay steps);
    the paper uses 1e-6"""
    test_share: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """share of its examples that each client holds out for testing"""
    trains_on_held_out: bool = False
    """whether the global network is also trained on the examples that a client holds out from its
    encoder's training, as in the authors' code; needs evaluation = common"""
    evaluation: Literal["clients", "common"] = "clients"
    """where accuracy is measured: clients (on every client's own test examples, without a guarantee
    for these examples) or common (on the test set, of which every client encodes a part, as in the
    authors' code)"""
    optimizer: Literal["sgd", "adam"] = "sgd"
    """the clients' optimiser for the global network: sgd, or adam, which starts afresh in every
    round"""


@preset(Ldpfl)
def ldpfl(settings: Settings) -> Composition:
    """LDPFL; the paper's claim is for one example."""
    code = FixedPoint(4, 5, settings.rounding)
    mechanism = RandomisedBits(settings.epsilon, settings.randomisation, settings.alpha)
    if settings.public_dataset is not None:
        check_is_public(settings.public_dataset, settings.dataset)
    bits, unused = Bits(settings=settings, code=code), {}
    if settings.encoder == "own":
        unused["public_dataset"] = "with encoder = own every client trains its own encoder"
    else:
        reason = "with encoder = public no client trains an encoder"
        unused |= {"encoder_augmentation": reason, "encoder_decay": reason}
    if settings.evaluation == "clients":
        reason = "with evaluation = clients the examples that a client holds out are its test"
        unused["trains_on_held_out"] = reason
    if settings.randomisation == "symmetric":
        unused["alpha"] = "with randomisation = symmetric no probability depends on it"

    tested_on = "the test set, of which every client encodes a part"
    if settings.evaluation == "clients":
        tested_on = "the clients' own held-out examples, each through its client's encoder"
    return Composition(
        features=bits,
        local=OnBits(settings=settings, bits=bits, mechanism=mechanism, tested_on=tested_on),
        calibration=Fixed(every=Plain(), meaning=EpsilonMeaning("record", "claimed")),
        estimate=WithEncoder(bits=bits) if settings.encoder == "public" else WeightedMean(),
        unused=unused,
        claim=Claim(
            epsilon=settings.epsilon,
            delta=0.0,
            unit="record",
            source=f"Chamikara et al. 2022, {_THEOREMS[settings.randomisation]} and Section 3.3",
        ),
    )


@dataclass(frozen=True, kw_only=True)
class WithEncoder(WeightedMean):
    """The mean of the reports; the server also tells clients the encoder that it has made.

    Attributes:
        bits: the features that the encoder is for.
    """

    bits: Bits

    def arrays(self, problem: Problem) -> FirstArrays:
        """Return the encoder, made before the first round; see ``Estimate``."""
        settings, network = self.bits.settings, self.bits.architecture(problem)
        encoder = PublicEncoder(network, settings.public_dataset, settings, problem.data_dir)
        return lambda draw: to_public(encoder.build(draw))

    def told(self, state: State) -> Arrays:
        """Return the encoder; see ``Estimate``."""
        return public_among(state.arrays)
