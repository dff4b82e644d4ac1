"""Which client holds which examples: partitions of a training set among simulated clients."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import ConfigError
from fedldp.core.randomness import numbered_generator
from fedldp.data.people import as_numbers, usual_labels

_SCHEMES = ("iid", "dirichlet", "shards", "power-law", "drawn")
_OF_ROWS = ("shards", "drawn")  # they divide rows only, and their parameter is a whole number
_MAX_PARAMETER = 1e6  # larger values make no further difference, and may overflow when sampled


def parse_scheme(text: str) -> tuple[str, float]:
    """Read a partition scheme, such as "iid" or "dirichlet:0.5".

    Returns:
        The scheme's name, and its parameter; 0 if it has none.

    Raises:
        ConfigError: the name is unknown, or the parameter is missing, superfluous or out of range.

    >>> parse_scheme("dirichlet:0.5")
    ('dirichlet', 0.5)
    >>> parse_scheme("iid")
    ('iid', 0.0)
    """
    name, colon, number = text.partition(":")
    try:
        value = float(number) if colon else 0.0
    except ValueError:
        value = math.nan
    usable = 0 < value <= _MAX_PARAMETER and (name not in _OF_ROWS or value.is_integer())
    if name not in _SCHEMES or not (usable if name != "iid" else not colon):
        raise ConfigError(
            f"partition is {text!r}; give iid, dirichlet:0.5 or power-law:1.5 (a concentration or "
            "an exponent above 0), shards:2 or drawn:6 (a number for each client, an integer from "
            f"1); numbers are at most {_MAX_PARAMETER:.0f}"
        )
    return name, value


def check_partition(
    num_examples: int, num_clients: int, scheme: str, num_people: int | None = None
) -> tuple[str, float]:
    """Read a partition scheme like ``parse_scheme``, and refuse it if there are too few examples.

    Args:
        num_examples: the number of examples of all clients.
        num_clients: the number of clients among whom they are divided.
        scheme: see ``parse_scheme``.
        num_people: the number of persons in the data; if it is given, people are divided, not rows.

    Raises:
        ConfigError: the scheme is malformed, or there are too few examples, or people, for it.
    """
    name, parameter = parse_scheme(scheme)
    if num_clients < 1:
        raise ConfigError(f"num_clients is {num_clients}; give an integer from 1")
    if num_people is not None and name in _OF_ROWS:
        raise ConfigError(
            f"partition is {scheme!r}, which divides rows, and all rows of a person go to one "
            "client; give iid, or another scheme that divides people: dirichlet or power-law"
        )
    if num_people is not None and num_clients > num_people:
        raise ConfigError(
            f"num_clients is {num_clients}, more than the {num_people} people in the training set; "
            "give fewer clients"
        )
    if name == "drawn":
        if parameter > num_examples:
            raise ConfigError(
                f"partition is {scheme!r}, but there are only {num_examples} examples to draw "
                "from; give at most that"
            )
        return name, parameter
    if num_clients > num_examples:
        raise ConfigError(
            f"num_clients is {num_clients}, more than the {num_examples} training examples; "
            "give fewer clients or more examples"
        )
    num_shards = num_clients * int(parameter) if name == "shards" else 0
    if num_shards > num_examples:
        raise ConfigError(
            f"partition is {scheme!r}, which for {num_clients} clients needs {num_shards} "
            f"examples, and there are {num_examples}; give fewer shards or clients"
        )
    return name, parameter


def examples_of_all(num_examples: int, num_clients: int, scheme: str) -> int:
    """Return how many of the ``num_examples`` examples the clients hold in total."""
    name, parameter = parse_scheme(scheme)
    return num_clients * int(parameter) if name == "drawn" else num_examples


class Shares:
    """The rows of each client, ascending; stored in a few arrays for any number of clients.

    Args:
        rows: the rows of all clients, one client after another.
        sizes: the number of rows of each client.
    """

    def __init__(self, rows: NDArray[np.int64], sizes: NDArray[np.int64]) -> None:
        self.sizes = sizes
        self._rows = rows
        self._stops = np.cumsum(sizes)

    @classmethod
    def of(cls, parts: Sequence[NDArray[np.int64]]) -> Shares:
        """Return the shares of clients, given the rows of each."""
        return Shares(np.concatenate(parts), np.array([len(part) for part in parts]))

    def __len__(self) -> int:
        return len(self.sizes)

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        return map(self.__getitem__, range(len(self)))

    @property
    def largest(self) -> int:
        """The number of rows of the largest client."""
        return int(self.sizes.max())

    def counts(self, labels: NDArray[np.int64], num_classes: int) -> NDArray[np.int64]:
        """Return how many examples of each class each client has, shape (clients, classes)."""
        cells = np.repeat(np.arange(len(self)), self.sizes) * num_classes + labels[self._rows]
        found = np.bincount(cells, minlength=len(self) * num_classes)
        return found.reshape(len(self), num_classes)

    def __getitem__(self, client: int) -> NDArray[np.int64]:
        stop = self._stops[client]
        return self._rows[stop - self.sizes[client] : stop]


_TOGETHER = 1024
"""The number of clients whose examples are drawn at a time."""


class DrawnShares(Shares):
    """The rows of each client, drawn only when needed, and the same each time.

    Args:
        num_clients: the number of clients.
        per_client: the number of rows of each client.
        num_examples: the number of examples from which the rows are drawn.
        key: determines the draws.
    """

    def __init__(self, num_clients: int, per_client: int, num_examples: int, key: int) -> None:
        self.sizes = np.broadcast_to(np.int64(per_client), num_clients)
        self._how = num_examples, per_client, key

    def __getitem__(self, client: int) -> NDArray[np.int64]:
        block, place = divmod(range(len(self))[client], _TOGETHER)
        rows: NDArray[np.int64] = _drawn(*self._how, block)[place]
        return rows


@lru_cache(maxsize=16)
def _drawn(num_examples: int, per_client: int, key: int, block: int) -> NDArray[np.int64]:
    """Return the rows of one block of clients, shape (_TOGETHER, per_client)."""
    generator = numbered_generator(key, block)
    drawn = generator.integers(num_examples, size=(_TOGETHER, per_client))
    drawn.sort(axis=1)
    for place in np.flatnonzero((np.diff(drawn, axis=1) == 0).any(1)):  # an example was drawn twice
        own = generator.choice(num_examples, per_client, replace=False)
        drawn[place] = np.sort(own)
    return drawn


def partition(
    labels: NDArray[np.int64],
    num_clients: int,
    scheme: str,
    generator: np.random.Generator,
    people: NDArray[np.int64] | None = None,
) -> Shares:
    """Assign every example to exactly one client, and to every client at least one.

    The schemes:

    - iid: a random partition into sizes that differ by at most one.
    - dirichlet:A: for each label, the clients' shares of its examples are drawn from the symmetric
    Dirichlet(A) distribution over clients (Yurochkin et al., "Bayesian Nonparametric Federated
    Learning of Neural Networks", ICML 2019, section 4); a small A gives each label to few clients.
    A client left with nothing then gets one random example from the client that has the most.
    - shards:S: examples sorted by label are cut into S shards per client, of sizes that differ by
      at most one, and each client gets S random shards, and therefore about S labels (McMahan et
      al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS
      2017, section 3).
    - power-law:E: a random partition; beyond the one example that every client has, the client of
      rank r holds a share proportional to r ** -E, and ranks are drawn at random (sizes by a
      power law as in Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020).
    - drawn:N: no partition; each client draws N different examples from all of them. This allows
    more clients than examples; an example then represents similar examples, one at each client that
    has it.

    If ``people`` names the person of each example, people are assigned instead, each with all its
    examples: sizes are numbers of people, and a person's label is the most frequent one among its
    examples.

    Args:
        labels: shape (N,), of the examples to assign.
        num_clients: at least 1; at most N, or the number of people, unless examples are drawn.
        scheme: see parse_scheme.
        generator: the only source of randomness; its state determines the partition.
        people: the person of each example, shape (N,); not for shards or drawn examples.

    Returns:
        One ascending array of row numbers per client.

    Raises:
        ConfigError: the scheme is malformed, or there are too few examples or people for it.

    >>> generator = np.random.default_rng(0)
    >>> [len(rows) for rows in partition(np.arange(10) % 2, 3, "iid", generator)]
    [4, 3, 3]
    """
    if people is not None:
        whose = as_numbers(people)
        of_people = usual_labels(labels, whose)
        check_partition(len(labels), num_clients, scheme, len(of_people))
        homes = np.zeros(len(of_people), np.int64)
        for client, own in enumerate(partition(of_people, num_clients, scheme, generator)):
            homes[own] = client
        return shares_of(homes[whose], num_clients)
    name, parameter = check_partition(len(labels), num_clients, scheme)
    if name == "drawn":
        key = int(generator.integers(1 << 63))
        return DrawnShares(num_clients, int(parameter), len(labels), key)
    owners = {
        "iid": _iid,
        "dirichlet": _dirichlet,
        "shards": _shards,
        "power-law": _power_law,
    }[name](labels, num_clients, parameter, generator)
    return shares_of(owners, num_clients)


def shares_of(owners: NDArray[np.integer], num_clients: int) -> Shares:
    """Return the rows of each client, given the client ``owners`` of each row."""
    return Shares(np.argsort(owners, kind="stable"), np.bincount(owners, minlength=num_clients))


def _even(total: int, parts: int) -> NDArray[np.int64]:
    """Return sizes that differ by at most one, the larger ones first."""
    return total // parts + (np.arange(parts) < total % parts)


def _owners(order: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the owner of each row if clients take the next ``sizes`` rows of ``order`` in turn."""
    owners = np.empty(len(order), np.int32)
    owners[order] = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    return owners


def _iid(
    labels: NDArray[np.int64], num_clients: int, _: float, generator: np.random.Generator
) -> NDArray[np.int32]:
    return _owners(generator.permutation(len(labels)), _even(len(labels), num_clients))


def _dirichlet(
    labels: NDArray[np.int64],
    num_clients: int,
    concentration: float,
    generator: np.random.Generator,
) -> NDArray[np.int32]:
    clients = np.empty(len(labels), dtype=np.int32)
    for label in np.unique(labels):
        rows = generator.permutation(np.flatnonzero(labels == label))
        shares = generator.dirichlet(np.full(num_clients, concentration))
        # Rounding the running total, rather than each share, assigns every row.
        ends = np.rint(np.cumsum(shares) / shares.sum() * len(rows)).astype(np.int64)
        clients[rows] = np.repeat(np.arange(num_clients), np.diff(ends, prepend=0))
    sizes = np.bincount(clients, minlength=num_clients)
    for empty in np.flatnonzero(sizes == 0):
        largest = sizes.argmax()  # has two or more, because clients do not outnumber examples
        clients[generator.choice(np.flatnonzero(clients == largest))] = empty
        sizes[largest] -= 1
        sizes[empty] += 1
    return clients


def _shards(
    labels: NDArray[np.int64],
    num_clients: int,
    shards_per_client: float,
    generator: np.random.Generator,
) -> NDArray[np.int32]:
    num_shards = num_clients * int(shards_per_client)
    order = generator.permutation(len(labels))
    shards = _owners(
        order[np.argsort(labels[order], kind="stable")], _even(len(labels), num_shards)
    )
    drawn = _owners(generator.permutation(num_shards), _even(num_shards, num_clients))
    owners: NDArray[np.int32] = drawn[shards]
    return owners


def _power_law(
    labels: NDArray[np.int64], num_clients: int, exponent: float, generator: np.random.Generator
) -> NDArray[np.int32]:
    num_examples = len(labels)
    ranks = generator.permutation(num_clients) + 1
    weights = ranks.astype(np.float64) ** -exponent
    ends = np.cumsum(weights) / weights.sum() * (num_examples - num_clients)
    ends = np.rint(ends).astype(np.int64) + np.arange(1, num_clients + 1)
    ends[-1] = num_examples
    return _owners(generator.permutation(num_examples), np.diff(ends, prepend=0))
