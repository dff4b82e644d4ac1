"""The people to whom rows belong: numbering, splits by person, and limits on rows and clients.

These functions prepare rows where their owner keeps them. They release nothing, and do not make
data private.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedldp.core.errors import DataError
from fedldp.data.columns import INEXACT, identity, of_each, tell_spellings

Names = NDArray[np.integer[Any]] | list[str]
"""The names of people or clients, one for each row: integers, or strings with one spelling each."""

_NEARLY_ONE = 1 - 1e-9
"""The start of a running total, so that ``int`` rounds the total up unless it exceeds an integer by
less than 1e-9."""


def names_of(
    groups: ArrayLike,
    count: int,
    context: str,
    whose: Literal["person", "client"] = "person",
) -> Names:
    """Return the name of each row's person, with one spelling, given the owner's names for people.

    Args:
        groups: integers from 0, or strings, shape (count,); strings that ``identity`` spells alike
            are one name.
        count: the number of rows.
        context: the beginning of error messages.
        whose: the noun for a row's group in error messages.

    Raises:
        DataError: a row has no group, or the number of groups is wrong; the message says which.
    """
    noun, found = {"person": "group", "client": "client"}[whose], np.asarray(groups)
    if found.shape != (count,):
        raise DataError(
            f"{context} {noun}s have shape {found.shape}; give one for each of the {count} rows"
        )
    if found.dtype.kind not in "iuUOT":  # O because pandas stores strings as objects
        raise DataError(f"{context} {noun}s are of type {found.dtype}; give integers or strings")
    given, is_numbers = found.tolist(), found.dtype.kind in "iu"
    texts = [] if is_numbers else [_text(each) for each in given]
    names = of_each(texts, identity)
    if None in names:
        raise DataError(f"{context} {noun} {INEXACT}")
    bad = found < 0 if is_numbers else np.array([not name for name in names], np.bool_)
    if bad.any():
        row = int(bad.argmax())
        plain = given[row] is None or isinstance(given[row], str | int)
        shown = repr(given[row]) if plain else f"of type {type(given[row]).__name__}"
        raise DataError(
            f"{context} the {noun} of row {row} is {shown}; every row needs its {whose}: give "
            "integers from 0, or non-empty strings"
        )
    tell_spellings(texts, identity, context, whose)
    return found if is_numbers else [name for name in names if name]


def _text(name: Any) -> str:
    """Return a name as text; "" for what is neither a string nor an integer from 0."""
    if isinstance(name, str):
        return name
    if isinstance(name, Integral) and not isinstance(name, bool) and int(name) >= 0:
        return str(int(name))
    return ""


def numbers_of_parts(parts: Sequence[Names | None]) -> list[NDArray[np.int64] | None]:
    """Return the number of each row's person in several parts of the data.

    A person has the same number in all of them; None stands for a part that names nobody.
    """
    named = [part for part in parts if part is not None]
    whole: Names
    if any(isinstance(part, list) for part in named):
        whole = [str(name) for part in named for name in part]
    else:  # integers from 0; int64 and uint64 together would become floats
        integers = [np.asarray(part).astype(np.uint64) for part in named]
        whole = np.concatenate([np.zeros(0, np.uint64), *integers])
    numbers = as_numbers(whole)
    ends = np.cumsum([0 if part is None else len(part) for part in parts])
    return [
        None if part is None else numbers[end - len(part) : end]
        for part, end in zip(parts, ends, strict=True)
    ]


def as_numbers(whose: Any) -> NDArray[np.int64]:
    """Return the number of each row's person: the position of the row's value in sorted order."""
    if isinstance(whose, list):  # of strings; numpy would pad each to the length of the longest
        place = {name: number for number, name in enumerate(sorted(set(whose)))}
        return np.array([place[name] for name in whose], np.int64)
    return np.unique(whose, return_inverse=True)[1].astype(np.int64).reshape(-1)


def count_of(people: NDArray[np.int64]) -> int:
    """Return the number of people."""
    return len(np.unique(people))


def usual_labels(labels: NDArray[np.int64], people: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the most frequent label of each person; ties go to the smallest label."""
    pairs, counts = np.unique(np.stack([people, labels], 1), axis=0, return_counts=True)
    order = np.lexsort((pairs[:, 1], -counts, pairs[:, 0]))
    first = np.unique(pairs[order, 0], return_index=True)[1]
    found: NDArray[np.int64] = pairs[order[first], 1]
    return found


