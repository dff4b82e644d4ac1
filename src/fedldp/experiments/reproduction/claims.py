"""The claims of the papers' texts, sentence by sentence, next to measured or computed results.

The folder of a paper holds them in ``claims.toml``, in the order of the paper's text. Every time a
page is made, the committed results decide whether a claim holds: no verdict is written by hand. A
claim, ``[[claim]]``, has

    place, says      where in the paper ("5.2", "Fig. 4"), and a short version of what it claims
    cells            the recipes whose accuracies decide, in percent; name@5 is after round 5
    minus            instead of these accuracies, differences between two cells, or between the
                     means of two groups of cells, each cell by its position
    rank             instead of these accuracies, the rank of the first
    compute          a function in ``claims.py`` of the same folder, and its arguments
    epsilon          [recipe, unit]: the least epsilon proven for each, against the server
    ours             a template of the text that shows all these numbers
    rule             the name of a rule (``RULES``) that decides whether the claim holds, and the
                     numbers that the rule needs
    of, mean         which numbers it judges, by their positions; [1, 0] is number 1 minus number 0;
                     whether it judges only their mean. Without ``of`` it judges all
    cause, known     if it does not hold, why, in words whose beginning decides the verdict
                     (``Reason``); or whose entry in ``known`` says why
    cost             of a claim that has no recipe, what would be needed to measure it
"""

from __future__ import annotations

import inspect
import math
import tomllib
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from fedldp.accounting.guarantees import Guarantee
from fedldp.accounting.statement import Statement
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.recipes import Recipe, find_recipe
from fedldp.core.errors import ConfigError
from fedldp.core.registry import PAPERS, paper_folders
from fedldp.experiments.reproduction.comparison import Reason, Verdict, known
from fedldp.experiments.reproduction.results import (
    NOWHERE,
    Measurement,
    Measurements,
    in_hours,
    missing,
    published_of,
)
from fedldp.simulation.plan import plan, problem_of

NO_CAUSE = "not known: no cause is noted"
"""The string shown for a claim that does not hold and has no explanation."""

OURS = "(ours)"
"""The beginning of a claim that we make about a paper's system, and not the paper."""

_HOUR = 3600


class Judgement(NamedTuple):
    """What became of a claim.

    Attributes:
        ours: our numbers, in words; a dash if there are none.
        verdict: whether it holds, or why not.
        why: the cause if it does not hold, or the cost if it is not measured; "" if it holds.
    """

    ours: str
    verdict: Verdict
    why: str = ""

    @property
    def text(self) -> str:
        """The verdict and the cause, for a page."""
        shown = "does not" if self.verdict in ("explained", "differs") else self.verdict
        return f"{shown}: {self.why}" if self.why else shown


class Judged(NamedTuple):
    """The numbers that a rule judges.

    Attributes:
        values: the numbers.
        errors: their standard errors over the seeds; 0 for one seed, or a number that is computed.
    """

    values: NDArray[np.float64]
    errors: NDArray[np.float64]

    def rows(self, by: int | None) -> NDArray[np.float64]:
        """Return the numbers in rows of ``by``, or all in one row."""
        return self.values.reshape(-1, by or len(self.values))


Numbers = float | Sequence[float]


def near(judged: Judged, to: Numbers, within: Numbers) -> bool:
    """Return whether each number is within ``within`` of ``to``."""
    return bool((np.abs(judged.values - to) <= within).all())


def between(judged: Judged, least: Numbers = -math.inf, most: Numbers = math.inf) -> bool:
    """Return whether each number is at least ``least`` and at most ``most``."""
    return bool(((judged.values >= least) & (judged.values <= most)).all())


def rising(judged: Judged, by: int | None = None, start: float = -math.inf) -> bool:
    """Return whether each number, or each of ``by`` numbers, exceeds the one before, or a start."""
    rows = judged.rows(by)
    return bool((rows[:, 0] > start).all() and (rows[:, 1:] > rows[:, :-1]).all())


