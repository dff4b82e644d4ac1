"""An executor of simulated clients on many machines: the workers of a Ray cluster.

A task is a request, a batch of clients, their ledgers and the files that they keep. It returns
answers, ledgers, and the new files. It depends on nothing else and changes nothing elsewhere. So if
a worker dies, Ray repeats the task, and the result is bit for bit the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from fedldp.core.errors import FedldpError
from fedldp.core.locks import scratch
from fedldp.ledgers.columns import MemoryLedger
from fedldp.protocol.roles import Score
from fedldp.protocol.wire import Broadcast
from fedldp.simulation.in_process import Packed, SentRequest, answers_of, in_order
from fedldp.simulation.population import Population
from fedldp.simulation.ray_cluster import Cluster, check_versions, import_ray, versions

Kept = dict[int, dict[str, bytes]]
"""The files that clients keep, as ``FolderStore.files`` returns them."""


class RayExecutor:
    """The workers of a Ray cluster: one task at a time on each CPU. See ``Executor``.

    Args:
        population: the clients; sent to the cluster once, and built once in each worker process.
        ledger: the clients' ledgers.
        cluster: the cluster's address; see ``Cluster``.

    Raises:
        FedldpError: the cluster cannot be used; see ``Cluster``.
    """

    def __init__(self, population: Population, ledger: MemoryLedger, cluster: str) -> None:
        self._population = population
        self._ledger = ledger
        self._group = population.group
        self._cluster = Cluster(cluster)
        try:
            self._expected = versions()
            self._sent = self._cluster.put(_PopulationSpec.of(population))
            self._task = self._cluster.task(_work)
        except BaseException:
            self._cluster.close()
            raise

    def __enter__(self) -> RayExecutor:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._cluster.close()

    def answers(
        self, request: SentRequest, clients: Sequence[int]
    ) -> Iterator[tuple[Sequence[int], Packed]]:
        """Yield the answers of ``clients``; see ``Executor``."""
        for found in self._map(_answer, request, clients, self._ledger.extract, self._group):
            yield from found

    def scores(self, broadcast: Broadcast) -> Iterator[Score]:
        """Yield the scores; see ``Executor``."""
        pieces = range(self._population.num_tests)
        for scores in self._map(_score, broadcast, pieces, lambda _: None, 1):
            yield from scores

    def _map(
        self,
        work: Callable[..., list[Any]],
        request: SentRequest | Broadcast,
        items: Sequence[int],
        ledgers: Callable[[Sequence[int]], MemoryLedger | None],
        group: int,
    ) -> Iterator[list[Any]]:
        """Yield the results of ``work`` on batches of ``items``, in order."""
        sent = self._cluster.put(request)  # sends the request once, rather than with each batch

        def begin(batch: Sequence[int]) -> Any:
            stores = ((item, self._population.store(item)) for item in batch)
            kept = {item: files for item, store in stores if (files := store.files())}
            return self._task.remote(
                [self._sent], self._expected, work, sent, batch, ledgers(batch), kept
            )

        for _, done in in_order(
            items,
            self._cluster.num_cpus(),
            group=group,
            begin=begin,
            result=lambda reference: self._cluster.result(reference, "a batch of clients"),
            cancel=lambda _: None,  # the few tasks whose results are not needed run to the end
        ):
            if done.ledger is not None:
                self._ledger.absorb(done.ledger)
            for item, files in done.kept.items():
                self._population.store(item).add(files)
            yield done.results


@dataclass(frozen=True)
class _PopulationSpec:
    """What a worker needs to build its population; arrays stay in the node's object store."""

    values: Mapping[str, Any]

    @classmethod
    def of(cls, population: Population) -> _PopulationSpec:
        values = {f.name: getattr(population, f.name) for f in fields(Population) if f.init}
        # Leave out folders, which exist only on this machine.
        values |= {
            "problem": replace(population.problem, data_dir=None),
            "folder": Path(),
            "lasting": False,
        }
        return cls(values)

    def population(self) -> Population:
        return Population(**self.values)


@dataclass(frozen=True)
class _Done:
    """The return value of a task: results, ledgers, and the new files that clients keep."""

    results: list[Any]
    ledger: MemoryLedger | None
    kept: Kept


_made: tuple[str, Population] | None = None
"""The reference from which a worker process built its population, and the population."""


def _work(
    sent: Sequence[Any],
    expected: Mapping[str, str],
    work: Callable[[Population, Any, Sequence[int], Any], list[Any]],
    request: SentRequest | Broadcast,
    items: Sequence[int],
    ledger: MemoryLedger | None,
    kept: Kept,
) -> _Done | FedldpError:
    """Do a task in a worker process; return user-facing errors, because Ray would wrap them."""
    try:
        population = _population(sent[0], expected)
        with scratch() as folder:
            here = copy(population)
            object.__setattr__(here, "folder", folder)
            for item, files in kept.items():
                here.store(item).add(files)
            if ledger is not None:
                ledger = ledger.extract(items)  # a copy, because arrays from Ray are read-only
            results = work(here, request, items, ledger)
            return _Done(results, ledger, _new(here, items, kept))
    except FedldpError as error:
        return error


def _population(reference: Any, expected: Mapping[str, str]) -> Population:
    global _made
    if _made is None or _made[0] != reference.hex():
        check_versions(expected)
        torch.set_num_threads(1)
        _made = None  # first free the memory that the old population holds in the object store
        recipe: _PopulationSpec = import_ray().get(reference)
        _made = reference.hex(), recipe.population()
    return _made[1]


def _new(population: Population, items: Sequence[int], before: Kept) -> Kept:
    """Return the files that are kept now and were not kept before."""
    found = {}
    for item in items:
        old = before.get(item, {})
        files = population.store(item).files()
        if new := {name: content for name, content in files.items() if name not in old}:
            found[item] = new
    return found


def _answer(
    population: Population, request: SentRequest, clients: Sequence[int], ledger: MemoryLedger
) -> list[tuple[Sequence[int], Packed]]:
    return list(answers_of(population.runtime(ledger), request, clients))


def _score(
    population: Population, broadcast: Broadcast, pieces: Sequence[int], _: None
) -> list[Score]:
    return [population.score(broadcast, piece) for piece in pieces]
