"""The games of systems find planted mistakes at 99.9 %, and reports that name their senders."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import planted_systems as planted
import pytest
from planted import changed, small_games

import fedldp
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.systems import systems
from fedldp.audit import harness
from fedldp.audit.efforts import QUICK
from fedldp.audit.observations import AuditKeys, TrialStreams
from fedldp.audit.plans import planned_games, representatives
from fedldp.audit.playing import play
from fedldp.audit.systems import SenderGame, SystemGame
from fedldp.core.errors import ConfigError, RunError
from fedldp.core.randomness import KEY_BYTES
from fedldp.protocol.keys import TrialKeys, draws_of_seed
from fedldp.simulation.plan import plan, problem_of

CONFIDENCE = 0.999
RIGHT = planted.RightConfig


def games_of(config: RunConfig) -> list[SystemGame]:
    found = planned_games(config, problem_of(config, None), QUICK)
    return [each for each in found if isinstance(each, SystemGame)]


def audited(
    config: RunConfig, unit: str, how: str = "", *, explore: int = 40, trials: int = 300
) -> Any:
    games = small_games(config, unit, how=how, explore=explore)
    assert games
    return play("", games, confidence=CONFIDENCE, trials=trials, seed=0)


# Where a mistake shows that the brief games do not look for; test_order has the others.
BUGS: dict[str, tuple[type[RunConfig], str]] = {
    "memory": (changed(RIGHT, sends=planted.Remembers), ""),
    "told": (
        changed(RIGHT, sends=planted.ToldHowMuch, algorithm=planted.by(planted.TellsClip)),
        "multiplied by 16",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("cls", "how"), BUGS.values(), ids=BUGS)
def test_a_planted_mistake_of_a_system_is_found(cls: type[RunConfig], how: str) -> None:
    found = audited(cls(rounds=3), "client-round", how)  # type: ignore[call-arg]
    assert (found.verdict, found.confidence) == ("bug", CONFIDENCE)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["", "every request sent twice", "round 12 only"])
def test_the_correct_system_passes(how: str) -> None:
    assert audited(RIGHT(rounds=12), "client-round", how).verdict == "ok"


@pytest.mark.slow
def test_one_bit_that_is_requested_again_is_the_same_bit() -> None:
    """A site's ledger keeps what it sent; a refusal in its place would reveal that."""
    one_bit = changed(RIGHT, sends=planted.OneBit)()
    assert audited(one_bit, "client-round", "every request sent twice").verdict == "ok"


@pytest.mark.slow
def test_unclipped_statistics_are_found_in_few_trials() -> None:
    wrong = changed(planted.of_statistics, algorithm=planted.by(planted.Unclipped))()
    found = audited(wrong, "client-round")
    assert found.verdict == "bug"
    assert found.rows[0].proven == pytest.approx(1.5, abs=1e-4)
    right = audited(planted.of_statistics(), "client-round")
    assert right.verdict == "ok"


@pytest.mark.slow
def test_a_client_that_answers_twice_instead_of_once_is_found() -> None:
    once = changed(RIGHT, sends=planted.OneBit)
    wrong = changed(once, algorithm=planted.by(planted.ToldTwice))(participation="once")
    found = audited(wrong, "client-run")
    assert found.verdict == "bug"
    assert found.rows[0].proven == pytest.approx(1.5, abs=1e-4)
    right = audited(once(participation="once"), "client-run")
    assert right.verdict == "ok"


class Forgetful:
    """A ledger that does not remember what the client answered."""

    def check(self, place: Any, event: Any, clients: Any, *_: Any) -> list[None]:
        return [None] * len(clients)

    def release(self, place: Any, event: Any, clients: Any, make: Any, *_: Any) -> Any:
        return make()


@pytest.mark.slow
def test_a_request_that_is_answered_twice_with_fresh_noise_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(harness, "MemoryLedger", lambda **_: Forgetful())
    # An honest answer is near its bound only for the best of the attacks, so more trials are needed
    # to choose it and to tell twice the bound from the bound.
    found = audited(RIGHT(), "client-round", "every request sent twice", explore=200, trials=1500)
    assert found.rows[0].lower > found.rows[0].proven  # two answers for the price of one
    assert found.verdict == "bug"


# Which games there are


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "adversary"),
    [
        ("quickstart", "shuffled-server"),
        ("distributed-gaussian-digits", "summing-server"),
        ("central-dp-digits", "downlink"),
    ],
)
def test_a_system_has_a_game_for_each_line_and_adversary(name: str, adversary: str) -> None:
    found = games_of(fedldp.recipe(name))
    assert adversary in {each.lines[0].adversary for each in found}
    first = found[0]
    setting = first.lines[0].setting
    assert setting.startswith("as configured")
    played = {
        (line.unit, line.adversary, line.delta): line.proven
        for each in found
        for line in each.lines
        if line.setting == setting
    }
    for line in plan(first.config, first.problem).privacy.guarantees:
        if (line.adversary, line.kind) == ("server", "none"):
            assert line.unit in {unit for unit, *_ in played}
        elif line.adversary == "server":
            figure = played[line.unit, "server", line.delta]
            assert figure == pytest.approx(line.epsilon)
    assert pickle.loads(pickle.dumps(first)) == first


