"""Property inference: what share of a client's examples belongs to one class?

Clients are simulated with random shares of the class, from none to nine tenths. Each report is
reduced to a few informative numbers: how far the update lies along the mean gradient of each class,
which the adversary computes from its own examples; or, if it does not know the model's inputs, the
summed changes of the weights of each class's output. A ridge regression from these numbers to the
share is fitted on shadows, and applied to targets (after Melis, Song, De Cristofaro, Shmatikov
2019, "Exploiting Unintended Feature Leakage in Collaborative Learning"). If the data name people,
each client has all rows of some people, and a person's class is the most frequent class of the
person's rows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fedldp.audit.attacks.intervals import curve, judged, ratio_estimate
from fedldp.audit.attacks.scenario import AttackScenario, Floats, client_of
from fedldp.audit.attacks.scoring import Scoring
from fedldp.audit.results import AttackResult
from fedldp.data import Examples
from fedldp.data.people import usual_labels
from fedldp.training.exact_sums import whose_rows

SHARES = tuple(tenths / 10 for tenths in range(10))
"""Shares of the class that clients have."""

_MOST_EXAMPLES = 500
"""The most examples from which the adversary computes mean gradients."""


def of_reports(
    scenario: AttackScenario, clients: int, label: int | None = None
) -> list[AttackResult]:
    """Return the attack on the share of a class in a client's examples.

    Args:
        scenario: provides the reports.
        clients: number of shadows, and number of targets.
        label: the class; None: the middle one.

    Returns:
        One attack: whether more than half of the examples belong to the class, with the error of
            the guessed share. Empty if clients have fewer than two examples, or if the data have
            too few examples of the class or of the others.
    """
    label = scenario.problem.num_classes // 2 if label is None else label
    inside = _labels(scenario.private) == label
    if scenario.size < 2 or not inside.any() or inside.all():
        return []
    shares, numbers = [], []
    for number in range(2 * clients):
        share, examples = _client(scenario, inside, number)
        shares.append(share)
        numbers.append(scenario.report_updates(examples, 2 * 10**8 + number))
    truth, updates = np.array(shares), np.array(numbers)
    told = _told(scenario, updates)
    model = make_pipeline(StandardScaler(), RidgeCV(alphas=np.logspace(-2, 5, 15)))
    model.fit(told[:clients], truth[:clients])
    guessed, right = model.predict(told[clients:]), truth[clients:]
    mostly = right > 0.5
    roc = curve(guessed, mostly, np.arange(clients), scenario.seed)
    errors = np.square(guessed.clip(0, 1) - right)
    blind = np.square(truth[:clients].mean() - right)
    told_right = ((guessed > 0.5) == mostly).astype(np.float64)
    usual = bool(np.mean(truth[:clients] > 0.5) > 0.5)  # the best answer without a report
    by_rate, one = (mostly == usual).astype(np.float64), np.ones(clients)
    attack = judged(
        scenario.config.name(),
        "property",
        f"share of class {label}",
        "AUC",
        roc.auc,
        against=scenario.against,
        setting=f"clients with {scenario.size} {scenario.counted}; {clients} shadows, {clients} "
        "targets",
        baseline=0.5,
        roc=roc,
        figures={
            "accuracy": ratio_estimate(told_right, one, scenario.seed),
            "base rate": ratio_estimate(by_rate, one, scenario.seed),
            "squared error of the share, over guessing's": ratio_estimate(
                errors, blind, scenario.seed
            ),
        },
    )
    return [attack]


def _labels(examples: Examples) -> NDArray[np.int64]:
    """Return the label of each row, or the most frequent label of each person's rows."""
    if examples.people is None:
        return examples.labels
    return usual_labels(examples.labels, whose_rows(examples))


def _client(
    scenario: AttackScenario, inside: NDArray[np.bool_], number: int
) -> tuple[float, Examples]:
    """Return a client's share of the class, and its examples."""
    generator = np.random.default_rng([scenario.seed, 7, number])
    wanted = generator.choice(SHARES)
    with_it = round(wanted * scenario.size)
    places, others = np.flatnonzero(inside), np.flatnonzero(~inside)
    chosen = np.concatenate(
        [
            generator.choice(places, with_it, replace=with_it > len(places)),
            generator.choice(others, scenario.size - with_it, replace=scenario.size > len(others)),
        ]
    )
    examples = client_of(scenario.private, generator.permutation(chosen))
    return with_it / scenario.size, examples


def _told(scenario: AttackScenario, updates: Floats) -> Floats:
    """Return what updates, shape (n, rounds, d), say about classes, shape (n, numbers)."""
    scoring, classes = Scoring(scenario), scenario.problem.num_classes
    public = scenario.public.taken(np.arange(min(len(scenario.public), _MOST_EXAMPLES)))
    found = []
    for at, state in enumerate(scenario.states):
        inputs = scoring.inputs(public.features, state)
        if inputs is None:
            found.append(_answers(scenario, updates[:, at], classes))
            continue
        gradients = scoring.class_gradients(state, inputs, public.labels)
        lengths = np.maximum(np.linalg.norm(gradients, axis=1), 1e-12)
        found.append(-updates[:, at] @ gradients.T / lengths)
    return np.asarray(np.mean(found, axis=0))


def _answers(scenario: AttackScenario, updates: Floats, classes: int) -> Floats:
    """Return, for each tensor with a row for every class, the sums of its rows."""
    layout = scenario.config.layout(scenario.problem)
    found = []
    for update in updates:
        pieces = layout.split(update)
        rows = [p.reshape(classes, -1).sum(1) for p in pieces.values() if p.shape[0] == classes]
        found.append(np.concatenate(rows) if rows else update)
    return np.array(found)
