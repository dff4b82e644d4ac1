"""Tables with public facts about their columns: six invented ones, and Covertype's.

Every invented table has a fixed truth, drawn once for its name, and as many samples of people as
are asked for. What is declared about a column is a little wrong, as public knowledge is: a range is
wider than the values' own, a typical value off by a third of the spread, a spread by a third.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedldp.data import Examples, load_dataset

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

HELD = 200
"""The first seed of people who do not train."""

_FACTS_FROM = 10_000
"""The people of whom the declared facts of an invented table are made, who are in no sample."""


@dataclass(frozen=True, eq=False)
class Facts:
    """What is public about a table's columns of numbers: ranges, typical values, spreads."""

    low: Floats
    high: Floats
    typical: Floats
    spread: Floats


@dataclass(frozen=True, eq=False)
class Rows:
    """A sample.

    Attributes:
        numbers: shape (n, columns of numbers).
        codes: the place of each category in its list, shape (n, columns of categories).
        levels: the length of each of these lists.
        labels: the class of each row.
        people: the person of each row; None if every row is another person.
    """

    numbers: Floats
    codes: Integers
    levels: Sequence[int]
    labels: Integers
    people: Integers | None = None

    def by_ranges(self, facts: Facts) -> NDArray[np.float32]:
        """Return rows whose ranges become -3 to 3, six spreads."""
        return self._joined(3 * self._within(facts))

    def by_short_ranges(self, facts: Facts) -> NDArray[np.float32]:
        """Return rows whose ranges become -1 to 1."""
        return self._joined(self._within(facts))

    def _within(self, facts: Facts) -> Floats:
        middle, half = (facts.low + facts.high) / 2, (facts.high - facts.low) / 2
        return np.asarray(((self.numbers - middle) / half).clip(-1, 1), np.float64)

    def by_spreads(self, facts: Facts) -> NDArray[np.float32]:
        """Return rows as ``spread_columns`` makes them."""
        return self._joined(((self.numbers - facts.typical) / facts.spread).clip(-3, 3))

    def _joined(self, numbers: Floats) -> NDArray[np.float32]:
        made = [
            np.eye(many)[self.codes[:, place]] - 1 / many for place, many in enumerate(self.levels)
        ]
        return np.concatenate([numbers, *made], axis=1).astype(np.float32)


Sample = Callable[[int, np.random.Generator, np.random.Generator], Rows]
"""Draws people: their number, the truth's generator, and the sample's."""


@dataclass(frozen=True)
class Made:
    """A table.

    Attributes:
        name: its name.
        people: how many people train.
        share: the share of the rarer class, about.
        draw: see ``Sample``.
        held: draws those of the seeds from ``HELD`` on, if others than ``draw`` does.
    """

    name: str
    people: int
    share: float
    draw: Sample
    held: Sample | None = None

    def sample(self, seed: int, people: int | None = None) -> Rows:
        """Return a sample; nobody has a seed below ``HELD`` and one from there on."""
        truth = np.random.default_rng(zlib.crc32(self.name.split("-")[0].encode()))
        drawn = np.random.default_rng([zlib.crc32(self.name.encode()), seed])
        by = self.draw if seed < HELD or self.held is None else self.held
        return by(people or self.people, truth, drawn)

    def facts(self) -> Facts:
        """Return what is declared about the columns."""
        return facts_of(self.sample(1 << 20, _FACTS_FROM).numbers)


def facts_of(numbers: Floats) -> Facts:
    """Return what is declared about columns of which other people's values are given."""
    wrong = np.random.default_rng(77)
    low, high = np.quantile(numbers, [0.01, 0.99], axis=0)
    wider = wrong.uniform(0, 0.8, (2, numbers.shape[1])) * np.maximum(high - low, 1e-6)
    deviation = np.maximum(numbers.std(axis=0), 1e-6)
    return Facts(
        low=low - wider[0],
        high=high + wider[1],
        typical=np.median(numbers, axis=0) + wrong.normal(0, 0.3, len(low)) * deviation,
        spread=deviation * np.exp(wrong.normal(0, 0.35, len(low))),
    )


