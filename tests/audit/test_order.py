"""The brief audit finds the planted mistakes; what cannot refute anything, or is late, waits."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import planted
import planted_categories
import planted_layouts
import planted_people
import planted_systems
import pytest
from planted import changed

from fedldp.accounting.guarantees import Unit
from fedldp.audit.efforts import BRIEF
from fedldp.audit.game import Planned
from fedldp.audit.mechanisms import planned_games as games_of_mechanism
from fedldp.audit.observations import AuditKeys
from fedldp.audit.plans import planned_games as games_of_system
from fedldp.audit.playing import FIRST, cover, play, rank
from fedldp.audit.report_games import ReportGame, lines_of
from fedldp.audit.results import GameResult, Line
from fedldp.mechanisms.two_point import TwoPoint
from fedldp.simulation.plan import problem_of

MECHANISMS = [
    planted.Float32Probabilities,
    planted.MissingClip,
    planted.LaplaceForC,
    planted.GaussianForC,
    planted.StreamTwice,
    planted.OneStreamForAll,
    planted.SentRange,
    planted.LengthTells,
    planted.RefusalTells,
    planted.RepeatingNoise,
    planted.HalfNorm,
    planted.RangeOfSome,
    planted_categories.OneMore,
    planted_categories.RoundedUp,
    planted_layouts.AnswersTwice,
]
RIGHT = planted_systems.RightConfig
SYSTEMS = {
    "no clip": changed(RIGHT, noise=planted.MissingClip),
    "half noise": changed(RIGHT, noise=planted_systems.half_noise),
    "count told": changed(RIGHT, sends=planted_systems.CountTold),
    "refusal": changed(RIGHT, sends=planted_systems.RefusalTells),
    "same noise": changed(RIGHT, sends=planted_systems.SameNoise),
    "late": changed(RIGHT, sends=planted_systems.LessAndLess),
    "float sums": changed(planted_people.RightConfig, sums=planted_people.FloatSums),
}


SECONDS = 60.0
"""A brief audit takes 16 s at most for a subject; some machines are several times slower."""


def found_by(games: list[Planned]) -> str:
    """Return the key of the first brief game that finds a mistake; empty if time runs out before.

    What ``play`` plays after it would change nothing.
    """
    chosen, start = cover(games, 0.999), time.process_time()
    each = 1 - 0.001 / sum(game.bounds for game in chosen)
    for game in chosen:
        if time.process_time() > start + SECONDS:
            break
        with np.errstate(all="ignore"):  # as ``play`` does
            rows = game.play(AuditKeys(0), each)
        if any(row.verdict == "bug" for row in rows):
            return game.key
    return ""


@pytest.mark.slow
@pytest.mark.parametrize("cls", MECHANISMS)
def test_a_planted_mistake_of_a_mechanism_is_found(cls: Any) -> None:
    assert found_by(games_of_mechanism(cls, BRIEF))


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
def test_a_planted_mistake_of_a_system_is_found(name: str) -> None:
    more: dict[str, Any] = {"rounds": 12}
    if name == "float sums":
        more = planted_people.settings()
    config = SYSTEMS[name](**more)
    problem = replace(problem_of(config, None), people=700 if name == "float sums" else None)
    assert found_by(games_of_system(config, problem, BRIEF))


@pytest.mark.parametrize("cls", [planted.FloatBits, planted_categories.PublicK])
def test_every_key_of_a_mechanism_is_known(cls: Any) -> None:
    """A key that is renamed in one place only would silently leave its games out."""
    games = games_of_mechanism(cls, BRIEF)
    ranks = [rank(game) for game in cover(games, 0.999)]
    assert ranks == sorted(ranks)
    due = 6 if cls is planted.FloatBits else 5
    assert len(set(ranks) - {len(FIRST)}) == due
    assert {type(game).__name__ for game in games if game.key == "exact"} >= {"ContractCheck"}


def test_the_weights_that_show_the_better_of_two_seeds_are_counted_in_brief() -> None:
    """They find it whatever the seed is; see ``test_drawn_weights``."""
    chosen = cover(games_of_mechanism(planted_categories.BetterSeed, BRIEF), 0.999)
    assert "weights at 4, 64" in {game.key for game in chosen}


# What is not played


def game_at(epsilon: float, size: int, unit: Unit = "client-round", **more: Any) -> ReportGame:
    mechanism = TwoPoint(epsilon)
    lines = lines_of(mechanism, size, unit, **more)
    return ReportGame(mechanism=mechanism, lines=lines, effort=BRIEF)


def test_a_game_that_no_outcome_can_refute_is_known_before() -> None:
    assert game_at(1.0, 1).can_refute(0.999)
    assert not game_at(1.0, 64).can_refute(0.999)
    assert game_at(1.0, 64, claimed=1.0).can_refute(0.999)
    assert not game_at(1.0, 1).can_refute(0.999, trials=5)
    # By hand: all of 1,000 trials against none; two events and two sides share an alpha of 0.001.
    (line,) = game_at(1.0, 1).lines
    least = 0.00025 ** (1 / 1000)
    expected = math.log(least / (1 - least))
    assert game_at(1.0, 1).most(line, 0.999, 1000) == pytest.approx(expected)


@pytest.mark.slow
def test_such_games_take_no_share_of_the_error_and_say_so() -> None:
    games = [game_at(1.0, 64), game_at(0.5, 1)]
    found = play("", games, confidence=0.9, trials=100, seed=0, futile=False)
    unplayed, played = found.rows
    assert (unplayed.verdict, unplayed.lower, unplayed.is_unplayed) == (None, 0, True)
    assert unplayed.proven is not None
    assert played.confidence == 0.9
    assert found.verdict == "ok"


@dataclass(frozen=True, kw_only=True)
class Slow(Planned):
    """Takes a tenth of a CPU second."""

    @property
    def title(self) -> str:
        return self.key

    def play(self, keys: AuditKeys, confidence: float, trials: int | None = None) -> Any:
        start = time.process_time()
        while time.process_time() < start + 0.1:
            pass
        return [self.lines[0].result(attack=self.key, verdict="ok")]


def slow(subject: str, key: str) -> Slow:
    return Slow(lines=(Line(subject=subject, size=1, unit="weight", proven=1.0),), key=key)


def test_exact_checks_do_not_stand_for_the_games_of_a_subject() -> None:
    """A subject whose only game of ``FIRST`` is an exact check plays one more, which counts."""
    games = [
        slow(who, key) for who, key in (("one", "exact"), ("one", "b"), ("one", "c"), ("two", "d"))
    ]
    assert [game.key for game in cover(games, 0.9)] == ["exact", "b", "d"]


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_no_game_starts_once_the_seconds_of_its_subject_are_over(workers: int) -> None:
    """The most telling is played first, and rows keep their order."""
    games = [slow("one", "last"), slow("one", "late: a"), slow("one", "exact"), slow("two", "b")]
    found = play("", games, confidence=0.9, trials=None, seed=0, seconds=0.15, workers=workers)

    def shown(row: GameResult) -> tuple[str, bool]:
        return row.attack, row.is_unplayed

    assert list(map(shown, found.rows)) == [
        ("not played", True), ("late: a", False), ("exact", False), ("b", False)
    ]  # fmt: skip
    assert "CPU seconds are over" in found.rows[0].note
    assert found.rows[1].confidence is None
