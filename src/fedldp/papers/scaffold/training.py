"""The steps of SCAFFOLD at a client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from fedldp.core.errors import RunError
from fedldp.protocol.roles import Client
from fedldp.protocol.wire import Broadcast, Vector
from fedldp.training.batched_sgd import OneByOne
from fedldp.training.kept import keep, kept_before
from fedldp.training.local_sgd import LocalSgd


@final
@dataclass(frozen=True, eq=False)
class ControlledSgd(OneByOne):
    """SCAFFOLD: SGD whose every gradient is corrected by what other clients' steps were like.

    A control variate is how far a client's own steps of a round went, W - w, corrected by itself:
    the paper's c_i (option II) times the number of steps and the step size. Each of K steps of size
    r adds (C - C_i)/(K r) to its gradient; then C_i changes by W - w - C.

    Attributes:
        sgd: the steps; without momentum.

    Source: S. P. Karimireddy, S. Kale, M. Mohri, S. Reddi, S. Stich, A. T. Suresh, "SCAFFOLD:
    Stochastic Controlled Averaging for Federated Learning", ICML 2020, Algorithm 1.
    """

    sgd: LocalSgd

    def train(self, broadcast: Broadcast, client: Client) -> Vector:
        """Return one client's weights after training, shape (d,)."""
        sgd, start = self.sgd, broadcast.weights
        (common,) = broadcast.public.values()  # the server's control variate
        if common.shape != start.shape:  # it would be repeated, and stay in the client's own
            raise RunError(f"the control variate has shape {common.shape}, not {start.shape}")
        own = kept_before(client, broadcast.round, np.zeros_like(start))
        steps = sgd.local_epochs * -(-len(client.examples) // sgd.batch_size)
        drift = (common - own) / np.float32(max(steps, 1) * sgd.learning_rate)
        found = sgd.train(broadcast, client, drift=drift)
        keep(client, broadcast.round, own, own - common + (start - found))
        return found
