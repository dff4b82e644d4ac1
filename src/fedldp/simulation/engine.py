"""A simulated run: data, clients, the server's loop, and the run's record."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.fleet import better
from fedldp.algorithms.systems import noted_features
from fedldp.core.errors import ConfigError, FedldpError, RunError
from fedldp.core.locks import OwnedFolder, owned, scratch
from fedldp.data import Dataset
from fedldp.ledgers.columns import MemoryLedger
from fedldp.models import check_travels
from fedldp.protocol.keys import draws_of_seed
from fedldp.protocol.roles import ServerRole, State
from fedldp.protocol.server_loop import Evaluation, Loop, Round, Transport
from fedldp.protocol.wire import Broadcast
from fedldp.reporting import words
from fedldp.reporting.record import FILE as SCHEMA
from fedldp.reporting.record import RunFolder, check_new
from fedldp.reporting.scores import evaluation, final_of
from fedldp.reporting.text import Displayed
from fedldp.simulation.cluster import Cluster
from fedldp.simulation.executors import Executor, InProcess, Pool, doing
from fedldp.simulation.inputs import Inputs, choose_device
from fedldp.simulation.noise import noise_of
from fedldp.simulation.participation import participants
from fedldp.simulation.plan import Plan, Spending, check_workers, plan, stated_so_far
from fedldp.simulation.population import Population
from fedldp.simulation.result import Result, Saved, config_document, run_name, write_report
from fedldp.simulation.shuffler import Counting, ReportShuffler, world_of_seed
from fedldp.simulation.signal import Signal
from fedldp.simulation.trained import check_public
from fedldp.simulation.workers import Workers

__all__ = ["Result", "simulate"]


def simulate(
    config: RunConfig,
    *,
    recipe: str | None = None,
    dataset: Dataset | None = None,
    data_dir: Path | None = None,
    device: str = "cpu",
    workers: int = 1,
    alone_if_small: bool = False,
    cluster: str | None = None,
    out: Path | OwnedFolder | None = None,
    resume: RunFolder | None = None,
    inputs: Inputs | None = None,
    planned: Plan | None = None,
    evaluate_every: int = 1,
    signal: bool = False,
    before: Callable[[Plan], None] = lambda plan: None,
    after_round: Callable[[Round], None] = lambda record: None,
) -> Result:
    """Run ``config`` over simulated clients.

    Args:
        config: the configuration.
        recipe: the recipe's name, for the record.
        dataset: the data; if None, ``config.dataset`` is loaded.
        data_dir: the data folder.
        device: "auto", "cpu" or "cuda".
        workers: number of processes; the result is bit for bit the same for any number.
        alone_if_small: whether a small run uses only one process, regardless of ``workers``.
        cluster: "auto" or the address of a Ray cluster, whose workers then act as the clients; the
            result is bit for bit the same.
        out: where to create the run folder, or an empty folder that the caller owns; None writes
            nothing.
        resume: the folder of an interrupted run of this configuration, to continue.
        inputs: the run's data, if they are already partitioned.
        planned: the plan, if it was made before the data were read.
        evaluate_every: the model is tested after every so many rounds, and after the last one; the
            weights do not depend on it.
        signal: whether to measure each round's signal and noise on private rows; the weights do
            not depend on it. See ``simulation.signal``.
        before: called with the plan before training starts, unless ``planned`` is given.
        after_round: called with every round's record, including the earlier rounds of a resumed
            run.

    Raises:
        Held: another process works in the run folder.
        FedldpError: a setting, the data, or a value to release is refused. The run folder is kept
            only if a round was completed.
    """
    if evaluate_every < 1:
        raise ConfigError(f"evaluate_every = {evaluate_every}: give 1 or more")
    if signal and (workers > 1 or cluster is not None) and not alone_if_small:
        raise ConfigError("signal: it is measured in this process; give workers = 1, no cluster")
    check_workers(None if cluster is not None and workers == 1 else workers, cluster, device)
    chosen = choose_device("cpu" if cluster is not None and device == "auto" else device)
    if workers > 1 or cluster is not None:
        where = f"workers = {workers}" if cluster is None else f"cluster = {cluster}"
        check_travels(config.model_dump(), where)
    if inputs is None:
        started_in = None if resume is None else resume.started_in()
        inputs = Inputs.of(config, dataset, data_dir, started_in)
    if resume is not None and not resume.is_of(inputs.own_data, inputs.exact_data):
        raise RunError(
            f"resume = {resume.path}: that run had different data; resume it with the same data, "
            "from Python: fedldp.resume(..., dataset=...)"
        )
    early = planned
    if planned is None or planned.problem != inputs.problem:
        planned = plan(config, inputs.problem)
    if alone_if_small and (planned.is_small or signal):
        workers = 1
    algorithm = planned.scheduled.algorithm(inputs.problem)
    document = config_document(
        planned.config,
        recipe=recipe,
        own_data=inputs.own_data,
        features=noted_features(planned.config, inputs.problem),
        frozen=algorithm.frozen_digest(),
    )
    if resume is not None and resume.read_config()["config"] != document["config"]:
        raise RunError(
            f"resume = {resume.path}: that run has a different configuration; resume it with its "
            "own configuration"
        )
    if resume is not None:
        check_public(resume, document.get("features"), document.get("frozen"))
    seen = Signal(planned.scheduled, inputs.problem) if signal else None
    server = algorithm.server(None if seen is None else seen.compare)
    run = run_name(planned.config, inputs.own_data)
    with ExitStack() as owning:
        folder = resume
        if resume is not None:
            owning.enter_context(owned(resume.path, "resume", "run"))
        elif out is not None:
            own = owning.enter_context(owned(out, "out", "run", check_new))
            folder = RunFolder.create(own.path, document, words.document(planned.privacy))
            folder.keep_own_data(inputs.exact_data, inputs.problem)
        if folder is not None:
            folder.write_json(SCHEMA, inputs.schema.to_document())
        start = _start(planned, server) if resume is None else _saved(resume, planned, server, run)
        spending = Spending(planned)

        def keep(state: State, record: Round) -> None:
            spent, budgets = spending.after(record.round), spending.budgets(record.round)
            figures = [] if seen is None else seen.figures()
            record = replace(record, spent=spent, budgets=budgets, signal=figures)
            start.rounds.append(record)
            if server.downlink is not None:
                start.ledger.count_downlink(run, record.round, server.downlink(record.round))
            if folder is not None:
                folder.write_round(state, start.rounds, start.ledger)
            after_round(record)

        with ExitStack() as stack:
            try:
                population = Population(
                    config=planned.scheduled,
                    problem=inputs.problem,
                    dataset=inputs.dataset,
                    members=inputs.members,
                    device=chosen,
                    folder=(stack.enter_context(scratch()) if folder is None else folder.path)
                    / "clients",
                    run=run,
                    signal=seen,
                )
                pool = _pool(population, workers, cluster)
                if pool is not None:
                    stack.callback(pool.close)
                executor = Executor(population, start.ledger, pool)
                if planned is not early:
                    before(planned)
                for record in start.rounds:
                    after_round(record)
                confusions: dict[int, NDArray[np.int64] | None] = {}

                def test(broadcast: Broadcast) -> Evaluation | None:
                    if not population.num_tests:
                        return None
                    confusions.clear()  # only the last one is needed
                    found, confusions[broadcast.round] = evaluation(
                        executor.scores(broadcast),
                        config.columns.label_range,
                        population.accuracies,
                    )
                    return found

                transport = _transport(planned.scheduled, executor)
                draws = draws_of_seed(config.seed)
                loop = Loop(
                    run=run,
                    server=server,
                    rounds=config.rounds,
                    participants=partial(participants, planned.scheduled, draws=draws),
                    transport=transport,
                    draws=draws,
                    evaluate=test,
                    evaluate_every=evaluate_every,
                    arrivals=getattr(transport, "arrivals", lambda: None),
                )
                end = loop.go(start.state, keep)
                last = server.tested(end)
                if last.round not in confusions:  # a resumed run had no rounds left
                    test(last)
                confusion = confusions.get(last.round)
            except BaseException as error:
                if out is not None and folder is not None and not start.rounds:
                    folder.discard()
                elif folder is not None and start.rounds and isinstance(error, RunError):
                    with suppress(FedldpError):  # the user must see the error that ended the run
                        write_report(folder.path)
                raise
        trained = population.layout.split(server.result(end))
        releases, holds = start.ledger.releases(run), planned.privacy
        if releases != planned.releases:
            of_rounds = (start.rounds, planned.delta)
            holds = stated_so_far(planned.scheduled, planned.problem, releases, *of_rounds)
        privacy = Displayed.of(holds)
        tested = not population.clients_test and population.num_tests > 0
        doubts = inputs.doubts(final_of(start.rounds[-1], None) if tested else None, confusion)
        better_known = better(
            planned.config,
            privacy,
            inputs.problem.num_examples // planned.config.num_clients
            if inputs.dataset.is_public
            else None,
            has_learned=not tested or not doubts,
        )
        result = Result(
            recipe=recipe,
            config=planned.config,
            rounds=start.rounds,
            weights={**{name: w.copy() for name, w in trained.items()}, **algorithm.frozen()},
            privacy=privacy,
            ledger=start.ledger,
            run=run,
            seconds=sum(record.seconds for record in start.rounds),
            run_dir=None if folder is None else folder.path,
            schema=inputs.schema,
            doubts=doubts if better_known is None else (*doubts, better_known),
            confusion=confusion,
            noise=noise_of(planned.scheduled, inputs.problem),
        )
        if folder is not None:
            folder.write_model(result.weights)
            folder.write_json("privacy.json", words.document(privacy))
            folder.write_json("summary.json", result.summary())
            write_report(folder.path)
            folder.forget_own_data()
        return result


def _start(planned: Plan, server: ServerRole) -> Saved:
    config = planned.config
    return Saved(server.initial(draws_of_seed(config.seed)(0)), [], MemoryLedger(config.budgets))


def _saved(folder: RunFolder, planned: Plan, server: ServerRole, run: str) -> Saved:
    """Return the state of an interrupted run, and repair files that were not fully written."""
    saved = folder.read_checkpoint(planned.config.budgets)
    start = _start(planned, server) if saved is None else Saved(*saved)
    start.check_fits(folder, planned.scheduled.layout(planned.problem))
    found, expected = start.ledger.releases(run), planned.releases.before(start.state.round)
    # A run releases less than planned only if clients can leave during a round.
    whole = server.dialogue is None
    if start.ledger.runs() not in ([], [run]) or (whole and found != expected):
        raise RunError(
            f"{folder.path / 'checkpoint'} is damaged: its rounds and its ledgers disagree on what "
            "was released; start the run again"
        )
    folder.describe(words.document(planned.privacy))
    folder.write_metrics(start.rounds)
    return start


def _pool(population: Population, workers: int, cluster: str | None) -> Pool | None:
    """Return the processes that act as the clients; None for this process alone."""
    if cluster is not None:
        return Cluster(cluster, doing, population.given())
    workers = min(workers, population.config.num_clients)
    if workers == 1 or population.device.type != "cpu":  # one process keeps a GPU busy
        return None
    return Workers(workers, doing, population.given())


def _transport(config: RunConfig, executor: Executor) -> Transport:
    """Return the transport to the clients, through the shuffler if there is one."""
    direct, channel = InProcess(executor.answers), config.composition.channel
    if channel.shuffles_reports:
        return ReportShuffler(direct)
    if channel.delays is None:
        return direct
    return Counting(direct, channel.delays, config.num_clients, world_of_seed(config.seed))
