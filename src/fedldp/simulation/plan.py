"""The plan of a run: what it will do, cost, and have spent after each round, without examples."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from fedldp.accounting.accountants import Normal, loss_of, sides_of
from fedldp.accounting.guarantees import Guarantee
from fedldp.accounting.numerics.selftest import selftest
from fedldp.accounting.numerics.solve import solve
from fedldp.accounting.proven import Released
from fedldp.accounting.releases import ReleaseHistory
from fedldp.accounting.statement import (
    ShufflerInPath,
    Statement,
    SumInPath,
    over_draws,
    spent_by_unit,
    statement,
)
from fedldp.algorithms.asking import check_given
from fedldp.algorithms.calibration import Calibration
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.own_code import check_own_code
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.settings import PrivacyTarget
from fedldp.algorithms.systems import notes, own_code, stated
from fedldp.core.errors import ConfigError, DataMissing, OverBudget, UnfitEvent
from fedldp.core.kinds import FEWER_THAN_PLANNED, HELD_OUT, ROWS_DRAWN, SHARED_EXAMPLES
from fedldp.data import (
    Dataset,
    check_partition,
    check_standardise,
    is_own_file,
    load_dataset,
    resolve_data_dir,
)
from fedldp.data.folder import in_use, locate
from fedldp.data.partition import examples_of_all, parse_scheme
from fedldp.data.people import check_sites
from fedldp.data.sources import find_source
from fedldp.ledgers.budget import Budget
from fedldp.protocol.keys import draws_of_seed
from fedldp.protocol.server_loop import Round
from fedldp.simulation.participation import planned_releases, releases_over_draws

_SMALL = 1e9
"""The largest size of a small run, as visited examples times weights: a few seconds of training."""

GRID = [10.0 ** (half / 2) for half in range(-8, 9)]
"""The budgets, from 1e-4 to 1e4, with which the search for a budget begins."""


@dataclass(frozen=True)
class Plan:
    """A run that is ready to start.

    Attributes:
        config: the configuration, including a budget that was solved for a target.
        scheduled: the same configuration with what the server draws before the run.
        problem: the shape of the data.
        releases: what every client will release.
        delta: the delta of the statement's approximate lines, if it differs from ``config.delta``.
        privacy: the statement.
    """

    config: RunConfig
    scheduled: RunConfig
    problem: Problem
    releases: ReleaseHistory
    delta: float | None
    privacy: Statement

    @property
    def is_small(self) -> bool:
        """Whether one process trains the run in less time than several processes take to start."""
        config, problem = self.config, self.problem
        examples = config.round_size * problem.num_examples / config.num_clients
        visits = config.rounds * config.local_epochs * examples
        return visits * config.layout(problem).size <= _SMALL


def plan(config: RunConfig, problem: Problem, *, delta: float | None = None) -> Plan:
    """Return the plan of a run.

    Args:
        config: the configuration.
        problem: the shape of the data.
        delta: the delta of the statement's approximate lines; None uses ``config.delta``.

    Raises:
        ConfigError: settings are incompatible, no budget meets the target, or the user's own code
            is refused; see ``check_own_code``.
    """
    selftest()
    check_given(config, config.initial, "initial = RUN/model.safetensors, or ask --model RUN")
    if problem.num_clients is None:
        check_partition(problem.num_examples, config.num_clients, config.partition, problem.people)
    elif problem.num_clients != config.num_clients:
        config = config.changed(num_clients=problem.num_clients)
    config = _calibrated(config, problem)
    scheduled, releases = _scheduled(config, problem)
    delta = delta_of(config) if delta is None else delta
    check_own_code(scheduled.algorithm(problem))
    privacy = state(scheduled, problem, releases, delta=delta)
    return Plan(config, scheduled, problem, releases, delta, privacy)


def cores() -> int:
    """Return how many CPU cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_workers(workers: int | None, cluster: str | None, device: str = "cpu") -> None:
    """Refuse contradictory settings of who does the work.

    Args:
        workers: the number of processes; None if it is not given.
        cluster: the address of a Ray cluster, if one is given.
        device: the device that trains.

    Raises:
        ConfigError: there are no workers, or the cluster has its own, or cannot use the device.
    """
    if workers is not None and workers < 1:
        raise ConfigError(f"workers = {workers}: give 1 or more")
    if cluster is not None and workers is not None:
        raise ConfigError(
            f"workers = {workers}: the nodes of cluster = {cluster} set the number of workers; "
            "leave workers out"
        )
    if cluster is not None and device == "cuda":
        raise ConfigError(f"device = cuda: cluster = {cluster} trains on CPUs; use auto or cpu")


