"""The results of an audit: one type for every game and attack.

Pages, text output, JSON output and commands read this type. ``Result.figures`` has the figures of a
single game, under their JSON keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.guarantees import HOUSE, Unit
from fedldp.core.errors import ConfigError

Game = Literal[
    "mechanism", "system", "linkage", "poisoning", "influence", "membership", "inversion",
    "property",
]  # fmt: skip
Measure = Literal["epsilon", "links", "accuracy", "influence", "AUC", "error"]
Verdict = Literal[
    "ok", "claim-broken", "bug", "fails its contract", "linked", "at chance", "succeeds", "fails",
]  # fmt: skip

NEAR = 0.75
"""A bound is called near the proven epsilon if it is at least this fraction of it."""

LEVELS = (0.001, 0.01, 0.1)
"""The false-positive rates at which a curve's true-positive rate is reported."""

_WORST_FIRST: tuple[Verdict, ...] = (
    "bug", "fails its contract", "claim-broken", "linked", "succeeds", "ok", "at chance", "fails",
)  # fmt: skip

_ATTACK = "kind=game name=attack against setting measure result=measured baseline succeeds"
_KEYS: Mapping[Game, str] = {
    "mechanism": "mechanism=subject size unit adversary=against neighbours delta claimed proven "
    "lower confidence trials attack verdict note stated_by",
    "system": "system=subject setting size unit adversary=against neighbours delta claimed "
    "claim_unit proven lower confidence trials attack verdict note stated_by",
    "linkage": "channel span evidence attack clocks target clients delay_seconds chunk "
    "guessing=baseline hits trials low=measured.low high=measured.high confidence verdict "
    "advantage",
    "poisoning": "system=subject attack share liars clients seed accuracy=measured.value lost "
    "stopped=note",
    "influence": "system=subject clients most=measured.value norm amplification",
    "membership": _ATTACK,
    "inversion": _ATTACK,
    "property": _ATTACK,
}
"""The keys of each game's JSON, in order; ``key=name`` if the field has another name."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A measured figure and its interval."""

    value: float
    low: float
    high: float

    @classmethod
    def exact(cls, value: float) -> Estimate:
        """Return a figure without an interval, because it is not a statistic."""
        return cls(value=value, low=value, high=value)

    @classmethod
    def at_least(cls, value: float) -> Estimate:
        """Return a figure of which only a lower bound is known."""
        return cls(value=value, low=value, high=float("inf"))

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True, kw_only=True)
class Roc:
    """A ROC curve.

    Attributes:
        points: (false-positive rate, true-positive rate) ascending, from (0, 0) to (1, 1).
        auc: the area under the curve.
        levels: true-positive rates by false-positive rate, see ``tpr_at``.
        positives: the number of cases in which the right answer is yes.
        negatives: the number of cases in which the right answer is no.
    """

    points: tuple[tuple[float, float], ...]
    auc: Estimate
    levels: tuple[tuple[float, Estimate], ...]
    positives: int
    negatives: int

    def tpr_at(self, fpr: float) -> Estimate:
        """Return the largest true-positive rate with at most ``fpr`` false positives.

        With fewer than 1/``fpr`` negatives, the result is the rate without any false positive.

        Raises:
            ConfigError: ``fpr`` is not in ``LEVELS``.
        """
        for level, estimate in self.levels:
            if level == fpr:
                return estimate
        raise ConfigError(f"fpr = {fpr:g}: choose {', '.join(f'{each:g}' for each in LEVELS)}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Picture:
    """An example beside its reconstruction from a report.

    Attributes:
        original: float32, shape (channels, height, width).
        recovered: an array of the same shape.
    """

    original: NDArray[np.float32] = field(repr=False)
    recovered: NDArray[np.float32] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one game, or one attack, found about one subject.

    Attributes:
        subject: the mechanism with its parameters, or the system's name.
        game: the game that was played.
        attack: what the adversary did; None for a run without an adversary, for comparison.
        measure: what ``measured`` is. "error": the mean squared error, divided by the baseline's
            error. "links": the share of correct links. "accuracy": the accuracy of the model.
            "influence": the influence on any one weight.
        measured: the figure with its interval; for epsilon, a lower bound. None if the attack
            cannot be made; ``note`` says why.
        baseline: what guessing without a report gives, for attacks that guess.
        setting: the configuration and the clients; for a foreign client, what the audit examines.
        against: what the adversary sees; for a bound on epsilon, who the adversary is.
        size: d, the number of coordinates sent; 0 if nothing depends on it.
        unit: the unit that the epsilons protect.
        neighbours: which inputs differ.
        delta: the delta of the epsilons.
        claimed: the epsilon that the source claims, or that was requested; None if nothing is
            claimed.
        claim_unit: the unit for which a system's source claims this epsilon. A claim for one weight
            is also listed for a client's whole report, because readers take it to mean that.
        proven: the epsilon of the event that is charged; None if nothing is proven.
        stated_by: whose word ``proven`` rests on: "fedldp", or the address of a user's own code.
            Nothing here proves the epsilon that such code states; ``as_json`` calls it "stated".
        confidence: the confidence level of the interval.
        trials: how many trials were counted.
        verdict: for epsilon, "bug" if proven < lower, "claim-broken" if claimed < lower, else "ok";
            "fails its contract" if no figure is false, but a mechanism accepts what it must refuse,
            or its reports cannot be read. For other measures, whether the whole interval is better
            than guessing. None if there is nothing to judge.
        note: how close a bound is to the proven epsilon; or why an attack is weak, or why a run
            stopped.
        roc: the ROC curve, if the attack guesses yes or no.
        pictures: examples beside their reconstructions, if the attack recovers images.
        finds: the smallest epsilon that a game of this many trials would have called a mistake,
            with an event as rare as the counted one; None if there is no such epsilon, or it is
            unknown.
        figures: more figures, by JSON key.
    """

    subject: str
    game: Game
    attack: str | None
    measure: Measure
    measured: Estimate | None
    baseline: float = 0.0
    setting: str = ""
    against: str = "server"
    size: int = 0
    unit: Unit | None = None
    neighbours: str = ""
    delta: float = 0.0
    claimed: float | None = None
    claim_unit: Unit | None = None
    proven: float | None = None
    stated_by: str = HOUSE
    confidence: float | None = None
    trials: int = 0
    verdict: Verdict | None = None
    note: str = ""
    roc: Roc | None = None
    pictures: tuple[Picture, ...] = ()
    finds: float | None = None
    figures: Mapping[str, Any] = field(default_factory=dict)

    @property
    def lower(self) -> float:
        """The lower end of the interval; 0 if nothing was measured."""
        return 0.0 if self.measured is None else self.measured.low

    @property
    def advantage(self) -> float:
        """By how much the measured value exceeds the baseline."""
        return 0.0 if self.measured is None else self.measured.value - self.baseline

    @property
    def succeeds(self) -> bool:
        """Whether the whole confidence interval is better than guessing."""
        return self.verdict in ("linked", "succeeds")

    @property
    def title(self) -> str:
        """The title of the result's table: a mechanism, or a setting of a system."""
        return f"{self.subject}: {self.setting}" if self.game == "system" else self.subject

    def as_json(self) -> dict[str, Any]:
        """Return everything but the pictures, under the keys of its game.

        An epsilon that a user's own code states is not called "proven".
        """
        found: dict[str, Any] = {}
        for each in _KEYS[self.game].split():
            key, _, name = each.partition("=")
            told = name or key
            found[key] = _json(
                self.figures[told] if told in self.figures else attrgetter(told)(self)
            )
        if self.measure == "epsilon":
            stated = self.proven
            found |= {"proven": stated if self.stated_by == HOUSE else None, "stated": stated}
        if _KEYS[self.game] == _ATTACK:
            found |= _of_curve(self.roc) | {"more": _json(self.figures), "note": self.note}
        return found


@dataclass(frozen=True, kw_only=True)
class Audit:
    """The results of some games; with a probability of at least ``confidence``, all hold together.

    Attributes:
        subject: what was audited, in words.
        seed: the seed of all randomness.
        rows: the results.
        confidence: None if the results are not bounds.
    """

    subject: str
    seed: int
    rows: tuple[Result, ...]
    confidence: float | None = None

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of the rows."""
        return worst(self.rows)

    def of(self, game: Game) -> list[Result]:
        """Return the results of one game."""
        return [row for row in self.rows if row.game == game]

    def as_json(self) -> dict[str, Any]:
        """Return what ``fedldp audit --json`` prints."""
        return {
            "subject": self.subject,
            "verdict": self.verdict,
            "confidence": self.confidence,
            "seed": self.seed,
            "rows": [row.as_json() for row in self.rows],
        }


def worst(rows: Sequence[Result]) -> Verdict:
    """Return the worst verdict of some results; "ok" if there are none."""
    found = {row.verdict for row in rows}
    return next((each for each in _WORST_FIRST if each in found), "ok")


def verdict_of(claimed: float | None, proven: float | None, lower: float) -> Verdict:
    """Return the verdict that a bound gives on a proven epsilon and a claim."""
    if proven is not None and proven < lower:
        return "bug"
    return "claim-broken" if claimed is not None and claimed < lower else "ok"


def verdict_of_attack(measure: Measure, measured: Estimate | None, baseline: float) -> Verdict:
    """Return whether the whole interval of an attack is better than guessing."""
    if measured is None:
        return "fails"
    better = measured.high < baseline if measure == "error" else measured.low > baseline
    return "succeeds" if better else "fails"


def note_of(
    proven: float | None, lower: float, stated_by: str = HOUSE, finds: float | None = None
) -> str:
    """Return how close a bound is to the proven epsilon; a low bound is no sign of privacy.

    Args:
        proven: the proven epsilon; None if nothing is proven.
        lower: the bound.
        stated_by: who states ``proven``.
        finds: the smallest epsilon that would have been called a mistake, if it is known.
    """
    beyond = proven is not None and proven < lower
    if finds is not None and not beyond:
        return f"{note_of(proven, lower, stated_by)}; would show a bug from epsilon {finds:.4f}"
    how = "proven" if stated_by == HOUSE else "stated"
    if proven is None:
        return f"un{how}: no epsilon to compare with"
    if proven < lower:
        return f"above the {how} epsilon"
    if lower == 0:
        return "nothing found: a weak attack, too few trials, or a loose proof"
    if lower >= NEAR * proven:
        return f"near the {how} epsilon"
    return f"far below the {how} epsilon: a weak attack, too few trials, or a loose proof"


def _json(value: Any) -> Any:
    if isinstance(value, Estimate):
        return {"value": value.value, "low": value.low, "high": value.high}
    if isinstance(value, Mapping):
        return {key: _json(each) for key, each in value.items()}
    return value


def _of_curve(roc: Roc | None) -> dict[str, Any]:
    return {
        "tpr_at": {} if roc is None else {f"{a:g}": _json(t) for a, t in roc.levels},
        "positives": 0 if roc is None else roc.positives,
        "negatives": 0 if roc is None else roc.negatives,
        "roc": [] if roc is None else [list(point) for point in roc.points],
    }
