"""The part of the training data on which hyperparameters are chosen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedldp.core.errors import ConfigError
from fedldp.core.randomness import numbered_generator
from fedldp.data import Dataset, DrawnShares, Shares, check_partition, partition
from fedldp.data.partition import shares_of
from fedldp.data.people import held_of_each
from fedldp.protocol.keys import draws_of_seed

HELD_OUT = 6
"""One in this many examples or clients is held out."""


def held_out(data: Dataset, seed: int) -> Dataset:
    """Return data for tuning runs: a sixth of the training set becomes the test set.

    Whole clients are held out if the data name each example's client, and whole people from all
    clients if the data name each example's person; otherwise single examples, drawn uniformly. The
    test set of ``data`` is in neither part. Scores on the held-out part are private, unless the
    data are published.

    Args:
        data: all data.
        seed: the seed of the draw.

    Raises:
        ConfigError: there are fewer than two clients or examples to divide; or no client has two
            people.
    """
    name, people = f"{data.name}, less a held-out part", data.train.people
    if people is not None:
        owners = data.owners
        held = held_of_each(people, owners, 1 / HELD_OUT, numbered_generator(seed, 1))
        if not held.any():
            raise ConfigError(
                f"data {data.name}: some people must be held out for choosing hyperparameters, but "
                "no client has two people; give more"
            )
        return replace(
            data,
            name=name,
            train=data.train.taken(~held),
            test=data.train.taken(held),
            clients=None if data.clients is None else shares_of(owners[~held], len(data.clients)),
            held_out=not data.is_public,
        )
    count = len(data.train) if data.clients is None else len(data.clients)
    if count < 2:
        what = "training examples" if data.clients is None else "clients"
        raise ConfigError(
            f"data {data.name}: one in {HELD_OUT} {what} must be held out for choosing "
            f"hyperparameters, but there are only {count}; give at least 2"
        )
    order = numbered_generator(seed, 1).permutation(count)
    cut = max(1, count // HELD_OUT)
    out, others = np.sort(order[:cut]), np.sort(order[cut:])
    if data.clients is None:
        train, test, clients = others, out, None
    else:
        kept = [data.clients[int(client)] for client in others]
        train = np.concatenate(kept)
        clients = Shares(np.arange(len(train)), np.array([len(rows) for rows in kept]))
        test = np.concatenate([data.clients[int(client)] for client in out])
    return replace(
        data,
        name=name,
        train=data.train.taken(train),
        test=data.train.taken(test),
        clients=clients,
        held_out=not data.is_public,
    )


def with_clients(
    data: Dataset, scheme: str, num_clients: int, num_examples: int | None, seed: int
) -> Dataset:
    """Return data with a client for each example, divided as in a run with ``seed``.

    Data that already name their clients or people are returned unchanged. Data whose clients share
    examples (the scheme "drawn") are also returned unchanged, because no such client could be held
    out with all its data.

    Args:
        data: all data.
        scheme: see ``fedldp.data.partition``.
        num_clients: the number of clients among whom the training set is divided.
        num_examples: the number of training examples to draw at random; None for all.
        seed: the seed of the division.

    Raises:
        ConfigError: there are too few examples.
    """
    if data.clients is not None or data.train.people is not None:
        return data
    draw = draws_of_seed(seed)(0)
    if num_examples is not None and num_examples < len(data.train):
        taken = draw("examples").generator().choice(len(data.train), num_examples, replace=False)
        data = replace(data, train=data.train.taken(np.sort(taken)))
    check_partition(len(data.train), num_clients, scheme)
    clients = partition(data.train.labels, num_clients, scheme, draw("partition").generator())
    return data if isinstance(clients, DrawnShares) else replace(data, clients=clients)