def early_plan(config: RunConfig, data_dir: Path | None) -> Plan | None:
    """Return the plan of a run before any slow step, so that the user sees something immediately.

    Return None if the run may still be refused because of the data or a user's own model; the user
    should then see only the refusal.

    Raises:
        FedldpError: settings are incompatible, or a data file is missing.
    """
    shares = type(config.composition.calibration).check_shares
    by_shares = shares is not Calibration.check_shares
    if is_own_file(config.dataset) or ":" in config.model or by_shares:
        return None
    locate(find_source(config.dataset), resolve_data_dir(data_dir))
    return plan(config, problem_of(config, data_dir))


def delta_of(config: RunConfig) -> float | None:
    """Return the delta of a target, at which a statement has the line of its calibration."""
    return None if config.target is None else config.target.delta or None


def stated_so_far(
    config: RunConfig,
    problem: Problem,
    releases: ReleaseHistory,
    rounds: Sequence[Round],
    delta: float | None,
) -> Statement:
    """Return the statement of a run that released less than planned.

    Args:
        config: the configuration, with what the server draws before the run.
        problem: the shape of the data.
        releases: what was released.
        rounds: the records of the complete rounds.
        delta: see ``Plan``.
    """
    found = state(config, problem, releases, delta=delta)
    refused = any(record.refused for record in rounds)
    return found.warning(FEWER_THAN_PLANNED) if refused else found


def state(
    config: RunConfig, problem: Problem, releases: ReleaseHistory, *, delta: float | None = None
) -> Statement:
    """Return the statement of ``config`` for what was or will be released."""
    shuffler = _shuffler_of(config)
    found = _stated(config, problem, releases, delta, shuffler)
    worse = [
        _stated(config, problem, each, delta, shuffler).guarantees
        for each in releases_over_draws(config, problem)
        if not each.costs_as(releases)
    ]
    more = over_draws(found.guarantees, worse)
    if parse_scheme(config.partition)[0] == "drawn":
        more.append(SHARED_EXAMPLES)
    if problem.private_scores:
        more.append(HELD_OUT)
    if config.rows_per_person is not None:
        more.append(ROWS_DRAWN(rows=config.rows_per_person))
    return found.warning(*more, *notes(config, problem))


def released(config: RunConfig, problem: Problem, privacy: Statement) -> Released:
    """Return what a run with this statement releases, as planned, for a set of runs.

    A run that ended early released less, so what is planned is an upper bound.

    Args:
        config: the configuration, with a budget that was solved for a target.
        problem: the shape of the data.
        privacy: the run's statement.
    """
    scheduled, releases = _scheduled(config, problem)

    def of(releases: ReleaseHistory, privacy: Statement | None = None) -> Released:
        def at(delta: float) -> Statement:
            return _stated(scheduled, problem, releases, delta, _shuffler_of(scheduled))

        return Released(
            releases=releases,
            statement=at(largest) if privacy is None else privacy,
            at=at,
            persons_at_sites=config.persons_at_sites,
            over_draws=tuple if privacy is None else over_draws,
        )

    def over_draws() -> list[Released]:
        worse = releases_over_draws(scheduled, problem)
        return [of(each) for each in worse if not each.costs_as(releases)]

    largest = max((line.delta for line in privacy.guarantees), default=0.0)
    return of(releases, privacy)


def stated_without_shuffler(config: RunConfig, problem: Problem) -> Statement:
    """Return the statement before a run, without the lines for a shuffler.

    The lines for a shuffler take the longest to compute, and no other line depends on them.
    """
    config = _calibrated(config, problem)
    scheduled, releases = _scheduled(config, problem)
    return _stated(scheduled, problem, releases, delta_of(config))


def _scheduled(config: RunConfig, problem: Problem) -> tuple[RunConfig, ReleaseHistory]:
    """Return a configuration with what the server draws before the run, and what is released."""
    draws = draws_of_seed(config.seed)
    scheduled = config.with_schedule(draws)
    return scheduled, planned_releases(scheduled, problem, draws)


