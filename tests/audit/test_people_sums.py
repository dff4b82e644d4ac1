"""Mistakes in sums over people are found by trials or by exact integers; correct sums pass."""

from __future__ import annotations

import itertools
from dataclasses import astuple, replace
from typing import Any

import planted_people as planted
import pytest
from planted import changed, small_games

import fedldp
from fedldp.algorithms import people
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.release import Release
from fedldp.algorithms.stages import stage_at, stages_of
from fedldp.audit.observations import AuditKeys
from fedldp.audit.playing import play
from fedldp.audit.system_checks import PeopleCheck
from fedldp.data.examples import Examples
from fedldp.simulation.plan import problem_of
from fedldp.simulation.settings import from_mapping
from fedldp.training import person_gradients, questions
from fedldp.training.person_gradients import PersonGradients


def problem(config: Any) -> Any:
    """Return the problem of the digits, as if they belonged to 700 persons."""
    return replace(problem_of(config, None), people=700)


def exactly(config: Any, shape: Problem | None = None) -> Any:
    """Return the row of the exact check, which meets each kind of round and weights in few
    trials."""
    check = PeopleCheck.of(config, shape or problem(config))
    assert check is not None
    (row,) = check.play(AuditKeys(0), 0.999, 40)
    return row


def played(config: Any, adversary: str = "server") -> Any:
    """Play the small game about persons in two rounds, with an honest server."""
    asked = small_games(config, "person", adversary=adversary, problem=problem(config))
    assert [(each.swap, each.rounds) for each in asked] == [("person", (1, 2))]
    return play("", asked, confidence=0.999, trials=150, seed=0)


RIGHT = planted.RightConfig
STAGED = {
    "model": "linear", "features": "unit-norm", "rounds": 6, "server_optimizer": "none",
    "measure_share": 0.1, "intercept_share": 0.05,
}  # fmt: skip
ROWS_CLIPPED = changed(RIGHT, sums=planted.RowsClipped)
PRIVATE_DIVISOR = changed(RIGHT, sums=planted.PrivateDivisor)
NO_NOISE = changed(RIGHT, noise=planted.NoNoise)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "channel", "adversary"),
    [
        (ROWS_CLIPPED, "named", "server"),
        (PRIVATE_DIVISOR, "sum", "server"),
        (NO_NOISE, "sum", "server"),
        (NO_NOISE, "central", "downlink"),
        (ROWS_CLIPPED, "central", "downlink"),
    ],
)
def test_mistakes_are_found_by_trials(wrong: Any, channel: str, adversary: str) -> None:
    found = played(wrong(**planted.settings(channel)), adversary)
    assert found.verdict == "bug"
    assert found.rows[0].unit == "person"
    assert found.rows[0].proven == pytest.approx(1.5, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("channel", "adversary"),
    [("sum", "summing-server"), ("central", "downlink")],
)
def test_the_correct_sums_pass_against_every_adversary(channel: str, adversary: str) -> None:
    assert played(RIGHT(**planted.settings(channel)), adversary).verdict == "ok"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("parts", "settings", "said"),
    [
        ({"sums": planted.FloatSums}, {}, "the sum of what each person gives alone"),
        ({"sums": planted.FloatClip}, {}, "times as long as the noise allows for"),
        ({"sums": planted.RowsClipped}, {}, "one person moves the sum by"),
        ({"gradients": planted.RowsSampled}, {"sample_rate": 0.5}, "some of a person's rows"),
    ],
    ids=str,
)
def test_mistakes_that_no_trial_shows_are_found_exactly(
    parts: dict[str, Any], settings: dict[str, Any], said: str
) -> None:
    row = exactly(changed(RIGHT, **parts)(**planted.settings(**settings)))
    assert row.verdict == "bug"
    assert said in row.attack
    assert row.proven == 0


@pytest.mark.slow
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
    right = PersonGradients._rows
    monkeypatch.setattr(
        PersonGradients,
        "_rows",
        lambda self, weights, examples, *more: right(self, weights, wrong(examples), *more),
    )
    row = exactly(RIGHT(**planted.settings(rounds=4, evaluation_share=0.3)))
    assert row.verdict == ("bug" if said else "ok")
    assert said in row.attack


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "wrong", "said"),
    [
        ("column_sums", lambda right: lambda *given: right(*given) * 2, "times"),
        (
            "ColumnMap",
            lambda right: type(
                "OfOwnRows",
                (right,),
                {"__call__": lambda self, rows: right(own_means(rows), self.scale)(rows)},
            ),
            "the sum of what each person gives alone",
        ),
    ],
)
def test_mistakes_in_a_measuring_or_a_mapped_round_are_found(
    monkeypatch: pytest.MonkeyPatch, name: str, wrong: Any, said: str
) -> None:
    monkeypatch.setattr(person_gradients, name, wrong(getattr(person_gradients, name)))
    row = exactly(RIGHT(**planted.settings(**STAGED)))
    assert row.verdict == "bug"
    assert said in row.attack


