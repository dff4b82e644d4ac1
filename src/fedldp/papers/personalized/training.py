"""SGD on a portion of a client's examples in each round, with the paper's learning rate."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import ConfigError
from fedldp.core.randomness import Source, declare
from fedldp.data.examples import Examples
from fedldp.protocol.roles import Batch, Client, Update
from fedldp.protocol.wire import Broadcast, Sensitive, Vector
from fedldp.training.portions import drawn_order, indices_of_round

if TYPE_CHECKING:
    from fedldp.training.local_sgd import LocalSgd

declare(Source.FRESH, "sampling")


def optimal_rate(step: int, alpha: float) -> float:
    """Return the size of SGD's step 0, 1, 2, ... by scikit-learn's schedule "optimal".

    The size is 1/(alpha (t0 + step)). By Bottou's heuristic the first rate, 1/(alpha t0), is a
    typical weight, alpha^(-1/4), divided by the slope of the loss at that weight, or by 1 if the
    slope is smaller. The slope of a logistic loss is below 1, so t0 = alpha^(-3/4). Here alpha only
    sets the schedule; a penalty is set by ``weight_decay``.

    Source: scikit-learn, ``SGDClassifier``, learning_rate="optimal"; their t counts from 1.

    >>> optimal_rate(0, 1e-4), optimal_rate(1000, 1e-4)
    (10.0, 5.0)
    """
    return 1.0 / (alpha * (math.pow(alpha, -0.75) + step))


def check_rate(learning_rate: float, alpha: float) -> None:
    """Refuse steps that are too large for a float32.

    Args:
        learning_rate: factor on ``optimal_rate``, which is largest in step 0.
        alpha: the alpha of that rate.

    Raises:
        ConfigError: the first step is too large.
    """
    largest = float(np.finfo(np.float32).max)
    first = learning_rate * optimal_rate(0, alpha)
    if not first <= largest:
        raise ConfigError(
            f"learning_rate = {learning_rate:g} and alpha = {alpha:g}: the first step has the rate "
            f"{first:g}, more than a float32 holds ({largest:.2g}); give a smaller learning_rate"
        )


@dataclass(frozen=True, eq=False)
class PortionSgd:
    """SGD on a sample of the round's portion of a client's examples.

    A client divides its examples into as many portions as there are rounds, in an order that it
    draws once from its stream "portions"; the portions' sizes differ by at most one. In round r it
    keeps each example of portion r with probability q, drawn from its stream "sampling", and trains
    on the examples that it kept. With fewer examples than rounds some portions are empty, and the
    client still reports, because a missing report would reveal how many examples the client has.

    Attributes:
        training: the steps; its learning rate is a factor on ``optimal_rate``, which restarts in
            every round.
        rounds: R.
        sampling_probability: q.
        alpha: the alpha of the rate.

    Source: Wu, Xu, Zhu 2023, Section 3.1 (sampling, eq. of G_i) and Algorithm 1, lines 11 to 13;
    |D_i| = R batch follows from delta_i = 1/|D_i| in the paper's experiments.
    """

    training: LocalSgd
    rounds: int
    sampling_probability: float
    alpha: float

    def group(self, most_examples: int) -> int:
        """Return how many clients train at once; see ``LocalSgd.group``."""
        return self.training.group(-(-most_examples // self.rounds))

    def __call__(self, broadcast: Broadcast, batch: Batch, group: int = 1) -> Sensitive[Update]:
        """Return the clients' weights after training, float32, shape (n, d)."""
        from fedldp.training.batched_sgd import train_alone

        rate = self._rate(broadcast.round)
        if group > 1:
            sampled = self.sampled(batch, broadcast.round)
            return self.training.train_together(broadcast, batch, sampled, rate)

        def train(client: Client) -> Vector:
            sampled = replace(client, examples=self.sample(client, broadcast.round))
            return self.training.train(broadcast, sampled, rate)

        return train_alone(batch, train)

    def _rate(self, round: int) -> Callable[[int], float]:
        factor = self.training.rate(round)
        return lambda step: factor(step) * optimal_rate(step, self.alpha)

    def sample(self, client: Client, round: int) -> Examples:
        """Return the examples that ``client`` trains on in ``round``; there may be none."""
        (kept,) = self.sampled(Batch.of_one(client), round)
        return client.examples.taken(kept)

    def sampled(self, batch: Batch, round: int) -> list[NDArray[np.int64]]:
        """Return for each client the rows of the examples that it trains on in ``round``."""
        found = []
        streams = zip(batch.kept("portions"), batch.fresh("sampling"), strict=True)
        for own, (kept, fresh) in zip(batch.rows, streams, strict=True):
            portion = indices_of_round(drawn_order(kept, len(own)), round, self.rounds)
            drawn = fresh.generator().random(portion.size)
            found.append(own[portion[drawn < self.sampling_probability]])
        return found