def _stated(
    config: RunConfig,
    problem: Problem,
    releases: ReleaseHistory,
    delta: float | None,
    shuffler: ShufflerInPath | None = None,
    searched: PrivacyTarget | None = None,
) -> Statement:
    """Return the statement of ``config``; if a target is searched for, with its lines alone."""
    whole = searched is None or searched.adversary == "summing-server"
    return stated(
        config,
        problem,
        releases,
        asked=None if config.target is None else config.target.unit,
        summed=sum_of(config) if whole else None,
        shuffler=shuffler,
        delta=delta,
        searched=None if searched is None else searched.unit,
    )


def _shuffler_of(config: RunConfig) -> ShufflerInPath | None:
    """Return the shuffler that every report of a system goes through; None without one."""
    channel = config.composition.channel
    if channel.delays is None and not channel.shuffles_reports:
        return None
    return ShufflerInPath(
        chunk=1 if channel.delays is None else channel.delays.chunk,
        untrusted_clients=config.untrusted_clients,
        prediction_error=0.0 if channel.delays is None else channel.delays.prediction_error,
    )


def sum_of(config: RunConfig) -> SumInPath | None:
    """Return the secure sum that every report of a system goes through; None without one."""
    if config.composition.channel.kind != "sum":
        return None
    return SumInPath(
        untrusted_clients=config.untrusted_clients,
        committees=config.committee is not None,
        in_other_sums=config.fewest_in_round - config.fewest_in_sum,
    )


def problem_of(config: RunConfig, data_dir: Path | None) -> Problem:
    """Return the shape of the configuration's data; built-in data sets are not read for it."""
    if is_own_file(config.dataset):
        return problem_with(config, dataset_of(config, data_dir), data_dir)
    if config.rows_per_person is not None:
        raise _names_nobody(config, config.dataset)
    source = in_use(find_source(config.dataset), resolve_data_dir(data_dir))
    if config.standardise:
        check_standardise(config.dataset)
    return divided(config, source.input_shape, source.num_classes, source.num_train, data_dir)


def dataset_of(config: RunConfig, data_dir: Path | None, started_in: Path | None = None) -> Dataset:
    """Return the data set that a configuration names.

    Args:
        config: the configuration.
        data_dir: the data folder.
        started_in: the folder in which an earlier run of the configuration was started; the user's
            own files are searched for there first.

    Raises:
        FedldpError: the data cannot be loaded.
    """
    own, test = is_own_file(config.dataset), config.test_file
    try:
        return load_dataset(
            _from(started_in, config.dataset) if own else config.dataset,
            data_dir=data_dir,
            columns=config.columns,
            test_file=None if test is None else _from(started_in, test),
            test_share=0.0 if getattr(config, "ask", None) else 0.2,  # who only asks, tests nothing
            standardise=config.standardise,
        )
    except DataMissing as error:
        if not own or started_in is None:
            raise
        raise DataMissing(
            f"{error.what} here, or in {started_in.resolve()}, where the run was started",
            "put the file there",
        ) from error


def _from(folder: Path | None, name: str) -> str:
    """Return the path of the file ``name`` in a folder; if there is none, return ``name``."""
    path = Path() if folder is None else folder / Path(name).expanduser()
    return str(path) if path.is_file() else name


def problem_with(config: RunConfig, dataset: Dataset, data_dir: Path | None) -> Problem:
    """Return the shape of data that were loaded or given by the user."""
    dataset = with_few_rows(config, dataset)
    if config.num_examples is not None and dataset.train.people is not None:
        raise ConfigError(
            f"num_examples = {config.num_examples}: it draws single rows, but {dataset.name} names "
            "the person of each row; leave it out (rows_per_person limits the rows of each person)"
        )
    if dataset.clients is not None and dataset.train.people is not None:
        check_sites(
            dataset.train.people,
            dataset.owners,
            config.persons_at_sites,
            f"data set {dataset.name!r}:",
        )
    if config.columns.label_range != dataset.label_range:
        raise ConfigError(
            f"label_range = {config.columns.label_range}: the data set {dataset.name} has "
            f"label_range = {dataset.label_range}; give both the same"
        )
    shape, classes, found = dataset.input_shape, dataset.num_classes, len(dataset.train)
    if dataset.clients is None:
        problem = divided(config, shape, classes, found, data_dir)
    else:
        problem = Problem(shape, classes, found, data_dir, len(dataset.clients))
    return replace(
        problem,
        features=dataset.features,
        people=dataset.num_people,
        counted_in_private=not dataset.is_public,
        private_scores=dataset.scores_are_private,
    )


