"""A sweep from its design (recipes, values of settings, seeds) to its result."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from fedldp.accounting.guarantees import Adversary, Unit, unit_and_adversary
from fedldp.accounting.proven import Proven, Released, Together, together
from fedldp.accounting.releases import ReleaseHistory
from fedldp.accounting.statement import WHOLE_RUN, Statement
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.features import file_of
from fedldp.algorithms.problem import Problem
from fedldp.core.errors import ConfigError, FedldpError, one_line
from fedldp.core.registry import is_address
from fedldp.data import Dataset, is_own_file, resolve_data_dir
from fedldp.data.folder import locate
from fedldp.data.sources import find_source
from fedldp.experiments.engine import Experiment, Means, carried_out
from fedldp.experiments.identity import data_digests, digest_of_data, run_digest
from fedldp.experiments.making import Maker
from fedldp.experiments.own import code_of
from fedldp.experiments.runs import PlannedRun, Row, Shared, Task, check_seeds
from fedldp.experiments.store import Config, Document, RunStore
from fedldp.experiments.sweeping.results import Combination, Sweep, in_words, shown, text_of
from fedldp.experiments.table import metrics_for
from fedldp.reporting.lines import behind_sums, headline
from fedldp.reporting.scores import TestSet
from fedldp.reporting.text import in_short
from fedldp.simulation.given import Data, given_data
from fedldp.simulation.plan import plan, problem_of, problem_with, released
from fedldp.simulation.settings import check_setting, from_mapping, named, nested, value_of
from fedldp.simulation.workers import WorkerLost

MOST_RUNS = 100_000


@dataclass(frozen=True)
class Design:
    """The design of a sweep.

    Attributes:
        bases: the configurations to vary, by recipe name.
        settings: the changes that apply to all of them, by dotted name.
        grid: the values of each varying setting, by dotted name.
        seeds: the seeds with which every combination runs.
        device: where models are trained.
    """

    bases: Mapping[str, Config]
    settings: Mapping[str, Any]
    grid: Mapping[str, Sequence[Any]]
    seeds: Sequence[int]
    device: str = "cpu"

    def __post_init__(self) -> None:
        for key in [*self.settings, *self.grid]:
            if key == "seed":
                raise ConfigError("seed: give a sweep's seeds as --seeds 0-4 (Python: seeds=...)")
            check_setting(self.bases.values(), key)
        for key, values in self.grid.items():
            if key in self.settings:
                raise ConfigError(
                    f"{key}: it is given both for all runs and in the grid; leave one out"
                )
            if not values:
                raise ConfigError(f"grid {key}: there are no values; give at least one")
        check_seeds(self.seeds)
        if self.device not in ("auto", "cpu", "cuda"):
            raise ConfigError(f"device = {self.device}: choose auto, cpu or cuda")
        combinations = len(self.bases) * len(self.seeds)
        for values in self.grid.values():
            combinations *= len(values)
        if combinations > MOST_RUNS:
            raise ConfigError(
                f"grid: {combinations:,} runs; give values and seeds for at most {MOST_RUNS:,}"
            )

    def lacking(self) -> dict[str, list[str]]:
        """Return the settings that each recipe lacks and runs without, by recipe."""
        found = {
            name: [key for key in [*self.settings, *self.grid] if not config.has(key)]
            for name, config in self.bases.items()
        }
        return {name: keys for name, keys in found.items() if keys}


def sweep(
    recipe: str | RunConfig | Sequence[str | RunConfig] = "quickstart",
    *,
    grid: Mapping[str, Iterable[Any]] | None = None,
    seeds: Iterable[int] | None = None,
    out: Path | str | None = None,
    dataset: Data | None = None,
    test: Any = None,
    data_dir: Path | str | None = None,
    device: str = "cpu",
    workers: int | None = None,
    cluster: str | None = None,
    guarantee: str | None = None,
    metric: str | None = None,
    say: Callable[[str], None] = lambda line: None,
    same_data: bool = False,
    **settings: Any,
) -> Sweep:
    """Run every combination of recipes, grid values and seeds.

    Each run equals, bit for bit, ``fedldp.run`` with the same configuration. A refused run does not
    end the sweep: it is listed in ``failed``.

    Args:
        recipe: a recipe's name, a .toml file's path, a configuration, or several of these.
        grid: a list of values for each setting that varies: ``{"epsilon": [1, 2, 4]}``. A recipe
            that lacks a setting of the grid runs once, without it.
        seeds: every combination runs once with each seed; None uses each recipe's own seed.
        out: the sweep's folder. If it holds this sweep, or a part of this sweep, the sweep
            continues. If None, the runs' folders are deleted.
        dataset: the data, in any form that ``fedldp.run`` takes; None loads each configuration's
            data set.
        test: the examples to test on, in any form that ``fedldp.run`` takes.
        data_dir: the data folder.
        device: "auto", "cpu" or "cuda".
        workers: the number of runs at once, each in its own process; None starts one per core. With
            1, runs take place in this process.
        cluster: "auto" or the address of a Ray cluster; each of its CPUs then carries out one run
            at a time, instead of ``workers``; see docs/sweep.md.
        guarantee: the guarantee whose epsilon is shown, as "UNIT:ADVERSARY", such as
            "person:server"; None uses the guarantee of a run's target, and without a target the
            first proven guarantee.
        metric: the metric that is shown first and drawn: accuracy, loss, auc, average_precision,
            balanced_accuracy, brier, f1_macro, client_accuracy or worst_tenth_accuracy; for labels
            that are numbers, r2 or loss. None uses the first of these, or the AUC if most of the
            test set is one class.
        say: called with a line about the sweep and about every run.
        same_data: whether private data are those of the folder, where nobody can tell.
        settings: settings that are changed in all runs.

    Raises:
        FedldpError: a key is wrong, all runs are refused, or ``out`` holds something else.

    >>> import fedldp
    >>> found = fedldp.sweep("quickstart", grid={"epsilon": [1, 8]}, rounds=1, workers=1)
    >>> [row["settings"]["epsilon"] for row in found.table]
    [1, 8]
    """
    if grid is not None and not isinstance(grid, Mapping):
        raise ConfigError(f"grid = {grid}: give a mapping, such as {{'epsilon': [1, 2, 4]}}")
    of_data, given = given_data(dataset, test, tested=True)
    changed = {key: _plain(key, value) for key, value in {**of_data, **settings}.items()}
    recipes = [recipe] if isinstance(recipe, str | RunConfig) else list(recipe)
    design = design_of(
        recipes,
        changed,
        {key: _values(key, values) for key, values in (grid or {}).items()},
        None if seeds is None else _values("seeds", seeds),
        device,
    )
    means = Means.of(out, data_dir, workers=workers, cluster=cluster, say=say, same_data=same_data)
    made = SweepExperiment(design, given, means, guarantee=guarantee, metric=metric)
    return carried_out(made, means)


def bases(recipes: Iterable[str | RunConfig], settings: Mapping[str, Any]) -> dict[str, RunConfig]:
    """Return the configurations of recipes by name; without a name, the system's name is used.

    Args:
        recipes: each a recipe's name, a .toml file's path, or a configuration.
        settings: the settings of all runs, by dotted name, which a file may leave out.

    Raises:
        ConfigError: there is no such recipe, or two recipes have the same name.
    """
    found: dict[str, RunConfig] = {}
    left_out = nested(settings.items())
    for recipe in recipes:
        name = recipe.system if isinstance(recipe, RunConfig) else recipe
        if name in found:
            raise ConfigError(f"recipe {name}: it occurs twice; remove one")
        found[name] = recipe if isinstance(recipe, RunConfig) else named(recipe, left_out)
    if not found:
        raise ConfigError("recipe: there are none; give at least one")
    return found


def design_of(
    recipes: Iterable[str | RunConfig],
    settings: Mapping[str, Any],
    grid: Mapping[str, Sequence[Any]],
    seeds: Sequence[int] | None,
    device: str,
) -> Design:
    """Return a sweep's design; without seeds, the configurations' own.

    Raises:
        ConfigError: a recipe, a setting or a seed is wrong; see ``bases`` and ``Design``.
    """
    found = bases(recipes, settings)
    own = sorted({config.seed for config in found.values()})
    return Design(found, settings, grid, own if seeds is None else seeds, device)


Asked = tuple[Unit, Adversary]
"""The unit and the adversary whose epsilon is shown."""


def asked_of(config: RunConfig, asked: Asked | None) -> Asked | None:
    """Return what is shown for a run: what the user asks for, or else its target's guarantee."""
    if asked is not None or config.target is None:
        return asked
    return config.target.unit, config.target.adversary


