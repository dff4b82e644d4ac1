"""Who holds which examples: partitions of a training set among simulated clients."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fedldp.errors import ConfigError

# Scheme: what its parameter is, and an example of it.
_SCHEMES: dict[str, tuple[str, str] | None] = {
    "iid": None,
    "dirichlet": ("concentration", "dirichlet:0.5"),
    "shards": ("number of shards per client", "shards:2"),
    "power-law": ("exponent", "power-law:1.5"),
}
_MAX_PARAMETER = 1e6  # far beyond any effect, and short of overflow in the Dirichlet sampler


def parse_scheme(text: str) -> tuple[str, float | None]:
    """Read a partition scheme, such as "iid" or "dirichlet:0.5".

    Returns:
        The scheme's name, and its parameter if it has one.

    Raises:
        ConfigError: the name is unknown, or the parameter missing, needless or out of range.

    >>> parse_scheme("dirichlet:0.5")
    ('dirichlet', 0.5)
    >>> parse_scheme("iid")
    ('iid', None)
    """
    name, colon, number = text.partition(":")
    if name not in _SCHEMES:
        raise ConfigError(
            f"partition is {text!r}, which is not known; give iid, "
            + ", ".join(described[1] for described in _SCHEMES.values() if described)
        )
    described = _SCHEMES[name]
    if described is None:
        if colon:
            raise ConfigError(f"partition is {text!r}, but {name} has no parameter; give {name}")
        return name, None
    parameter, example = described
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if name == "shards" and not (value >= 1 and value.is_integer()):
        value = math.nan
    if not 0 < value <= _MAX_PARAMETER:
        kind = "an integer from 1" if name == "shards" else "a number above 0"
        raise ConfigError(
            f"partition is {text!r}; its {parameter} must be {kind} up to {_MAX_PARAMETER:.0f}, "
            f"as in {example}"
        )
    return name, value


def check_partition(num_examples: int, num_clients: int, scheme: str) -> tuple[str, float | None]:
    """Read a partition scheme as ``parse_scheme`` does, and refuse it for too few examples.

    Raises:
        ConfigError: the scheme is malformed, or there are too few examples for it.
    """
    name, parameter = parse_scheme(scheme)
    if num_clients < 1:
        raise ConfigError(f"num_clients is {num_clients}; give an integer from 1")
    if num_clients > num_examples:
        raise ConfigError(
            f"num_clients is {num_clients}, more than the {num_examples} training examples; "
            "give fewer clients or more examples"
        )
    num_shards = num_clients * int(parameter) if name == "shards" and parameter else 0
    if num_shards > num_examples:
        raise ConfigError(
            f"partition is {scheme!r}, which for {num_clients} clients needs {num_shards} "
            f"examples, and there are {num_examples}; give fewer shards or clients"
        )
    return name, parameter


def partition(
    labels: NDArray[np.int64], num_clients: int, scheme: str, generator: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Assign every example to exactly one client, and to every client at least one.

    The schemes:

    - iid: a random partition into sizes that differ by at most one.
    - dirichlet:A: for each label, the clients' shares of its examples are drawn from the
      symmetric Dirichlet(A) distribution over clients (Yurochkin et al., "Bayesian Nonparametric
      Federated Learning of Neural Networks", ICML 2019, section 4); a small A gives each label to
      few clients. A client left with nothing then gets one random example of the client that has
      the most.
    - shards:S: examples sorted by label are cut into S shards per client, of sizes that differ by
      at most one, and each client gets S random shards (McMahan et al., "Communication-Efficient
      Learning of Deep Networks from Decentralized Data", AISTATS 2017, section 3), so about S
      labels.
    - power-law:E: a random partition; beyond the one example that every client has, the client of
      rank r holds a share proportional to r ** -E, and ranks are drawn at random (sizes by a
      power law as in Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020).

    Args:
        labels: shape (N,), of the examples to assign.
        num_clients: from 1 to N.
        scheme: see parse_scheme.
        generator: the only source of randomness; its state decides the partition.

    Returns:
        One increasing array of row numbers per client.

    Raises:
        ConfigError: the scheme is malformed, or there are too few examples for it.

    >>> generator = np.random.default_rng(0)
    >>> [len(rows) for rows in partition(np.arange(10) % 2, 3, "iid", generator)]
    [4, 3, 3]
    """
    name, parameter = check_partition(len(labels), num_clients, scheme)
    if name == "dirichlet" and parameter is not None:
        parts = _dirichlet(labels, num_clients, parameter, generator)
    elif name == "shards" and parameter is not None:
        parts = _shards(labels, num_clients, int(parameter), generator)
    elif name == "power-law" and parameter is not None:
        parts = _power_law(len(labels), num_clients, parameter, generator)
    else:
        parts = np.array_split(generator.permutation(len(labels)), num_clients)
    return [np.sort(part) for part in parts]


def _dirichlet(
    labels: NDArray[np.int64],
    num_clients: int,
    concentration: float,
    generator: np.random.Generator,
) -> list[NDArray[np.int64]]:
    clients = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        rows = generator.permutation(np.flatnonzero(labels == label))
        shares = generator.dirichlet(np.full(num_clients, concentration))
        # Rounding the running total, not each share, assigns every row.
        ends = np.rint(np.cumsum(shares) / shares.sum() * len(rows)).astype(np.int64)
        clients[rows] = np.repeat(np.arange(num_clients), np.diff(ends, prepend=0))
    sizes = np.bincount(clients, minlength=num_clients)
    for empty in np.flatnonzero(sizes == 0):
        largest = sizes.argmax()  # has at least two: there are as many examples as clients
        clients[generator.choice(np.flatnonzero(clients == largest))] = empty
        sizes[largest] -= 1
        sizes[empty] += 1
    return np.split(np.argsort(clients, kind="stable"), np.cumsum(sizes)[:-1])


def _shards(
    labels: NDArray[np.int64],
    num_clients: int,
    shards_per_client: int,
    generator: np.random.Generator,
) -> list[NDArray[np.int64]]:
    num_shards = num_clients * shards_per_client
    order = generator.permutation(len(labels))
    shards = np.array_split(order[np.argsort(labels[order], kind="stable")], num_shards)
    drawn = generator.permutation(num_shards).reshape(num_clients, shards_per_client)
    return [np.concatenate([shards[number] for number in numbers]) for numbers in drawn]


def _power_law(
    num_examples: int, num_clients: int, exponent: float, generator: np.random.Generator
) -> list[NDArray[np.int64]]:
    ranks = generator.permutation(num_clients) + 1
    weights = ranks.astype(np.float64) ** -exponent
    ends = np.cumsum(weights) / weights.sum() * (num_examples - num_clients)
    ends = np.rint(ends).astype(np.int64) + np.arange(1, num_clients + 1)
    return np.split(generator.permutation(num_examples), ends[:-1])
