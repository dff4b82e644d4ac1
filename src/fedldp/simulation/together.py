"""Simulated clients that answer at once: what each would answer alone, for less.

Where nothing is out of the ordinary, the steps of ``client.runtime`` are taken for many clients:

    question -> policy    one for all of them
             -> ledger    may every one of them answer this, for the first time? else one by one
             -> step      ``many``, where the step has it and it pays; agrees to float rounding
             -> encoder   ``many``, where the encoder has it: the same bits as alone
             -> ledger    every answer's bytes are charged
             -> answers   as rows of one array

Whoever is refused, asked again or drawn once goes through the runtime alone. Only a simulation
does this: it holds the examples of all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.budget import draws_once
from fedldp.accounting.ledger import Place
from fedldp.accounting.memory_ledger import MemoryLedger
from fedldp.client.runtime import Pending, read
from fedldp.errors import RunError, WireError
from fedldp.parts.sides import Clients, ManyEncoder, ManyStep, Rows, Update
from fedldp.simulation.population import Population, check_value, naming
from fedldp.transport.in_process import Packed
from fedldp.wire import Broadcast, Sensitive, pack_reports

GROUP = 64
"""Clients that train at once: the next ones of a round, in its order."""


def trains_together(population: Population) -> bool:
    """Return whether the clients of a run train in groups, which its configuration decides."""
    step = population.step
    return isinstance(step, ManyStep) and step.pays(population.members.largest)


def group_of(population: Population) -> int:
    """Return how many clients are the least piece of work that does not change a bit."""
    return GROUP if trains_together(population) else 1


def answers(
    population: Population, message: bytes, indices: Sequence[int], ledger: MemoryLedger
) -> Iterator[tuple[Sequence[int], Packed]]:
    """Yield what clients answer, some at a time, in their order.

    Args:
        population: the clients.
        message: the question, packed.
        indices: of the clients; where they train together, whole groups, but for the last.
        ledger: theirs.
    """
    if not trains_together(population):
        for index in indices:
            yield [index], [population.answer(message, index, ledger)]
        return
    for start in range(0, len(indices), GROUP):
        group = indices[start : start + GROUP]
        if len(set(group)) < len(group):
            raise RunError(f"clients {sorted(group)}: one of them is asked twice at once")
        found = _whole(population, message, group, ledger)
        yield group, _each(population, message, group, ledger) if found is None else found


def _whole(
    population: Population, message: bytes, indices: Sequence[int], ledger: MemoryLedger
) -> NDArray[np.uint8] | None:
    """Return the answers of all at once, or None where some are out of the ordinary."""
    try:
        question, digest, reason = read(population.policy, message)
    except WireError:
        return None
    encoder = population.encoders.shared(indices)
    turns = {population.config.participation.max_rounds(index) for index in indices}
    if reason is not None or not isinstance(encoder, ManyEncoder) or len(turns) > 1:
        return None
    round, exchange = question.broadcast.round, question.exchange
    event, (most_rounds,) = encoder.event(exchange), turns
    clients = population.block(indices, round)
    most = population.most_examples
    if draws_once(event) or (most is not None and max(map(len, clients.rows)) > most):
        return None
    place, charged = Place(population.run, round, exchange, digest), np.asarray(indices)
    if any(each is not None for each in ledger.check(place, event, charged, most_rounds)):
        return None
    updates = _train(population, message, question.broadcast, clients)

    def make() -> NDArray[np.uint8]:
        senders = population.senders(indices, round, exchange)
        reports = encoder.many(_sealed(updates), question.broadcast, senders)
        return pack_reports(reports, run=population.run, exchange=exchange)

    released = ledger.release(place, event, charged, make, most_rounds)
    return released if isinstance(released, np.ndarray) else None


def _each(
    population: Population, message: bytes, indices: Sequence[int], ledger: MemoryLedger
) -> list[bytes]:
    """Return the answers of clients who train together and do all else alone."""
    runtimes = [population.runtime(index, ledger) for index in indices]
    prepared = [runtime.prepare(message) for runtime in runtimes]
    pending = {r.index: one for r, one in zip(runtimes, prepared, strict=True)
               if isinstance(one, Pending)}  # fmt: skip
    updates: Iterator[Any] = iter(())
    if pending:
        broadcast = next(iter(pending.values())).broadcast
        clients = population.block(list(pending), broadcast.round)
        updates = iter(_here(_train(population, message, broadcast, clients).open()))
    found = []
    for runtime, one in zip(runtimes, prepared, strict=True):
        with naming(message, runtime.index):
            if isinstance(one, Pending):
                one = runtime.finish(one, Sensitive(next(updates)))
            found.append(one)
    return found


def _train(
    population: Population, message: bytes, broadcast: Broadcast, clients: Clients
) -> Sensitive[Rows]:
    step = population.step
    assert isinstance(step, ManyStep)
    updates = step.many(broadcast, clients)
    rows = updates.open()
    finite = np.isfinite(rows) if isinstance(rows, np.ndarray) else rows.isfinite()
    if not finite.all():
        for index, row in zip(clients.indices, _here(rows), strict=True):
            with naming(message, index):
                check_value(row)
    return updates


def _sealed(updates: Sensitive[Rows]) -> Sensitive[Update]:
    return Sensitive(Update(rows=updates.open()))


def _here(rows: Rows) -> NDArray[np.float32]:
    return rows if isinstance(rows, np.ndarray) else rows.cpu().numpy()
