"""Labelled examples in memory: the result of a loader, and a data set made from arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedldp.core.errors import ConfigError, DataError
from fedldp.core.formatting import rounded_count
from fedldp.core.randomness import numbered_generator
from fedldp.data.adapters import (
    LABEL,
    Gathered,
    any_source,
    gathered,
    is_clients,
    is_federated,
    is_source,
    of_columns,
    partitions_of,
)
from fedldp.data.partition import Shares, shares_of
from fedldp.data.people import (
    as_numbers,
    count_of,
    few_of_each,
    held_of_each,
    names_of,
    numbers_of,
    numbers_of_parts,
    usual_labels,
)
from fedldp.data.sources import SOURCES

Rows = tuple[ArrayLike, ArrayLike] | tuple[ArrayLike, ArrayLike, ArrayLike] | Any
"""Features, labels and optionally each row's person; or any source that ``gathered`` reads."""

MAX_SEED = 2**32 - 1  # the largest that scikit-learn's splitter accepts


@dataclass(frozen=True, eq=False, repr=False)
class Examples:
    """Labelled examples; row i of one array belongs to row i of the others.

    Attributes:
        features: float32 of shape (N, *input_shape); images are (N, C, H, W) in [0, 1].
        labels: int64 of shape (N,), each from 0 to num_classes - 1.
        people: int64 of shape (N,), each at least 0: the person of each row; a client's rows with
            the same number belong to one person. None if every row is a separate person.
    """

    features: NDArray[np.float32]
    labels: NDArray[np.int64]
    people: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:  # shows no row, because notebooks are shared with their output
        rows = f"up to {rounded_count(len(self)):,} rows"
        return f"<fedldp.Examples: {rows} of shape {self.features.shape[1:]}>"

    def taken(self, rows: NDArray[np.int64] | NDArray[np.bool_] | slice) -> Examples:
        """Return some of the rows, each with its label and person, in the given order.

        Args:
            rows: anything that numpy accepts as an index of an array's first axis.
        """
        people = None if self.people is None else self.people[rows]
        return Examples(self.features[rows], self.labels[rows], people)


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A training and a test set of one classification task.

    Attributes:
        name: the name in records and messages; a subset's name differs from that of the full set.
        train: the examples that are partitioned among clients.
        test: the examples that only the evaluation uses.
        num_classes: one more than the largest label that can occur.
        clients: for each client, the rows of its training examples, if the data name the client of
            each row; otherwise a run divides the examples (``RunConfig.partition``).
        classes: the names of the classes, if they have names.
        features: the names of the features, if they have names.
        held_out: whether the test set was split off from the examples that were given for training.
    """

    name: str
    train: Examples
    test: Examples
    num_classes: int
    clients: Shares | None = None
    classes: tuple[str, ...] | None = None
    features: tuple[str, ...] | None = None
    held_out: bool = False

    def __repr__(self) -> str:  # shows no row, like ``Examples``
        told = self.own_data or f"{self.name}: {len(self.train):,} and {len(self.test):,} examples"
        clients = "" if self.clients is None else f", of {len(self.clients)} clients"
        return f"<fedldp.Dataset {told}{clients}>"

    @property
    def is_public(self) -> bool:
        """Whether it is a published data set, known by its name."""
        return self.name in SOURCES

    @property
    def own_data(self) -> str | None:
        """A description of the user's own data; None for a published data set.

        Counts are rounded, and there is no digest of the content, because run folders are shared,
        and a digest would confirm a guess.
        """
        if self.is_public:
            return None
        train, test = rounded_count(len(self.train)), rounded_count(len(self.test))
        people, whose = self.num_people, ""
        if people is not None:
            whose = f" of up to {rounded_count(people):,} persons"
        return (
            f"{self.name}: up to {train:,} rows{whose} for training and {test:,} for testing, of "
            f"shape {self.input_shape}"
        )

    @property
    def exact_data(self) -> str | None:
        """A string that identifies the user's own data; None for a published data set.

        Its counts are exact. Earlier versions recorded this string instead of ``own_data``.
        """
        if self.is_public:
            return None
        whose = "" if self.num_people is None else f", {self.num_people} persons"
        return f"{self.name}: {self.train.features.shape}, {self.test.features.shape}{whose}"

    @property
    def owners(self) -> NDArray[np.int64]:
        """The client of each training row, shape (N,); 0 if the data do not name clients."""
        found = np.zeros(len(self.train), np.int64)
        for client, rows in enumerate(self.clients or ()):
            found[rows] = client
        return found

    @property
    def num_people(self) -> int | None:
        """The number of people in the training examples, if the data name each row's person."""
        return None if self.train.people is None else count_of(self.train.people)

    def with_rows_per_person(self, most: int, generator: np.random.Generator) -> Dataset:
        """Return the data with at most ``most`` rows per person and client, drawn once.

        Args:
            most: at least 1.
            generator: chooses the rows to keep; not used if nobody has more than ``most`` rows.
        """
        owners = self.owners
        kept = few_of_each(self.train.people, most, generator, owners)
        tested = few_of_each(self.test.people, most, generator)
        if kept is None and tested is None:
            return self
        train = self.train if kept is None else self.train.taken(kept)
        test = self.test if tested is None else self.test.taken(tested)
        clients = self.clients
        if clients is not None and kept is not None:
            clients = shares_of(owners[kept], len(clients))
        return replace(self, train=train, test=test, clients=clients)

    @property
    def scores_are_private(self) -> bool:
        """Whether a measurement on the test set is a function of clients' private rows."""
        return self.held_out and not self.is_public

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one example's features, without the batch axis."""
        return self.train.features.shape[1:]

    @classmethod
    def from_arrays(
        cls,
        features: ArrayLike,
        labels: ArrayLike,
        *,
        test_features: ArrayLike | None = None,
        test_labels: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        test_groups: ArrayLike | None = None,
        clients: ArrayLike | None = None,
        test_share: float = 0.2,
        seed: int = 0,
        name: str = "custom",
    ) -> Dataset:
        """Check a user's own arrays and make a data set from them.

        The values are used unchanged. Scale them by publicly known ranges, never by ranges measured
        on the clients' data, which would leak without protection.

        Args:
            features: numbers of shape (N, *input_shape) that are finite, also as float32.
            labels: integers of shape (N,), from 0; the number of classes is the largest label in
                either set plus one.
            test_features: a test set of shape (M, *input_shape), given together with its labels;
                without it, some of the examples are split off.
            test_labels: integers of shape (M,).
            groups: the person of each row, integers from 0 or strings, shape (N,): rows with the
                same value belong to one person, and are all for training or all for testing.
                Without groups every row is a separate person.
            test_groups: the person of each test row, shape (M,); nobody may be in both sets.
            clients: the client of each row, integers from 0 or strings, shape (N,): a run then has
                these clients, in sorted order. The same group at two clients means one person with
                rows at both, and a run refuses such data unless ``persons_at_sites`` allows them.
            test_share: the share of the examples to split off, between 0 and 1; stratified by label
                if every label has at least two examples and both parts have room for every label.
                With groups it is a share of the people, and a person's label is the most frequent
                label of that person's rows; with clients, it is a share of each client's examples,
                as for ``from_clients``. With 0, nothing is split off, and a run's model is not
                tested.
            seed: the seed of the split, from 0 to 2**32 - 1.
            name: the name of the data set in messages and records.

        Returns:
            The data set; it may share an array that is already float32 rather than copy the array.

        Raises:
            DataError: the arrays are empty, ragged, of unequal lengths, not finite, not numbers, or
                hold fewer than two classes; the message says which.
            ConfigError: test_share or seed is out of range, or only one of test_features and
                test_labels is given.

        >>> data = Dataset.from_arrays([[0.0], [0.1], [0.9], [1.0]], [0, 0, 1, 1], test_share=0.5)
        >>> len(data.train), len(data.test), data.num_classes, data.input_shape
        (2, 2, 2, (1,))
        """
        if (test_features is None) != (test_labels is None):
            raise ConfigError(
                f"data set {name!r}: test_features and test_labels go together; give both or none"
            )
        if test_features is None and test_groups is not None:
            raise ConfigError(
                f"data set {name!r}: test_groups is given without a test set; give test_features "
                "and test_labels too"
            )
        context = f"data set {name!r}:"
        train, test = checked(features, labels, context), None
        named = None if groups is None else names_of(groups, len(train), context)
        people, tested = numbers_of_parts([named, None])
        if test_features is not None and test_labels is not None:
            test = checked(test_features, test_labels, f"{context} test")
            if test_groups is not None:
                others = names_of(test_groups, len(test), f"{context} test")
                people, tested = numbers_of_parts([named, others])
            test = replace(test, people=tested)
        train = replace(train, people=people)
        if clients is not None:
            owners = numbers_of(clients, len(train), context, "clients", "client")
            return with_owners(
                train, owners, test=test, test_share=test_share, seed=seed, name=name
            )
        return of_examples(train, test=test, test_share=test_share, seed=seed, name=name)

    @classmethod
    def from_table(
        cls,
        table: Any,
        *,
        label: str = LABEL,
        client: str | None = None,
        person: str | None = None,
        test: Any = None,
        test_share: float = 0.2,
        seed: int = 0,
        name: str = "custom",
    ) -> Dataset:
        """Make a data set from a table in memory, whose columns name each row's client and person.

        Values are used unchanged; a .csv or .parquet file can declare ranges and categories.

        Args:
            table: a Hugging Face ``Dataset``, a pandas ``DataFrame``, or a mapping of names to
                arrays. All other columns are features: either columns of numbers, or a single
                column of arrays or of images, which become numbers from 0 to 1.
            label: the column that holds the classes, integers from 0.
            client: the column that names each row's client; without it a run divides the rows.
            person: the column that names each row's person; see ``groups`` in ``from_arrays``.
            test: a second table to test on; it needs neither a client column nor a person column.
            test_share: see ``from_arrays``.
            seed: the seed of the split.
            name: the name of the data set in messages and records.

        Raises:
            DataError, ConfigError: see ``from_arrays``; also, a column is missing or is not a
                feature.

        >>> rows = {"age": [0.3, 0.7, 0.4, 0.9], "label": [0, 1, 0, 1], "site": [*"aabb"]}
        >>> data = Dataset.from_table(rows, client="site", test_share=0.5)
        >>> data.features, data.clients.sizes.tolist()
        (('age',), [1, 1])
        """
        context = f"data set {name!r}:"
        aside = [each for each in (client, person) if each is not None]
        read = of_columns(table, label=label, aside=aside, context=context)
        held, groups = None, None
        if test is not None:
            held = of_columns(
                test, label=label, aside=aside, optional=True, context=f"{context} test"
            )
            if held.names != read.names:
                raise DataError(
                    f"{context} the test set has the columns {_listed(held.names)}, and the "
                    f"training set {_listed(read.names)}; make the names and their order equal"
                )
            groups = None if person is None else held.aside.get(person)
        found = cls.from_arrays(
            read.features,
            read.labels,
            test_features=None if held is None else held.features,
            test_labels=None if held is None else held.labels,
            groups=None if person is None else read.aside[person],
            test_groups=groups,
            clients=None if client is None else read.aside[client],
            test_share=test_share,
            seed=seed,
            name=name,
        )
        return _with_names(found, read)

    @classmethod
    def from_clients(
        cls,
        clients: Sequence[Rows],
        *,
        test: Rows | None = None,
        test_share: float = 0.2,
        seed: int = 0,
        name: str = "custom",
    ) -> Dataset:
        """Check the arrays of known clients, and make a data set from them.

        A run on it has these clients, whatever its settings ``num_clients`` and ``partition`` are.

        Args:
            clients: for each client, features and labels, and groups as a third array if people
                have several rows, as for ``from_arrays``; or a torch data set or DataLoader, or a
                table with a column ``label``. Each client has its own groups, so the same value at
                two clients counts as two people, and a guarantee for a person assumes that nobody
                has rows at both.
            test: features and labels of a test set, and groups as a third array if it has any;
                without it, some of every client's examples are split off.
            test_share: the share of a client's examples to split off, between 0 and 1, rounded
                down, so that a client with few examples contributes none. With groups, about that
                share of all people is split off, rounded up or down for each client, but never a
                client's last person.
            seed: the seed of the split, from 0 to 2**32 - 1.
            name: the name of the data set in messages and records.

        Raises:
            DataError, ConfigError: see ``from_arrays``; the message names the client.

        >>> one, other = ([[0.0], [0.1]], [0, 1]), ([[0.2], [0.3], [0.4]], [0, 0, 1])
        >>> data = Dataset.from_clients([one, other], test=other)
        >>> data.clients.sizes.tolist(), len(data.train)
        ([2, 3], 5)
        """
        if not len(clients):
            raise DataError(f"data set {name!r}: there are no clients; give at least one")
        read = [_read(each, f"data set {name!r}: client {i}:") for i, each in enumerate(clients)]
        parts = [
            checked(each.features, each.labels, f"data set {name!r}: client {i}:", each.groups)
            for i, each in enumerate(read)
        ]
        for i, part in enumerate(parts):
            if part.features.shape[1:] != parts[0].features.shape[1:]:
                raise DataError(
                    f"data set {name!r}: an example of client {i} has shape "
                    f"{part.features.shape[1:]}, and of client 0 {parts[0].features.shape[1:]}"
                )
        owners = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        whole = Examples(
            np.concatenate([part.features for part in parts]),
            np.concatenate([part.labels for part in parts]),
            _people_of_all(parts, name),
        )
        for i, each in enumerate(read):
            if each.names != read[0].names:
                raise DataError(
                    f"data set {name!r}: client {i} has the columns {_listed(each.names)}, and "
                    f"client 0 {_listed(read[0].names)}; make the names and their order equal"
                )
        held = None if test is None else checked_rows(test, f"data set {name!r}: test")
        if held is not None and held.people is not None and whole.people is not None:
            held = replace(held, people=held.people + whole.people.max() + 1)
        found = with_owners(whole, owners, test=held, test_share=test_share, seed=seed, name=name)
        return _with_names(found, read[0])