def outweighs(judged: Judged, times: float, by: int | None = None) -> bool:
    """Return whether the first number, or the first of ``by``, is larger than the rest.

    It must be more than ``times`` as large as each of them, whatever their signs.
    """
    rows = np.abs(judged.rows(by))
    return bool((rows[:, :1] > times * rows[:, 1:]).all())


def finite(judged: Judged) -> bool:
    """Return whether all numbers are finite."""
    return bool(np.isfinite(judged.values).all())


def above(judged: Judged) -> bool:
    """Return whether each difference exceeds 0 by more than the standard error of the seeds."""
    return bool((judged.values > judged.errors).all())


def not_above(judged: Judged) -> bool:
    """Return whether no difference exceeds 0 by more than the standard error of the seeds."""
    return not (judged.values > judged.errors).any()


def always(judged: Judged) -> bool:
    """Return True: the paper gives no number to compare ours with."""
    return True


RULES: dict[str, Callable[..., bool]] = {
    rule.__name__: rule
    for rule in (near, between, rising, outweighs, finite, above, not_above, always)
}


class Claim(BaseModel):
    """A sentence of a paper, or a number in it; the module's docstring describes its parts.

    Attributes:
        paper: the folder of the paper.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    paper: str
    place: str
    says: str
    cells: tuple[str, ...] = ()
    minus: tuple[tuple[int | tuple[int, ...], int | tuple[int, ...]], ...] = ()
    rank: bool = False
    compute: tuple[str | int | float, ...] = ()
    epsilon: tuple[tuple[str, str], ...] = ()
    ours: str = ""
    rule: dict[str, Any] | None = None
    of: tuple[int | tuple[int, int], ...] = ()
    mean: bool = False
    cause: str | None = None
    known: str | None = None
    cost: str | None = None

    @model_validator(mode="after")
    def _has_a_rule(self) -> Self:
        if (self.rule is None) == (self.cost is None):
            raise ValueError("it has either a rule or a cost")
        name, numbers = self.named_rule
        if name not in RULES:
            raise ValueError(f"rule = {name}: choose {', '.join(RULES)}")
        try:
            inspect.signature(RULES[name]).bind((), **numbers)
        except TypeError as error:
            raise ValueError(f"rule = {name}: {error}") from error
        return self

    @property
    def named_rule(self) -> tuple[str, dict[str, Any]]:
        """The name of the rule and the numbers that it needs."""
        numbers = dict(self.rule or {"name": "always"})
        return numbers.pop("name", ""), numbers


def statement_of(config: RunConfig) -> Statement:
    """Return the statement of a configuration, before any training and without data."""
    return plan(config, problem_of(config, NOWHERE)).privacy


class StatementEngine:
    """What a function in a paper's ``claims.py`` is handed, so that it imports nothing above it."""

    def problem(self, config: RunConfig) -> Problem:
        """Return a configuration's problem, without data."""
        return problem_of(config, NOWHERE)

    def lines(self, config: RunConfig, unit: str, adversary: str) -> list[Guarantee]:
        """Return the lines of a configuration's statement for a unit and an adversary."""
        lines = statement_of(config).guarantees
        return [line for line in lines if (line.unit, line.adversary) == (unit, adversary)]

    def epsilon(self, recipe: str, unit: str, adversary: str = "server") -> float:
        """Return the least epsilon that is proven for a recipe; infinity if none is."""
        lines = self.lines(find_recipe(recipe).config, unit, adversary)
        return min((line.size for line in lines), default=math.inf)


def claims_of(paper: str) -> tuple[Claim, ...]:
    """Return a paper's claims in the order of its text.

    Args:
        paper: the folder of the paper.

    Raises:
        ConfigError: there is no such folder, it has no claims, or one cannot be judged.
    """
    files = {Path(file).parent.name: Path(file) for file in paper_folders("claims.toml")}
    if paper not in files:
        raise ConfigError(
            f"paper {paper}: there is no paper of that name; choose {', '.join(files)}"
        )
    found = tomllib.loads(files[paper].read_text(encoding="utf-8"))["claim"]
    return tuple(claim_of(paper, table) for table in found)