def with_few_rows(config: RunConfig, dataset: Dataset) -> Dataset:
    """Return data with at most as many rows per person and client as ``config`` allows.

    Raises:
        ConfigError: ``config`` limits the rows, and the data do not name the person of each row.
    """
    if config.rows_per_person is None:
        return dataset
    if dataset.train.people is None:
        raise _names_nobody(config, dataset.name)
    draw = draws_of_seed(config.seed)(0)
    return dataset.with_rows_per_person(
        config.rows_per_person, draw("rows of a person").generator()
    )


def _names_nobody(config: RunConfig, name: str) -> ConfigError:
    return ConfigError(
        f"rows_per_person = {config.rows_per_person}: {name} does not name the person of each "
        "row; give person_column (for a table) or groups, or leave rows_per_person out"
    )


def divided(
    config: RunConfig, shape: tuple[int, ...], classes: int, found: int, data_dir: Path | None
) -> Problem:
    """Return the shape of data whose rows a run divides among its clients.

    Args:
        config: the configuration.
        shape: the shape of an example.
        classes: the number of classes; 1 for numbers.
        found: the number of training examples that there are.
        data_dir: the data folder.
    """
    taken = check_examples(config, found)
    total = examples_of_all(taken, config.num_clients, config.partition)
    return Problem(shape, classes, total, data_dir)


def check_examples(config: RunConfig, found: int) -> int:
    """Return how many of the ``found`` training examples a run uses.

    Raises:
        ConfigError: the run asks for more examples than there are.
    """
    if config.num_examples is None:
        return found
    if config.num_examples > found:
        raise ConfigError(
            f"num_examples = {config.num_examples}: {config.dataset} has {found} training "
            "examples; give at most that many, or leave num_examples out to use all"
        )
    return config.num_examples


def _calibrated(config: RunConfig, problem: Problem) -> RunConfig:
    """Return ``config`` with the largest budget whose statement meets its target, if it has one."""
    target = config.target
    if target is None:
        return config

    def candidate_stated(candidate: RunConfig) -> Statement:
        scheduled, releases = _scheduled(candidate, problem)
        shuffler = _shuffler_of(scheduled) if target.adversary == "shuffled-server" else None
        return _stated(scheduled, problem, releases, target.delta, shuffler, target)

    return calibrated(config, target, candidate_stated)


def calibrated(
    config: RunConfig, target: PrivacyTarget, stated: Callable[[RunConfig], Statement]
) -> RunConfig:
    """Return ``config`` with the largest budget that meets a target.

    Args:
        config: the configuration whose budget is solved for.
        target: the target to meet.
        stated: returns the statement of a candidate configuration, at the target's delta.

    Raises:
        ConfigError: there is no budget to solve for, or no budget meets the target.
    """
    config.with_budget(1.0)  # refuses if there is nothing to solve for

    stated_some, unfit = False, list[UnfitEvent]()

    def reached(budget: float) -> float:
        """Return the epsilon of a budget; infinity if a mechanism does not accept the budget."""
        nonlocal stated_some
        try:
            found = _epsilon_of(stated(config.with_budget(budget)).guarantees, target)
            stated_some = True
            return found
        except ConfigError as error:
            if isinstance(error, UnfitEvent):
                unfit.append(error)
            return math.inf
        except ArithmeticError:  # such as math.exp of a budget of 10,000
            if own_code(config):
                return math.inf
            raise

    below = next((each for each in reversed(GRID) if reached(each) <= target.epsilon), None)
    if unfit and not stated_some:
        raise unfit[-1]  # another budget would not help
    if below is None:
        raise ConfigError(
            f"target.epsilon = {target.epsilon:g} per {target.unit} against the {target.adversary} "
            f"at delta {target.delta:g}: no budget of {config.name()} meets this target; "
            "choose a larger target, fewer rounds, a smaller model or another mechanism"
        )
    precision = 1e-10 if target.adversary in ("server", "summing-server") else 1e-4
    high = 10.0**0.5 * below
    return config.with_budget(
        solve(reached, target.epsilon, start=below, end=high, precision=precision)
    )


