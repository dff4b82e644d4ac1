"""Labelled examples in memory: the result of a loader, and a data set made from arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
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
    is_source,
    of_arrays,
    of_columns,
)
from fedldp.data.columns import Columns
from fedldp.data.label_range import LabelRange
from fedldp.data.partition import Shares, shares_of
from fedldp.data.people import (
    as_numbers,
    count_of,
    few_of_each,
    held_of_each,
    names_of,
    numbers_of_parts,
    usual_labels,
)
from fedldp.data.rules import check_column, checked, labels_of, numbered, text_of
from fedldp.data.sources import SOURCES

Rows = tuple[ArrayLike, ArrayLike] | tuple[ArrayLike, ArrayLike, ArrayLike] | Any
"""Features, labels and optionally each row's person; or any source that ``gathered`` reads."""

MAX_SEED = 2**32 - 1  # the largest that scikit-learn's splitter accepts


@dataclass(frozen=True, eq=False, repr=False)
class Examples:
    """Labelled examples; row i of one array belongs to row i of the others.

    Attributes:
        features: float32 of shape (N, *input_shape); images are (N, C, H, W) in [0, 1].
        labels: int64 of shape (N,), each from 0 to num_classes - 1; or numbers in steps of their
            range, from 0 to ``label_range.STEPS``.
        people: int64 of shape (N,), each at least 0: the person of each row; a client's rows with
            the same number belong to one person. None if every row is a separate person.
        rows: int64 of shape (N,): where each row stands among the rows that were given; None if
            they were given in several parts.
    """

    features: NDArray[np.float32]
    labels: NDArray[np.int64]
    people: NDArray[np.int64] | None = None
    rows: NDArray[np.int64] | None = None

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
        people, places = (None if each is None else each[rows] for each in (self.people, self.rows))
        return Examples(self.features[rows], self.labels[rows], people, places)


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A training and a test set of one task.

    Attributes:
        name: the name in records and messages; a subset's name differs from that of the full set.
        train: the examples that are partitioned among clients.
        test: the examples that only the evaluation uses.
        num_classes: one more than the largest label that can occur; 1 if labels are numbers, in
            steps of ``label_range``.
        clients: for each client, the rows of its training examples, if the data name the client of
            each row; otherwise a run divides the examples (``RunConfig.partition``).
        classes: the names of the classes, if they have names.
        features: the names of the features, if they have names.
        held_out: whether the test set was split off from the examples that were given for training.
        label_range: the public range of labels that are numbers to predict; None for classes.
    """

    name: str
    train: Examples
    test: Examples
    num_classes: int
    clients: Shares | None = None
    classes: tuple[str, ...] | None = None
    features: tuple[str, ...] | None = None
    held_out: bool = False
    label_range: LabelRange | None = None

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
        """What identifies the user's own data, with exact counts; None for a published data set."""
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
        kept = few_of_each(self.train.people, most, lambda: generator, owners)
        tested = few_of_each(self.test.people, most, lambda: generator)
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
        groups: ArrayLike | None = None,
        clients: ArrayLike | None = None,
        classes: Sequence[Any] | None = None,
        label_range: tuple[float, float] | None = None,
        test: Rows | None = None,
        test_share: float = 0.2,
        seed: int = 0,
        name: str = "custom",
    ) -> Dataset:
        """Check a user's own arrays and make a data set from them.

        The values are used unchanged. Scale them by publicly known ranges, never by ranges measured
        on the clients' data, which would leak without protection.

        Args:
            features: numbers of shape (N, *input_shape) that are finite, also as float32.
            labels: shape (N,): integers from 0, each of which occurs in at least one of the two
                sets; or strings, which become 0 to K - 1 in sorted order.
            groups: the person of each row, integers from 0 or strings, shape (N,): rows with the
                same value belong to one person, and are all for training or all for testing.
                Without groups every row is a separate person.
            clients: the client of each row, integers from 0 or strings, shape (N,): a run then has
                these clients, in sorted order. The same group at two clients means one person with
                rows at both, and a run refuses such data unless ``persons_at_sites`` allows them.
            classes: the public list of all possible labels, whose positions are the classes; a
                label may then also be absent.
            label_range: the public range (low, high) of labels that are numbers to predict; labels
                are then any finite numbers, and those beyond an end count as that end.
            test: a test set, as a pair (features, labels) or with its groups as a third array, of
                the same kinds; or a torch data set, DataLoader or table, as for ``from_clients``.
                Nobody may be in both sets. Without it, some of the examples are split off.
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
            ConfigError: test_share or seed is out of range.

        >>> data = Dataset.from_arrays([[0.0], [0.1], [0.9], [1.0]], [0, 0, 1, 1], test_share=0.5)
        >>> len(data.train), len(data.test), data.num_classes, data.input_shape
        (2, 2, 2, (1,))
        """
        context = f"data set {name!r}:"
        return of_rows(
            of_arrays(features, labels, groups, context=context),
            None if test is None else _read(test, f"{context} test"),
            clients=clients,
            classes=classes,
            label_range=label_range and LabelRange(*label_range),
            test_share=test_share,
            seed=seed,
            name=name,
        )

    @classmethod
    def from_table(
        cls,
        table: Any,
        *,
        label: str = LABEL,
        client: str | None = None,
        person: str | None = None,
        classes: Sequence[Any] | None = None,
        label_range: tuple[float, float] | None = None,
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
            label: the column that holds the classes; see ``labels`` in ``from_arrays``.
            client: the column that names each row's client; without it a run divides the rows.
            person: the column that names each row's person; see ``groups`` in ``from_arrays``.
            classes: see ``from_arrays``.
            label_range: see ``from_arrays``.
            test: a second table to test on; it needs neither a client column nor a person column.
            test_share: see ``from_arrays``.
            seed: the seed of the split.
            name: the name of the data set in messages and records.

        Raises:
            DataError, ConfigError: see ``from_arrays``; also, a column is missing, is not a
                feature, or may only number the rows.

        >>> rows = {"age": [0.3, 0.7, 0.4, 0.9], "label": [0, 1, 0, 1], "site": [*"aabb"]}
        >>> data = Dataset.from_table(rows, client="site", test_share=0.5)
        >>> data.features, data.clients.sizes.tolist()
        (('age',), [1, 1])
        """
        context = f"data set {name!r}:"
        of = partial(of_columns, label=label, client=client, person=person)
        read = of(table, context=context)
        held = None if test is None else of(test, optional=True, context=f"{context} test")
        return of_rows(
            read,
            held,
            clients=read.owners,
            classes=classes,
            label_range=label_range and LabelRange(*label_range),
            test_share=test_share,
            seed=seed,
            name=name,
        )

    @classmethod
    def from_clients(
        cls,
        clients: Sequence[Rows],
        *,
        test: Rows | None = None,
        classes: Sequence[Any] | None = None,
        label_range: tuple[float, float] | None = None,
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
            classes: see ``from_arrays``.
            label_range: see ``from_arrays``.
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
        every = [_read(rows, f"data set {name!r}: client {i}:") for i, rows in enumerate(clients)]
        if test is not None:
            every.append(_read(test, f"data set {name!r}: test"))
        parts = list(map(checked, every))
        trained = parts[: len(clients)]
        lacking = [i for i, part in enumerate(trained) if part.groups is None]
        if 0 < len(lacking) < len(trained):
            raise DataError(
                f"data set {name!r}: client {lacking[0]} has no groups, but other clients have; "
                "give groups for all clients or for none"
            )
        people: list[NDArray[np.int64] | None] = []
        count = 0
        for part in parts:
            own = None if part.groups is None else as_numbers(part.groups) + count
            count = count if own is None else int(own.max()) + 1
            people.append(own)
        return _whole(
            parts,
            people,
            test is not None,
            np.repeat(np.arange(len(trained)), [len(part.labels) for part in trained]),
            classes=classes,
            label_range=label_range and LabelRange(*label_range),
            test_share=test_share,
            seed=seed,
            name=name,
        )


def of_rows(
    read: Gathered,
    held: Gathered | None,
    *,
    clients: ArrayLike | None = None,
    name: str = "custom",
    **how: Any,
) -> Dataset:
    """Return a data set of one owner's rows; see ``Dataset.from_arrays``.

    Args:
        read: the examples.
        held: a test set, in which the same group is the same person; None splits off some examples.
        clients: the client of each row.
        name: the name of the data set.
        how: the classes or the range of labels, and how a test set is split off; see ``_whole``.
    """
    parts = [checked(each) for each in (read, held) if each is not None]
    people = numbers_of_parts([part.groups for part in parts])
    owners = None
    if clients is not None:
        count, context = len(parts[0].labels), f"data set {name!r}:"
        owners = as_numbers(names_of(clients, count, context, "client"))
    return _whole(parts, people, held is not None, owners, name=name, **how)


def _whole(
    parts: Sequence[Gathered],
    people: Sequence[NDArray[np.int64] | None],
    tested: bool,
    owners: NDArray[np.int64] | None,
    *,
    classes: Sequence[Any] | None = None,
    label_range: LabelRange | None = None,
    test_share: float = 0.2,
    seed: int = 0,
    name: str,
) -> Dataset:
    """Return the data set of all parts.

    Args:
        parts: the parts, checked.
        people: the person of each row of each part; the persons of all parts are numbered together.
        tested: whether the last part is the test set.
        owners: the client of each training row, if there are clients.
        classes: the names of all classes; None for those that a table brings along.
        label_range: the public range of labels that are numbers.
        test_share: the share to split off if no part is a test set; 0 for no test set.
        seed: the seed of the split.
        name: the name of the data set.
    """
    context = f"data set {name!r}:"
    _check_alike(parts)
    listed = parts[0].classes
    if classes is not None:
        listed = Columns(classes=tuple(map(text_of, classes))).classes
    labels, names, num_classes = numbered(parts, listed, context, label_range)
    every = [
        Examples(part.features, own, whose, np.arange(len(own)))
        for part, own, whose in zip(parts, labels, people, strict=True)
    ]
    test = every.pop() if tested else every[0].taken(slice(0, 0))
    train = every[0]
    if len(every) > 1:
        known = [part.people for part in every if part.people is not None]
        train = Examples(
            np.concatenate([part.features for part in every]),
            np.concatenate([part.labels for part in every]),
            np.concatenate(known) if known else None,
        )
    for column in parts[0].undeclared:
        values = np.concatenate([part.undeclared[column] for part in parts[: len(every)]])
        check_column(column, values, context, owners)
    if train.people is not None and test.people is not None:
        both = len(np.intersect1d(train.people, test.people))
        if both:
            raise DataError(
                f"{context} {both} {'person is' if both == 1 else 'persons are'} in the training "
                "and in the test set; take their rows out of one"
            )
    whole = Dataset(
        name,
        train,
        test,
        num_classes,
        classes=names,
        features=parts[0].names,
        label_range=label_range,
    )
    if tested or test_share == 0:
        return _of_clients(whole, owners)
    return _divided(whole, owners, test_share, seed)


def _check_alike(parts: Sequence[Gathered]) -> None:
    """Refuse parts of a data set whose examples have other shapes or columns than the first."""
    shape, names = parts[0].features.shape[1:], parts[0].names
    for part in parts:
        if part.features.shape[1:] != shape:
            raise DataError(
                f"{part.context} an example has shape {part.features.shape[1:]}, but in the first "
                f"examples it is {shape}; give all of them the same shape"
            )
        if part.names != names:
            raise DataError(
                f"{part.context} the columns are {_listed(part.names)}, but in the first examples "
                f"they are {_listed(names)}; make the names and their order equal"
            )


def _of_clients(whole: Dataset, owners: NDArray[np.int64] | None) -> Dataset:
    """Return the data set with the client of each training row, if there are clients."""
    if owners is None:
        return whole
    return replace(whole, clients=shares_of(owners, int(owners.max()) + 1))


def _divided(
    whole: Dataset, owners: NDArray[np.int64] | None, test_share: float, seed: int
) -> Dataset:
    """Return the data set with a test set that is split off from its training examples.

    Args:
        whole: the data set, without a test set.
        owners: the client of each row; each client's rows are divided.
        test_share: the share to split off.
        seed: the seed of the split.
    """
    if owners is None:
        kept, held = _parted(whole.train, test_share, seed, whole.name)
    else:
        held = _split_of_each(owners, whole.train.people, test_share, seed, whole.name)
        kept = np.setdiff1d(np.arange(len(owners)), held)
        owners = owners[kept]
    train, test = whole.train.taken(kept), whole.train.taken(held)
    return _of_clients(replace(whole, train=train, test=test, held_out=True), owners)


def _parted(
    examples: Examples, test_share: float, seed: int, name: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows for training and for testing; each person's rows are in only one of them."""
    if examples.people is None:
        return split(examples.labels, test_share, seed)
    number = as_numbers(examples.people)
    labels = usual_labels(examples.labels, number)
    if len(labels) < 2:
        raise DataError(
            f"data set {name!r}: all rows belong to one person, so they cannot be split; add other "
            "people's rows, or give a test set"
        )
    held = np.isin(number, split(labels, test_share, seed)[1])
    return np.flatnonzero(~held), np.flatnonzero(held)


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
    else:
        ends = np.cumsum(np.bincount(owners))[:-1]
        taken = [
            generator.permutation(rows)[: int(test_share * len(rows))]
            for rows in np.split(np.argsort(owners, kind="stable"), ends)
        ]
        found = np.sort(np.concatenate(taken))
    if not found.size:
        raise DataError(
            f"data set {name!r}: every client has too few examples, or only one person, to hold "
            "some out; give a separate test set (test_file)"
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


def checked_rows(
    rows: Rows,
    context: str,
    classes: Sequence[str] | None = None,
    label_range: LabelRange | None = None,
) -> Examples:
    """Return ``Examples`` made from the features and labels of one party, or from a source.

    Args:
        rows: the examples.
        context: the beginning of error messages.
        classes: the names of all classes; None if labels are integers from 0.
        label_range: the public range of labels that are numbers.

    Raises:
        DataError: they are malformed; the message says how.
    """
    return as_examples(_read(rows, context), classes, label_range)


def as_examples(
    read: Gathered, classes: Sequence[str] | None, label_range: LabelRange | None = None
) -> Examples:
    """Return ``Examples`` made from what was read of one party; see ``checked_rows``."""
    found = checked(read)
    people = None if found.groups is None else as_numbers(found.groups)
    return Examples(found.features, labels_of(found, classes, label_range), people)


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
    return of_arrays(*rows, context=context)


def _listed(names: Sequence[str] | None) -> str:
    return "none with names" if names is None else ", ".join(names)


def as_dataset(given: Any, test: Rows | None = None, *, tested: bool = False) -> Dataset:
    """Return a ``Dataset`` made from data in any form that Python users may give.

    Args:
        given: a data set; features and labels, or another source, which a run divides among
            clients; or a list of these, one per client.
        test: examples to test on; None splits off some of the examples.
        tested: whether a test set is required.

    Raises:
        ConfigError: the data have none of these forms, or have no test set.
        DataError: they are malformed; the message names the client or the test set.
    """
    if isinstance(given, Dataset):
        if test is not None:
            raise ConfigError(
                f"test: the data set {given.name!r} was made with its test set, or without one; "
                "leave test out, or give it where the data set is made: Dataset.from_arrays, "
                "from_table and from_clients take test="
            )
        found = given
    elif isinstance(given, tuple) and any_source(given):
        raise ConfigError(
            "dataset: it is a tuple of data sets; give clients as a list, and the test set as test="
        )
    elif is_clients(given):
        found = Dataset.from_clients(given, test=test)
    elif is_source(given) or (isinstance(given, tuple | list) and len(given) == 2):
        held = None if test is None else _read(test, "data set 'custom': test")
        found = of_rows(_read(given, "data set 'custom':"), held)
    else:
        raise ConfigError(
            f"dataset: {type(given).__name__} is not data; give features and labels as a pair of "
            "arrays, a list of clients' pairs or DataLoaders, a fedldp.Dataset, a name or a path"
        )
    if tested and not len(found.test):
        raise ConfigError(
            f"dataset: the data set {found.name!r} has no test set to compare runs on; give it one"
        )
    return found