def claim_of(paper: str, table: dict[str, Any]) -> Claim:
    """Return the claim that a table of ``claims.toml`` describes.

    Raises:
        ConfigError: it has an unknown part, or lacks what its rule needs.
    """
    try:
        return Claim(paper=paper, **table)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigError(
            f"claims.toml of {paper}: the claim {table.get('says')!r}: {where}: {first['msg']}"
        ) from error


def judged(claim: Claim) -> Judgement:
    """Return our numbers and the verdict on a claim, from the committed results."""
    if claim.cost is not None:
        return Judgement("-", "not measured", claim.cost)
    found = [_committed(name) for name in claim.cells]
    measured = [ours for _, ours in found if ours is not None]
    if len(measured) < len(found):
        cost = _cost([recipe for recipe, ours in found if ours is None])
        return Judgement("-", "not measured", cost)
    weights, numbers = _numbers(claim, [100 * ours.mean for ours in measured])
    variances = [(100 * (ours.deviation or 0.0)) ** 2 / len(ours.seeds) for ours in measured]
    shown = claim.ours.format(*numbers)
    name, needs = claim.named_rule
    if RULES[name](_judged(claim, weights, numbers, variances), **needs):
        return Judgement(shown, "agrees")
    reason = Reason(claim.cause or NO_CAUSE) if claim.known is None else known()[claim.known]
    return Judgement(shown, reason.verdict, reason.text)


def _committed(name: str) -> tuple[Recipe, Measurement | None]:
    """Return a recipe and its committed result, which is that after round 5 for ``name@5``."""
    start, _, after = name.partition("@")
    recipe = find_recipe(start)
    ours = published_of(recipe)
    if ours is not None and after:
        mean, deviation = ours.after[int(after)]
        ours = ours.model_copy(update={"mean": mean, "deviation": deviation})
    return recipe, ours


def _cost(cells: Sequence[Recipe]) -> str:
    """Return the estimated time on one core to run some recipes with one seed each."""
    seconds = missing(cells, range(1), Measurements()).core_seconds
    if seconds < _HOUR:
        return f"{math.ceil(seconds / 60)} CPU minutes"
    return f"{in_hours(seconds)} CPU hours"


def _numbers(claim: Claim, means: Sequence[float]) -> tuple[list[NDArray[np.float64]], list[float]]:
    """Return the weights of the cells in each number, and the numbers.

    The weights are 0 in a number that is not a sum of cells.
    """
    engine, one, none = StatementEngine(), np.eye(len(means)), np.zeros(len(means))
    weights = [
        one[np.atleast_1d(first)].mean(axis=0) - one[np.atleast_1d(second)].mean(axis=0)
        for first, second in claim.minus
    ] or list(one)
    # Added in the order of the cells, so that a page is the same on every machine.
    numbers = [
        sum(w * mean for w, mean in zip(row.tolist(), means, strict=True)) for row in weights
    ]
    if claim.rank:
        weights, numbers = [none], [1.0 + sum(each > numbers[0] for each in numbers[1:])]
    if claim.compute:
        name, *arguments = claim.compute
        functions = import_module(f"{PAPERS}.{claim.paper}.claims")
        numbers += getattr(functions, str(name))(engine, *arguments)
    numbers += [engine.epsilon(recipe, unit) for recipe, unit in claim.epsilon]
    return weights + [none] * (len(numbers) - len(weights)), numbers


def _judged(
    claim: Claim,
    weights: Sequence[NDArray[np.float64]],
    numbers: Sequence[float],
    variances: Sequence[float],
) -> Judged:
    """Return what the claim's rule judges."""

    def chosen(of: Sequence[Any]) -> list[Any]:
        places = claim.of or range(len(of))
        return [of[p] if isinstance(p, int) else of[p[0]] - of[p[1]] for p in places]

    values, rows = chosen(numbers), chosen(weights)
    if claim.mean:
        values, rows = [np.mean(values)], [np.mean(rows, axis=0)]
    errors = [math.sqrt(row**2 @ np.array(variances)) for row in rows]
    return Judged(np.array(values), np.array(errors))
