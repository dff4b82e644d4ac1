"""What people are asked in a run: counts with intervals, and an evaluation of the model."""

from __future__ import annotations

import io
import math
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs_of_people import private, run_over_people, told_of
from sklearn.metrics import brier_score_loss, roc_auc_score

import fedldp
from benchmarks.evaluation_coverage import SETTINGS, WORLDS, coverage
from fedldp.algorithms.evaluation import (
    GRID,
    MOST_BANDS,
    Look,
    OfClasses,
    bands_for,
    evaluated,
)
from fedldp.algorithms.people import SCORE
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.stages import ClassShares, shares_of, stages_of
from fedldp.core.kinds import CLASS_COUNT_NOISE, HELD_OUT, TRAINED_ON
from fedldp.protocol.roles import HALF_WIDTH, PRIVATELY
from fedldp.protocol.server_loop import means_of
from fedldp.reporting import words
from fedldp.reporting.scores import asked_figures
from fedldp.reporting.text import Terminal
from fedldp.simulation.engine import simulate
from fedldp.simulation.plan import plan
from fedldp.simulation.settings import from_mapping
from fedldp.training.answers import Answer, is_seen, mean_of
from fedldp.training.column_sums import BLOCK, SHIFT
from fedldp.training.questions import ASKED

PROBLEM = Problem((8,), 2, 1500, None, 5)
ROOT = Path(__file__).parents[2]


def config_of(**settings: Any) -> Any:
    return run_over_people(**settings)


def world(number: int, seed: int = 0, constant: float = -2.4) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(number, 8)) / 3
    odds = constant + 4 * x[:, 0] + 3 * x[:, 1]
    return x.astype(np.float32), (generator.random(number) < 1 / (1 + np.exp(-odds))).astype(int)


# The study's configurations


def test_only_runs_that_ask_for_counts_have_another_version() -> None:
    """A run whose results stay the same keeps its digest: all of the study's do."""
    for path in (ROOT / "study").glob("people-*.toml"):
        found = tomllib.loads(path.read_text(encoding="utf-8"))
        for entry in found["contestants"].values():
            if entry["system"] != "person_dp_sgd":
                continue
            made = from_mapping(
                {"epsilon": 1.0, "num_clients": 10, **found["set"], **entry["set"],
                 **entry["grid"][0], "system": entry["system"]}
            )  # fmt: skip
            assert "version" not in made.identity()
    assert "version" not in config_of(measure_share=0.1).identity()
    for version, more in (
        (2, {"held_out_people": 0.1}),
        (2, {"evaluation_share": 0.1}),
        (2, {"ask": ["shares"], "rounds": 1}),
        (3, {"ask": ["evaluation"], "rounds": 2}),
    ):
        assert config_of(**more).identity()["version"] == version


# Shares of classes


@pytest.mark.parametrize("channel", ["named", "sum", "central"])
def test_shares_that_are_not_seen_set_no_start(channel: str) -> None:
    """Shares within the noise once gave a share of 0.01, and a model of one class."""
    x, y = world(1_000)
    data = fedldp.Dataset.from_arrays(x, y)
    common = {"channel": channel, "rounds": 4, "epsilon": 0.25, "measure_share": 0.2}
    for declared, used in ((None, [0.5, 0.5]), ([0.8, 0.2], [0.8, 0.2])):
        made = config_of(**common, class_shares=declared)
        found = simulate(made, dataset=data)
        share, half = private(found.metrics, "share of class 1")
        assert share is None
        (note,) = CLASS_COUNT_NOISE.among(found.privacy.warnings)
        assert half > 0.8 * note.values["half_width"] > 0.16 / 3 * 1.96
        told = ClassShares(np.array([0.9, 0.04]), 0.1).usable(shares_of(made, 2))
        assert told == pytest.approx(used)
        assert "share of class 1 not seen ±" in words.asked(found.metrics, ())[1]


