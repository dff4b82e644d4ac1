"""Shuffled messages are linked if clocks or content allow it, and not otherwise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedldp.algorithms.settings import Delays
from fedldp.audit.observations import AuditKeys
from fedldp.audit.results import AttackResult, Estimate
from fedldp.core.randomness import SERVER, Stream
from fedldp.mechanisms.two_point import TwoPoint
from fedldp.papers.ldp_fl.attacks import (
    CLOCKS,
    Clocks,
    Habits,
    Span,
    TrainedValues,
    by_rank,
    content_hits,
    draw_windows,
    judged,
    timing,
)
from fedldp.simulation.shuffler import agree_delay, draw_schedule

DELAYS = Delays(chunk=1, prediction_error=0.0)
SHORT = replace(DELAYS, delay_seconds=0.1)
OFF = Clocks(name="off by 1 s", prediction_error=0.0, offset_seconds=1.0)
CLIENTS, SIZE = 40, 60


def measured(row: AttackResult) -> Estimate:
    assert row.measured is not None
    return row.measured


# By time


@pytest.mark.parametrize("span", ["within", "across"])
def test_wrong_clocks_link_messages_that_a_short_delay_does_not_mix(span: Span) -> None:
    rows = judged("it", timing(SHORT, 40, OFF, span, "any", 300, AuditKeys(0)))
    assert {row.attack for row in rows} == {"ranks", "law", "windows"}
    for row in rows:
        assert row.verdict == "linked"
        assert row.measured is not None
        assert row.measured.low > 10 * row.baseline


def test_ticks_of_timers_link_messages_at_any_delay() -> None:
    ticks = next(clocks for clocks in CLOCKS if clocks.tick_seconds)
    long = replace(DELAYS, delay_seconds=1e5)
    rows = judged("it", timing(long, 10, ticks, "within", "any", 300, AuditKeys(0)))
    verdicts = {row.attack: row.verdict for row in rows}
    assert verdicts == {
        "ranks": "at chance", "law": "at chance", "windows": "at chance", "ticks": "linked"
    }  # fmt: skip


def test_two_rounds_of_the_game_have_one_delay() -> None:
    """T is agreed on once; only the clients' delays differ from round to round."""
    generator, clocks = np.random.default_rng(0), replace(OFF, prediction_error=0.1)
    habits = Habits.draw(DELAYS, clocks, CLIENTS, generator)
    first, second = (draw_windows(DELAYS, clocks, habits, generator) for _ in range(2))
    assert first.delay == second.delay == habits.delay
    assert not np.array_equal(first.opens, second.opens)
    assert Habits.draw(DELAYS, clocks, CLIENTS, generator).delay != habits.delay


@pytest.mark.slow
def test_the_attack_works_on_the_schedules_of_a_run() -> None:
    """The ranks attack is right as often on a simulation's schedules as in the game."""
    delays = replace(DELAYS, prediction_error=0.1, delay_seconds=1.0)
    hits, trials = 0, 0
    for seed in range(20):

        def stream(round: int, client: int, purpose: str, seed: int = seed) -> Stream:
            return Stream.simulation(seed=seed, round=round, client=client, purpose=purpose)

        latency, within = (stream(1, -1, name).generator() for name in ("latency", "arrivals"))
        delay = agree_delay(delays, CLIENTS, stream(0, SERVER, "delay").generator())
        due = draw_schedule(delays, CLIENTS, delay, latency)
        first, second = due.offsets + within.uniform(0.0, due.delay, (2, CLIENTS))
        senders = np.argsort(first), np.argsort(second)
        for place in range(CLIENTS):
            scores = by_rank(place, np.sort(first), np.sort(second))
            hits += senders[0][place] == senders[1][int(scores.argmax())]
            trials += 1
    clocks = Clocks(name="as configured")
    row, *_ = judged("it", timing(delays, CLIENTS, clocks, "within", "any", 1000, AuditKeys(0)))
    assert row.attack == "ranks"
    assert measured(row).low <= hits / trials <= measured(row).high
    assert row.verdict == "linked"


# By content


def inside(persistent: float) -> TrainedValues:
    """Return clients whose values deviate from the mean by a given amount, the same in both
    rounds."""
    generator = np.random.default_rng(3)
    parts = [
        np.repeat(persistent * generator.choice([-1.0, 1.0], (1, count, SIZE)), 2, axis=0)
        for count in (CLIENTS, 200)
    ]
    return TrainedValues(*(part.astype(np.float32) for part in parts))


def test_whole_reports_link_from_round_to_round_by_content() -> None:
    hits = content_hits(inside(1.0), TwoPoint(8.0), [1, SIZE], trials=100, keys=AuditKeys(0))
    assert hits["across", SIZE] >= 95
    assert hits["within", 1] <= 15  # independent coordinates tell nothing about each other


@pytest.mark.slow
def test_reports_without_a_clients_own_part_do_not_link() -> None:
    hits = content_hits(inside(0.0), TwoPoint(8.0), [1, SIZE], trials=120, keys=AuditKeys(0))
    assert max(hits.values()) <= 14  # 3 are expected: this fails with probability below 1e-5
