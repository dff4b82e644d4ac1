"""Functions that apply an encoder to a single client, and read reports one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import RunError
from fedldp.protocol.roles import Encoder, Sender, Senders, Update
from fedldp.protocol.wire import Broadcast, Incoming, Report, Reports, Sensitive


def alone(encoder: Encoder, update: Sensitive[Any], broadcast: Broadcast, sender: Sender) -> Report:
    """Return the report of one client, encoded as a group of one.

    Args:
        encoder: the client's encoder.
        update: the client's ``Update``, or weights of shape (d,), or None where training failed.
        broadcast: the broadcast that the report answers.
        sender: the client.
    """
    sealed = Sensitive(Update.of_one(update.open(), broadcast.weights.size))
    senders = Senders(
        indices=[sender.index],
        num_examples=Sensitive(np.array([sender.num_examples.open()], np.int64)),
        fresh=lambda purpose: [sender.fresh(purpose)],
        kept=lambda purpose: [sender.kept(purpose)],
        store=lambda place: sender.store,
        phase=sender.phase,
    )
    (report,) = encoder(sealed, broadcast, senders)
    return report


def check_shape(update: Sensitive[Update], count: int, size: int) -> Sensitive[Update]:
    """Return the update; refuse one whose encoding would fail, since this could reveal examples.

    Args:
        update: the clients' update.
        count: the number of clients.
        size: d, the size of the model.

    Raises:
        RunError: the update does not have, for each client, one row of ``size`` weights and one row
            of each other array.
    """
    opened = update.open()
    if tuple(opened.rows.shape) != (count, size):
        raise RunError(f"local update: give rows of shape {(count, size)}")
    for name, array in opened.aux.items():
        if len(array) != count:
            raise RunError(f"local update: give {count} rows of {name}")
    return update


def open_finite(sealed: Sensitive[Update], broadcast: Broadcast) -> Update:
    """Open clients' updates; the broadcast's weights replace every row that is not finite.

    The other arrays of a row that is not finite become zeros. A refusal to answer would reveal
    something about the examples to the server, which could choose weights with which training fails
    on some examples only.
    """
    update = sealed.open()
    failed = np.flatnonzero(~np.isfinite(update.rows).all(1))
    if not failed.size:
        return update
    rows = update.rows.copy()
    rows[failed] = broadcast.weights
    aux = {name: array.copy() for name, array in update.aux.items()}
    for array in aux.values():
        array[failed] = 0
    return Update(rows=rows, aux=aux)


def rows_of(update: Sensitive[Update], places: NDArray[np.int64]) -> Sensitive[Update]:
    """Return what some of the clients computed, still sealed."""
    return Sensitive(update.open().at(places))


def each_alone(
    encode: Callable[[Sensitive[Update], Broadcast, Sender], Report],
    update: Sensitive[Update],
    broadcast: Broadcast,
    senders: Senders,
) -> Reports:
    """Return the reports of clients that ``encode`` handles one after another."""
    counts = senders.num_examples.open()

    def report(place: int) -> Report:
        sender = Sender(
            index=int(senders.indices[place]),
            num_examples=Sensitive(int(counts[place])),
            fresh=lambda purpose: senders.fresh(purpose)[place],
            kept=lambda purpose: senders.kept(purpose)[place],
            store=senders.store(place),
            phase=senders.phase,
        )
        return encode(Sensitive(update.open().alone(place)), broadcast, sender)

    return Reports.of([report(place) for place in range(len(senders))])


def whole(reports: Incoming) -> Iterator[Report]:
    """Yield each of ``reports`` on its own, for a server step that needs whole reports.

    Raises:
        RunError: the reports passed through a shuffler.
    """
    for report in reports:
        if isinstance(report, Reports):
            yield from report
        elif isinstance(report, Report):
            yield report
        else:
            raise RunError("this server reads whole reports, not counts of shuffled messages")


def arrived(reports: Incoming) -> Iterator[Report]:
    """Yield the reports of a round, each of a whole update.

    Raises:
        RunError: there is none.
    """
    nothing = True
    for report in whole(reports):
        nothing = False
        yield report
    if nothing:
        raise RunError("no report arrived, so there is no mean to compute")
