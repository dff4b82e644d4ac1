"""A local update that uses every example in one round only, at scikit-learn's "optimal" rate."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import ConfigError, PrivacyError, RunError
from fedldp.core.randomness import Stream
from fedldp.data.examples import Examples
from fedldp.protocol.roles import Arrays, Batch, Client, Update
from fedldp.protocol.wire import Broadcast, Sensitive, Vector

if TYPE_CHECKING:
    from torch import nn

    from fedldp.training.local_sgd import LocalSgd


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


def check_portions(num_examples: int, num_clients: int, rounds: int) -> None:
    """Refuse more rounds than the number of examples that the smallest client can have.

    Raises:
        ConfigError: some client cannot have an example for every round.
    """
    if num_examples // num_clients < rounds:
        raise ConfigError(
            f"rounds = {rounds}: {num_examples} training examples are too few to give each "
            f"of {num_clients} clients a portion in every round; give fewer rounds or clients"
        )


def scale_features(model: nn.Module, factor: float) -> None:
    """Make ``model`` multiply its input by ``factor``, in training and evaluation."""
    if factor != 1:
        model.register_forward_pre_hook(lambda _, inputs: (inputs[0] * factor, *inputs[1:]))


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


def drawn_order(stream: Stream, count: int) -> NDArray[np.int64]:
    """Return an order of a client's examples, drawn once from its kept stream "portions"."""
    return stream.generator().permutation(count)


def kept_order(client: Client, rounds: int) -> NDArray[np.int64]:
    """Return the drawn order as the client's store keeps it, shape (n,).

    Use the kept order for examples that must be randomised only once in a run: with another order,
        other examples or another number of rounds, an example would be randomised in a second
        round.

    Raises:
        PrivacyError: the number of the client's examples or of the rounds has changed since the
            order was drawn.
    """

    def make() -> Arrays:
        order = drawn_order(client.kept("portions"), len(client.examples))
        return {"order": order, "rounds": np.array([rounds])}

    kept = client.store.arrays("portions", make)
    if len(kept["order"]) != len(client.examples) or kept["rounds"].tolist() != [rounds]:
        raise PrivacyError(
            f"examples: the client began this run with {len(kept['order'])}, for "
            f"{kept['rounds'][0]} rounds, and now has {len(client.examples)}, for {rounds} rounds; "
            "continue with the original examples and rounds"
        )
    return kept["order"]


def indices_of_round(order: NDArray[np.int64], round: int, rounds: int) -> NDArray[np.int64]:
    """Return the indices of the examples that a client uses in ``round`` and in no other round.

    The examples of a round are a part of ``order``, and the sizes of these parts differ by at most
    one. With fewer examples than rounds, some parts are empty rather than refused, because a
    refusal would reveal how many examples there are.

    Raises:
        RunError: there is no such round; its examples would also be used in another round.
    """
    if not 1 <= round <= rounds:
        raise RunError(f"round {round}: a client takes part in rounds 1 to {rounds} only")
    return np.array_split(order, rounds)[round - 1]
