"""SCAFFOLD: SGD whose steps are corrected by what other clients' steps were like.

A client's control variate is made of its own steps, and never leaves it. The server's is made of
the mean of the reports, so it is post-processing: nothing more than a report is released.

Source: S. P. Karimireddy, S. Kale, M. Mohri, S. Reddi, S. Stich, A. T. Suresh, "SCAFFOLD:
Stochastic Controlled Averaging for Federated Learning", ICML 2020, Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fedldp.algorithms.bounds import Send
from fedldp.algorithms.composition import Algorithm, Sgd
from fedldp.algorithms.preset import Settings
from fedldp.algorithms.presets.composed import Choice
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.server_update import Around, Estimate, Estimated, FirstArrays
from fedldp.protocol.roles import Arrays, Draw, LocalUpdate, State
from fedldp.protocol.wire import Incoming

if TYPE_CHECKING:
    import torch

CONTROL = "control"
"""The name of the mean of the clients' control variates, which the server keeps and tells."""


@dataclass(frozen=True, kw_only=True)
class Scaffold(Choice, Sgd):
    """Steps that are corrected by control variates; see ``training.ControlledSgd``."""

    name: ClassVar[str] = "scaffold"
    keeps: ClassVar[bool] = True
    trains_statistics: ClassVar[bool] = False
    unused: ClassVar[Mapping[str, str]] = {"momentum": "control variates correct plain steps"}

    def estimate(self, mean: Estimate, settings: Settings) -> Estimate:
        """Return an estimate that also moves the control variates; see ``Choice``."""
        return Controlled(inner=mean, share=settings.round_size / settings.num_clients)

    def __call__(self, algorithm: Algorithm, device: torch.device) -> LocalUpdate:
        """Return the local update."""
        from fedldp.papers.scaffold.training import ControlledSgd

        return ControlledSgd(algorithm.sgd(device))


@dataclass(frozen=True, kw_only=True)
class Controlled(Around):
    """An estimate that also moves the mean of the control variates.

    Of the share s of the clients that answer, each C_i changes by D_i - C, where D_i is how far its
    weights moved towards smaller loss. So the mean changes by s (D - C), and D is the estimate's.

    Attributes:
        share: s, above 0 and up to 1.
    """

    gives: ClassVar[Send] = "update"

    share: float

    def arrays(self, problem: Problem) -> FirstArrays:
        """Return control variates of 0, which correct nothing; see ``Estimate``."""
        return lambda draw: {CONTROL: np.zeros(self.released.size, np.float32)}

    def told(self, state: State) -> Arrays:
        """Return the control variate that the server tells clients; see ``Estimate``."""
        return {CONTROL: state.arrays[CONTROL]}

    def __call__(self, state: State, reports: Incoming, draw: Draw) -> Estimated:
        """Return the mean change, and the next mean of the control variates; see ``Estimate``."""
        found = self.inner(state, reports, draw)
        change = found.change(self.inner.gives, state.weights)
        control = state.arrays[CONTROL]
        moved = (control - self.share * (change + control)).astype(np.float32)
        return replace(found, values=change, arrays={**found.arrays, CONTROL: moved})