def of_examples(
    train: Examples,
    *,
    test: Examples | None,
    test_share: float = 0.2,
    seed: int = 0,
    name: str = "custom",
) -> Dataset:
    """Return a data set of examples without clients; see ``Dataset.from_arrays``.

    Args:
        train: the examples.
        test: a test set, in which people have the same numbers as in ``train``; None splits off
            some of ``train``.
        test_share: the share to split off; 0 for no test set.
        seed: the seed of the split.
        name: the name of the data set.

    Raises:
        DataError: the sets do not match, or have too few classes, examples or people.
    """
    held_out = test is None and test_share != 0
    if test is None and test_share == 0:
        test = train.taken(slice(0, 0))
    elif test is None:
        train, test = _parted(train, test_share, seed, name)
    elif test.features.shape[1:] != train.features.shape[1:]:
        raise DataError(
            f"data set {name!r}: an example has shape {train.features.shape[1:]} in the "
            f"training set and {test.features.shape[1:]} in the test set"
        )
    if train.people is not None and test.people is not None:
        both = len(np.intersect1d(train.people, test.people))
        if both:
            raise DataError(
                f"data set {name!r}: {both} {'person is' if both == 1 else 'persons are'} in the "
                "training and in the test set; take their rows out of one"
            )
    all_labels = np.concatenate([train.labels, test.labels])
    if len(np.unique(all_labels)) < 2:
        raise DataError(
            f"data set {name!r}: every label is {all_labels[0]}; classification needs at "
            "least two classes"
        )
    return Dataset(
        name=name,
        train=train,
        test=test,
        num_classes=int(all_labels.max()) + 1,
        held_out=held_out,
    )


