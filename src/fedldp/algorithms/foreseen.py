"""What an evaluation will tell of so many people, worked out with made-up ones before it is asked.

Everything is public: the number of people, the noise, and the classes' shares, if these are
declared. Whoever plans a run so learns beforehand which figures noise would hide.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedldp.algorithms.answers import Answer, Floats
from fedldp.algorithms.evaluation import OfClasses
from fedldp.algorithms.evaluation_of_numbers import OfNumbers
from fedldp.data.examples import Examples
from fedldp.data.label_range import STEPS
from fedldp.protocol.wire import Broadcast
from fedldp.training.questions import EDGES, Question, Rows, Table

_PEOPLE = 1_000
_APART = 0.84
"""How far apart the classes' scores are, in standard deviations: the AUC is about 0.8."""

_WIDEST = 1 / 3
"""The largest deviation of numbers from -1 to 1; they are then spread over the whole range."""


def foreseen(
    kind: OfClasses | OfNumbers, people: float, noise: Sequence[float], shares: Floats | None
) -> list[Answer]:
    """Return the main figures that an evaluation of a model would tell, with their intervals.

    A figure that noise will hide has no value.

    Args:
        kind: how the model is evaluated.
        people: how many people are asked.
        noise: the standard deviations of a count's noise in the look and in the question.
        shares: the classes' shares, or the typical number's place in its range, if known; else
            classes are taken to be equal, and numbers to be spread widely: the best case.
    """
    rows = _classes(kind.classes, shares) if isinstance(kind, OfClasses) else _numbers(shares)

    def counts(tables: Sequence[Table], public: Mapping[str, Floats]) -> Floats:
        question = Question(tables)
        told = question.told(
            Broadcast(round=1, weights=np.zeros(0, np.float32), public=dict(public))
        )
        return told(rows) * (people / question.norm / len(rows.examples))

    looked = counts(kind.look, {})
    edges = kind.edges(looked, noise[0], people, noise[1], shares)
    asked = counts(kind.tables, {EDGES: edges})
    found = []
    for each in kind.figures(looked, asked, edges, (noise[0], noise[1])):
        name = each.name.partition(" of numbers")[0]
        if name == "R2" or (name in kind.of_client and " of class " not in name):
            found.append(replace(each, name=name))
    return found


def _classes(classes: int, shares: Floats | None) -> Rows:
    known = np.full(classes, 1 / classes) if shares is None else shares
    ends = np.rint(np.cumsum(known) * _PEOPLE).astype(int)
    labels = np.searchsorted(ends, np.arange(ends[-1]), side="right")
    told = np.random.default_rng(0).normal(size=(labels.size, classes))
    told += _APART * np.eye(classes)[labels]
    return _rows(labels, np.log(known) + _APART * told)


def _numbers(place: Floats | None) -> Rows:
    """Return numbers around a typical one, as far apart as it is from an end; R2 is about 0.5."""
    typical = 0.0 if place is None else 2 * float(place[0]) - 1
    spread = min(_WIDEST, 1 - abs(typical)) / math.sqrt(2)
    said, rest = np.random.default_rng(0).normal(scale=spread, size=(2, _PEOPLE))
    labels = np.rint(((typical + said + rest).clip(-1, 1) + 1) / 2 * STEPS).astype(np.int64)
    return _rows(labels, typical + said[:, None])


def _rows(labels: NDArray[np.int64], outputs: Floats) -> Rows:
    nothing = np.zeros((labels.size, 1), np.float32)
    return Rows(examples=Examples(nothing, labels), logits=lambda: outputs)
