"""The one round loop: who takes part, broadcast, exchange, server step, record."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedldp.accounting.memory_ledger import MemoryLedger
from fedldp.accounting.releases import DOWNLINK
from fedldp.data import Dataset, Examples, load_dataset, partition
from fedldp.data.custom import SUFFIXES
from fedldp.data.sources import SOURCES, find_source
from fedldp.errors import ConfigError, RunError
from fedldp.randomness import SERVER, Stream
from fedldp.reporting.html import page
from fedldp.reporting.record import Round, RunFolder, replace_file
from fedldp.simulation.participation import participants
from fedldp.simulation.plan import Plan, check_examples, plan
from fedldp.systems import Exchange, Problem, System, SystemConfig
from fedldp.transport import Transport
from fedldp.transport.in_process import InProcess
from fedldp.transport.shuffler import Schedule, Shuffler
from fedldp.wire import Broadcast, Incoming, Layout, Report, Shuffled


@dataclass(frozen=True, eq=False)
class Result:
    """What a run gave.

    Attributes:
        recipe: the recipe's name, or None.
        config: the resolved configuration.
        rounds: one record for each round.
        weights: the final weights by parameter name, float32.
        privacy: the statement.
        ledger: what every client released.
        seconds: wall-clock time of the rounds, those before a resume included.
        run_dir: the run folder, or None where nothing was written.
    """

    recipe: str | None
    config: SystemConfig
    rounds: list[Round]
    weights: dict[str, NDArray[np.float32]]
    privacy: dict[str, Any]
    ledger: MemoryLedger
    seconds: float
    run_dir: Path | None

    @property
    def accuracy(self) -> float:
        """The final model's accuracy, 0 to 1, on what ``config.tested_on`` says."""
        return self.rounds[-1].accuracy

    @property
    def notes(self) -> dict[str, float]:
        """The means over the rounds of the system's own figures, by name."""
        names = dict.fromkeys(name for one in self.rounds for name in one.notes)
        total = len(self.rounds)
        return {
            name: sum(one.notes.get(name, 0.0) for one in self.rounds) / total for name in names
        }

    def summary(self) -> dict[str, Any]:
        """Return the document that ``fedldp run --json`` prints."""
        final = self.rounds[-1]
        keys = ("round", "clients", "accuracy", "loss", "uplink_bits_per_client", "seconds")
        return {
            "recipe": self.recipe,
            "system": self.config.system,
            "seed": self.config.seed,
            "config": self.config.model_dump(),
            "rounds": [{key: getattr(r, key) for key in keys} for r in self.rounds],
            "final": {"accuracy": final.accuracy, "loss": final.loss},
            "privacy": self.privacy,
            "seconds": self.seconds,
            "run_dir": None if self.run_dir is None else str(self.run_dir),
        }


def choose_device(name: str) -> torch.device:
    """Return the device for "auto", "cpu" or "cuda".

    Raises:
        ConfigError: the name is another, or no GPU is there.
    """
    if name not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"device = {name}: choose auto, cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device = cuda: torch finds no GPU here; use auto or cpu")
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)


