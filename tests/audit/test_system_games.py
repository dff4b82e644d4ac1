"""The games of systems find planted mistakes at 99.9 %, and refute published claims."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import planted_systems
import pytest

import fedldp
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.systems import systems
from fedldp.audit import harness
from fedldp.audit.efforts import QUICK
from fedldp.audit.observations import TrialStreams
from fedldp.audit.plans import planned_games, representatives
from fedldp.audit.playing import play
from fedldp.audit.systems import PlannedSystemGame
from fedldp.core.errors import ConfigError, RunError
from fedldp.core.randomness import KEY_BYTES
from fedldp.protocol.keys import TrialKeys, draws_of_seed
from fedldp.simulation.plan import plan, problem_of

CONFIDENCE = 0.999


def games_of(config: RunConfig, chosen: Callable[[Any], bool]) -> list[Any]:
    found = planned_games(config, problem_of(config, None), QUICK)
    return [each for each in found if isinstance(each, PlannedSystemGame) and chosen(each)]


def small(unit: str, how: str = "") -> Callable[[Any], bool]:
    """Choose the small games about a unit, with an honest server or with a given dishonest one."""
    return lambda q: (
        q.setting.startswith("small")
        and q.unit == unit
        and (how in q.game.apart if how else not q.game.apart)
    )


def audited(config: RunConfig, chosen: Callable[[Any], bool]) -> Any:
    games = games_of(config, chosen)
    assert games
    return play("", games, confidence=CONFIDENCE, trials=None, seed=0)


# Where each mistake shows.
BUGS: list[tuple[type[RunConfig], str, str]] = [
    (planted_systems.NoClipConfig, "client-round", ""),
    (planted_systems.CountToldConfig, "client-round", ""),
    (planted_systems.RefusalTellsConfig, "client-round", ""),
    (planted_systems.SameNoiseConfig, "client-run", ""),
    (planted_systems.HalfNoiseConfig, "client-round", ""),
    (planted_systems.RemembersConfig, "client-round", ""),
    (planted_systems.LessAndLessConfig, "client-round", "round 12 only"),
    (planted_systems.ToldHowMuchConfig, "client-round", "multiplied by 16"),
    (planted_systems.UnclippedStatisticsConfig, "client-round", ""),
    (planted_systems.DoubledStatisticsConfig, "client-round", ""),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cls", "unit", "how"), [pytest.param(*bug, id=bug[0].__name__) for bug in BUGS]
)
def test_a_planted_mistake_of_a_system_is_found(cls: type[RunConfig], unit: str, how: str) -> None:
    found = audited(cls.model_validate({}), small(unit, how))
    assert found.verdict == "bug"
    assert found.confidence == CONFIDENCE


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    ["", "every request sent twice", "round 12 only", "multiplied by 16"],
)
def test_the_correct_system_passes(how: str) -> None:
    right = planted_systems.RightConfig(rounds=12)
    assert audited(right, small("client-round", how)).verdict == "ok"


@pytest.mark.slow
def test_one_bit_that_is_requested_again_is_the_same_bit() -> None:
    """A site's ledger keeps what it sent; a refusal in its place would reveal that."""
    assert (
        audited(
            planted_systems.OneBitConfig(), small("client-round", "every request sent twice")
        ).verdict
        == "ok"
    )


def of_statistics(cls: type[RunConfig], seed: int, trials: int) -> Any:
    few = replace(QUICK, system_explore=40)
    games = [replace(each, effort=few) for each in games_of(cls(), small("client-round"))]
    return play("", games, confidence=CONFIDENCE, trials=trials, seed=seed)