def with_owners(
    examples: Examples,
    owners: NDArray[np.int64],
    *,
    test: Examples | None,
    test_share: float = 0.2,
    seed: int = 0,
    name: str = "custom",
) -> Dataset:
    """Return a data set of known clients' examples; see ``Dataset.from_clients``.

    Person numbers are global: the same number at two clients means one person with rows at both.

    Args:
        examples: the examples of all clients.
        owners: the client of each example, shape (N,); clients are numbered from 0 without gaps.
        test: a test set; None splits off some of each client's examples.
        test_share: the share of a client's examples, or of its people.
        seed: the seed of the split.
        name: the name of the data set.
    """
    held, held_out = test, test is None and test_share != 0
    if held is None and not held_out:
        held = examples.taken(slice(0, 0))
    elif held is None:
        rows = _split_of_each(owners, examples.people, test_share, seed, name)
        held = examples.taken(rows)
        kept = np.setdiff1d(np.arange(len(owners)), rows)
        examples, owners = examples.taken(kept), owners[kept]
    found = of_examples(examples, test=held, name=name)
    shares = shares_of(owners, int(owners.max()) + 1)
    return replace(found, clients=shares, held_out=held_out)


def _people_of_all(parts: Sequence[Examples], name: str) -> NDArray[np.int64] | None:
    """Return each row's person, numbered so that no two clients share a number."""
    known = [part.people for part in parts if part.people is not None]
    if not known:
        return None
    if len(known) < len(parts):
        lacking = next(i for i, part in enumerate(parts) if part.people is None)
        raise DataError(
            f"data set {name!r}: client {lacking} has no groups, but other clients have; give "
            "groups for all clients or for none"
        )
    sizes = [int(people.max()) + 1 for people in known]
    return np.concatenate(known) + np.repeat(
        np.cumsum(sizes) - sizes, [len(each) for each in known]
    )