@pytest.mark.slow
@pytest.mark.parametrize("channel", ["named", "sum", "central"])
def test_intervals_of_measured_shares_cover_the_noise_and_who_was_asked(channel: str) -> None:
    """Those of the noise are known before the run; with little noise, chance is nearly all."""
    x, y = world(3_000)
    people = 2_400  # a fifth is held out
    for epsilon in (2.0, 1000.0):
        made = config_of(channel=channel, rounds=4, epsilon=epsilon, measure_share=0.2)
        held = 0
        for seed in range(5):
            found = simulate(made.changed(seed=seed), dataset=fedldp.Dataset.from_arrays(x, y))
            share, half = private(found.metrics, "share of class 1")
            (note,) = CLASS_COUNT_NOISE.among(found.privacy.warnings)
            noise = note.values["half_width"]
            held += abs(share - y.mean()) <= half
            chance = 1.96 * math.sqrt(share * (1 - share) / people)
            # Of one count among both: the noise of each, times its derivative; their sum is noisy.
            noise *= math.hypot(share, 1 - share)
            assert half == pytest.approx(math.hypot(noise, chance), rel=0.05)
            assert epsilon == 2.0 or half == pytest.approx(chance, rel=0.01)
        assert held >= 4


def test_an_account_says_how_far_noise_moves_shares_that_are_counted() -> None:
    (note,) = CLASS_COUNT_NOISE.among(
        plan(config_of(measure_share=0.2, epsilon=0.1), PROBLEM).privacy.warnings
    )
    assert note.values["least"] == pytest.approx(note.values["half_width"] * 3 / 1.96)
    assert "class shares are counted to within" in words.line(note)


# Held-out people


@pytest.mark.parametrize("channel", ["named", "sum", "central"])
def test_the_accuracy_on_held_out_people_has_an_interval(channel: str) -> None:
    x, y = world(4_000, constant=0.0)
    made = config_of(channel=channel, held_out_people=0.3, epsilon=8.0)
    found = simulate(made, dataset=fedldp.Dataset.from_arrays(x, y, test=world(5_000, 1, 0.0)))
    value, half = private(found.metrics, SCORE)
    assert abs(value - found.rounds[-2].accuracy) < 1.5 * half + 0.02
    assert found.rounds[-1].metrics[PRIVATELY + SCORE] == value
    (figure,) = asked_figures(found.metrics)
    assert (figure.metric, figure.rows, figure.baseline) == ("accuracy", "covered", None)


def test_a_figure_is_not_seen_below_three_deviations_of_its_noise() -> None:
    assert not is_seen(np.array([10.0, 19.9]), 10 / math.sqrt(2))
    assert is_seen(np.array([10.0, 20.1]), 10 / math.sqrt(2))
    hidden = Answer.of("AUC", math.nan, 1.0)
    assert (hidden.value, hidden.half_width) == (None, 1.0)


def test_a_mean_has_the_deviation_of_its_counts_and_its_noise() -> None:
    generator = np.random.default_rng(0)
    truth, noise = np.array([0.1, 0.3, 0.6]), 12.0
    values = np.array([0.0, 0.5, 1.0])
    found = [
        mean_of(values, generator.multinomial(500, truth) + generator.normal(0, noise, 3), noise)
        for _ in range(4_000)
    ]
    means, deviations = map(np.array, zip(*found, strict=True))
    assert means.mean() == pytest.approx(values @ truth, abs=1e-3)
    assert means.std() == pytest.approx(deviations.mean(), rel=0.03)