def shown_of(privacy: Statement, guarantee: Asked | None = None) -> Proven:
    """Return a statement's headline; lines for the numbers that are sent take precedence.

    Args:
        privacy: the statement.
        guarantee: the unit and the adversary; None for the statement's headline, see
            ``reporting.lines.headline``.
    """
    line = headline(privacy, guarantee)
    if line is not None and line.epsilon is not None:
        return Proven.of_line(line, privacy)
    unit, adversary = guarantee or ("client-run", "server")
    return Proven(
        epsilon=None, delta=0.0, unit=unit, adversary=adversary, conditions=privacy.warnings
    )


class SweepExperiment(Experiment[Sweep]):
    """The runs of a sweep, as an experiment.

    Args:
        design: the design of the sweep.
        given: the data, if they are given.
        means: how it is carried out.
        guarantee: the guarantee whose epsilon is shown, as "UNIT:ADVERSARY"; None uses a run's
            target.
        metric: the metric that is shown first; None chooses one that suits the labels.

    Raises:
        ConfigError: there is no such guarantee or metric, or all runs are refused.
    """

    kind = "sweep"
    designed_by = Design
    grows = ("bases", "grid", "seeds")
    design: Design

    def __init__(
        self,
        design: Design,
        given: Dataset | None,
        means: Means,
        *,
        guarantee: str | None = None,
        metric: str | None = None,
    ) -> None:
        self.design = design
        self.given = given
        self._asked = None if guarantee is None else unit_and_adversary(guarantee)
        self._metric = metric
        self._all = runs_of(design, means.data_dir, given)
        self._runs = {run.digest: run for run in self._all if run.config is not None}
        tasks = {} if given is None else {"": Task("", Shared(lambda: given, travels=True), {})}
        self.maker = Maker(tasks, means.data_dir, design.device)
        made = [run.config for run in self._all if run.config is not None]
        self.configs = list({_strings(config): config for config in made}.values())
        if metric not in (None, *metrics_for(made)):
            raise ConfigError(f"metric {metric}: choose {', '.join(metrics_for(made))}")

    def lacks(self, old: Document) -> str | None:
        """Return what it lacks of another sweep."""
        varied = self.read_again(old)["grid"]
        if set(varied) != set(self.design.grid):
            return f"varies {', '.join(varied) or 'no setting'}"
        return super().lacks(old)

    def due(self, known: Mapping[str, Row]) -> Iterator[PlannedRun]:
        """Yield the runs that are not refused."""
        return iter(self._runs.values())

    def total(self, known: Mapping[str, Row]) -> int:
        """Return how many runs there are."""
        return len(self._runs)

    def planned(self, row: Row) -> PlannedRun | None:
        """Return the run of a row as it would be planned now."""
        return self._runs.get(row["digest"])

    def before(self, left: int, at_once: int, folder: Path | None) -> Iterator[str]:
        """Yield what the sweep is about to do, and the runs that are refused before they begin."""
        design = self.design
        configs = [run.config for run in self._all if run.config is not None]
        rounds = sum(config.rounds for config in configs)
        several = f", {at_once} at once" if at_once > 1 else ""
        done = f"; {len(configs) - left} finished before" if left < len(configs) else ""
        cells = len(configs) // len(design.seeds)
        yield (
            f"sweep      {_many(len(configs), 'run')} ({_many(cells, 'combination')}, "
            f"{_many(len(design.seeds), 'seed')} each), {_many(rounds, 'round')} in "
            f"all{several}{done}"
        )
        if folder is not None:
            yield f"folder     {folder}"
        for name, keys in design.lacking().items():
            yield f"note       {name} has no {', '.join(keys)}, and runs without"
        for run in self._all:
            if run.refused is not None:
                yield f"refused    {run.words}: {run.refused}"

    def outcome(self, row: Row) -> str:
        """Return a finished run's scores for display."""
        return f"{in_short(row['metrics'])}  {row['seconds']:.1f} s"

    def view(self, store: RunStore, folder: Path | None) -> Sweep:
        """Return what the rows so far say, and write it."""
        of_settings: dict[str, list[PlannedRun]] = {}
        for run in self._all:
            of_settings.setdefault(in_words(run.labels["settings"]), []).append(run)
        groups = [self._combination(runs, store) for runs in of_settings.values()]
        private = any(each.on.is_private for each in groups)
        reasons = [(run, _reason(run, store)) for run in self._all]
        failed = [
            {"settings": dict(run.labels["settings"]), "seed": run.labels["seed"], "reason": reason}
            for run, reason in reasons
            if reason is not None
        ]
        releases = {
            run.labels["recipe"]: tuple(told)
            for run in self._all
            if run.config is not None
            and run.digest in store.rows
            and (told := run.config.composition.local.private_scores)
        }
        found = Sweep(
            groups=groups,
            out=folder,
            private_choice=private,
            private_scores=private,
            score_releases=releases,
            together=self._together(store),
            uncounted=len(store.rows.keys() - {run.digest for run in self._all}),
            failed=failed,
            metric=self._metric,
            missing=len(self._all) - len(failed) - sum(len(each.runs) for each in groups),
        )
        if folder is not None:
            found.write(folder)
        return found

    def _combination(self, runs: Sequence[PlannedRun], store: RunStore) -> Combination:
        """Return what the rows so far say of the runs with one combination of settings."""
        rows, each, tested_on, sums = [], [], [TestSet()], {}
        for run in runs:
            if run.config is None or run.digest not in store.rows:
                continue
            row = {**store.rows[run.digest], **run.labels}  # two recipes may share a run
            privacy = Statement.from_json(row["privacy"])
            asked = asked_of(run.config, self._asked)
            proven = shown_of(privacy, asked)
            if asked is None and (behind := behind_sums(privacy)) is not None:
                sums[proven] = behind
            tested_on.append(TestSet.of_run(row["metrics"], row["confusion"], privacy))
            rows.append(row)
            each.append(proven)
        settings = runs[0].labels["settings"]
        varied = {k: v for k, v in settings.items() if k != "recipe" or len(self.design.bases) > 1}
        return Combination(
            name=", ".join(map(text_of, varied.values())) or "each run",
            settings=settings,
            runs=rows,
            each=each,
            on=max(tested_on, key=lambda on: on.most_frequent or 0.0),
            refused=next(filter(None, (_reason(run, store) for run in runs)), None),
            behind_sums=sums,
        )

    def _together(self, store: RunStore) -> list[Together]:
        """Return what the runs on each data set cost together, those that failed among them."""
        released_by: dict[str, dict[str, Released]] = {}
        about: dict[tuple[str, Unit, Adversary], None] = {}
        for run in self._all:
            if run.config is None:
                continue
            row, data = store.rows.get(run.digest), _rows_of(run.config, self.given)
            if row is not None:
                privacy = Statement.from_json(row["privacy"])
                config = from_mapping(row["config"])
                if self.given is None:  # the folder and its table may have been moved
                    config = config.changed(
                        dataset=run.config.dataset, test_file=run.config.test_file
                    )
                found: Released | None = released(config, self._problem(config), privacy)
                proven = shown_of(privacy, asked_of(run.config, self._asked))
                if proven.epsilon is not None:
                    unit = proven.unit
                    whole: Unit = unit if unit in WHOLE_RUN else "client-run"
                    about[data, whole, proven.adversary] = None
            elif run.digest in store.failed:
                lost = isinstance(store.failed[run.digest], WorkerLost)
                found = self._as_planned(run.config, lost=lost)
            else:
                continue
            of_data = released_by.setdefault(data, {})
            if found is not None:
                of_data[run.digest] = found
        # Of data without any guarantee, say what whole runs cost.
        bare = released_by.keys() - {data for data, _, _ in about}
        about |= {(data, "client-run", "server"): None for data in released_by if data in bare}
        return [
            together(list(released_by[data].values()), unit, who, data) for data, unit, who in about
        ]

    def _as_planned(self, config: RunConfig, *, lost: bool) -> Released | None:
        """Return what a run that failed may have released: all that was planned, if anything was.

        Planning tries a user's own model, which is not safe where that may be what killed a worker:
        such a run counts as one that protects nothing.
        """
        if lost and is_address(config.model):
            nothing = Statement(claim=None, guarantees=())
            return Released(releases=ReleaseHistory({}), statement=nothing, at=lambda _: nothing)
        try:
            planned = plan(config, self._problem(config))
        except FedldpError:  # refused before any client was asked
            return None
        return released(planned.config, planned.problem, planned.privacy)

    def _problem(self, config: RunConfig) -> Problem:
        if self.given is None:
            return problem_of(config, self.maker.data_dir)
        return problem_with(config, self.given, self.maker.data_dir)


