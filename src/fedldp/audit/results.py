"""What an audit found: bounds on epsilon from games and checks, and figures from other attacks.

A ``GameResult`` is a line of a statement with what a game or a check found about it. What has no
epsilon is an ``AttackResult``, whose ``figures`` are those of one kind of attack, under their JSON
keys. Pages, text output, JSON output and commands read these two types.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.guarantees import HOUSE, Adversary, Unit

Kind = Literal["linkage", "poisoning", "influence", "membership", "inversion", "property"]
Measure = Literal["links", "accuracy", "influence", "AUC", "error"]
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

_KEYS_OF_MECHANISMS = (
    "mechanism=subject size unit adversary neighbours delta claimed proven lower confidence trials "
    "attack verdict note stated_by"
)
_KEYS_OF_SYSTEMS = (
    "system=subject setting size unit adversary neighbours delta claimed claim_unit proven lower "
    "confidence trials attack verdict note stated_by"
)
_ATTACK = "kind name=attack against setting measure result=measured baseline succeeds"
_KEYS: Mapping[Kind, str] = {
    "linkage": "span evidence attack clocks target clients delay_seconds chunk "
    "guessing=baseline hits trials low=measured.low high=measured.high confidence verdict "
    "advantage",
    "poisoning": "system=subject attack share liars clients seed accuracy=measured.value lost "
    "stopped=note",
    "influence": "system=subject clients most=measured.value norm amplification",
    "membership": _ATTACK,
    "inversion": _ATTACK,
    "property": _ATTACK,
}
"""The keys of each kind's JSON, in order; ``key=name`` if the field has another name."""


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

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


@dataclass(frozen=True, kw_only=True)
class Roc:
    """A ROC curve.

    Attributes:
        points: (false-positive rate, true-positive rate) ascending, from (0, 0) to (1, 1).
        auc: the area under the curve.
        levels: for each of ``LEVELS``, the largest true-positive rate with at most so many false
            positives.
        positives: the number of cases in which the right answer is yes.
        negatives: the number of cases in which the right answer is no.
    """

    points: tuple[tuple[float, float], ...]
    auc: Estimate
    levels: tuple[tuple[float, Estimate], ...]
    positives: int
    negatives: int


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
class Line:
    """An epsilon that is claimed, proven, or both, for one unit against one adversary.

    Attributes:
        subject: the mechanism with its parameters, or the system's name.
        of_system: whether the subject is a system.
        setting: the configuration of a system; for a foreign client, what the audit examines.
        size: d, the number of coordinates sent.
        unit: the unit that the epsilons protect.
        adversary: who sees what is sent.
        neighbours: which inputs differ.
        delta: the delta of the epsilons.
        claimed: the epsilon that the source claims, or that was requested; None if nothing is
            claimed.
        claim_unit: the unit for which a system's source claims this epsilon. A claim for one weight
            is also listed for a client's whole report, because readers take it to mean that.
        proven: the epsilon of the event that is charged; None if nothing is proven.
        stated_by: whose word ``proven`` rests on: "fedldp", or the address of a user's own code.
            Nothing here proves the epsilon that such code states; ``as_json`` calls it "stated".
    """

    subject: str
    of_system: bool = False
    setting: str = ""
    size: int
    unit: Unit
    adversary: Adversary = "server"
    neighbours: str = "replace-client"
    delta: float = 0.0
    claimed: float | None = None
    claim_unit: Unit | None = None
    proven: float | None = None
    stated_by: str = HOUSE

    @property
    def smallest(self) -> float | None:
        """The smaller of the claimed and the proven epsilon; None if there is neither."""
        known = [each for each in (self.claimed, self.proven) if each is not None]
        return min(known, default=None)

    @property
    def title(self) -> str:
        """The title of the line's table: a mechanism, or a setting of a system."""
        return f"{self.subject}: {self.setting}" if self.of_system else self.subject

    def result(self, **found: Any) -> GameResult:
        """Return this line with what was found; keyword arguments are fields of the result."""
        own = {each.name: getattr(self, each.name) for each in fields(Line)}
        return GameResult(**own, **found)

    def bounded(
        self, lower: float, attack: str, *, trials: int, confidence: float,
        finds: float | None = None,
    ) -> GameResult:  # fmt: skip
        """Return this line with a lower bound from trials, and its verdict."""
        return self.result(
            attack=attack,
            lower=lower,
            confidence=confidence,
            trials=trials,
            verdict=verdict_of(self.claimed, self.proven, lower),
            note=note_of(self.proven, lower, self.stated_by, finds),
            finds=finds,
        )

    def compared(self, lower: float, attack: str, *, trials: int, wrong: bool) -> GameResult:
        """Return this line with what an exact comparison found, which is certain."""
        return self.result(
            attack=attack,
            lower=lower,
            trials=trials,
            verdict="bug" if wrong else "ok",
            note="above the proven epsilon" if wrong else "exact: bit for bit the same",
        )