def _parted(
    examples: Examples, test_share: float, seed: int, name: str
) -> tuple[Examples, Examples]:
    """Return a training and a test part; each person's rows are in only one of them."""
    if len(examples) < 2:
        raise DataError(
            f"data set {name!r}: a single example cannot be split; add more examples, or give a "
            "test set"
        )
    if examples.people is None:
        train, test = split(examples.labels, test_share, seed)
        return examples.taken(train), examples.taken(test)
    number = as_numbers(examples.people)
    labels = usual_labels(examples.labels, number)
    if len(labels) < 2:
        raise DataError(
            f"data set {name!r}: all rows belong to one person, so they cannot be split; add other "
            "people's rows, or give a test set"
        )
    held = np.isin(number, split(labels, test_share, seed)[1])
    return examples.taken(~held), examples.taken(held)


def _split_of_each(
    owners: NDArray[np.int64],
    people: NDArray[np.int64] | None,
    test_share: float,
    seed: int,
    name: str,
) -> NDArray[np.int64]:
    """Return the rows of the test part, ascending: a share of each client's rows, rounded down.

    If each row's person is known, the share is of the people; see ``held_of_each``.
    """
    _check_split(test_share, seed)
    generator = numbered_generator(seed, 0)
    if people is not None:
        found = np.flatnonzero(held_of_each(people, owners, test_share, generator))
        if not found.size:
            raise DataError(
                f"data set {name!r}: every client has only one person, who cannot be held out; "
                "give a separate test set (test_file)"
            )
        return found
    taken = [
        generator.permutation(rows)[: int(test_share * len(rows))]
        for rows in np.split(np.argsort(owners, kind="stable"), np.cumsum(np.bincount(owners))[:-1])
    ]
    found = np.sort(np.concatenate(taken))
    if not found.size:
        raise DataError(
            f"data set {name!r}: every client has too few examples to split some off; give a "
            "separate test set (test_file)"
        )
    return found


