"""What the games of coordinates look at: the estimate of each coordinate, or nothing."""

from __future__ import annotations

from dataclasses import replace

import planted
import planted_layouts
import pytest

from fedldp.accounting.accountants import has_identical_coordinates
from fedldp.audit.efforts import QUICK
from fedldp.audit.mechanisms import planned_games
from fedldp.audit.observations import AuditKeys
from fedldp.audit.playing import play
from fedldp.audit.report_games import (
    BLOCK,
    CoordinateGame,
    RepetitionGame,
    lines_of,
    shown_coordinates,
)
from fedldp.audit.results import Audit, GameResult
from fedldp.cli.audit import _show
from fedldp.mechanisms import Mechanism, mechanisms
from fedldp.reporting.text import Terminal

SIZE = 1 << 12


def shown(mechanism: Mechanism) -> GameResult:
    """Play the game of coordinates at an epsilon of 1."""
    lines = lines_of(mechanism, SIZE, "weight")
    game = CoordinateGame(mechanism=mechanism, lines=lines, effort=QUICK)
    return game.play(AuditKeys(0), 0.999)[-1]


def rows_of_coordinates(cls: type[Mechanism]) -> list[GameResult]:
    """Play the audit's games whose trials are coordinates, first those of many reports."""
    effort = replace(QUICK, mechanism_settings=((1.0, 1),), mechanism_long=SIZE)
    games = [
        planned
        for planned in planned_games(cls, effort)
        if isinstance(planned, CoordinateGame | RepetitionGame)
    ]
    return list(play("", games, confidence=0.999, trials=None, seed=0).rows)


def test_estimates_show_all_bits_of_every_mechanism_with_equal_coordinates() -> None:
    tried = 0
    for cls in mechanisms().values():
        for mechanism in cls.examples():
            if has_identical_coordinates(mechanism.event(96)):
                shows, left_out = shown_coordinates(mechanism, 96)
                # Of an odd number of categories, the middle one stands for 0.
                assert shows
                assert not left_out or getattr(mechanism, "categories", 0) % 2
                tried += 1
    assert tried > 20


def test_signs_before_sizes_are_no_bug() -> None:
    """Half of a byte would hold four signs, and show more than one may."""
    assert 0.8 < shown(planted_layouts.SignsFirst(1.0)).lower < 1.0


def test_a_wrong_probability_behind_another_layout_is_found() -> None:
    assert shown(planted_layouts.SignsFirstWrongK(1.0)).lower > 1.3


def test_repeating_noise_behind_another_layout_is_found() -> None:
    mechanism = planted_layouts.SignsFirstRepeating(1.0)
    lines = lines_of(mechanism, SIZE, "weight")
    game = RepetitionGame(mechanism=mechanism, lines=lines, effort=QUICK)
    seen = game.play(AuditKeys(0), 0.999)[-1]
    assert seen.lower > 1.0
    assert "two coordinates 700 apart" in seen.attack


def test_bits_that_the_server_does_not_read_are_named() -> None:
    shows, left_out = shown_coordinates(planted_layouts.UnreadSizes(1.0), SIZE)
    assert shows
    assert "flipped bits changed no estimate" in left_out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cls", "why"),
    [
        (planted_layouts.Centred, "a flipped bit of a report changes several estimates"),
        (planted_layouts.Checked, "no flipped bit of a report changes an estimate"),
        (planted.Unreadable, "the server cannot read an honest report"),
    ],
)
def test_a_game_that_cannot_be_played_is_named(
    cls: type[Mechanism], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = rows_of_coordinates(cls)
    assert len(rows) == 2
    for row in rows:
        assert (row.verdict, row.lower, row.trials) == (None, 0, 0)
    _show(Audit(subject="", seed=0, rows=tuple(rows), confidence=0.999), Terminal())
    said = capsys.readouterr().out
    assert f"weight, d = {BLOCK}: coordinates: not played, because" in said
    assert f"weight, d = {SIZE}: repetitions: not played, because" in said
    assert said.count(why) == 2
