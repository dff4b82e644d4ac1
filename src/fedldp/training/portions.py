"""A local update that uses every example in one round only, at scikit-learn's "optimal" rate."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import ConfigError, PrivacyError, RunError
from fedldp.core.randomness import Stream
from fedldp.protocol.roles import Arrays, Client


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
