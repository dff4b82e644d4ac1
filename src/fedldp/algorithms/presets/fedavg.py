"""FedAvg: federated averaging without any protection; the noise-free baseline.

    Broadcast: weights
        |
        v
    local_update  local SGD on the client's examples
        |         Sensitive weights
        v
    encoder       float32 weights, unchanged, and the example count (if weighting = examples)
        |         Report: 32 d bits
        v
    server_step   weighted mean -> weights of the next Broadcast

Source: McMahan, Moore, Ramage, Hampson, Aguera y Arcas 2017, Algorithm 1.
"""

from __future__ import annotations

from typing import Literal

from fedldp.algorithms.calibration import Fixed
from fedldp.algorithms.composition import Composition, Sgd
from fedldp.algorithms.preset import Settings, preset
from fedldp.algorithms.server_update import WeightedMean
from fedldp.algorithms.settings import AugmentationSettings, MomentumSettings, Offers
from fedldp.mechanisms.none import Plain


class FedAvg(Offers):
    """The settings of FedAvg, besides those of its SGD."""

    weighting: Literal["examples", "uniform"] = "examples"
    """weight of each client in the average: examples (the client's number of examples) or uniform
    (1 for all)"""


@preset(FedAvg, MomentumSettings, AugmentationSettings)
def fedavg(settings: Settings) -> Composition:
    """FedAvg, which claims no differential privacy."""
    return Composition(
        local=Sgd(momentum=settings.momentum, augmentation=settings.augmentation),
        calibration=Fixed(every=Plain()),
        estimate=WeightedMean(by_examples=settings.weighting == "examples"),
    )