def test_private_figures_are_those_of_the_last_round_and_never_without_an_interval() -> None:
    name = PRIVATELY + "AUC"
    rounds = [{"drift": 1.0, name: 0.7, name + HALF_WIDTH: 0.1}, {"drift": 3.0}]
    assert means_of(rounds) == {"drift": 2.0, name: 0.7, name + HALF_WIDTH: 0.1}
    rounds.append({name + HALF_WIDTH: 0.5})
    assert means_of(rounds) == {"drift": 2.0, name + HALF_WIDTH: 0.5}
    assert words.asked(means_of(rounds), ()) == ["AUC not seen ± 0.5"]
    assert words.own_metrics(means_of(rounds)) == ["drift 2"]
    (figure,) = asked_figures(means_of(rounds))
    assert (figure.value, figure.interval, figure.doubts) == (None, None, (TRAINED_ON,))


# Evaluation


def test_an_evaluation_is_two_stages_at_the_end_with_shares_of_their_own() -> None:
    made = config_of(evaluation_share=0.1, measure_share=0.2, intercept_share=0.05)
    found = {stage.kind: (str(stage.share), len(stage.rounds)) for stage in stages_of(made)}
    assert found == {
        "measure": ("1/5", 1),
        "train": ("13/20", 6),
        "intercept": ("1/20", 3),
        "look": ("1/50", 1),
        "question": ("2/25", 1),
    }
    assert [stage.rounds[0] for stage in stages_of(made)][-2:] == [11, 12]


@pytest.mark.parametrize("channel", ["named", "sum", "central"])
def test_an_evaluation_costs_nothing_beside_its_share(channel: str) -> None:
    def lines(**more: Any) -> dict[Any, float]:
        found = plan(config_of(channel=channel, epsilon=1.0, **more), PROBLEM).privacy.guarantees
        return {(line.unit, line.adversary): line.epsilon for line in found if line.epsilon}

    with_it, without = lines(evaluation_share=0.1), lines()
    assert with_it.keys() == without.keys()
    for key, epsilon in with_it.items():
        assert 0.998 * without[key] < epsilon < 1.002 * without[key]
    assert max(with_it.values()) >= 0.999