def _labels(logits: Floats, share: float, generator: np.random.Generator) -> Integers:
    """Draw labels with these logits, shifted to a share of ones."""
    low, high = -40.0, 40.0
    for _ in range(60):
        middle = (low + high) / 2
        less = (1 / (1 + np.exp(-logits - middle))).mean() < share
        low, high = (middle, high) if less else (low, middle)
    return (generator.random(len(logits)) < 1 / (1 + np.exp(-logits - low))).astype(np.int64)


def _hospital(people: int, truth: np.random.Generator, draw: np.random.Generator) -> Rows:
    """Visits of patients, one to eight each, whose frailty no column shows; 13 % come back."""
    of_diagnosis = truth.normal(0, 0.4, 12)
    numbers, codes, who, frail = _visits(people, draw)
    age, pressure, creatinine, haemoglobin, bmi, lactate, before, illness, _, no_lactate = numbers.T
    logits = 0.014 * (age - 65) + 0.4 * frail + 0.00025 * (pressure - 130) ** 2
    logits += 0.58 * np.log(creatinine / 85) - 0.18 * (haemoglobin - 13)
    logits += 0.25 * np.minimum(before, 5) + 0.1 * illness + of_diagnosis[codes[:, 2]]
    logits += 0.4 * (codes[:, 3] == 2) + 0.35 * (codes[:, 1] == 2)
    logits += 0.0023 * (bmi - 26) ** 2 + 0.6 * (np.log(lactate) > 1)
    numbers[:, 5] = np.where(no_lactate == 1, 1.5, lactate)
    return Rows(numbers, codes, (3, 3, 12, 3, 30), _labels(logits, 0.13, draw), who)


def stays(people: int, seed: int) -> tuple[Rows, Floats]:
    """Return visits of patients, and how many days each lasted: skewed, with a median of 4."""
    draw = np.random.default_rng([zlib.crc32(b"stays"), seed])
    numbers, codes, who, frail = _visits(people, draw)
    age, illness, no_lactate = numbers[:, 0], numbers[:, 7], numbers[:, 9]
    logs = 1.1 + 0.25 * frail + 0.008 * (age - 65) + 0.3 * (codes[:, 3] != 0)
    days = np.exp(draw.normal(logs + 0.1 * np.log1p(illness), 0.6)).round(1)
    numbers[:, 5] = np.where(no_lactate == 1, 1.5, numbers[:, 5])
    return Rows(numbers, codes, (3, 3, 12, 3, 30), np.zeros(len(days), np.int64), who), days


def _visits(people: int, draw: np.random.Generator) -> tuple[Floats, Integers, Integers, Floats]:
    """Return visits: numbers, categories, the patient and, hidden, the patient's frailty."""
    frailty = draw.normal(size=people)
    visits = np.minimum(draw.geometric(0.55, people) + (frailty > 1), 8)
    who = np.repeat(np.arange(people), visits)
    n, frail = len(who), np.repeat(frailty, visits)
    age = np.repeat(np.clip(draw.normal(65, 16, people), 18, 101), visits)
    pressure, haemoglobin = draw.normal(132 - 6 * frail, 20), draw.normal(13.2 - 0.7 * frail, 1.6)
    creatinine = np.exp(draw.normal(4.4 + 0.25 * frail, 0.4))
    lactate = np.exp(draw.normal(0.4 + 0.25 * frail, 0.5))
    bmi, before = draw.normal(27, 5, n).clip(13, 60), draw.poisson(np.exp(0.2 + 0.6 * frail))
    illness = draw.poisson(np.exp(0.5 + 0.4 * frail))
    drugs = draw.poisson(5 + 1.5 * illness)
    no_lactate = draw.random(n) < 0.55 - 0.25 * (frail > 0.5)
    codes = np.stack(
        [
            np.repeat(draw.integers(0, 3, people), visits),
            np.repeat(draw.choice(3, people, p=[0.5, 0.3, 0.2]), visits),
            draw.choice(12, n, p=np.array([20, 16, 8, 14, 10, 8, 6, 9, 4, 4, 0.7, 0.3]) / 100),
            draw.choice(3, n, p=[0.35, 0.2, 0.45]),
            draw.integers(0, 30, n),
        ],
        axis=1,
    )
    numbers = np.stack(
        [age, pressure, creatinine, haemoglobin, bmi, lactate, before, illness, drugs, no_lactate],
        axis=1,
    ).astype(np.float64)
    return numbers, codes, who, frail