def _reason(run: PlannedRun, store: RunStore) -> str | None:
    """Return why a run was refused or failed; None if it was not."""
    failed = store.failed.get(run.digest)
    return run.refused if failed is None else one_line(failed)


def _strings(config: RunConfig) -> tuple[str, ...]:
    """Return a configuration's strings, which alone can name own code or tables."""
    return tuple(each for each in config.model_dump().values() if isinstance(each, str))


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def _rows_of(config: RunConfig, given: Dataset | None) -> str:
    """Return what names the rows of a run: a file has one name, however its path is written."""
    if given is not None:
        return given.name
    own = is_own_file(config.dataset)
    return os.path.relpath(os.path.realpath(config.dataset)) if own else config.dataset


def _values(name: str, values: Iterable[Any]) -> list[Any]:
    if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
        raise ConfigError(f"{name} = {values}: give a list of values")
    return [_plain(name, value) for value in values]


def _plain(name: str, value: Any) -> Any:
    """Return a value as files store it: NumPy values become Python numbers and lists.

    Raises:
        ConfigError: it does not consist of numbers, strings, lists and mappings.
    """
    plain = value.tolist() if hasattr(value, "tolist") else value
    try:
        json.dumps(plain, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{name} = {plain}: a sweep writes its settings to a file; give a number, a string or "
            "a list"
        ) from error
    return plain