def test_every_system_is_represented() -> None:
    assert {config.name() for config in representatives()} == set(systems())


def test_audited_clients_answer_in_every_phase_of_a_sum() -> None:
    """If they refused, both inputs would look the same, and every system would pass."""
    chosen = games_of(fedldp.recipe("secure-aggregation-digits"))
    for game in {each.attacked: each for each in chosen}.values():
        attacked, keys = game.attacked, TrialKeys(bytes(32), game.attacked.real_arithmetic_only)
        dialogue, clients = attacked.server.dialogue, range(game.config.num_clients)
        assert dialogue is not None
        runtime = attacked.runtime(attacked.unchanged, keys)
        ask = game.view._asking(runtime, keys)
        (total,) = dialogue(ask, attacked.broadcast(1), clients, draws_of_seed(0)(1))
        assert total.weight == len(clients)


@pytest.mark.slow
def test_a_game_in_which_a_client_refuses_every_request_does_not_pass() -> None:
    (game, *_) = small_games(fedldp.recipe("quickstart"), "client-round")
    view = game.view
    view._requests[1] = game.attacked.request(game.config.rounds + 1)
    pair = game.pairs(AuditKeys(0))[0]
    with pytest.raises(RunError, match=r"refused all requests \(2 times wrong-round\)"):
        view.observe(pair.first, pair, TrialStreams(bytes(2 * KEY_BYTES), False))


@pytest.mark.slow
@pytest.mark.parametrize(("error", "fails"), [(TypeError, True), (ConfigError, False)])
def test_a_game_whose_server_step_fails_does_not_pass(error: type[Exception], fails: bool) -> None:
    """A step may refuse a single report; a step that raises any other error has a mistake."""
    (game, *_) = small_games(fedldp.recipe("quickstart"), "client-round")
    view, pair = game.view, game.pairs(AuditKeys(0))[0]

    def step(*given: Any) -> Any:
        raise error("first line\nsecond line")

    view.attacked.__dict__["estimate_of_sent"] = step
    draws = TrialStreams(bytes(2 * KEY_BYTES), False)
    if fails:
        with pytest.raises(
            RunError, match=r"step failed on all reports \(\d+ times TypeError: first"
        ):
            view.observe(pair.first, pair, draws)
    else:
        assert len(view.observe(pair.first, pair, draws)) == 2


def games(config: RunConfig) -> list[SenderGame]:
    found = planned_games(config, problem_of(config, None), QUICK)
    return [each for each in found if isinstance(each, SenderGame)]


def found(config: RunConfig, seed: int = 0) -> Any:
    (game,) = games(config)
    few = replace(game, effort=replace(QUICK, system_explore=60))
    (row,) = few.play(AuditKeys(seed), 0.999, 100)
    return row


@pytest.mark.slow
def test_a_seed_that_names_the_sender_is_found() -> None:
    row = found(changed(planted.shuffled, algorithm=planted.by(planted.NamesSender))())
    assert row.verdict == "bug"
    assert row.proven == 0 < row.lower


@pytest.mark.slow
def test_a_seed_that_is_kept_is_found_in_two_rounds() -> None:
    row = found(changed(planted.shuffled, algorithm=planted.by(planted.KeepsSeed))(rounds=2))
    assert row.verdict == "bug"
    assert "agree between rounds" in row.attack or "equal payloads" in row.attack


@pytest.mark.slow
def test_the_correct_twin_with_drawn_seeds_passes() -> None:
    row = found(planted.shuffled(rounds=2))
    assert (row.verdict, row.lower) == ("ok", 0)


# Runs with questions


ASKS: dict[str, dict[str, Any]] = {
    "evaluation": {"evaluation_share": 0.3},
    "shares": {"ask": ["shares"], "rounds": 1, "features": "none"},
}


def asking(**more: Any) -> RunConfig:
    given = {"channel": "named", "num_clients": 3, "model": "linear", "rounds": 6, **more}
    return fedldp.recipe("person-dp-sgd-digits", **given)


@pytest.mark.slow
@pytest.mark.parametrize("more", ASKS.values(), ids=ASKS)
def test_every_round_of_a_run_with_questions_can_be_attacked(more: dict[str, Any]) -> None:
    """The server tells equal weights and one edge before it has computed others."""
    config = asking(**more)
    attacked = harness.AttackedClient(config, problem_of(config, None), 0)
    cells = {attacked.sent_size}
    for round in range(1, config.rounds + 1):
        sums = attacked.sent(attacked.trained(attacked.unchanged, round))
        assert sums is not None
        cells.add(sums.size)
    assert len(cells) <= 2
    variances = [event[0].person.variance if hasattr(event[0], "person") else event[0].record
                 for event in attacked.events]  # fmt: skip
    assert len(variances) == len(config.composition.stages_of(config.rounds))
    if "evaluation_share" in more:
        assert len(set(variances)) == 3  # training, look and question have noise of their own


@pytest.mark.slow
@pytest.mark.parametrize("more", [ASKS[name] for name in ("evaluation", "shares")])
def test_games_on_a_run_with_questions_play_every_stage(more: dict[str, Any]) -> None:
    (game, *_) = small_games(asking(**more), "record")
    stages = game.config.composition.stages_of(game.config.rounds)
    assert all(set(stage) & set(game.rounds) for stage in stages)