def test_without_noise_the_figures_are_those_of_scores_rounded_to_bands() -> None:
    """Compared with scikit-learn, on scores of which each band has one value."""
    generator = np.random.default_rng(3)
    y = (generator.random(20_000) < 0.2).astype(int)
    score = np.round(generator.normal(1.2 * y - 1.5, 1.0), 1) + 0.05
    edges = np.round(np.arange(-5.0, 4.0, 0.1), 1)
    band = np.searchsorted(edges, score, side="right")
    counts = np.stack([np.bincount(band[y == k], minlength=edges.size + 1) for k in (0, 1)])
    look = np.bincount(np.searchsorted(GRID, score, side="right"), minlength=len(GRID) + 1)
    found = {
        each.name: each for each in evaluated(counts.astype(float), 0.0, edges, Look(look, 0.0))
    }
    risk = 1 / (1 + np.exp(-score))
    assert found["AUC"].value == pytest.approx(roc_auc_score(y, score), abs=1e-12)
    assert found["Brier score"].value == pytest.approx(brier_score_loss(y, risk), abs=1e-3)
    assert found["observed share of class 1"].value == pytest.approx(y.mean())
    assert found["mean prediction"].value == pytest.approx(risk.mean(), abs=5e-3)
    predicted = risk >= 0.5
    balanced = (predicted[y == 1].mean() + (~predicted[y == 0]).mean()) / 2
    assert found["balanced accuracy at 0.5"].value == pytest.approx(balanced, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("kind", WORLDS)
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_intervals_hold_the_truth(kind: str, setting: Any) -> None:
    """The benchmark asks for 0.92 with 1,000 draws; with 150, chance alone moves it by 0.02."""
    found = coverage(kind, setting, 150)
    for name, (_, held, _) in found.items():
        assert held >= 0.87, name
    assert np.mean([held for _, held, _ in found.values()]) > 0.92
    assert ("shift of the log odds" in found) == (setting[1] >= 0.1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("channel", "more"),
    [("named", {}), ("sum", {"measure_share": 0.1, "intercept_share": 0.05}), ("central", {})],
)
def test_the_model_that_is_saved_is_evaluated(channel: str, more: dict[str, Any]) -> None:
    """Not the last round's: these weights are averaged, and their columns are mapped back."""
    x, y = world(12_000)
    data = fedldp.Dataset.from_arrays(x, y, test=world(20_000, 1))
    made = config_of(channel=channel, evaluation_share=0.2, rounds=14, epsilon=8.0, **more)
    result = simulate(made, dataset=data)
    risk = result.predict_proba(x)[:, 1]
    for name, truth in (
        ("AUC", roc_auc_score(y, risk)),
        ("mean prediction", risk.mean()),
        ("observed share of class 1", y.mean()),
        ("Brier score", brier_score_loss(y, risk)),
    ):
        value, half = private(result.metrics, name)
        assert abs(value - truth) < 1.3 * half, name
        assert half < 0.025, name
    assert result.rounds[-1].auc == result.rounds[-3].auc  # the model stays as it is
    figures = {each["metric"]: each for each in result.summary()["figures"]
               if each["rows"] == "covered"}  # fmt: skip
    assert figures["auc"]["interval"][0] < figures["auc"]["value"] < figures["auc"]["interval"][1]
    assert [each["kind"] for each in figures["auc"]["doubts"]] == ["trained-on"]


def test_a_model_with_other_parts_is_evaluated_too() -> None:
    """Any model and optimiser will do, with class weights, for two classes."""
    x, y = world(2_000)
    made = config_of(
        evaluation_share=0.3, model="mlp_64", features="none", server_optimizer="momentum",
        class_weights=[0.5, 3.0], rounds=6, epsilon=20.0, learning_rate=1.0,
    )  # fmt: skip
    result = simulate(made, dataset=fedldp.Dataset.from_arrays(x, y))
    risk = result.predict_proba(x)[:, 1]
    value, half = private(result.metrics, "AUC")
    assert abs(value - roc_auc_score(y, risk)) < 1.3 * half


def test_a_small_model_has_room_for_the_cells_of_a_question() -> None:
    release = config_of(evaluation_share=0.1).algorithm(PROBLEM).release(0)
    (look,), (by_band,) = OfClasses(2).look, OfClasses(2).tables
    assert release.coordinates == max(look.cells, by_band.cells) > release.size


@pytest.mark.parametrize("counts", [np.zeros(len(GRID) + 1), -np.ones(len(GRID) + 1)])
def test_bands_exist_whatever_the_noise_made_of_the_look(counts: Any) -> None:
    edges = Look(counts, 100.0).edges(MOST_BANDS, 0.1)
    assert np.isfinite(edges).all()
    assert 0 < edges.size <= MOST_BANDS
    assert (np.diff(edges) > 0).all()


@pytest.mark.parametrize("cell", [0, -1])
def test_a_model_that_is_sure_of_everybody_has_figures_too(cell: int) -> None:
    counts = np.zeros(len(GRID) + 1)
    counts[cell] = 1000
    look = Look(counts, 1.0)
    edges = look.edges(8, 0.5)
    by_label = np.full((2, edges.size + 1), 60.0)
    found = evaluated(by_label, 1.0, edges, look)
    assert all(each.value is None or math.isfinite(each.value) for each in found)
    assert all(math.isfinite(each.half_width) for each in found)


def test_more_people_and_less_noise_have_more_bands() -> None:
    assert bands_for(100, 0.1, 50.0) == 8
    assert bands_for(12_000, 0.13, 10.0) < bands_for(100_000, 0.13, 10.0) <= MOST_BANDS


def test_shares_and_columns_are_those_of_people_who_answer_at_several_sites() -> None:
    """All 1,500 are at each of three sites, where 20 % are of class 1, and all columns are 0.1."""
    own = {"dataset": "x.csv", "client_column": "site", "person_column": "who"}
    made = config_of(
        epsilon=20.0, num_clients=3, channel="named", persons_at_sites=3, measure_share=0.5,
        rounds=2, server_optimizer="none", **own,
    )  # fmt: skip
    algorithm = made.algorithm(replace(PROBLEM, num_examples=3_000, num_clients=3, people=1_500))
    sums = np.r_[1_200.0, 300.0, np.full(8, 150.0)] * BLOCK
    state, metrics = told_of(algorithm, [sums] * 3)
    share, half = private(metrics, "share of class 1")
    assert share is not None
    assert abs(share - 0.2) < 2 * half < 0.05
    assert state.arrays[SHIFT] == pytest.approx(np.full(8, 0.1), abs=0.01)


@pytest.mark.parametrize(("at_sites", "answered"), [(3, 3), (1, 1), (3, 2)])
def test_intervals_hold_if_people_answer_at_several_sites_or_sites_do_not(
    at_sites: int, answered: int
) -> None:
    """Of three sites; each person's label is the same wherever the person answers."""
    own = {"dataset": "x.csv", "client_column": "site", "person_column": "who"}
    settings = {"rounds": 1, "epsilon": 20.0, "num_clients": 3, "channel": "named", **own}
    made = config_of(ask=["shares"], persons_at_sites=at_sites, **settings)
    algorithm = made.algorithm(replace(PROBLEM, num_examples=3_000, num_clients=3, people=1_500))
    generator, held = np.random.default_rng(0), []
    people = 500 * at_sites  # at each site: all of them, or a third
    for number in range(300):
        ill = generator.binomial(people, 0.2, 3)
        there = [ill[0 if at_sites == 3 else site] for site in range(answered)]
        counts = [np.array([people - each, each]) * ASKED for each in there]
        share, half = private(told_of(algorithm, counts, number)[1], "share of class 1")
        assert share is not None
        held.append(abs(share - 0.2) <= half)
    assert np.mean(held) > 0.92


@pytest.mark.parametrize(
    ("times", "sites", "seen"),
    [(0.01, 1, False), (1, 1, True), (100, 1, False), (3, 1, False), (3, 3, True)],
)
def test_no_figure_is_seen_if_the_number_of_people_is_stated_wrongly(
    times: float, sites: int, seen: bool
) -> None:
    """A sum of a hundred times as many people as stated wraps; its counts would be anything."""
    made = config_of(ask=["shares"], rounds=1, epsilon=2.0, num_clients=sites, channel="named")
    stated = replace(PROBLEM, num_examples=round(3_000 / times), num_clients=sites)
    if sites > 1:  # each person is at every site, and answers there
        own = {"dataset": "x.csv", "client_column": "site", "person_column": "who"}
        made = made.changed(**own, persons_at_sites=sites)
        stated = replace(stated, people=stated.num_examples)
    counts = np.array([2_500.0, 500.0]) * ASKED / sites
    _, metrics = told_of(made.algorithm(stated), [counts])
    share, _ = private(metrics, "share of class 1")
    assert (share is not None) == seen


def at_clients(people: int, clients: int) -> Problem:
    return replace(PROBLEM, num_examples=people, num_clients=clients)


@pytest.mark.parametrize("clients", [1, 10])
def test_a_single_table_tells_nothing_if_far_more_people_answer_than_stated(clients: int) -> None:
    """Nothing else would show that a sum did not fit: 13 % of class 1 was once told as 96 %."""
    made = config_of(rounds=1, num_clients=clients, ask=["shares"], channel="named")
    for epsilon, people in ((0.5, 20_000), (1.0, 5_000), (2.0, 12_000), (8.0, 20_000)):
        algorithm = made.changed(epsilon=epsilon).algorithm(at_clients(people, clients))
        for times in (1, 10, 100):
            counts = np.array([0.87, 0.13]) * people * times / clients * ASKED
            _, told = told_of(algorithm, [counts] * clients, people)
            share, _ = private(told, "share of class 1")
            assert (share is not None) == (times == 1), (epsilon, people)


@pytest.mark.parametrize("times", [0.01, 0.6, 1.09, 1.9, 30])
def test_shares_are_of_all_who_answered_however_many_were_stated(times: float) -> None:
    """A number that was rounded down by 9 % once made 50 % of a class 55 %, +- 3 %."""
    counts = np.array([0.5, 0.5]) * 3_000 * times / 3 * BLOCK
    made = config_of(epsilon=20.0, num_clients=3, measure_share=0.5, rounds=2, channel="named")
    _, told = told_of(made.algorithm(at_clients(3_000, 3)), [counts] * 3)
    share, _ = private(told, "share of class 1")
    if 0.5 < times < 2:
        assert share == pytest.approx(0.5, abs=0.01)
    else:
        assert share is None


@pytest.mark.parametrize("answered", [10, 5, 2])
@pytest.mark.parametrize(
    "more",
    [
        {"measure_share": 0.5, "rounds": 2},
        {"ask": ["shares"], "rounds": 1},
    ],
    ids=str,
)
def test_an_interval_is_wider_if_fewer_clients_answer(more: dict[str, Any], answered: int) -> None:
    """It covers the chance of who was asked; where all answered, the people of all clients were."""
    scale = BLOCK if "measure_share" in more else ASKED
    counts = np.array([0.8, 0.2]) * 300 * scale
    made = config_of(epsilon=1_000.0, num_clients=10, channel="named", **more)
    _, told = told_of(made.algorithm(at_clients(3_000, 10)), [counts] * answered)
    _, half = private(told, "share of class 1")
    assert half == pytest.approx(1.96 * math.sqrt(0.8 * 0.2 / (300 * answered)), rel=0.02)


@pytest.mark.parametrize("times", [2, 30, 100])
def test_no_wrong_figure_is_told_however_many_more_people_answer_than_stated(times: int) -> None:
    """Tables count the same people, and no count is below 0, unless a sum did not fit."""
    settings = {"ask": ["shares", "sex"], "categories": {"sex": ["f", "m"]}, "dataset": "x.csv"}
    made = config_of(
        rounds=1, epsilon=2.0, num_clients=1, channel="named", features="none",
        classes=["no", "yes"], **settings,
    )  # fmt: skip
    truth, asked = np.array([0.87, 0.13, 0.5, 0.4, 0.1]), ("share of class 0", "sex=f", "sex=m")
    for people in (1_000, 2_000, 2_290, 3_370, 4_450, 5_260):
        stated = Problem((2,), 2, people, None, 1, features=("sex=f", "sex=m"))
        counts = truth * people * times * math.sqrt(0.5) * ASKED
        _, metrics = told_of(made.algorithm(stated), [counts], people)
        for name, share in zip(asked, truth[[0, 2, 3]], strict=True):
            told, _ = private(metrics, name)
            assert told is None or told == pytest.approx(share, abs=0.05), people


def test_what_is_printed_says_on_whom_a_figure_was_measured() -> None:
    x, y = world(2_000)
    made = config_of(evaluation_share=0.3, rounds=4, epsilon=20.0)
    result = simulate(made, dataset=fedldp.Dataset.from_arrays(x, y))
    shown = Terminal(file=io.StringIO(), width=200)
    shown.print_result(result.summary(), "the test set", result.metrics, None)
    told = shown.file.getvalue()
    assert "asked      AUC 0." in told
    assert "These are measured on the people the model was trained on" in told
    assert "means over rounds" not in told
    short = Terminal(file=io.StringIO(), width=200)
    short.print_result(result.summary(), "x", result.metrics, None, stated=True)
    for printed in (told, short.file.getvalue()):
        assert printed.count(words.line(HELD_OUT)[:60]) == 1, "beside scores of private rows"
