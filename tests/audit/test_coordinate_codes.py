"""What the games of coordinates look at: pieces, estimates, or nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
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
    Estimates,
    FoundCodes,
    Pieces,
    RepetitionGame,
    coordinate_codes,
    lines_of,
)
from fedldp.audit.results import Audit, GameResult
from fedldp.cli.audit import _show
from fedldp.mechanisms import Mechanism, mechanisms

SIZE = 1 << 12


def shown(mechanism: Mechanism, found: FoundCodes | None = None) -> GameResult:
    """Play the game of coordinates at an epsilon of 1."""
    lines = lines_of(mechanism, SIZE, "weight")
    game = CoordinateGame(mechanism=mechanism, lines=lines, effort=QUICK)
    if found is not None:
        vars(game)["found"] = found
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


def test_every_mechanism_with_equal_coordinates_sends_them_as_pieces() -> None:
    """So these mechanisms' games look at all bits."""
    tried = 0
    for cls in mechanisms().values():
        for mechanism in cls.examples():
            pieces = Pieces.of(mechanism, 96)
            if pieces is not None and has_identical_coordinates(mechanism.event(96)):
                assert coordinate_codes(mechanism, 96) == FoundCodes(codes=pieces)
                tried += 1
    assert tried > 20


@pytest.mark.parametrize("width", [1, 3, 8, 14, 32, 56])
def test_a_spliced_payload_has_the_codes_of_both(width: int) -> None:
    generator, pieces = np.random.default_rng(width), Pieces(size=41, width=width)
    one, other = (
        np.packbits(generator.integers(0, 2, 41 * width, np.uint8)).tobytes() for _ in range(2)
    )
    assert pieces.fit(one)
    assert not pieces.fit(one + b"0")
    chosen = generator.random(41) < 0.5
    spliced = pieces.codes(pieces.spliced(one, other, chosen))
    assert np.array_equal(spliced, np.where(chosen, pieces.codes(other), pieces.codes(one)))
    assert len(np.unique(pieces.codes(one))) > min(width, 30)


def test_signs_before_sizes_are_no_bug() -> None:
    """A quarter of the pieces would hold four signs each, and show more than one may."""
    mechanism = planted_layouts.SignsFirst(1.0)
    seen = shown(mechanism)
    assert 0.8 < seen.lower < 1.0
    assert "of the estimate of a coordinate" in seen.attack
    assert shown(mechanism, FoundCodes(codes=Pieces(size=SIZE, width=4))).lower > 2.0


def test_a_wrong_probability_behind_another_layout_is_found() -> None:
    assert shown(planted_layouts.SignsFirstWrongK(1.0)).lower > 1.3


def test_repeating_noise_behind_another_layout_is_found() -> None:
    mechanism = planted_layouts.SignsFirstRepeating(1.0)
    lines = lines_of(mechanism, SIZE, "weight")
    game = RepetitionGame(mechanism=mechanism, lines=lines, effort=QUICK)
    seen = game.play(AuditKeys(0), 0.999)[-1]
    assert seen.lower > 1.0
    assert "two coordinates 700 apart" in seen.attack


def test_bits_that_the_server_does_not_read_are_seen_in_pieces() -> None:
    mechanism = planted_layouts.AnswersTwice(1.0)
    assert coordinate_codes(mechanism, SIZE) == FoundCodes(codes=Pieces(size=SIZE, width=2))
    assert shown(mechanism).lower > 1.7


def test_bits_that_the_server_does_not_read_elsewhere_are_named() -> None:
    found = coordinate_codes(planted_layouts.UnreadSizes(1.0), SIZE)
    assert isinstance(found.codes, Estimates)
    assert "flipped bits changed no estimate" in found.left_out


@pytest.mark.parametrize(
    ("cls", "why"),
    [
        (planted_layouts.Centred, "a flipped bit changes several of them"),
        (planted_layouts.Checked, "no flipped bit changes one of them"),
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
    _show(Audit(subject="", seed=0, rows=tuple(rows), confidence=0.999))
    said = capsys.readouterr().out
    assert f"weight, d = {BLOCK}: coordinates: not played, because" in said
    assert f"weight, d = {SIZE}: repetitions: not played, because" in said
    assert said.count(why) == 2
