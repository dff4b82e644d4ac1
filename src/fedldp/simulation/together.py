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
from fedldp.parts.batched_sgd import GROUP
from fedldp.parts.changes import row_of
from fedldp.simulation.population import Population, naming, round_of
from fedldp.transport.in_process import Packed
from fedldp.wire import Sensitive, pack_reports


def group_of(population: Population) -> int:
    """Return how many clients are the least piece of work that does not change a bit."""
    alone = population.config.exchanges > 1  # an executed sum masks client by client
    return 1 if alone else population.step.group(population.members.largest)


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
    size = group_of(population)
    if size == 1:
        for index in indices:
            yield [index], [population.answer(message, index, ledger)]
        return
    for start in range(0, len(indices), size):
        group = indices[start : start + size]
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
    if reason is not None or encoder is None or len(turns) > 1:
        return None
    round, exchange = question.broadcast.round, question.exchange
    event, (most_rounds,) = encoder.event(exchange), turns
    batch = population.batch(indices, round)
    most = population.most_examples
    if draws_once(event) or (most is not None and max(map(len, batch.rows)) > most):
        return None
    place, charged = Place(population.run, round, exchange, digest), np.asarray(indices)
    if any(each is not None for each in ledger.check(place, event, charged, most_rounds)):
        return None
    update = population.step(question.broadcast, batch, GROUP)

    def make() -> NDArray[np.uint8]:
        senders = population.senders(indices, round, exchange)
        reports = encoder.many(update, question.broadcast, senders)
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
    updates: Iterator[Sensitive[Any]] = iter(())
    if pending:
        broadcast = next(iter(pending.values())).broadcast
        batch = population.batch(list(pending), broadcast.round)
        trained = population.step(broadcast, batch, GROUP)
        updates = (row_of(trained, place) for place in range(len(batch)))
    found = []
    for runtime, one in zip(runtimes, prepared, strict=True):
        with naming(round_of(message), runtime.index):
            if isinstance(one, Pending):
                one = runtime.finish(one, next(updates))
            found.append(one)
    return found
