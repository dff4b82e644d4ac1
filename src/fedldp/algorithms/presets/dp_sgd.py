"""DP-SGD in a federation: clients protect single examples while they train, and send the weights.

    Broadcast: weights
        |
        v
    local_update  steps of DP-SGD: Poisson sample, each gradient scaled down to the norm `clip`,
        |         sum + N(0, (noise_multiplier clip)^2 I), over batch_size
        |         Sensitive weights
        v
    encoder       float32 weights, unchanged
        |         Report: 32 d bits
        v
    server_step   uniform mean -> weights of the next Broadcast

The sampling rate is batch_size over the mean number of examples per client, so both the rate and
the number of steps are public. The system protects one example of a client from the server, but not
a client as a whole.

Source: Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang, "Deep Learning with Differential
Privacy", CCS 2016, Algorithm 1, as in the rows called DP-SGD in tables about federated learning
under LDP.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from fedldp.accounting.events import InClear, PerRecord
from fedldp.algorithms.calibration import Fixed
from fedldp.algorithms.composition import SUBSET, Algorithm, Composition, Local
from fedldp.algorithms.preset import Settings, preset
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.server_update import WeightedMean
from fedldp.algorithms.settings import NoiseMultiplier, NormBound, Offers
from fedldp.mechanisms.none import Plain
from fedldp.training.noisy_sums import NoisySums, sampling_rate

if TYPE_CHECKING:
    import torch

    from fedldp.training.private_sgd import PrivateSgd


class DpSgd(Offers):
    """The settings of DP-SGD."""

    noise_multiplier: NoiseMultiplier
    """standard deviation of the noise, as a multiple of the norm bound on one gradient"""
    clip: NormBound = 1.0
    """largest L2 norm of one example's gradient; longer gradients are scaled down to this norm"""


@preset(DpSgd, calibrated="noise_multiplier", inverse=True)
def dp_sgd(settings: Settings) -> Composition:
    """DP-SGD on every client; ``batch_size`` is the mean size of a Poisson sample.

    It claims nothing, because the proof of Abadi et al. is for a single data set, and for another
    definition of neighbouring data.
    """
    return Composition(
        local=NoisySteps(settings=settings),
        calibration=Fixed(every=Plain()),
        estimate=WeightedMean(),
    )


@dataclass(frozen=True, kw_only=True)
class NoisySteps(Local):
    """Steps of DP-SGD, on Poisson samples of a client's examples.

    Attributes:
        settings: the preset's settings.
    """

    uses: ClassVar[frozenset[str]] = frozenset({"class_weights", *SUBSET})
    alone: ClassVar[Literal["row"]] = "row"

    settings: Settings

    def sums(self, problem: Problem) -> NoisySums:
        """Return what a client's steps compute in one round.

        Raises:
            ConfigError: clients have too few examples for a batch.
        """
        settings = self.settings
        rate = sampling_rate(settings.batch_size, settings.num_clients, problem.num_examples)
        return NoisySums(
            steps=settings.local_epochs * round(1 / rate),
            sampling_rate=rate,
            batch_size=settings.batch_size,
            clip=settings.clip,
            noise_multiplier=settings.noise_multiplier,
        )

    def __call__(self, algorithm: Algorithm, device: torch.device) -> PrivateSgd:
        """Return the steps."""
        from fedldp.training.private_sgd import PrivateSgd

        sgd, sums = algorithm.sgd(device), self.sums(algorithm.problem)
        return PrivateSgd(sgd.model, sums, sgd.learning_rate, device, sgd.class_weights)

    def event(self, algorithm: Algorithm, size: int) -> PerRecord:
        """Return what the steps in one round release."""
        return PerRecord(
            record=self.sums(algorithm.problem).event,
            client=InClear(what="weights-of-private-records"),
        )
