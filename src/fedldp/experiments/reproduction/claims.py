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
    cause, known     if it does not hold, why: a cause that a run has tested, or a string that
                     begins with "not known"; or whose entry in ``known`` says why
    cost             of a claim that has no recipe, what would be needed to measure it
"""

from __future__ import annotations

import inspect
import math
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from fedldp.algorithms.recipes import Recipe, find_recipe
from fedldp.core.errors import ConfigError
from fedldp.core.registry import PAPERS, paper_folders
from fedldp.experiments.reproduction.comparison import Measurement, known, ours_of
from fedldp.experiments.reproduction.results import MeasurementStore
from fedldp.experiments.reproduction.runner import jobs
from fedldp.experiments.reproduction.statements import StatementEngine

NO_CAUSE = "no cause is noted"
"""The string shown for a claim that does not hold and has no explanation."""

_NOWHERE = Path("/nonexistent")
_CORES = 2
"""How many cores the estimated time of a run assumes."""
_HOUR = 60
_WHOLE = 10
"""An estimate of this many hours or more has no decimals."""


class Judged(NamedTuple):
    """A number that a rule judges.

    Attributes:
        value: the number.
        error: the standard error over the seeds; 0 for one seed, or a number that is computed.
    """

    value: float
    error: float


def near(
    judged: Sequence[Judged], to: float | Sequence[float], within: float | Sequence[float]
) -> bool:
    """Return whether each number is within ``within`` of ``to``."""
    far = np.abs(_values(judged) - np.asarray(to))
    return bool((far <= np.asarray(within)).all())


def between(
    judged: Sequence[Judged],
    least: float | Sequence[float] = -math.inf,
    most: float | Sequence[float] = math.inf,
) -> bool:
    """Return whether each number is at least ``least`` and at most ``most``."""
    values = _values(judged)
    return bool(((np.asarray(least) <= values) & (values <= np.asarray(most))).all())


def rising(judged: Sequence[Judged], by: int | None = None, start: float = -math.inf) -> bool:
    """Return whether each number, or each of ``by`` numbers, exceeds the one before, or a start."""
    return all(
        earlier < later for row in _rows(judged, by) for earlier, later in pairwise([start, *row])
    )


def outweighs(judged: Sequence[Judged], times: float, by: int | None = None) -> bool:
    """Return whether the first number, or the first of ``by``, is larger than the rest.

    It must be more than ``times`` as large as each of them, whatever their signs.
    """
    return all(abs(row[0]) > times * abs(other) for row in _rows(judged, by) for other in row[1:])


def finite(judged: Sequence[Judged]) -> bool:
    """Return whether all numbers are finite."""
    return all(math.isfinite(each.value) for each in judged)


def above(judged: Sequence[Judged]) -> bool:
    """Return whether each difference exceeds 0 by more than the standard error of the seeds."""
    return all(each.value > each.error for each in judged)


def not_above(judged: Sequence[Judged]) -> bool:
    """Return whether no difference exceeds 0 by more than the standard error of the seeds."""
    return not any(each.value > each.error for each in judged)


def always(judged: Sequence[Judged]) -> bool:
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


def claims_table(paper: str) -> str:
    """Return a paper's claims beside our results, with a verdict on each, as a table."""
    lines = ["| place | the paper | ours | verdict |", "|---|---|---|---|"]
    for claim in claims_of(paper):
        ours, verdict = judged(claim)
        lines.append(f"| {claim.place} | {claim.says} | {ours} | {verdict} |")
    return "\n".join(lines) + "\n"


def judged(claim: Claim) -> tuple[str, str]:
    """Return our numbers, and "agrees", "does not: CAUSE", or "not measured: COST"."""
    if claim.cost is not None:
        return "-", f"not measured: {claim.cost}"
    cells = [find_recipe(name.partition("@")[0]) for name in claim.cells]
    found = [_committed(name) for name in claim.cells]
    missing = [cell for cell, ours in zip(cells, found, strict=True) if ours is None]
    if missing:
        return "-", f"not measured: {_cost(missing)}"
    measured = [ours for ours in found if ours is not None]
    weights, numbers = _numbers(claim, measured)
    shown = claim.ours.format(*numbers)
    name, needs = claim.named_rule
    if RULES[name](_chosen(claim, measured, weights, numbers), **needs):
        return shown, "agrees"
    cause = claim.cause if claim.known is None else known()[claim.known].text
    return shown, f"does not: {cause or NO_CAUSE}"