def simulate(
    config: SystemConfig,
    *,
    recipe: str | None = None,
    dataset: Dataset | None = None,
    data_dir: Path | None = None,
    device: str = "cpu",
    workers: int = 1,
    out: Path | None = None,
    resume: RunFolder | None = None,
    before: Callable[[dict[str, Any]], None] = lambda privacy: None,
    after_round: Callable[[Round], None] = lambda record: None,
) -> Result:
    """Run ``config`` over simulated clients.

    Args:
        config: the configuration.
        recipe: its recipe's name, for the record.
        dataset: the data; loaded by ``config.dataset`` where it is not given.
        data_dir: the data folder.
        device: "auto", "cpu" or "cuda".
        workers: processes; any number gives the same bits.
        out: where to make the run folder; nothing is written where it is None.
        resume: the folder of an interrupted run of this configuration, to continue.
        before: is shown the privacy statement before training starts.
        after_round: is shown every record, those of a resumed run's earlier rounds too.

    Raises:
        FedldpError: a setting, the data, or a value to release is refused. A folder is left only
            where a round was complete.
    """
    chosen = choose_device(device)
    if workers < 1:
        raise ConfigError(f"workers = {workers}: give 1 or more")
    if workers > 1 and chosen.type == "cuda":
        workers = 1  # one process trains many clients at once there
    dataset = _load(config, dataset, data_dir)
    if resume is not None and resume.read_config()["own_data"] != _own_data(dataset):
        raise RunError(
            f"resume = {resume.path}: that run had other data; resume it with the same, "
            "from Python: fedldp.resume(..., dataset=...)"
        )
    dataset = _sampled(dataset, config)
    problem = Problem(dataset.input_shape, dataset.num_classes, len(dataset.train), data_dir)
    stream = Stream.simulation(seed=config.seed, round=0, client=SERVER, purpose="partition")
    members = partition(
        dataset.train.labels, config.num_clients, config.partition, stream.generator()
    )
    config.check_shares([len(places) for places in members])
    planned = plan(config, problem)
    config, privacy = planned.config, planned.privacy
    with InProcess(
        config, dataset, members, device=chosen, workers=workers, data_dir=data_dir
    ) as clients:
        system = clients.population.system
        broadcast, records, ledger = system.initial(), list[Round](), MemoryLedger()
        folder = resume
        if resume is not None:
            broadcast, records, ledger = _resumed(resume, system, planned)
        elif out is not None:
            folder = RunFolder.create(out, _document(recipe, config, dataset), privacy)
        before(privacy)
        for record in records:
            after_round(record)
        try:
            while broadcast.round <= config.rounds:
                broadcast, record = _one_round(planned, clients, broadcast, ledger, folder)
                records.append(record)
                if folder is not None:
                    folder.write_round(broadcast, records, ledger)
                after_round(record)
        except BaseException:
            if out is not None and folder is not None and not records:
                folder.discard()
            raise
    if ledger.releases() != planned.releases:
        raise AssertionError("clients released something else than the statement was made for")
    layout = system.layout
    result = Result(
        recipe=recipe,
        config=config,
        rounds=records,
        weights={name: w.copy() for name, w in layout.split(broadcast.weights).items()},
        privacy=privacy,
        ledger=ledger,
        seconds=sum(record.seconds for record in records),
        run_dir=None if folder is None else folder.path,
    )
    if folder is not None:
        _finish(folder, result, layout, broadcast)
    return result


def _load(config: SystemConfig, dataset: Dataset | None, data_dir: Path | None) -> Dataset:
    if dataset is None:
        return load_dataset(
            config.dataset,
            data_dir=data_dir,
            label_column=config.label_column,
            standardise=config.standardise,
        )
    if config.standardise:
        raise ConfigError("standardise = true: it is for data sets loaded by name; set it to false")
    if dataset.name in SOURCES and not _is_named(dataset, config.dataset):
        raise ConfigError(
            f"dataset = {config.dataset}: the run was given the data set {dataset.name}; set "
            "dataset to that: what is public, and what a resumed run loads, follow from it"
        )
    return dataset


def _is_named(dataset: Dataset, name: str) -> bool:
    return not name.lower().endswith(SUFFIXES) and find_source(name).name == dataset.name


def _sampled(dataset: Dataset, config: SystemConfig) -> Dataset:
    """Return ``dataset`` with as many training examples as the run takes."""
    total = len(dataset.train)
    taken = check_examples(config, total)
    if taken == total:
        return dataset
    stream = Stream.simulation(seed=config.seed, round=0, client=SERVER, purpose="examples")
    places = np.sort(stream.generator().choice(total, taken, replace=False))
    train = Examples(dataset.train.features[places], dataset.train.labels[places])
    return Dataset(dataset.name, train, dataset.test, dataset.num_classes)


def _document(recipe: str | None, config: SystemConfig, dataset: Dataset) -> dict[str, Any]:
    return {"recipe": recipe, "config": config.model_dump(), "own_data": _own_data(dataset)}


def _own_data(dataset: Dataset) -> str | None:
    """Return what tells the user's own data apart, or None for a published data set.

    Not a digest of the content: run folders are shared, and a digest would confirm a guess.
    """
    if dataset.name in SOURCES:
        return None
    return f"{dataset.name}: {dataset.train.features.shape}, {dataset.test.features.shape}"


