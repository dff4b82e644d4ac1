"""The steps of FedPer at a client."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import numpy as np

from fedldp.data.examples import Examples
from fedldp.models import layout_of_module
from fedldp.protocol.roles import Client, Score
from fedldp.protocol.wire import Broadcast, Vector
from fedldp.training.batched_sgd import OneByOne
from fedldp.training.kept import keep, kept_before
from fedldp.training.local_sgd import LocalSgd, evaluate
from fedldp.training.tensors import load_weights


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