def _epsilon_of(guarantees: Sequence[Guarantee], target: PrivacyTarget) -> float:
    """Return the smallest epsilon that is proven for the target's unit, adversary and delta.

    Lines for idealised noise do not count if the statement has a line for deployment.
    """
    fitting = [
        line
        for line in guarantees
        if (line.unit, line.adversary) == (target.unit, target.adversary)
        and line.delta <= target.delta
    ]
    real = [line for line in fitting if not line.is_idealised]
    candidates = real or fitting
    known = [line.epsilon for line in candidates if line.epsilon is not None]
    if not known or len(known) < len(candidates):
        raise UnfitEvent(
            f"target: nothing is proven per {target.unit} against the {target.adversary} at delta "
            f"{target.delta:g}, for any epsilon; choose another unit, adversary or mechanism"
        )
    return min(known)


MOST = 20
"""A slow accountant computes the epsilon after at most this many of a run's rounds."""


class Spending:
    """The budget that the clients of a run will have spent up to a round, according to the plan.

    Guarantee: if no client releases more than planned, a round's epsilon is at least the epsilon in
    a statement about the rounds up to that round. The epsilon of the last round is then that of the
    whole run.

    The accountant is fast for compositions of Gaussian mechanisms, and computes their epsilon after
    every round. It is slower for other compositions: if a run has more than ``MOST`` rounds, the
    accountant computes the epsilon after only some of them. Each of the other rounds then shows the
    epsilon of the next computed round, which is at least as large as the round's own epsilon. Lines
    against a shuffler, and lines against a sum with any noise other than Gaussian noise, take the
    longest to compute; only the last round has them.

    Args:
        planned: the plan of the run.
    """

    def __init__(self, planned: Plan) -> None:
        self._planned = planned
        releases, rounds = planned.releases, planned.config.rounds
        self._is_quick = not releases.of_server().events and all(
            not sides_of(event) and isinstance(loss_of(event), Normal) for event in releases.events
        )
        self._computed = rounds if self._is_quick else min(rounds, MOST)
        self._after = cache(self._stated)

    def after(self, round: int) -> list[dict[str, Any]]:
        """Return an upper bound on the cost of the rounds up to ``round``.

        Returns:
            The entries that ``spent_by_unit`` returns; "of" is the planned cost of the whole run.
        """
        rounds = self._planned.config.rounds
        return self._after(-(-round * self._computed // rounds))

    def budgets(self, round: int) -> list[dict[str, Any]]:
        """Return, for each budget, how much of it is spent by the client that spends the most.

        Returns:
            For each budget: "unit", "kind", "spent" and "left"; "left" is None without a limit.
        """
        histories = self._planned.releases.before(round + 1).histories()
        return [_budget(each, histories) for each in self._planned.config.budgets]

    def _stated(self, step: int) -> list[dict[str, Any]]:
        planned, config = self._planned, self._planned.scheduled
        ends = planned.privacy.guarantees
        round = -(-step * config.rounds // self._computed)
        if round >= config.rounds:
            return spent_by_unit(ends, ends)
        now = statement(
            planned.releases.before(round + 1),
            claim=None,
            shuffler=None,
            summed=sum_of(config) if self._is_quick else None,
            delta=config.delta if planned.delta is None else planned.delta,
            persons_at_sites=config.persons_at_sites,
            searched="client-run",
        )
        return spent_by_unit(now.guarantees, ends)


def _budget(budget: Budget, histories: Iterable[Mapping[Any, int]]) -> dict[str, Any]:
    try:
        costs = [budget.price_of_run(each.items()) for each in histories]
        spent: float | None = budget.spent([max(costs, default=0.0)])
        left = budget.remaining([max(costs, default=0.0)])
    except OverBudget:
        spent, left = None, math.inf
    return {
        "unit": budget.unit,
        "kind": budget.kind,
        "spent": spent,
        "left": left if math.isfinite(left) else None,
    }