def _resumed(
    folder: RunFolder, system: System, planned: Plan
) -> tuple[Broadcast, list[Round], MemoryLedger]:
    """Return where a run was cut short, and repair what was not written any more."""
    saved = folder.read_checkpoint()
    broadcast, records, ledger = saved or (system.initial(), [], MemoryLedger())
    layout = system.layout
    fits = broadcast.ranges is None or broadcast.ranges.sizes == layout.sizes
    if broadcast.weights.size != layout.size or not fits:
        raise RunError(
            f"{folder.path / 'checkpoint'} is damaged: it holds another model; start the run anew"
        )
    before = {r: by_client for r, by_client in planned.releases.items() if r < broadcast.round}
    if ledger.releases() != before:
        raise RunError(
            f"{folder.path}: the rounds of its checkpoint released something else than its "
            "config.json says: start the run anew"
        )
    folder.describe(planned.privacy)
    folder.write_metrics(records)
    return broadcast, records, ledger


def _finish(folder: RunFolder, result: Result, layout: Layout, broadcast: Broadcast) -> None:
    folder.write_model(layout, broadcast.weights)
    folder.write_json("summary.json", result.summary())
    replace_file(
        folder.path / "report.html",
        page(result.summary(), result.config.tested_on(), result.notes).encode(),
    )


def _one_round(
    planned: Plan,
    clients: InProcess,
    broadcast: Broadcast,
    ledger: MemoryLedger,
    folder: RunFolder | None,
) -> tuple[Broadcast, Round]:
    started = time.monotonic()
    config, system = planned.config, clients.population.system
    chosen = participants(config, broadcast.round)
    # Charged before anything leaves: a round that fails has been paid for.
    charge(ledger, planned, broadcast.round, chosen, system.layout.size)
    transport: Transport = clients
    delays = config.delays()
    if delays is not None:
        transport = Shuffler(clients, delays, clients.population.stream)
    tally = _Tally(folder if delays is not None and delays.record_arrivals else None)
    exchange = tally.watched(transport, chosen)
    following = system.server_step(
        broadcast,
        exchange(broadcast, chosen)
        if system.gather is None
        else system.gather(exchange, broadcast, chosen),
    )
    if not np.isfinite(following.weights).all():
        raise RunError(
            f"round {broadcast.round}: the new weights hold NaN or infinity; lower learning_rate"
        )
    accuracy, loss = clients.evaluate(following)
    if not np.isfinite(loss):
        raise RunError(f"round {broadcast.round}: the loss is {loss}; lower learning_rate")
    schedule = transport.schedule if isinstance(transport, Shuffler) else None
    return following, Round(
        round=broadcast.round,
        clients=len(chosen),
        accuracy=accuracy,
        loss=loss,
        uplink_bits_per_client=tally.bits / len(chosen),
        seconds=time.monotonic() - started,
        arrivals=None if schedule is None else tally.summarise(schedule),
        notes=dict(following.notes),
    )


def charge(
    ledger: MemoryLedger, planned: Plan, round: int, clients: Sequence[int], size: int
) -> None:
    """Charge what ``clients``, and the server, release in ``round``."""
    for client in clients:
        ledger.charge(client, round, planned.config.release(client, size, planned.problem))
    downlink = planned.config.downlink(size, planned.problem)
    if downlink is not None:
        ledger.charge(DOWNLINK, round, downlink)


@dataclass(eq=False)
class _Tally:
    """Counts what passes on its way to the server step, without holding it."""

    folder: RunFolder | None
    bits: int = 0
    blocks: int = 0
    first: float = np.inf
    last: float = -np.inf

    def watched(self, transport: Transport, charged: Sequence[int]) -> Exchange:
        """Return the transport's exchange with ``charged``, with what comes in counted."""

        def exchange(broadcast: Broadcast, clients: Sequence[int]) -> Incoming:
            if not set(clients) <= set(charged):
                raise RunError(
                    f"round {broadcast.round}: a client was asked that does not take part, and "
                    "was not charged; ask those who do"
                )
            return self._watch(transport.exchange(broadcast, clients))

        return exchange

    def _watch(self, reports: Incoming) -> Iterator[Report | Shuffled]:
        for report in reports:
            self.bits += report.uplink_bits
            if isinstance(report, Shuffled):
                self.blocks += 1
                self.first = min(self.first, float(report.arrival_seconds[0]))
                self.last = max(self.last, float(report.arrival_seconds[-1]))
                if self.folder is not None:
                    self.folder.write_arrivals(self.blocks, report)
            yield report

    def summarise(self, schedule: Schedule) -> dict[str, float]:
        """Return T, T_S, and the least and largest T_W and arrival, in seconds."""
        return {
            "delay": schedule.delay,
            "response": schedule.response,
            "first_wait": float(schedule.waits.min()),
            "last_wait": float(schedule.waits.max()),
            "first_arrival": self.first,
            "last_arrival": self.last,
        }