def _numbers(
    claim: Claim, measured: Sequence[Measurement]
) -> tuple[NDArray[np.float64], list[float]]:
    """Return the weights of the cells in each number, and the numbers.

    The weights are 0 in a number that is not a sum of cells.
    """
    engine = StatementEngine()
    weights = _weights(claim)
    means = [100 * ours.mean for ours in measured]
    # Added in the order of the cells, so that a page is the same on every machine.
    numbers = [
        sum(w * mean for w, mean in zip(row, means, strict=True)) for row in weights.tolist()
    ]
    if claim.rank:
        numbers = [1.0 + sum(each > numbers[0] for each in numbers[1:])]
    if claim.compute:
        name, *arguments = claim.compute
        functions = import_module(f"{PAPERS}.{claim.paper}.claims")
        numbers += getattr(functions, str(name))(engine, *arguments)
    numbers += [engine.epsilon(recipe, unit) for recipe, unit in claim.epsilon]
    whole = np.zeros((len(numbers), len(measured)))
    if not claim.rank:
        whole[: len(weights)] = weights
    return whole, numbers


def _weights(claim: Claim) -> NDArray[np.float64]:
    """Return the weight of each cell in the numbers that are cells or differences."""
    one = np.eye(len(claim.cells))
    if not claim.minus:
        return one
    pairs = [(np.atleast_1d(first), np.atleast_1d(second)) for first, second in claim.minus]
    return np.array([one[first].mean(axis=0) - one[second].mean(axis=0) for first, second in pairs])


def _chosen(
    claim: Claim,
    measured: Sequence[Measurement],
    weights: NDArray[np.float64],
    numbers: Sequence[float],
) -> list[Judged]:
    """Return what the claim's rule judges."""
    variances = [(100 * (ours.deviation or 0.0)) ** 2 / len(ours.seeds) for ours in measured]

    def of(value: float, row: NDArray[np.float64]) -> Judged:
        return Judged(value, math.sqrt(row**2 @ variances))

    places = claim.of or range(len(numbers))
    found = [
        (numbers[place], weights[place])
        if isinstance(place, int)
        else (numbers[place[0]] - numbers[place[1]], weights[place[0]] - weights[place[1]])
        for place in places
    ]
    if claim.mean:
        values, rows = zip(*found, strict=True)
        return [of(float(np.mean(values)), np.mean(rows, axis=0))]
    return [of(value, row) for value, row in found]


def _values(judged: Sequence[Judged]) -> NDArray[np.float64]:
    return np.array([each.value for each in judged])


def _rows(judged: Sequence[Judged], by: int | None) -> Iterator[list[float]]:
    """Yield the numbers in rows of ``by``, or all in one row."""
    values = [each.value for each in judged]
    width = by or len(values)
    for start in range(0, len(values), width):
        yield values[start : start + width]


def _committed(name: str) -> Measurement | None:
    """Return a recipe's committed result after its last round, or after round 5 for ``name@5``."""
    recipe, _, after = name.partition("@")
    ours = ours_of(find_recipe(recipe), MeasurementStore(_NOWHERE), _NOWHERE, None)
    if ours is None or not after:
        return ours
    mean, deviation = ours.after[int(after)]
    return replace(ours, mean=mean, deviation=deviation)


def _cost(cells: Sequence[Recipe]) -> str:
    """Return the estimated time on one core to run some recipes with one seed each."""
    todo = jobs(cells, range(1), MeasurementStore(_NOWHERE), _NOWHERE, "cpu")
    minutes = _CORES * sum(job.seconds for job in todo) / 60
    hours = minutes / 60
    if minutes < _HOUR:
        return f"{math.ceil(minutes)} CPU minutes"
    return f"{hours:.1f} CPU hours" if hours < _WHOLE else f"{hours:.0f} CPU hours"