@pytest.mark.slow
def test_unclipped_statistics_are_found_in_few_trials() -> None:
    found = of_statistics(planted_systems.UnclippedStatisticsConfig, 0, 200)
    assert found.verdict == "bug"
    assert found.rows[0].proven == pytest.approx(1.5, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_clipped_statistics_pass(seed: int) -> None:
    assert of_statistics(planted_systems.StatisticsConfig, seed, 200).verdict == "ok"


def several_rounds(cls: type[RunConfig], seed: int, trials: int) -> Any:
    few = replace(QUICK, system_explore=40)
    games = [replace(each, effort=few) for each in games_of(cls(), small("client-run"))]
    return play("", games, confidence=CONFIDENCE, trials=trials, seed=seed)


@pytest.mark.slow
def test_a_client_that_answers_twice_instead_of_once_is_found() -> None:
    found = several_rounds(planted_systems.OnceToldTwiceConfig, 0, 300)
    assert found.verdict == "bug"
    assert found.rows[0].proven == pytest.approx(1.5, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_a_client_that_answers_once_passes(seed: int) -> None:
    assert several_rounds(planted_systems.OnceConfig, seed, 300).verdict == "ok"


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
    found = audited(
        planted_systems.RightConfig(), small("client-round", "every request sent twice")
    )
    assert found.rows[0].lower > found.rows[0].proven  # two answers for the price of one
    assert found.verdict == "bug"


# Published claims


# Which games there are


@pytest.fixture(scope="module")
def all_games() -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for config in representatives():
        games = planned_games(config, problem_of(config, None), QUICK)
        own = [each for each in games if isinstance(each, PlannedSystemGame)]
        found.setdefault(config.name(), []).append(own)
    return found


@pytest.mark.slow
def test_every_system_has_a_game_for_each_line_against_its_server(
    all_games: dict[str, list[Any]],
) -> None:
    assert set(all_games) == set(systems())
    for variants in all_games.values():
        for found in variants:
            game = found[0].game
            assert found[0].setting.startswith("as configured")
            lines = plan(game.config, game.problem).privacy["guarantees"]
            played = {
                (each.unit, delta)
                for each in found
                if each.setting == found[0].setting
                for delta in each.deltas
            }
            for line in lines:
                if line["adversary"] != "server":
                    continue
                if line["kind"] == "none":
                    assert line["unit"] in {unit for unit, _ in played}
                else:
                    assert (line["unit"], line["delta"]) in played


@pytest.mark.slow
def test_other_adversaries_are_played_where_a_system_has_them(
    all_games: dict[str, list[Any]],
) -> None:
    against = {
        name: {each.game.adversary for found in variants for each in found}
        for name, variants in all_games.items()
    }
    assert "summing-server" in against["distributed_gaussian"]
    assert "shuffled-server" in against["ldp_fl"]
    assert "downlink" in against["central_dp"]


@pytest.mark.slow
def test_figures_are_those_of_the_statement(all_games: dict[str, list[Any]]) -> None:
    (planned,) = [
        each
        for each in all_games["ldp_fl"][0]
        if (each.setting, each.unit) == ("as configured", "client-round")
    ]
    assert planned.deltas == (0.0, 1e-5)
    assert planned.proven == pytest.approx((650.0, 393.1976081019369))
    assert planned.claimed == (1.0, 1.0)
    assert pickle.loads(pickle.dumps(planned)) == planned


@pytest.mark.slow
def test_the_seed_decides_and_the_number_of_processes_does_not() -> None:
    config = fedldp.recipe("fedavg-digits")
    games = games_of(config, lambda q: q.unit == "client-round")

    def bounds(seed: int) -> list[float]:
        return [row.lower for row in play("", games, confidence=0.9, trials=40, seed=seed).rows]

    assert bounds(1) == bounds(1)
    assert bounds(1)[0] > 0


def test_audited_clients_answer_in_every_phase_of_a_sum() -> None:
    """If they refused, both inputs would look the same, and every system would pass."""
    chosen = games_of(fedldp.recipe("secure-aggregation-digits"), lambda game: True)
    for game in {each.game.attacked: each.game for each in chosen}.values():
        attacked, keys = game.attacked, TrialKeys(bytes(32), game.attacked.real_arithmetic_only)
        dialogue, clients = attacked.server.dialogue, range(game.config.num_clients)
        assert dialogue is not None
        runtime = attacked.runtime(attacked.unchanged, keys)
        ask = game.view._asking(runtime, keys)
        (total,) = dialogue(ask, attacked.broadcast(1), clients, draws_of_seed(0)(1))
        assert total.weight == len(clients)


@pytest.mark.slow
def test_a_game_in_which_a_client_refuses_every_request_does_not_pass() -> None:
    (game, *_) = games_of(fedldp.recipe("ldp-fl-digits"), small("client-round"))
    view = game.game.view
    view._requests[1] = game.game.attacked.request(game.game.config.rounds + 1)
    pair = game.game.pairs()[0]
    with pytest.raises(RunError, match=r"refused all requests \(2 times wrong-round\)"):
        view.observe(pair.first, pair, TrialStreams(bytes(2 * KEY_BYTES), False))


@pytest.mark.slow
@pytest.mark.parametrize(("error", "fails"), [(TypeError, True), (ConfigError, False)])
def test_a_game_whose_server_step_fails_does_not_pass(error: type[Exception], fails: bool) -> None:
    """A step may refuse a single report; a step that raises any other error has a mistake."""
    (game, *_) = games_of(fedldp.recipe("ldp-fl-digits"), small("client-round"))
    view, pair = game.game.view, game.game.pairs()[0]

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