def runs_of(design: Design, data_dir: Path | None, given: Dataset | None) -> list[PlannedRun]:
    """Return the runs of a sweep; a run that is refused before training carries the reason.

    Their labels are "recipe", "settings" (what identifies the run's cell in the table: the recipe,
    and the grid's settings) and "seed".

    Args:
        design: the design of the sweep.
        data_dir: the data folder.
        given: the data, if they are given, so that no data files are read.

    Raises:
        ConfigError: all runs are refused, or two runs are the same.
    """
    names = {each.dataset for each in design.bases.values()} | {*design.grid.get("dataset", ())}
    known: dict[Any, Any] = {}

    def once(find: Callable[..., Any], config: RunConfig, *of: Any) -> Any:
        """Return what is found for a configuration; it is found only once for the same values."""
        if (find, of) not in known:
            known[find, of] = find(config)
        return known[find, of]

    def missing(config: RunConfig) -> str | None:
        if given is not None or is_own_file(config.dataset):
            return None
        try:
            locate(find_source(config.dataset), resolve_data_dir(data_dir))
        except FedldpError as error:
            return one_line(error)
        return None

    def digest_of(config: RunConfig) -> str:
        if given is not None:
            return digest_of_data(given, config, data_dir)
        # Of own tables nothing is known but their paths, if there are several.
        path = f" {config.dataset}" if len(names) > 1 and is_own_file(config.dataset) else ""
        return data_digests(config, resolve_data_dir(data_dir))[0] + path

    def planned(
        base: RunConfig, labels: Mapping[str, Any], changes: Mapping[str, Any]
    ) -> PlannedRun:
        words = f"{in_words(labels['settings'])} seed {labels['seed']}"
        try:
            config = base.changed(**changes)
            refused = once(missing, config, config.dataset)
        except FedldpError as error:
            refused = one_line(error)
        if refused is not None:
            return PlannedRun(
                digest=words, words=words, labels=labels, config=None, refused=refused
            )
        texts = (each for each in config.model_dump().values() if isinstance(each, str))
        own = tuple(text for text in texts if is_address(text) or file_of(text) is not None)
        code = once(code_of, config, *own)
        data = once(digest_of, config, config.dataset, getattr(config, "public_dataset", None))
        digest = run_digest(config, data, code=code, device=design.device)
        place = _folder_of(labels, config, code)
        return PlannedRun(digest=digest, words=words, labels=labels, config=config, place=place)

    found: dict[tuple[str, str], PlannedRun] = {}
    for name, base in design.bases.items():
        settings = {k: v for k, v in design.settings.items() if base.has(k)}
        keys = [key for key in design.grid if base.has(key)]
        for values in product(*(design.grid[key] for key in keys)):
            cell = dict(zip(keys, values, strict=True))
            for seed in design.seeds:
                changes = nested([*settings.items(), *cell.items(), ("seed", seed)], base)
                labels = {"recipe": name, "settings": {"recipe": name, **cell}, "seed": seed}
                run = planned(base, labels, changes)
                other = found.setdefault((name, run.digest), run)
                if other is not run:
                    raise ConfigError(
                        f"grid: {other.words} and {run.words} are the same configuration; leave "
                        "one out"
                    )
    runs = list(found.values())
    if all(run.refused is not None for run in runs):
        raise ConfigError(f"{runs[0].refused}")
    return runs


