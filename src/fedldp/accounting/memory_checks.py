"""Whether many of a simulation's clients may release an event, and whether they can be clients."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.budget import Budget, price, price_of_run
from fedldp.accounting.check import check_count
from fedldp.accounting.events import Event
from fedldp.accounting.memory_run import LARGEST_CLIENT, LARGEST_ROUND, Places, Run
from fedldp.errors import ConfigError, PrivacyError

History = tuple[tuple[Event, int], ...]
"""What a client released in a run, and how often."""


def all_covered(
    budget: Budget | None, event: Event, clients: Places, run: Run, others: Sequence[Run]
) -> bool:
    """Return whether each client may release ``event`` in ``run``, after what it has released.

    It is asked once for those that are alike.

    Args:
        budget: of each client, for all runs together; or None.
        event: to release.
        clients: their indices.
        run: in which.
        others: all other runs.
    """
    # Without a budget it counts what was released in this run, and not how often.
    counting = budget is not None
    runs = [(each, each.rows(clients)) for each in ((run, *others) if counting else (run,))]
    columns = [column for each, rows in runs for column in each.told_apart(rows, times=counting)]
    return all(
        _covered(budget, event, *(each.history(int(rows[place])) for each, rows in runs))
        for place in _unlike(columns)
    )


@functools.lru_cache(maxsize=2**12)
def _covered(budget: Budget | None, event: Event, this_run: History, *other_runs: History) -> bool:
    """Return whether ``Ledger.admit`` lets a client with these histories release ``event``."""
    before = [event for event, _ in this_run]
    try:
        if budget is None:
            price(event, "pure", before)
        else:
            runs = (this_run, *other_runs)
            spent = sum((price_of_run(each, budget.kind) for each in runs), Fraction(0))
            budget.admit(event, spent, before)
    except PrivacyError:
        return False
    return True


def _unlike(columns: Sequence[NDArray[np.integer]]) -> list[int]:
    """Return the places of rows, one of each kind that the columns tell apart."""
    code = np.zeros(columns[0].size, np.int64)
    first = code[:1]
    for column in columns:
        if column.size and (column != column[0]).any():
            found, place = np.unique(column, return_inverse=True)
            _, first, code = np.unique(
                code * found.size + place, return_index=True, return_inverse=True
            )
    places: list[int] = first.tolist()
    return places


def indices_of(clients: NDArray[np.integer] | Sequence[int]) -> Places:
    """Return indices of clients, or raise ConfigError unless they are such, each once."""
    found = np.asarray(clients) if len(clients) else np.zeros(0, np.int64)
    if found.ndim != 1 or not np.issubdtype(found.dtype, np.integer):
        raise ConfigError(f"clients: {found.dtype} of shape {found.shape}; give indices")
    indices = found.astype(np.int64)
    if indices.min(initial=0) < 0 or indices.max(initial=0) > LARGEST_CLIENT:
        raise ConfigError(f"clients: give indices from 0 to {LARGEST_CLIENT:,}")
    if (indices[1:] <= indices[:-1]).any() and np.unique(indices).size < indices.size:
        raise ConfigError("clients: one stands there twice; give each once")
    return indices


def check_client(client: int) -> None:
    """Raise ConfigError unless ``client`` can be the index of a simulation's client."""
    check_count("client", client)
    if client > LARGEST_CLIENT:
        raise ConfigError(f"client = {client}: a simulation has at most {LARGEST_CLIENT + 1:,}")


def check_round(round: int) -> None:
    """Raise ConfigError if a simulation cannot have so many rounds."""
    if round > LARGEST_ROUND:
        raise ConfigError(f"round = {round}: a simulation has at most {LARGEST_ROUND:,}")
