"""A site's examples in the form that an agreement requires.

Examples may be left out or added, and examples that are randomised only once must not change during
a run. Nothing here may reveal which examples a site has, or how many.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import ConfigError, PrivacyError
from fedldp.core.randomness import Stream
from fedldp.data import Examples, standardised
from fedldp.data.people import few_of_each
from fedldp.deployment.agreement import Agreement
from fedldp.deployment.source import SiteData
from fedldp.protocol.client_store import FolderStore

log = logging.getLogger("fedldp.site")

_NOTED = "examples"


def examples_for(
    agreement: Agreement,
    source: SiteData,
    place: Path,
    most: int | None,
    kept: Callable[[str], Stream],
) -> Examples:
    """Return a site's examples in the form that the agreement requires.

    Whether a site takes part must not reveal its examples, so incompatible examples are left out
    instead of causing a refusal. If a site's answers are charged for a fixed number of examples,
    they must not reveal how many examples it has either, so missing examples are replaced by zeros.
    (A demo adds no examples, because its randomness protects nothing and because it repeats a
    simulation, whose shares may differ in size by one example.)

    Args:
        agreement: the agreement of the run.
        source: the site's data.
        place: the path of the data, for error messages.
        most: the number of examples for which the site's answers are charged. None: the charge does
            not depend on the number of examples.
        kept: returns the random stream for a purpose, which is the same throughout the run; if a
            person has too many rows, such a stream decides which rows to use.

    Raises:
        ConfigError: the examples have the wrong shape, or do not say to which person they belong.
    """
    config, problem = agreement.config, agreement.problem
    found = source.examples(config.columns, problem.features)
    shape = found.features.shape[1:]
    if shape != problem.input_shape:
        raise ConfigError(
            f"data {place}: an example has the shape {shape}, but the agreement says "
            f"{problem.input_shape}; reshape the examples"
        )
    _check_said(agreement, found.people is not None, place)
    reasons = ""
    if len(found) < len(source):
        of_person = config.columns.person is not None or source.person_column is not None
        reasons += ", values that fit its declared columns"
        reasons += ", rows that name their person" if of_person else ""
    rows = None
    if config.rows_per_person is not None:
        draw = kept("rows of a person").generator()
        rows = few_of_each(found.people, config.rows_per_person, draw)
    if rows is not None:
        found = found.taken(rows)
        reasons += f", at most {config.rows_per_person} rows per person"
    fitting = np.flatnonzero(found.labels < problem.num_classes)[:most]
    if fitting.size < len(source):
        log.warning(
            "%d of %d examples are left out of run %s, which accepts labels up to %d%s%s",
            len(source) - fitting.size,
            len(source),
            agreement.run[:8],
            problem.num_classes - 1,
            reasons,
            "" if most is None else f", at most {most} examples per site",
        )
    found = found.taken(fitting)
    if most is not None and len(found) < most and agreement.test_seed is None:
        log.warning(
            "%d examples of zeros are added for run %s, which uses %d examples per site; "
            "otherwise the site's answers would reveal how many examples it has",
            most - len(found),
            agreement.run[:8],
            most,
        )
        found = _filled(found, most, problem.num_classes)
    return standardised(found, config.dataset) if config.standardise else found


def is_about_people(agreement: Agreement) -> bool:
    """Return whether sites must say which person each row belongs to."""
    config = agreement.config
    return (agreement.problem.people, config.person_column, config.rows_per_person) != (None,) * 3


def check_people(agreement: Agreement, source: SiteData, place: Path) -> None:
    """Refuse data that do not say to which person each row belongs, if the run requires this.

    With this check, the site's operator learns of the problem before accepting the agreement.

    Raises:
        DataError, ConfigError: a row has no person; the message says which row.
    """
    if is_about_people(agreement):
        _check_said(agreement, source.people_are_said(agreement.config.columns), place)
        source.check_people(agreement.config.columns)


def _check_said(agreement: Agreement, said: bool, place: Path) -> None:
    """Refuse a file that names no people if the run requires a person for each row.

    The refusal reveals nothing about the file's rows.
    """
    if is_about_people(agreement) and not said:
        raise ConfigError(
            f"data {place}: run {agreement.run[:8]} is about people, but the file does not say "
            "which rows belong to the same person; set person_column in the policy, or add "
            "groups to the .npz file"
        )


def check_unchanged(examples: Examples, store: FolderStore, place: Path, *, begun: bool) -> bool:
    """Refuse examples that differ, even only in order, from those that the run began with.

    Otherwise, an example that is randomised once and charged once could be randomised twice.

    Args:
        examples: the present examples.
        store: what the site stores for the run.
        place: the path of the data, for error messages.
        begun: whether the site released something in the run.

    Returns:
        Whether the examples are the recorded ones; False if nothing was released and either the
        examples differ or none have been recorded.

    Raises:
        PrivacyError: something was released, and the examples differ or the record is gone.
    """
    noted = store.known(_NOTED)
    if noted is not None and np.array_equal(noted["digest"], _digest(examples)):
        return True
    if begun and noted is None:
        raise PrivacyError(
            f"data {place}: the record of the examples that the run began with is missing from "
            "the site's state; restore that folder from a copy, or take part in new runs only"
        )
    if begun:
        raise PrivacyError(
            f"data {place}: the examples or their order changed since the run began, but each may "
            "be randomised only once; restore the old file, or take part in new runs only"
        )
    return False


def begin_with(examples: Examples, store: FolderStore) -> None:
    """Record the examples that a run begins with, and remove what was stored for other examples.

    Raises:
        StoreUnusable: the old files cannot be removed, or the record cannot be written.
    """
    store.forget()
    store.arrays(_NOTED, lambda: {"digest": _digest(examples)})


def _filled(examples: Examples, count: int, num_classes: int) -> Examples:
    """Return ``count`` examples; missing ones are replaced by zeros, with labels that cycle from 0.

    Each added example belongs to a separate person.
    """
    missing = count - len(examples)
    zeros = np.zeros((missing, *examples.features.shape[1:]), examples.features.dtype)
    labels = np.arange(missing, dtype=examples.labels.dtype) % num_classes
    people = examples.people
    if people is not None:
        more = np.arange(missing, dtype=people.dtype) + people.max(initial=-1) + 1
        people = np.concatenate([people, more])
    return Examples(
        np.concatenate([examples.features, zeros]),
        np.concatenate([examples.labels, labels]),
        people,
    )


def _digest(examples: Examples) -> NDArray[np.uint8]:
    """Return a digest of examples in their order, shape (32,)."""
    found = hashlib.sha256()
    people = () if examples.people is None else (examples.people,)
    for array in (examples.features, examples.labels, *people):
        found.update(str((array.shape, array.dtype)).encode())
        found.update(np.ascontiguousarray(array).data)
    return np.frombuffer(found.digest(), np.uint8)