def _folder_of(labels: Mapping[str, Any], config: RunConfig, code: str) -> str:
    """Return a run's folder name: readable, and different for every configuration and own code."""
    whole = [labels["recipe"], config.identity(), *([code] if code else [])]
    document = json.dumps(whole, sort_keys=True)
    digest = hashlib.sha256(document.encode()).hexdigest()[:12]
    words = [Path(labels["recipe"]).stem]
    words += [f"{k}={shown(v)}" for k, v in labels["settings"].items() if k != "recipe"]
    text = re.sub(r"[^A-Za-z0-9.=]+", "_", "-".join(words))[:80].strip("._")
    return f"{text}-seed{labels['seed']}-{digest}"


def read_grid(texts: Iterable[str]) -> dict[str, list[Any]]:
    """Return the values of each setting from strings such as "epsilon=1,2,4".

    Each value is read as TOML, or else as a string. A comma within brackets or quotes does not
    separate values.

    Raises:
        ConfigError: a string does not have this form, or names a setting twice.
    """
    found: dict[str, list[Any]] = {}
    for text in texts:
        key, equals, rest = text.partition("=")
        key = key.strip()
        if not equals or not key or not rest.strip():
            raise ConfigError(f"grid {text}: write it as KEY=V1,V2,...")
        if key in found:
            raise ConfigError(f"grid {text}: {key} occurs twice; give all its values at once")
        found[key] = _values_in(rest, text)
    return found


def _values_in(listed: str, text: str) -> list[Any]:
    """Return listed values; strings without quotes go with plain values only."""
    try:
        found: list[Any] = tomllib.loads(f"values = [{listed}]")["values"]
    except (ValueError, RecursionError):
        if set(listed) & set("[]{}\"'"):
            raise ConfigError(
                f"grid {text}: a bracket or a quote is not closed, or a string beside one has no "
                "quotes; close it, or write strings in quotes"
            ) from None
        found = [value_of(piece.strip()) for piece in listed.split(",")]
        if "" in found:
            raise ConfigError(f"grid {text}: a value is empty; write it as KEY=V1,V2,...") from None
    return found