def _check_split(test_share: float, seed: int) -> None:
    if not 0 < test_share < 1:
        raise ConfigError(
            f"test_share is {test_share}; give a number between 0 and 1, or 0 for no test set"
        )
    if not 0 <= seed <= MAX_SEED:
        raise ConfigError(f"seed is {seed}; give an integer from 0 to {MAX_SEED}")


def split(
    labels: NDArray[np.int64], test_share: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split row numbers into a training and a test part, stratified by label where possible.

    Args:
        labels: shape (N,), for at least two examples.
        test_share: between 0 and 1; the test part has ceil(test_share * N) rows, and leaves at
            least one for training.
        seed: from 0 to 2**32 - 1; the same labels and seed give the same parts.

    Returns:
        The row numbers of the training part, and those of the test part.

    Raises:
        ConfigError: test_share or seed is out of range.
    """
    # Import this here, because the import takes a second and users with their own test set do not
    # need it.
    from sklearn.model_selection import train_test_split

    _check_split(test_share, seed)
    num_test = min(math.ceil(test_share * len(labels)), len(labels) - 1)
    _, counts = np.unique(labels, return_counts=True)
    stratifiable = counts.min() >= 2 and len(counts) <= min(num_test, len(labels) - num_test)
    train, test = train_test_split(
        np.arange(len(labels)),
        test_size=num_test,
        random_state=seed,
        stratify=labels if stratifiable else None,
    )
    return train, test


def _integers(kind: str) -> str:
    """Return a one-line suggestion for turning labels of this kind into integers."""
    if kind in "bf":
        return "give integers from 0, such as labels.astype(int)"
    return "give integers from 0, such as (labels == CLASS).astype(int), or CLASSES.index(label)"


def checked(
    features: ArrayLike, labels: ArrayLike, context: str, groups: ArrayLike | None = None
) -> Examples:
    """Turn a user's arrays into Examples, or refuse them with a one-line reason."""
    x, y = _as_array(features, "features", context), _as_array(labels, "labels", context)
    if y.dtype.kind not in "iu":
        raise DataError(f"{context} labels are of type {y.dtype}; {_integers(y.dtype.kind)}")
    if x.ndim < 2 or y.ndim != 1:
        raise DataError(
            f"{context} features have shape {x.shape} and labels {y.shape}; "
            "give (N, ...) and (N,), with at least one feature axis"
        )
    if len(x) != len(y):
        raise DataError(
            f"{context} there are {len(x)} rows of features but {len(y)} labels; give "
            "one label per row"
        )
    if x.size == 0:
        raise DataError(f"{context} features of shape {x.shape} are empty; give some examples")
    x = checked_features(x, context)
    y = y.astype(np.int64)
    if y.min() < 0:
        raise DataError(
            f"{context} the smallest label is {y.min()}; give integers from 0, such as (labels == "
            "CLASS).astype(int) for two classes"
        )
    return Examples(x, y, None if groups is None else numbers_of(groups, len(y), context))


def checked_features(features: ArrayLike, context: str) -> NDArray[np.float32]:
    """Turn a user's own examples into float32, or refuse them with a one-line reason.

    Raises:
        DataError: they are ragged, not numbers, or not finite.
    """
    x = _as_array(features, "features", context)
    if x.dtype.kind not in "buif":
        raise DataError(f"{context} features are of type {x.dtype}; give numbers")
    with np.errstate(over="ignore"):  # a float32 overflow becomes infinite, and is refused
        x = np.ascontiguousarray(x, dtype=np.float32)
    if not np.isfinite(x).all():
        row = int(np.argwhere(~np.isfinite(x))[0][0])
        raise DataError(
            f"{context} features of row {row} are NaN, infinite or too large for float32; "
            "drop or repair such rows"
        )
    return x


def _as_array(given: ArrayLike, what: str, context: str) -> NDArray[Any]:
    try:
        return np.asarray(given)
    except ValueError as error:
        raise DataError(f"{context} {what} are ragged: {error}") from None


def checked_rows(rows: Rows, context: str) -> Examples:
    """Return ``Examples`` made from features and labels, or from a source.

    Raises:
        DataError: they are malformed; the message, which begins with ``context``, says how.
    """
    read = _read(rows, context)
    return checked(read.features, read.labels, context, read.groups)


def _read(rows: Rows, context: str) -> Gathered:
    if is_source(rows):
        return gathered(rows, context)
    if is_clients(rows):
        raise DataError(
            f"{context} it lists the examples of several clients; give the examples of only one"
        )
    if not isinstance(rows, tuple | list) or len(rows) not in (2, 3):
        raise DataError(
            f"{context} {type(rows).__name__} holds no examples; give features and labels, a torch "
            "data set or DataLoader, or a table with a column label"
        )
    return Gathered(*rows)


def _with_names(dataset: Dataset, read: Gathered) -> Dataset:
    """Return a data set with the names that a table gives."""
    classes = read.classes
    if classes is not None and len(classes) < dataset.num_classes:
        raise DataError(
            f"data set {dataset.name!r}: it has the label {dataset.num_classes - 1}, but the table "
            f"names only {len(classes)} classes; name every class"
        )
    count = dataset.num_classes if classes is None else len(classes)
    return replace(dataset, features=read.names, classes=classes, num_classes=count)


def _listed(names: Sequence[str] | None) -> str:
    return "none with names" if names is None else ", ".join(names)


def as_dataset(given: Any, test: Rows | None = None, *, tested: bool = False) -> Dataset:
    """Return a ``Dataset`` made from data in any form that Python users may give.

    Args:
        given: a data set; features and labels, or another source, which a run divides among
            clients; a list of these, one per client; or a ``FederatedDataset``.
        test: examples to test on; None splits off some of the examples.
        tested: whether a test set is required.

    Raises:
        ConfigError: the data have none of these forms, or have no test set.
        DataError: they are malformed; the message names the client or the test set.
    """
    found = _as_dataset(given, test)
    if tested and not len(found.test):
        raise ConfigError(
            f"dataset: the data set {found.name!r} has no test set to compare runs on; give it one"
        )
    return found


def _as_dataset(given: Any, test: Rows | None) -> Dataset:
    if isinstance(given, Dataset):
        if test is not None:
            raise ConfigError(
                f"test: the data set {given.name!r} already has a test set; leave test out"
            )
        return given
    if is_federated(given):
        parts, own = partitions_of(given)
        return Dataset.from_clients(parts, test=own if test is None else test)
    if isinstance(given, tuple) and any_source(given):
        raise ConfigError(
            "dataset: it is a tuple of data sets; give clients as a list, and the test set as test="
        )
    if is_clients(given):
        return Dataset.from_clients(given, test=test)
    if is_source(given) or (isinstance(given, tuple | list) and len(given) == 2):
        context = "data set 'custom':"
        read = _read(given, context)
        train = checked(read.features, read.labels, context, read.groups)
        held = None if test is None else checked_rows(test, f"{context} test")
        if held is not None and held.people is not None and train.people is not None:
            held = replace(held, people=held.people + train.people.max() + 1)
        return _with_names(of_examples(train, test=held), read)
    raise ConfigError(
        f"dataset: {type(given).__name__} is not data; give features and labels as a pair of "
        "arrays, a list of clients' pairs or DataLoaders, a fedldp.Dataset, a name or a path"
    )
