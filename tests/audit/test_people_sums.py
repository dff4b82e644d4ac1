"""Mistakes in sums over people are found by trials or by exact integers; correct sums pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import planted_people as planted
import pytest

import fedldp
from fedldp.audit.efforts import QUICK
from fedldp.audit.observations import AuditKeys
from fedldp.audit.people_sums import PlannedPeopleCheck
from fedldp.audit.plans import planned_games
from fedldp.audit.playing import play
from fedldp.audit.systems import PlannedSystemGame
from fedldp.simulation.plan import problem_of
from fedldp.training import person_gradients

FEW = replace(QUICK, system_explore=40)


def problem(config: Any) -> Any:
    """Return the problem of the digits, as if they belonged to 700 persons."""
    return replace(problem_of(config, None), people=700)


def exactly(config: Any, seed: int = 0) -> Any:
    """Return the row of the exact check."""
    games = planned_games(config, problem(config), QUICK)
    (check,) = [each for each in games if isinstance(each, PlannedPeopleCheck)]
    (row,) = check.rows(AuditKeys(seed), 0.999, None)
    return row


def games(config: Any, adversary: str = "server", small: bool = True) -> list[Any]:
    """Return the games about persons in two rounds, with an honest server."""
    return [
        each
        for each in planned_games(config, problem(config), FEW)
        if isinstance(each, PlannedSystemGame)
        and each.setting.startswith("small" if small else "as configured")
        and (each.unit, each.game.adversary, each.game.apart) == ("person", adversary, "")
    ]


def played(config: Any, adversary: str = "server", trials: int = 150, seed: int = 0) -> Any:
    asked = games(config, adversary)
    assert [each.game.swap for each in asked] == ["person"]
    assert asked[0].game.rounds == (1, 2)
    return play("", asked, confidence=0.999, trials=trials, seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize("channel", ["named", "sum"])
@pytest.mark.parametrize("wrong", [planted.RowsClippedConfig, planted.PrivateDivisorConfig])
def test_clipped_rows_and_a_private_divisor_are_found_by_trials(wrong: Any, channel: str) -> None:
    found = played(wrong(**planted.settings(channel)))
    assert found.verdict == "bug"
    assert found.rows[0].unit == "person"
    assert found.rows[0].proven == pytest.approx(1.5, abs=1e-3)


@pytest.mark.slow
def test_a_share_without_its_noise_is_found() -> None:
    found = played(planted.NoNoiseConfig(**planted.settings("sum")))
    assert found.verdict == "bug"
    assert found.rows[0].lower > 2.5 > found.rows[0].proven


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrong",
    [
        planted.RowsClippedConfig,
        planted.PrivateDivisorConfig,
        planted.NoNoiseConfig,
        planted.TooLittleConfig,
        planted.KnownNoiseConfig,
    ],
)
def test_mistakes_of_a_trusted_server_and_its_sites_are_found_in_broadcasts(wrong: Any) -> None:
    found = played(wrong(**planted.settings("central")), "downlink")
    assert found.verdict == "bug"
    assert {row.unit for row in found.rows} == {"person"}


@pytest.mark.slow
def test_a_correct_server_passes_against_those_who_see_broadcasts() -> None:
    right = planted.RightConfig(**planted.settings("central"))
    assert played(right, "downlink").verdict == "ok"


@pytest.mark.slow
@pytest.mark.parametrize("adversary", ["summing-server", "server"])
def test_the_correct_sums_pass_against_every_adversary(adversary: str) -> None:
    right = planted.RightConfig(**planted.settings("sum"))
    assert played(right, adversary).verdict == "ok"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (planted.FloatSumsConfig, "the sum of what each person gives alone"),
        (planted.BatchGradientsConfig, "the sum of what each person gives alone"),
        (planted.FloatClipConfig, "times as long as the noise allows for"),
        (planted.RowsClippedConfig, "one person moves the sum by"),
        (
            planted.PrivateDivisorConfig,
            "times",
        ),  # the message names one person or the sum, depending on the trials
    ],
)
def test_mistakes_that_no_trial_shows_are_found_exactly(wrong: Any, said: str) -> None:
    row = exactly(wrong(**planted.settings()))
    assert row.verdict == "bug"
    assert said in row.attack
    assert row.proven == 0


@pytest.mark.parametrize("wrong", [planted.EarlyStopConfig, planted.LastStepPlainConfig])
def test_weights_that_depend_on_more_than_noisy_sums_are_found(wrong: Any) -> None:
    row = exactly(wrong(**planted.settings(steps_per_round=3)))
    assert row.verdict == "bug"
    assert "are charged" in row.attack or "more than the noisy sums" in row.attack


def test_rows_sampled_instead_of_persons_are_found() -> None:
    config = planted.RowsSampledConfig(**planted.settings(sample_rate=0.5))
    (row,) = PlannedPeopleCheck(config, problem(config)).rows(AuditKeys(0), 0.999, None)
    assert row.verdict == "bug"
    assert "some of a person's rows" in row.attack


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda examples: replace(examples, people=None), "times the calibrated distance"),
        (lambda examples: replace(examples, labels=examples.labels * 0), ""),
    ],
)
def test_rows_counted_instead_of_persons_are_found(
    monkeypatch: pytest.MonkeyPatch, wrong: Any, said: str
) -> None:
    """Wrong labels do not matter to the audit as long as each follows from the person's own
    rows."""
    right = person_gradients.class_counts
    monkeypatch.setattr(
        person_gradients, "class_counts", lambda examples, number: right(wrong(examples), number)
    )
    row = exactly(planted.RightConfig(**planted.settings(class_count_rounds=1)))
    assert row.verdict == ("bug" if said else "ok")
    assert said in row.attack


@pytest.mark.parametrize(
    "more",
    [
        {"steps_per_round": 3},
        {"held_out_people": 0.3},
        {"class_count_rounds": 1},
        {"channel": "central"},
        {"channel": "sum"},
        {"sample_rate": 0.5},
        {"sample_rate": 0.5, "steps_per_round": 3},
    ],
)
def test_every_setting_of_the_correct_sums_is_exact(more: dict[str, Any]) -> None:
    row = exactly(planted.RightConfig(**planted.settings(**more)))
    assert (row.verdict, row.note) == ("ok", "exact: bit for bit the same")


@pytest.mark.slow
@pytest.mark.parametrize("channel", ["named", "sum", "central"])
def test_every_game_of_the_recipe_passes(channel: str) -> None:
    config = fedldp.recipe("person-dp-sgd-digits", channel=channel)
    asked = planned_games(config, problem(config), FEW)
    against = {
        "named": {"server"}, "sum": {"server", "summing-server"}, "central": {"downlink"},
    }[channel]  # fmt: skip
    played = [each for each in asked if isinstance(each, PlannedSystemGame)]
    assert {each.game.adversary for each in played if each.unit == "person"} == against
    assert play("", asked, confidence=0.999, trials=None, seed=0).verdict == "ok"
