"""The amount of work in each game and attack of an audit, at each of three levels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Lie = Literal["report", "random", "update", "labels"]
"""``report``: a forged report, against the true update. ``random``: a forged report in a random
direction. ``update``: an honest report of an update that is reversed and 100 times as long.
``labels``: everything is honest except the labels, each of which is replaced by the next class."""


@dataclass(frozen=True, kw_only=True)
class Effort:
    """Amounts of work, by default those of the quick mode.

    The first word of a field's name is the game that it belongs to.

    Attributes:
        mechanism_settings: the pairs (epsilon, d) for which each mechanism is made.
        mechanism_explore: trials per input of every pair, for choosing a pair.
        mechanism_scan: trials for each of many additional pairs, in the scan that chooses one of
            them.
        mechanism_least: the fewest trials per input of the chosen pair, for counting.
        mechanism_most: the most trials per input, for mechanisms that encode one report at a time.
        mechanism_most_quick: the most trials per input, for mechanisms that encode many at once.
        mechanism_most_coordinates: the most coordinates per input that a game of coordinates
            counts.
        mechanism_long: the number of coordinates of a report that is searched for repeated noise.
        mechanism_most_words: the most words tried per input where the words that lead to a category
            are counted; a mechanism that needs more is not checked.
        system_explore: trials per input of every pair, for choosing a pair.
        system_again: whether the most promising pairs are explored again, with more trials.
        system_most: trials per input of the chosen pair, for counting.
        system_few: trials where every claimed or proven epsilon is too large to be refuted by
            ``system_most`` trials.
        system_trained: the most trials, for systems that train again in every trial.
        timing_trials: trials per game on the arrival times of shuffled messages.
        content_trials: trials per game on the bits of messages; each trial randomises all reports
            again.
        content_clients: the largest number of clients in such a game.
        lying_shares: shares of clients that lie.
        lying_attacks: the attacks that these clients make.
        lying_seeds: the number of seeds per configuration.
        lying_rounds: the most rounds of a run with lying clients.
        attack_examples: the most examples of the attacked client.
        attack_rounds: the most rounds that the adversary looks at.
        attack_visits: the most work that whole runs may take: examples trained on, times weights.
        member_clients: the number of shadows in membership inference, and of targets.
        member_runs: the number of shadow runs, and of target runs, for attacks on published models.
        member_rounds: the most rounds of a shadow or target run.
        member_candidates: the most examples, or people, whose membership in a run is inferred.
        image_count: the number of images to recover.
        image_known: the number of the adversary's own images, from which it learns how far to trust
            its findings.
        image_matched: the number of images to recover, and of the adversary's own images, where
            each image is searched for step by step.
        image_steps: the number of steps in the search for an image.
        image_public: the most images that a decoder of codes uses.
        property_clients: the number of shadows in property inference, and of targets.
    """

    mechanism_settings: tuple[tuple[float, int], ...] = ((1.0, 1), (12.0, 1), (0.5, 8), (4.0, 64))
    mechanism_explore: int = 160
    mechanism_scan: int = 16
    mechanism_least: int = 2_000
    mechanism_most: int = 2_000
    mechanism_most_quick: int = 40_000
    mechanism_most_coordinates: int = 10_000_000
    mechanism_long: int = 1 << 20
    mechanism_most_words: int = 10_000
    system_explore: int = 100
    system_again: bool = False
    system_most: int = 1_000
    system_few: int = 150
    system_trained: int = 150
    timing_trials: int = 2_000
    content_trials: int = 300
    content_clients: int = 100
    lying_shares: tuple[float, ...] = (0.05, 0.2)
    lying_attacks: tuple[Lie, ...] = ("report", "labels")
    lying_seeds: int = 1
    lying_rounds: int = 5
    attack_examples: int = 20
    attack_rounds: int = 1
    attack_visits: float = 4e8
    member_clients: int = 48
    member_runs: int = 5
    member_rounds: int = 4
    member_candidates: int = 400
    image_count: int = 24
    image_known: int = 100
    image_matched: int = 2
    image_steps: int = 100
    image_public: int = 600
    property_clients: int = 60


QUICK = Effort()

BRIEF = replace(QUICK, system_explore=40, system_again=True)
"""For the games of ``playing.cover``. Two passes choose a pair as well as one of 100 trials."""

FULL = Effort(
    mechanism_settings=tuple((e, d) for e in (0.5, 1.0, 4.0, 12.0) for d in (1, 8, 64)),
    mechanism_explore=2_000,
    mechanism_scan=200,
    mechanism_least=20_000,
    mechanism_most=20_000,
    mechanism_most_quick=1_000_000,
    mechanism_most_coordinates=100_000_000,
    mechanism_long=1 << 22,
    mechanism_most_words=100_000,
    system_explore=400,
    system_most=20_000,
    system_few=2_000,
    system_trained=2_000,
    timing_trials=20_000,
    content_trials=2_000,
    content_clients=1_000,
    lying_shares=(0.01, 0.05, 0.1, 0.2),
    lying_attacks=("report", "random", "update", "labels"),
    lying_seeds=3,
    attack_examples=60,
    attack_rounds=3,
    attack_visits=4e9,
    member_clients=128,
    member_runs=16,
    member_rounds=15,
    member_candidates=1_000,
    image_count=40,
    image_known=200,
    image_matched=6,
    image_steps=300,
    image_public=2_000,
    property_clients=150,
)