def held_of_each(
    people: NDArray[np.int64],
    owners: NDArray[np.int64],
    test_share: float,
    generator: np.random.Generator,
) -> NDArray[np.bool_]:
    """Return which rows are held out: all rows of about ``test_share`` of each client's people.

    In total, ``test_share`` of all people are held out, rounded up, if clients have enough people.
    Each client contributes its own share, rounded up or down at random, but never all of its
    people. A person with rows at several clients counts at the first of these clients, and is held
    out at all of them or at none.

    Args:
        people: the person of each row, shape (N,).
        owners: the client of each row, shape (N,).
        test_share: between 0 and 1.
        generator: the only source of randomness.
    """
    _, first, number = np.unique(people, return_index=True, return_inverse=True)
    home = owners[first]
    drawn = generator.permutation(len(first))
    drawn = drawn[np.argsort(home[drawn], kind="stable")]
    sizes = np.bincount(home, minlength=int(owners.max()) + 1)
    begins = np.cumsum(sizes) - sizes
    held = np.zeros(len(first), np.bool_)
    due = _NEARLY_ONE
    for client in generator.permutation(len(sizes)):
        own = test_share * sizes[client]
        due += own
        taken = max(0, min(int(due), int(sizes[client]) - 1, math.ceil(own)))
        due -= taken
        held[drawn[begins[client] : begins[client] + taken]] = True
    # A client that would have no person left to train on gets one person back.
    for client in np.setdiff1d(owners, owners[~held[number]]):
        held[number[int((owners == client).argmax())]] = False
    rows: NDArray[np.bool_] = held[number]
    return rows


def few_of_each(
    people: NDArray[np.int64] | None,
    most: int,
    draw: Callable[[], np.random.Generator],
    owners: NDArray[np.int64] | None = None,
) -> NDArray[np.int64] | None:
    """Return the rows to keep, ascending: all of a person's rows, or ``most`` of them at random.

    Args:
        people: the person of each row, shape (N,); None if every row is a separate person.
        most: the largest number of rows per person and client, at least 1.
        draw: returns the only source of randomness; not called if nobody has more than ``most``
            rows.
        owners: the client of each row, shape (N,), if there are several.

    Returns:
        None if all rows are kept.
    """
    if people is None:
        return None
    if owners is not None:
        people = np.unique(np.stack([people, owners]), axis=1, return_inverse=True)[1].reshape(-1)
    counts = np.unique(people, return_counts=True)[1]
    if counts.max(initial=0) <= most:
        return None
    order = draw().permutation(len(people))
    order = order[np.argsort(people[order], kind="stable")]
    place = np.arange(len(people)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.sort(order[place < most])


def check_sites(
    people: NDArray[np.int64], owners: NDArray[np.int64], most: int, context: str
) -> None:
    """Refuse data in which anyone has rows at more clients than a guarantee takes into account.

    Args:
        people: the person of each row, shape (N,).
        owners: the client of each row, shape (N,).
        most: the largest number of clients per person.
        context: the beginning of the message, which only the owner of the whole table may see.

    Raises:
        DataError: there are such people; the message says how many.
    """
    clients = np.unique(np.unique(np.stack([people, owners], 1), axis=0)[:, 0], return_counts=True)
    many = int(np.count_nonzero(clients[1] > most))
    if many:
        has = "1 person has" if many == 1 else f"{many} persons have"
        raise DataError(
            f"{context} {has} rows at more than persons_at_sites = {most} "
            f"{'client' if most == 1 else 'clients'}; set persons_at_sites = "
            f"{int(clients[1].max())}, which weakens the guarantee for a person, or keep such a "
            "person's rows at one client only"
        )