def _bank(people: int, truth: np.random.Generator, draw: np.random.Generator) -> Rows:
    """Thirty correlated amounts and eight counts; 3 % are frauds."""
    common, weights = truth.normal(size=(30, 8)), truth.normal(0, 0.25, 30)
    x = draw.normal(size=(people, 8)) @ common.T / 3 + draw.normal(size=(people, 30))
    channel = draw.integers(0, 4, people)
    segment = draw.choice(5, people, p=[0.4, 0.3, 0.2, 0.08, 0.02])
    logits = x @ weights + 0.2 * x[:, 0] * x[:, 1] + 0.3 * (x[:, 3] > 1.5)
    logits += 0.4 * (channel == 3) + 0.6 * (segment == 4)
    counts = draw.poisson(np.exp(0.3 * x[:, :8] + 0.5))
    numbers, codes = np.hstack([x * 20 + 100, counts]), np.stack([channel, segment], axis=1)
    return Rows(numbers, codes, (4, 5), _labels(logits, 0.03, draw))


def _rare(people: int, truth: np.random.Generator, draw: np.random.Generator) -> Rows:
    """Twenty numbers and a list of six; 1 % are positive."""
    x, weights = draw.normal(size=(people, 20)), truth.normal(0, 0.35, 20)
    code = draw.integers(0, 6, people)
    labels = _labels(x @ weights + 0.7 * (code == 0) - 0.5 * (code == 3), 0.01, draw)
    return Rows(x * 7 + 20, code[:, None], (6,), labels)


def _categories(people: int, truth: np.random.Generator, draw: np.random.Generator) -> Rows:
    """Four numbers and six lists of 4 to 50 strings; 25 % are positive."""
    levels, logits, codes = (4, 8, 12, 20, 30, 50), np.zeros(people), []
    for many in levels:
        code = draw.choice(many, people, p=truth.dirichlet(np.full(many, 0.8)))
        logits += truth.normal(0, 0.7, many)[code]
        codes.append(code)
    x = draw.normal(size=(people, 4))
    labels = _labels(logits + x @ [0.5, -0.3, 0.2, 0], 0.25, draw)
    return Rows(x * 10 + 50, np.stack(codes, axis=1), levels, labels)


def _curved(people: int, truth: np.random.Generator, draw: np.random.Generator) -> Rows:
    """Eight numbers, four of which count where they are far from their middle; 15 %."""
    x = draw.normal(size=(people, 8))
    logits = 0.9 * (x[:, 0] ** 2 - 1) + 0.7 * abs(x[:, 1]) - 0.8 * x[:, 2] ** 2
    logits += 0.6 * (abs(x[:, 3]) > 1.3) + 0.5 * x[:, 4] - 0.4 * x[:, 5]
    numbers = x * [15, 3, 10, 1, 5, 20, 2, 1] + [60, 27, 130, 4, 37, 80, 5, 10]
    return Rows(numbers, np.zeros((people, 0), np.int64), (), _labels(logits, 0.15, draw))


def _covertype(people: int, truth: np.random.Generator, draw: np.random.Generator) -> Rows:
    """Covertype's rows to train on: lodgepole pine against all other trees."""
    return _of_covertype(load_dataset("covertype").train, people, draw)


def _covertype_held(people: int, truth: np.random.Generator, draw: np.random.Generator) -> Rows:
    """Its rows to test on."""
    return _of_covertype(load_dataset("covertype").test, people, draw)


def _of_covertype(data: Examples | None, people: int, draw: np.random.Generator) -> Rows:
    assert data is not None
    kept = draw.permutation(len(data))[:people]
    features, labels = data.features[kept].astype(np.float64), data.labels[kept] == 1
    none = np.zeros((len(kept), 0), np.int64)
    return Rows(features, none, (), labels.astype(np.int64))


TABLES = (
    Made("hospital-1500", 1_500, 0.13, _hospital),
    Made("hospital-6000", 6_000, 0.13, _hospital),
    Made("bank-20000", 20_000, 0.03, _bank),
    Made("rare-20000", 20_000, 0.01, _rare),
    Made("categories-3000", 3_000, 0.25, _categories),
    Made("curved-5000", 5_000, 0.15, _curved),
    Made("covertype-3000", 3_000, 0.49, _covertype, _covertype_held),
)
