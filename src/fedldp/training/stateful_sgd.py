"""SGD with something that a client keeps from one of its rounds to the next, and never sends."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import numpy as np

from fedldp.core.errors import RunError
from fedldp.data.examples import Examples
from fedldp.models import layout_of_module
from fedldp.protocol.roles import Client, Score
from fedldp.protocol.wire import Broadcast, Vector
from fedldp.training.batched_sgd import OneByOne
from fedldp.training.local_sgd import LocalSgd, evaluate
from fedldp.training.tensors import load_weights

_KEPT = "state"


def kept_before(client: Client, round: int, first: Vector) -> Vector:
    """Return the state in which a client begins a round.

    A round that is repeated, as after a crash, begins in the state in which it began before.

    Args:
        client: the client.
        round: the round.
        first: the state before the client's first round.
    """
    again = client.store.known(_KEPT, round)
    if again is not None:
        return again["begun"]
    for earlier in range(round - 1, 0, -1):
        found = client.store.known(_KEPT, earlier)
        if found is not None:
            return found["ended"]
    return first


def keep(client: Client, round: int, begun: Vector, ended: Vector) -> None:
    """Keep a client's state at the end of a round; one that is not finite leaves it as it was."""
    after = ended if np.isfinite(ended).all() else begun
    client.store.arrays(_KEPT, lambda: {"begun": begun, "ended": after}, round=round)


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


@final
@dataclass(frozen=True, eq=False)
class OwnHeadSgd(OneByOne):
    """FedPer: SGD on a body that all clients share and a head that never leaves its client.

    Attributes:
        sgd: the steps, on the whole model.
        body: the number of weights that are sent; those of the head follow them.

    Source: M. G. Arivazhagan, V. Aggarwal, A. K. Singh, S. Choudhary, "Federated Learning with
    Personalization Layers", 2019, Algorithm 1.
    """

    sgd: LocalSgd
    body: int

    def train(self, broadcast: Broadcast, client: Client) -> Vector:
        """Return one client's weights after training, with the broadcast's head, shape (d,)."""
        whole = self.of(broadcast, client)
        found = self.sgd.train(whole, client)
        keep(client, broadcast.round, whole.weights[self.body :], found[self.body :])
        return np.concatenate([found[: self.body], broadcast.weights[self.body :]])

    def of(self, broadcast: Broadcast, client: Client) -> Broadcast:
        """Return the broadcast with the client's own head in place of the broadcast's."""
        body, first = np.split(broadcast.weights, [self.body])
        head = kept_before(client, broadcast.round, first)
        return replace(broadcast, weights=np.concatenate([body, head]))

    def score(self, broadcast: Broadcast, client: Client, test: Examples) -> Score:
        """Return the score of a client's own model on test examples with labels like its own.

        Of each label, it takes as many as the client has, or all that there are.
        """
        model, rows = self.sgd.model, [np.empty(0, np.int64)]
        for label, count in enumerate(np.bincount(client.examples.labels)):
            rows.append(np.flatnonzero(test.labels == label)[:count])
        load_weights(model, layout_of_module(model), self.of(broadcast, client).weights)
        return evaluate(model, test.taken(np.sort(np.concatenate(rows))), self.sgd.device)
