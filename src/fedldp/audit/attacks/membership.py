"""Membership inference: was this example among a client's examples, or among a whole run's?

If the data name people, the question is about a person, whose score is the mean over their rows.

Many clients, or runs, are simulated, each on a random half of a pool of examples. Some are the
adversary's shadows, whose members it knows; the others are targets, each attacked separately.

    loss threshold   a small loss under the weights that were sent means a member
                     (Yeom, Giacomelli, Fredrikson, Jha 2018)
    LiRA             the likelihood of the confidence if the example is a member, over the
                     likelihood if it is not: Gaussians fitted to the shadows, for each example
                     (Carlini, Chien, Nasr, Song, Terzis, Tramer 2022)
    LiRA, gradient   LiRA on the projection of the update onto the example's own gradient, which
                     needs no working model (after Nasr, Shokri, Houmansadr 2019)
    nearest centre   whether the report is closer to the shadows' reports with the example, or to
                     their reports without it; for a server that does not know the model's inputs
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedldp.audit.attacks.intervals import curve, judged
from fedldp.audit.attacks.scenario import AttackScenario, Floats, persons_in, published
from fedldp.audit.attacks.scoring import Scoring
from fedldp.audit.efforts import Effort
from fedldp.audit.results import AttackResult
from fedldp.data import Examples, Shares
from fedldp.training.exact_sums import whose_rows

Membership = NDArray[np.bool_]

_OF_ITS_OWN = 64
"""With at least this many shadows, each example has its own variances, as in the source."""
_LEAST_VARIANCE = 1e-12

SECRET = "the model's inputs come from a secret encoder, which the server does not have"


@dataclass(frozen=True, kw_only=True, eq=False)
class Played:
    """Simulated clients with known examples.

    Attributes:
        members: whether each client had each example of the pool, shape (n, pool); it has all rows
            of a person, or none.
        updates: the estimates from their reports, shape (n, rounds, d).
    """

    members: Membership
    updates: Floats


def play(scenario: AttackScenario, count: int, first: int = 0) -> Played:
    """Return ``count`` clients, numbered from ``first``, each with half of the pool."""
    members, updates = np.zeros((count, len(scenario.pool)), np.bool_), []
    whose, persons = whose_rows(scenario.pool), persons_in(scenario.pool)
    for number, row in enumerate(members, first):
        generator = np.random.default_rng([scenario.seed, 6, number])
        inside = np.zeros(persons, np.bool_)
        inside[generator.choice(persons, scenario.size, replace=False)] = True
        row[:] = inside[whose]
        updates.append(scenario.report_updates(scenario.pool.taken(row), number))
    return Played(members=members, updates=np.array(updates))


def of_reports(scenario: AttackScenario, effort: Effort) -> list[AttackResult]:
    """Return the attacks on a client that use what the server sees of the client."""
    count = effort.member_clients
    setting = (
        f"clients with {scenario.size} {scenario.counted} out of {persons_in(scenario.pool)}; "
        f"{count} shadows, {count} targets"
    )
    return decide(scenario, play(scenario, count), play(scenario, count, count), setting)


def decide(
    scenario: AttackScenario, shadows: Played, targets: Played, setting: str = ""
) -> list[AttackResult]:
    """Return the attacks on ``targets`` by an adversary who knows ``shadows``."""
    scoring = Scoring(scenario)
    inputs = [scoring.inputs(scenario.pool.features, state) for state in scenario.states]
    known = [each for each in inputs if each is not None]
    if len(known) == len(inputs):
        found = _with_model(scoring, known, shadows, targets)
        note = ""
    else:
        found = {"nearest centre": nearest_centre(shadows, targets.updates)}
        note = SECRET
    return [
        _attack(
            scenario, name, scenario.against, setting,
            *_of_persons(scenario.pool, scores, targets.members), note,
        )
        for name, scores in found.items()
    ]  # fmt: skip


def of_published_model(scenario: AttackScenario, effort: Effort) -> list[AttackResult]:
    """Return the attacks on all clients that use the model that a run publishes."""
    rounds = min(effort.member_rounds, scenario.config.rounds)
    if (
        scenario.config.composition.channel.phases > 1
    ):  # each phase takes as long as a round of other systems
        rounds = -(-rounds // 2)
    against = f"the model after {rounds} rounds" if rounds > 1 else "the model after one round"
    scoring = Scoring(scenario)
    if scoring.inputs(scenario.pool.features[:1], scenario.states[0]) is None:
        blank = judged(
            scenario.config.name(), "membership", "LiRA", "AUC", None,
            against=against, baseline=0.5, note=SECRET,
        )  # fmt: skip
        return [blank]
    shares = scenario.shares(2 * effort.member_runs, rounds)
    most = max(map(len, shares))
    generator = np.random.default_rng([scenario.seed, 5])
    train = scenario.inputs.dataset.train
    whose, trained = whose_rows(train), np.unique(np.concatenate(shares))
    persons = np.unique(whose[trained])
    if len(persons) > effort.member_candidates:
        persons = np.sort(generator.choice(persons, effort.member_candidates, replace=False))
    asked = trained[np.isin(whose[trained], persons)]
    examples = train.taken(asked)
    members, confidences = [], []
    for number in range(2 * effort.member_runs):
        inside = (generator.random(persons_in(train)) < 0.5)[whose]
        halves = [_some(share, inside, whose) for share in shares]
        inputs = replace(scenario.inputs, members=Shares.of(halves))
        last = published(scenario.config, inputs, rounds=rounds, seed=scenario.number(number))[-1]
        given = scoring.inputs(examples.features, last)
        assert given is not None
        members.append(np.isin(asked, np.concatenate(halves)))
        weights = last.weights.astype(np.float64)
        confidences.append(scoring.confidences(weights, given, examples.labels))
    known, seen = np.array(members), np.array(confidences)
    shadows, targets = slice(effort.member_runs), slice(effort.member_runs, None)
    setting = (
        f"{scenario.config.num_clients} clients with at most {most} examples, of which each run "
        f"has a random half; {effort.member_runs} shadow runs, {effort.member_runs} target runs; "
        f"{len(persons)} {scenario.counted} are candidates"
    )
    ratios = lira(seen[shadows], known[shadows], seen[targets])
    return [
        _attack(scenario, name, against, setting, *_of_persons(examples, scores, known[targets]))
        for name, scores in (("loss threshold", seen[targets]), ("LiRA", ratios))
    ]


def lira(shadows: Floats, members: Membership, seen: Floats) -> Floats:
    """Return log-likelihood ratios, member over non-member, shape (targets, m); 0 where unknown.

    Args:
        shadows: a statistic of each example (column) for each shadow (row), shape (n, m).
        members: the shadows' membership, of the same shape.
        seen: the statistic for each target, shape (targets, m).
    """
    likelihoods = []
    for group in (members, ~members):
        count = group.sum(0)
        mean = (shadows * group).sum(0) / np.maximum(count, 1)
        squares = (np.square(shadows - mean) * group).sum(0)
        if len(shadows) >= _OF_ITS_OWN:
            variance = squares / np.maximum(count - 1, 1)
        else:
            variance = np.full(len(mean), squares.sum() / max(1, np.maximum(count - 1, 0).sum()))
        variance = np.maximum(variance, _LEAST_VARIANCE)
        gauss = -np.square(seen - mean) / (2 * variance) - np.log(variance) / 2
        likelihoods.append(np.where(count > 1, gauss, np.nan))
    return np.asarray(np.nan_to_num(likelihoods[0] - likelihoods[1]))


def nearest_centre(shadows: Played, updates: Floats) -> Floats:
    """Return how much nearer targets are to shadows with an example than to shadows without it.

    Args:
        shadows: n clients.
        updates: the updates of the targets, shape (targets, rounds, d).

    Returns:
        Differences of squared distances, shape (targets, m).
    """
    known, seen = (each.reshape(len(each), -1) for each in (shadows.updates, updates))
    found = np.zeros((len(seen), shadows.members.shape[1]))
    for group, sign in ((shadows.members, 1), (~shadows.members, -1)):
        shares = group / np.maximum(group.sum(0), 1)
        squares = np.einsum("nm,nk,km->m", shares, known @ known.T, shares)
        found += sign * (2 * seen @ known.T @ shares - squares)
    return found


def _with_model(
    scoring: Scoring, inputs: list[Tensor], shadows: Played, targets: Played
) -> dict[str, Floats]:
    """Return each target's score for each example, by attack; without gradients of large models."""
    labels, states = scoring.scenario.pool.labels, scoring.scenario.states
    found = {}
    both = np.concatenate([shadows.updates, targets.updates])
    confidences = np.array(
        [
            np.mean(
                [
                    scoring.confidences(state.weights + update, given, labels)
                    for state, update, given in zip(states, updates, inputs, strict=True)
                ],
                axis=0,
            )
            for updates in both
        ]
    )
    known, seen = np.split(confidences, [len(shadows.members)])
    # A threshold on the loss is equivalent to one on the confidence.
    found["loss threshold"] = seen
    found["LiRA"] = lira(known, shadows.members, seen)
    along = np.zeros_like(confidences)
    for at, (state, given) in enumerate(zip(states, inputs, strict=True)):
        gradients = scoring.gradients(state, given, labels)
        if gradients is None:
            return found
        lengths = np.maximum(np.linalg.norm(gradients, axis=1), 1e-12)
        along -= both[:, at] @ gradients.T / lengths
    known, seen = np.split(along, [len(shadows.members)])
    found["gradient threshold"] = seen - known.mean(0)
    found["LiRA, gradient"] = lira(known, shadows.members, seen)
    return found


def _attack(
    scenario: AttackScenario,
    name: str,
    against: str,
    setting: str,
    scores: Floats,
    truth: Membership,
    note: str = "",
) -> AttackResult:
    groups = np.repeat(np.arange(len(truth)), truth.shape[1])
    roc = curve(scores.ravel(), truth.ravel(), groups, scenario.seed)
    return judged(
        scenario.config.name(),
        "membership",
        name,
        "AUC",
        roc.auc,
        against=against,
        setting=setting,
        baseline=0.5,
        roc=roc,
        note=note,
    )


def _of_persons(
    examples: Examples, scores: Floats, members: Membership
) -> tuple[Floats, Membership]:
    """Return each person's mean score and membership instead of the rows', shape (n, people)."""
    if examples.people is None:
        return scores, members
    whose, persons = whose_rows(examples), persons_in(examples)
    own = (whose[:, None] == np.arange(persons)).astype(np.float64)
    first = np.unique(whose, return_index=True)[1]
    return scores @ (own / own.sum(0)), members[:, first]


def _some(
    share: NDArray[np.int64], inside: Membership, whose: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return a client's examples in one run: the rows of at least one person."""
    chosen = share[inside[share]]
    return chosen if len(chosen) else share[whose[share] == whose[share[0]]]