def quiet_in(monkeypatch: pytest.MonkeyPatch, kind: str, noise: Any) -> None:
    """Plant noise in one kind of stage, at clients and at a trusted server."""
    of_client, of_server = Release.at, people.PerPersonRun.noise_at

    def at(release: Any, round: int) -> Any:
        found = of_client(release, round)
        own = release.mechanisms and (
            stage_at(stages_of(release.bound.known.settings), round).kind == kind
        )
        return replace(found, mechanism=noise(*astuple(found.mechanism))) if own else found

    def noise_at(run: Any, size: int, round: int) -> Any:
        found = of_server(run, size, round)
        own = stage_at(stages_of(run.settings), round).kind == kind
        return noise(*astuple(found)) if own else found

    monkeypatch.setattr(Release, "at", at)
    monkeypatch.setattr(people.PerPersonRun, "noise_at", noise_at)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("channel", "kind"),
    [
        *itertools.product(["named"], ["measure", "train", "intercept", "look", "question"]),
        ("sum", "question"),
        ("central", "look"),
        ("central", "measure"),
    ],
)
def test_half_the_noise_in_any_stage_is_found_exactly(
    monkeypatch: pytest.MonkeyPatch, channel: str, kind: str
) -> None:
    more = {**STAGED, "rounds": 8, "evaluation_share": 0.2}
    quiet_in(monkeypatch, kind, planted.HalfNoise)
    config = planted.person_dp_sgd(**planted.settings(channel, **more))
    row = exactly(config)
    assert row.verdict == "bug"
    assert "times the stated variance" in row.attack


@pytest.mark.slow
@pytest.mark.parametrize(
    ("channel", "more"),
    [("sum", {}), ("named", {"held_out_people": 0.3}), ("central", {"sample_rate": 0.5})],
)
def test_half_the_noise_in_all_rounds_is_found_exactly(channel: str, more: dict[str, Any]) -> None:
    config = changed(RIGHT, noise=planted.HalfNoise)(**planted.settings(channel, **more))
    assert "times the stated variance" in exactly(config).attack


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "swap"), [("question", "label"), ("look", "record")])
def test_no_noise_in_a_question_is_found_by_trials(
    monkeypatch: pytest.MonkeyPatch, kind: str, swap: str
) -> None:
    """The server's step changes no weights after a question, but its counts are seen."""
    quiet_in(monkeypatch, kind, planted.NoNoise)
    settings = planted.settings(rounds=6, model="linear", evaluation_share=0.3)
    config = planted.person_dp_sgd(**settings)
    games = small_games(config, "record", adversary="server")
    (game,) = (each for each in games if each.swap == swap)
    assert play("", [game], confidence=0.999, trials=60, seed=0).verdict == "bug"


def own_means(examples: Examples) -> Any:
    return examples.features.reshape(len(examples), -1)[:, :-1].mean(axis=0, dtype=float)


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        {"held_out_people": 0.3},
        {"sample_rate": 0.5},
        STAGED,
        {**STAGED, "channel": "central"},
        {**STAGED, "channel": "sum"},
    ],
)
def test_every_setting_of_the_correct_sums_is_exact(more: dict[str, Any]) -> None:
    row = exactly(RIGHT(**planted.settings(**more)))
    assert (row.verdict, row.note) == ("ok", "exact: bit for bit the same")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("channel", "planted_in", "classes"),
    [
        ("named", None, 1), ("sum", None, 2), ("central", None, 3), ("named", "log_odds", 2),
        ("sum", "predicted", 1), ("central", "summed_shares", 3),
    ],
)  # fmt: skip
def test_questions_of_an_evaluation_are_exact_whatever_edges_are_told(
    monkeypatch: pytest.MonkeyPatch, channel: str, planted_in: str | None, classes: int
) -> None:
    more = {**STAGED, "rounds": 8, "evaluation_share": 0.2, "class_weights": None}
    more |= {"label_range": [0.0, 60.0]} if classes == 1 else {}
    config = fedldp.recipe("person-dp-sgd-digits", channel=channel, num_clients=3, **more)
    of_classes = replace(problem(config), num_classes=classes)
    if planted_in is not None:
        right = getattr(questions, planted_in)
        wrong = {
            # of each row among the others
            "log_odds": lambda logits, label: right(logits, label) - right(logits, label).mean(),
            "predicted": lambda rows: right(rows) - right(rows).mean(),
            "summed_shares": lambda *given: 2 * right(*given),
        }
        monkeypatch.setattr(questions, planted_in, wrong[planted_in])
    row = exactly(config, of_classes)
    assert row.verdict == ("ok" if planted_in is None else "bug"), row.attack


@pytest.mark.slow
@pytest.mark.parametrize("channel", ["named", "sum", "central"])
def test_questions_about_a_table_are_exact(channel: str) -> None:
    columns = {"edges": {"age": [-1.0, 0.0, 1.0]}, "categories": {"sex": ["f", "m"]}}
    config = from_mapping(
        {"system": "person_dp_sgd", "dataset": "x.csv", "model": "linear", "learning_rate": 1.0,
         "rounds": 1, "num_clients": 3, "epsilon": 1.0, "channel": channel, "person_column": "who",
         "ask": ["shares", "age", "sex"], **columns}
    )  # fmt: skip
    names = ("age", "sex=f", "sex=m")
    table = Problem((3,), 3, 900, num_clients=3, features=names, people=700)
    row = exactly(config, table)
    assert row.verdict == "ok", row.attack
