"""How often the 95 % intervals of a private evaluation hold the truth, in three made-up worlds.

People are drawn from a known distribution of labels and scores, and counted with Gaussian noise in
place of the discrete noise, which differs by less than 0.01 %. The figures are those that
``fedldp.algorithms.evaluation`` computes at the server.

    calibrated   scores of each class are normal; predicted risks are true
    off          the same, and predicted risks are too low and too spread out
    lumpy        three groups of people, two of them with nearly the same score

Two more worlds have three classes, of which one is rare, and skewed numbers, such as lengths of
stay; their people are rows, drawn with replacement from a population of which the truth is known
exactly, and asked by the code that clients run.

    python -m benchmarks.evaluation_coverage [DRAWS]
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, softmax
from scipy.stats import norm

from fedldp.algorithms.evaluation import (
    GRID,
    LOOK_SHARE,
    MOST_BANDS,
    Look,
    OfClasses,
    OfNumbers,
    bands_for,
    evaluated,
)
from fedldp.data.examples import Examples
from fedldp.data.label_range import LabelRange, centred
from fedldp.mechanisms.gaussian_share import largest_mu
from fedldp.protocol.wire import Broadcast
from fedldp.training.answers import Answer
from fedldp.training.questions import EDGES, Question, Rows, Table, compared, predicted

Floats = NDArray[np.float64]

DRAWS = 1_000
WORLDS = ("calibrated", "off", "lumpy")
SETTINGS = [
    (12_000, 0.13, 0.6, 1), (12_000, 0.13, 0.5, 10), (12_000, 0.5, 0.25, 1), (12_000, 0.03, 1.0, 1),
    (1_500, 0.13, 1.0, 1), (1_500, 0.5, 0.5, 1), (100_000, 0.01, 0.5, 1), (100_000, 0.13, 0.5, 50),
]  # fmt: skip
"""People, share of class 1, epsilon of the evaluation, and sites that each add all the noise."""


@dataclass(frozen=True)
class World:
    """A distribution of labels and scores.

    Attributes:
        scores: the model's log odds, ascending, shape (cells,).
        people: the probability of each label and score, shape (2, cells).
    """

    scores: Floats
    people: Floats

    @classmethod
    def of(cls, kind: str, share: float, auc: float = 0.8, cells: int = 600) -> World:
        """Return a world of ``WORLDS`` with a share of class 1."""
        apart = math.sqrt(2) * norm.ppf(auc)
        ends = np.linspace(-apart / 2 - 5.2, apart / 2 + 5.2, cells + 1)
        middle = (ends[1:] + ends[:-1]) / 2
        scores = logit(share) + apart * middle
        people = np.stack([np.diff(norm.cdf(ends, -apart / 2)), np.diff(norm.cdf(ends, apart / 2))])
        if kind == "off":
            scores = -0.55 + 0.27 * logit(share) + 1.27 * scores
        if kind == "lumpy":
            people = np.zeros((2, cells))
            for size, low, high, width in (
                (0.45, -1.6, -1.1, 0.25), (0.35, 0.0, 0.9, 0.35), (0.2, 1.2, 1.25, 0.8),
            ):  # fmt: skip
                centre = logit(share)
                people[0] += size * norm.pdf(scores, centre + low, width)
                people[1] += size * math.exp(0.6 * low) * norm.pdf(scores, centre + high, width)
        people *= np.array([[1 - share], [share]]) / people.sum(axis=1, keepdims=True)
        return cls(scores, people)

    def truth(self, answer: Answer, answers: dict[str, Answer]) -> float:
        """Return the true value of a figure."""
        negatives, positives = self.people
        risk, share = expit(self.scores), positives.sum()
        if answer.name == "AUC":
            return float(positives @ (np.cumsum(negatives) - negatives / 2) / share / (1 - share))
        if answer.name.startswith("balanced accuracy"):
            at = 0.5 if answer.name.endswith("0.5") else answers["threshold"].value
            above = risk >= at
            return float(positives[above].sum() / share + negatives[~above].sum() / (1 - share)) / 2
        if answer.name == "threshold":
            right = np.cumsum(negatives) - negatives, positives.sum() - np.cumsum(positives)
            accuracy = right[0] / (1 - share) + (right[1] + positives) / share
            return float(risk[np.argmax(accuracy)])
        if answer.name == "observed share of class 1":
            return float(share)
        if answer.name == "mean prediction":
            return float(self.people.sum(axis=0) @ risk)
        if answer.name == "Brier score":
            return float(negatives @ risk**2 + positives @ (1 - risk) ** 2)
        if answer.name == "shift of the log odds":
            shift = 0.0
            for _ in range(50):
                q = expit(self.scores + shift)
                of_all = self.people.sum(axis=0)
                shift += (share - of_all @ q) / (of_all @ (q * (1 - q)))
            return shift
        return math.nan

    def band(self, low: float, high: float) -> float:
        """Return the share of class 1 among the people with scores in a band; NaN for nobody."""
        inside = self.people[:, (self.scores >= low) & (self.scores < high)]
        return float(inside[1].sum() / inside.sum()) if inside.size else math.nan


def noise_of(epsilon: float, sites: int) -> float:
    """Return the deviation of a cell's noise, in people, if it has the whole budget."""
    return math.sqrt(2 * sites) / largest_mu(epsilon, 1e-5)