@dataclass(frozen=True, kw_only=True)
class GameResult(Line):
    """What one game, or one check, found about one line.

    Attributes:
        attack: what the adversary did, or what was compared.
        lower: the lower bound on epsilon; 0 if nothing was found.
        confidence: the confidence level of the bound; None if it is certain.
        trials: how many trials were counted, over both inputs.
        verdict: "bug" if proven < lower, "claim-broken" if claimed < lower, else "ok"; "fails its
            contract" if no figure is false, but a mechanism accepts what it must refuse, or its
            reports cannot be read. None if there is nothing to judge.
        note: how close the bound is to the proven epsilon, or why there is none.
        finds: the smallest epsilon that a game of this many trials would have called a mistake,
            with an event as rare as the counted one; None if there is no such epsilon, or it is
            unknown.
    """

    attack: str
    lower: float = 0.0
    confidence: float | None = None
    trials: int = 0
    verdict: Verdict | None = None
    note: str = ""
    finds: float | None = None

    @property
    def is_unplayed(self) -> bool:
        """Whether the game was not played; ``note`` says why."""
        return self.note.startswith("not played")

    def as_json(self) -> dict[str, Any]:
        """Return what ``fedldp audit --json`` prints for this line.

        An epsilon that a user's own code states is not called "proven".
        """
        found = _under_keys(_KEYS_OF_SYSTEMS if self.of_system else _KEYS_OF_MECHANISMS, self)
        stated = self.proven
        return found | {"proven": stated if self.stated_by == HOUSE else None, "stated": stated}


@dataclass(frozen=True, kw_only=True)
class AttackResult:
    """What an attack that gives no bound on epsilon found about one subject.

    Attributes:
        subject: the system's name.
        kind: the kind of attack.
        attack: what the adversary did; None for a run without an adversary, for comparison.
        measure: what ``measured`` is. "error": the mean squared error, divided by the baseline's
            error. "links": the share of correct links. "accuracy": the accuracy of the model.
            "influence": the influence on any one weight.
        measured: the figure with its interval; None if the attack cannot be made, and ``note`` says
            why.
        baseline: what guessing without a report gives, for attacks that guess.
        setting: the configuration and the clients.
        against: what the adversary sees.
        stated_by: who wrote the attack: "fedldp", or the module of another package's paper.
        confidence: the confidence level of the interval.
        trials: how many trials were counted.
        verdict: whether the whole interval is better than guessing; None if there is nothing to
            judge.
        note: why an attack is weak, or why a run stopped.
        roc: the ROC curve, if the attack guesses yes or no.
        pictures: examples beside their reconstructions, if the attack recovers images.
        figures: more figures, by JSON key.
    """

    subject: str
    kind: Kind
    attack: str | None
    measure: Measure
    measured: Estimate | None
    baseline: float = 0.0
    setting: str = ""
    against: str = "server"
    stated_by: str = HOUSE
    confidence: float | None = None
    trials: int = 0
    verdict: Verdict | None = None
    note: str = ""
    roc: Roc | None = None
    pictures: tuple[Picture, ...] = ()
    figures: Mapping[str, Any] = field(default_factory=dict)

    @property
    def advantage(self) -> float:
        """By how much the measured value exceeds the baseline."""
        return 0.0 if self.measured is None else self.measured.value - self.baseline

    @property
    def succeeds(self) -> bool:
        """Whether the whole confidence interval is better than guessing."""
        return self.verdict in ("linked", "succeeds")

    def as_json(self) -> dict[str, Any]:
        """Return everything but the pictures, under the keys of its kind."""
        keys = _KEYS[self.kind]
        found = _under_keys(keys, self, self.figures)
        if keys == _ATTACK:
            found |= _of_curve(self.roc) | {"more": _json(self.figures), "note": self.note}
        return found


Rows = TypeVar("Rows", bound=GameResult | AttackResult)


@dataclass(frozen=True, kw_only=True)
class Audit(Generic[Rows]):
    """The results of games, or of attacks, on one subject.

    With a probability of at least ``confidence``, all hold together.

    Attributes:
        subject: what was audited, in words.
        seed: the seed of all randomness.
        rows: the results.
        confidence: None if the results are not bounds.
    """

    subject: str
    seed: int
    rows: tuple[Rows, ...]
    confidence: float | None = None

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of the rows."""
        return worst(self.rows)

    def as_json(self) -> dict[str, Any]:
        """Return what ``fedldp audit --json`` prints."""
        return {
            "subject": self.subject,
            "verdict": self.verdict,
            "confidence": self.confidence,
            "seed": self.seed,
            "rows": [row.as_json() for row in self.rows],
        }


def worst(rows: Sequence[GameResult | AttackResult]) -> Verdict:
    """Return the worst verdict of some results; "ok" if there are none."""
    found = {row.verdict for row in rows}
    return next((each for each in _WORST_FIRST if each in found), "ok")


def unplayed(rows: Sequence[GameResult]) -> str:
    """Return sentences that say how many rows were not played, and why; empty if all were."""
    notes = Counter(row.note for row in rows if row.is_unplayed)
    return "".join(f" {left} of {len(rows)} rows were {note}." for note, left in notes.items())


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
    if proven == lower == 0:
        return "nothing found, as expected"
    if lower == 0:
        return "nothing found: a weak attack, too few trials, or a loose proof"
    if lower >= NEAR * proven:
        return f"near the {how} epsilon"
    return f"far below the {how} epsilon: a weak attack, too few trials, or a loose proof"


def _under_keys(
    keys: str, result: GameResult | AttackResult, figures: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Any]:
    """Return a result's fields, or its figures, under the given keys."""
    found = {}
    for each in keys.split():
        key, _, name = each.partition("=")
        told = name or key
        found[key] = _json(figures[told] if told in figures else attrgetter(told)(result))
    return found


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