def draw(
    world: World, number: int, noise: float, generator: np.random.Generator
) -> tuple[list[Answer], Floats]:
    """Return what one evaluation of a number of people tells, and the edges of its bands."""
    share = float(LOOK_SHARE)
    first, second = noise / math.sqrt(share), noise / math.sqrt(1 - share)
    people = generator.multinomial(number, world.people.ravel()).reshape(2, -1).astype(float)
    cells = np.searchsorted(GRID, world.scores, side="right")
    counts = np.bincount(cells, people.sum(axis=0), len(GRID) + 1)
    look = Look(counts + generator.normal(0, first, counts.size), first)
    known = float(world.people[1].sum())
    edges = look.edges(bands_for(number, known, second), known).astype(np.float64)
    bands = np.searchsorted(edges, world.scores, side="right")
    counted = np.stack([np.bincount(bands, each, edges.size + 1) for each in people])
    counted += generator.normal(0, second, counted.shape)
    return evaluated(counted, second, edges, look), edges


def coverage(
    kind: str, setting: tuple[int, float, float, int], draws: int, seed: int = 0
) -> dict[str, tuple[float, float, float]]:
    """Return how often each figure is seen, how often it holds the truth, and its half-width.

    Bands count together: the first number is then how many of them are seen. The half-width is the
    median of those that are seen.
    """
    number, share, epsilon, sites = setting
    world, generator = World.of(kind, share), np.random.default_rng(seed)
    held, halves = defaultdict[str, list[bool]](list), defaultdict[str, list[float]](list)
    for _ in range(draws):
        answers, edges = draw(world, number, noise_of(epsilon, sites), generator)
        ends = [-math.inf, *edges, math.inf]
        named = {each.name: each for each in answers}
        place = 0
        for each in answers:
            name = each.name
            if name.startswith("observed share, "):
                truth, name = world.band(ends[place], ends[place + 1]), "observed share by band"
                place += 1
            elif each.value is not None:
                truth = world.truth(each, named)
            if each.value is not None and math.isfinite(truth):
                held[name].append(abs(each.value - truth) <= each.half_width)
                halves[name].append(each.half_width)
    most = {name: len(found) for name, found in held.items()}
    return {
        name: (most[name] / draws, float(np.mean(found)), float(np.median(halves[name])))
        for name, found in held.items()
    }


MORE_SETTINGS = [
    (12_000, 0.6, 1), (12_000, 1.0, 10), (1_500, 2.0, 1), (100_000, 0.5, 1),
]  # fmt: skip
"""People, epsilon of the evaluation, and sites that each add all the noise."""

RANGE = LabelRange(0.0, 60.0)
KINDS: dict[str, OfClasses | OfNumbers] = {
    "three classes": OfClasses(3),
    "numbers": OfNumbers(RANGE),
}

_POPULATION = 20_000
"""The people of whom the truth is computed, and from whom those who are asked are drawn."""


def rows_of(kind: str, number: int, generator: np.random.Generator) -> Rows:
    """Return the rows of people, one each, and what a model says of them."""
    x = generator.normal(size=(number, 3))
    if kind == "three classes":
        odds = x * [1.0, 1.2, 1.5] + [1.0, 0.5, -1.5]
        drawn = expit(odds) / expit(odds).sum(axis=1, keepdims=True)
        labels = (generator.random((number, 1)) > np.cumsum(drawn, axis=1)).sum(axis=1).clip(0, 2)
        said = 1.3 * odds + [0.0, 0.3, 0.2]  # not calibrated
    else:
        stay = np.exp(1.2 + 0.7 * x[:, 0] + 0.5 * x[:, 1])
        labels = RANGE.steps(stay)
        said = ((2.0 + 0.8 * np.exp(1.2 + 0.7 * x[:, 0])) / RANGE.half - 1)[:, None]
    return _rows(labels, said)


def _rows(labels: NDArray[np.int64], said: Floats) -> Rows:
    examples = Examples(np.zeros((len(labels), 1), np.float32), labels.astype(np.int64), None)
    return Rows(examples=examples, logits=lambda: said)


def some_of(everybody: Rows, number: int, generator: np.random.Generator) -> Rows:
    """Return the rows of people who are drawn from others, with replacement."""
    who = generator.integers(len(everybody.examples), size=number)
    return _rows(everybody.examples.labels[who], everybody.logits()[who])


def asked(
    kind: OfClasses | OfNumbers, rows: Rows, noise: float, generator: np.random.Generator
) -> tuple[list[Answer], Floats]:
    """Return what one evaluation of people tells, and the edges of its bands.

    Args:
        kind: the evaluation.
        rows: their rows.
        noise: the deviation of a cell's noise, in people, with the whole budget and one table.
        generator: draws the noise.
    """
    deviations = []

    def counts(tables: tuple[Table, ...], share: float, public: dict[str, Floats]) -> Floats:
        question = Question(tables)
        deviations.append(noise * math.sqrt(len(tables) / share))
        told = Broadcast(round=1, weights=np.zeros(1, np.float32), public=public)
        found = question.told(told)(rows) / question.norm
        return found + generator.normal(0, deviations[-1], found.size)

    share, number = float(LOOK_SHARE), len(rows.examples)
    looked = counts(kind.look, share, {})
    later = noise * math.sqrt(len(kind.tables) / (1 - share))
    edges = kind.edges(looked, deviations[0], number, later, None)
    counted = counts(kind.tables, 1 - share, {EDGES: edges})
    return kind.figures(looked, counted, edges, (deviations[0], deviations[1])), edges


def truths(kind: str, rows: Rows, edges: Floats) -> dict[str, float]:
    """Return the figures of many people without noise, by name, in the bands between edges."""
    found = KINDS[kind]
    question, look = Question(found.tables), Question(found.look)
    told = Broadcast(round=1, weights=np.zeros(1, np.float32), public={EDGES: edges})
    counted, looked = (each.told(told)(rows) / each.norm for each in (question, look))
    answers = found.figures(looked, counted, edges, (0.0, 0.0))
    exact = {each.name: math.nan if each.value is None else each.value for each in answers}
    if kind == "numbers":
        clip, _, within, _ = compared({EDGES: edges}, 1, MOST_BANDS)
        label = centred(rows.examples.labels).clip(*clip)
        missed = np.square(label - predicted(rows).clip(*within)).mean()
        exact[answers[0].name] = 1 - float(missed / label.var())
    return exact


def without_bands(rows: Rows) -> dict[str, float]:
    """Return the figures of three classes that bands would only approximate, by name."""
    labels, shares = rows.examples.labels, softmax(rows.logits(), axis=1)
    found = {"AUC": 0.0, "Brier score": 0.0}
    for label in range(3):
        own, true = shares[:, label], labels == label
        figures = {"AUC": area(true, own), "Brier score": float(np.square(own - true).mean())}
        found["AUC"] += figures["AUC"] / 3
        found["Brier score"] += figures["Brier score"]
        found |= {f"{name} of class {label}": value for name, value in figures.items()}
        found[f"mean prediction of class {label}"] = float(own.mean())
    return found


def area(positive: NDArray[np.bool_], score: Floats) -> float:
    """Return the area under the ROC curve of untied scores."""
    ranks = np.empty(len(score))
    ranks[np.argsort(score)] = np.arange(1, len(score) + 1)
    count = int(positive.sum())
    above = ranks[positive].sum() - count * (count + 1) / 2
    return float(above / count / (len(score) - count))


def more_coverage(
    kind: str, setting: tuple[int, float, int], draws: int, seed: int = 0
) -> dict[str, tuple[float, float, float]]:
    """Return what ``coverage`` does for another world; bands count together."""
    number, epsilon, sites = setting
    generator = np.random.default_rng(seed)
    everybody = rows_of(kind, _POPULATION, generator)
    held, halves = defaultdict[str, list[bool]](list), defaultdict[str, list[float]](list)
    exact = without_bands(everybody) if kind == "three classes" else {}
    noise = noise_of(epsilon, sites)
    for _ in range(draws):
        people = some_of(everybody, number, generator)
        answers, edges = asked(KINDS[kind], people, noise, generator)
        true = truths(kind, everybody, edges) | exact
        for each in answers:
            if each.value is not None:
                name = each.name.split(", ")[0] + " by band" * (", " in each.name)
                name = "R2 of clipped numbers" if name.startswith("R2") else name
                held[name].append(abs(each.value - true[each.name]) <= each.half_width)
                halves[name].append(each.half_width)
    return {
        name: (len(found) / draws, float(np.mean(found)), float(np.median(halves[name])))
        for name, found in held.items()
    }


def main() -> None:
    """Print the coverage of each figure in each world and setting."""
    draws = int(sys.argv[1]) if len(sys.argv) > 1 else DRAWS
    for kind in KINDS:
        for setting in MORE_SETTINGS:
            people, epsilon, sites = setting
            print(f"{kind}, {people:,} people, epsilon {epsilon}, {sites} sites")
            for name, (seen, held, half) in more_coverage(kind, setting, draws).items():
                print(f"    {name:36} seen {seen:7.3f}   held {held:.3f}   half-width {half:.4f}")
    for kind in WORLDS:
        for setting in SETTINGS:
            people, share, epsilon, sites = setting
            print(f"{kind}, {people:,} people, {share:.0%}, epsilon {epsilon}, {sites} sites")
            for name, (seen, held, half) in coverage(kind, setting, draws).items():
                print(f"    {name:36} seen {seen:7.3f}   held {held:.3f}   half-width {half:.4f}")


if __name__ == "__main__":
    main()
