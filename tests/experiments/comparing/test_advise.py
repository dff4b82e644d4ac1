"""`fedldp advise`: refusals, the rule, the page, and a whole run on a small table."""

from __future__ import annotations

import csv
import json
import math
import re
import tomllib
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from folders import rows_in
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fedldp
from fedldp.algorithms.people import PerPersonRun
from fedldp.core.errors import FedldpError
from fedldp.data.public_features import unit_norm
from fedldp.experiments.advising import Advice, advise
from fedldp.experiments.advising.advice import KEPT
from fedldp.experiments.advising.asking import check_data, read_request
from fedldp.experiments.advising.intervals import DRAWS, EVERYBODY, HeldPeople, Part, held_people
from fedldp.experiments.advising.plan import (
    ANY,
    CENTRAL,
    CLASSES,
    CLIPPED,
    EPSILONS,
    FREE,
    LARGER,
    NUMBERS,
    SUM,
    TABLE,
    TRIES,
    TRUSTS,
    WHOLE,
    AdviceRequest,
    BreadthFirst,
    judged,
    unit_of,
)
from fedldp.experiments.advising.rule import PATHS, difficulty, ruled
from fedldp.experiments.advising.running import page_of
from fedldp.experiments.comparing.comparison import Cell, Line
from fedldp.experiments.engine import settings_of
from fedldp.experiments.runs import Row
from fedldp.experiments.store import design_from, document_of
from fedldp.simulation.plan import problem_with
from fedldp.simulation.settings import assignment, beside, resolve, seen_from

MU = {0.5: 0.142, 1.0: 0.268, 2.0: 0.502, 4.0: 0.925, 8.0: 1.666}
"""mu at delta 1e-5."""

DECLARED = {"scale_columns.age": [0, 120], "categories.sex": ["f", "m"]}
NAMED = {"client": "site", "person": "person", "label": "ill"}


def visits(persons: int = 60, sites: int = 3) -> list[dict[str, Any]]:
    """Return rows of persons, every third of whom has two visits."""
    draw = np.random.default_rng(0)
    rows = []
    for person in range(persons):
        age = int(draw.integers(18, 96))
        for _ in range(1 + (person % 3 == 0)):
            ill = int(draw.random() < 1 / (1 + np.exp(-(age - 60) / 8)))
            rows.append({"site": f"s{person % sites}", "person": f"p{person}", "age": age,
                         "sex": "fm"[person % 2], "flag": int(draw.random() < 0.5),
                         "ill": ill})  # fmt: skip
    return rows


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    return path


def advice_request(path: Path, **named: Any) -> AdviceRequest:
    settings = {**DECLARED, **named.pop("settings", {})}
    return read_request(path, settings=settings, **{**NAMED, **named})


def asked(path: Path, **named: Any) -> tuple[AdviceRequest, Any]:
    found = advice_request(path, **named)
    data = found.load(None)
    check_data(data, found.settings)
    return found, data


# Tables


def test_a_file_may_declare_the_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "t.csv", visits())
    Path("t.toml").write_text(
        'system = "fedavg"\nrounds = 3\ndataset = "t.csv"\nclient_column = "site"\n'
        'label_column = "ill"\nignore_columns = ["person"]\n'
        '[scale_columns]\nage = [0, 100]\n[categories]\nsex = ["f", "m"]\n'
    )
    plain = {"client": None, "person": None, "label": None}
    found = read_request("t.toml", settings={}, **plain)
    assert found.settings["centre_columns"] == {"age": 50, "sex=f": 0.5, "sex=m": 0.5}
    assert not {"system", "rounds"} & set(found.settings)
    other = read_request("t.toml", settings={"scale_columns.age": [0, 120]}, **plain)
    assert other.settings["centre_columns"]["age"] == 60


def test_the_remedy_for_missing_texts_works(tmp_path: Path) -> None:
    rows = visits(300)
    for row in rows[::7]:
        row["sex"] = ""
    for row in rows[::2]:
        row["flag"] = "True"
    path = write(tmp_path / "t.csv", rows)
    with pytest.raises(FedldpError) as refused:
        asked(path)
    told = re.search(r'add ("\w+") to (categories\.sex), and set (fill_columns\.sex = "\w+")',
                     str(refused.value))  # fmt: skip
    assert told is not None
    text, column, filled = told.groups()
    given = dict([assignment(f'{column} = ["f", "m", {text}]'), assignment(filled)])
    found, data = asked(path, settings=given)
    assert found.settings["fill_columns"] == {"sex": "unknown"}
    assert {"sex=unknown", "flag"} <= set(data.features)


# Which runs there are


def test_the_protected_unit_follows_from_the_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", visits(300))
    assert unit_of(asked(path)[1]) == "person"
    assert unit_of(asked(path, person=None, settings={"ignore_columns": ["person"]})[1]) == "record"
    path = write(tmp_path / "t.csv", visits(900, 120))
    found, data = asked(path, person=None, settings={"ignore_columns": ["person"]})
    assert unit_of(data) == "client-run"
    comparison = found.comparison(lambda: data)
    assert WHOLE not in comparison.contestants
    assert comparison.contestants[SUM].guarantee.unit == "client-run"


@pytest.mark.parametrize(
    "declared",
    [{}, {"class_shares": [0.6, 0.4]},
     {"class_shares": [0.6, 0.4], "spread_columns.age": [60, 20], "spread_columns.flag": [0.5, 1],
      "scale_columns": {}}],
)  # fmt: skip
def test_tries_follow_the_rule_at_each_epsilon(tmp_path: Path, declared: dict[str, Any]) -> None:
    found, data = asked(write(tmp_path / "t.csv", visits(900)), settings=declared)
    comparison, rounds = found.comparison(lambda: data), []
    for epsilon in EPSILONS:
        cell = Cell(TABLE, 3, SUM, epsilon)
        for path, run in zip(PATHS, comparison.tries(cell), strict=True):
            config = run.config
            assert config.target.epsilon == epsilon
            assert config.class_shares == declared.get("class_shares")
            spreads = {"age": [60, 20]} | ({"flag": [0.5, 1]} if len(declared) > 2 else {})
            assert config.spread_columns == spreads  # a range counts as six of them
            assert (config.scale_columns, config.columns) == ({}, found.config.columns)
            n = difficulty(config, problem_with(config, data, None))
            assert n == pytest.approx(720 * MU[epsilon] / 2, rel=0.01)
            shares = config.class_shares or [0.5, 0.5]
            rule = ruled(n=n, shares=shares, declared="class_shares" in declared, path=path,
                        spreads=len(declared) > 2)  # fmt: skip
            assert {name: getattr(config, name) for name in rule} == rule
        rounds.append(config.rounds)
    assert rounds == sorted(rounds)
    assert rounds[0] < rounds[-1]
    free = comparison.tries(Cell(TABLE, 3, FREE, 0.0))[0].config
    assert (free.clip, free.rounds, free.class_shares) == (TRIES["person"][0]["clip"], 50, None)


@pytest.mark.slow
def test_it_says_what_a_missing_spread_costs(tmp_path: Path) -> None:
    found = advice(tmp_path, {FREE: 0.9}, people=900)
    (line,) = (each for each in found.warnings if "spread_columns" in each)
    for told in ("declared for age, flag", "N is 51 at epsilon 0.5", "96 at epsilon 1"):
        assert told in line
    assert all(f"{epsilon:g}" in line for epsilon in EPSILONS if epsilon < 8)
    assert "at epsilon 8" not in line
    declared = {"spread_columns.age": [60, 20], "spread_columns.flag": [0.5, 1]}
    settings = {**declared, "scale_columns": {}}
    found = advice(tmp_path, {FREE: 0.9}, people=900, settings=settings)
    assert not any("spread_columns" in each for each in found.warnings)


def test_a_request_is_read_back_from_its_folder(tmp_path: Path) -> None:
    facts = {"class_shares": [0.6, 0.4], "by_columns": ["sex"], "people": 1000}
    request = advice_request(write(tmp_path / "t.csv", visits()), settings=facts)
    (tmp_path / "advise.json").write_text(json.dumps(document_of(request)))
    found = design_from(AdviceRequest, settings_of(tmp_path, "advise"), "advise")
    assert json.dumps(document_of(found)) == json.dumps(document_of(request))
    assert (found.config, found.by_columns) == (request.config, ("sex",))


def test_without_a_clip_nothing_is_clipped() -> None:
    draw = np.random.default_rng(0)
    rows = unit_norm((5,))(
        (draw.normal(size=(1000, 5)) * 10.0 ** draw.integers(-3, 4)).astype("f4")
    )
    shares = draw.dirichlet(np.full(3, 0.1), size=1000)
    off = shares - np.eye(3)[draw.integers(0, 3, 1000)]
    lengths = np.linalg.norm(off, axis=1) * np.sqrt(np.square(rows).sum(1) + 1)  # 1: the intercept
    assert 0.9 * 2.05 < lengths.max() < 2.05 < min(tried["clip"] for tried in TRIES["person"])


# The rule


class Told(HeldPeople):
    """A test set on which each run scores what its row says, with a spread over people."""

    def scores(self, row: Row, part: Part = EVERYBODY) -> dict[str, Any]:
        metrics = row["metrics"]
        (first, *_) = metrics
        score = row["at"].get(part, metrics[first])
        draws = np.random.default_rng(row["over_people"][0]).normal(size=DRAWS)
        spread = np.append(0.0, row["over_people"][1] * draws)
        return {metric: (score if metric == first else 0.5) + spread for metric in metrics}


def measured(
    name: str,
    epsilon: float | None,
    scores: list[float],
    people: tuple[int, float] = (0, 0.0),
    at: dict[Part, float] | None = None,
    **more: Any,
) -> Line:
    """Return invented measurements: an AUC, or R2, for each seed, and the generator and the
    deviation of the resamples over people."""
    judged = more.get("judged", CLASSES)
    runs = [
        {"metrics": {**dict.fromkeys(judged.names, 0.5), judged.metric: score},
         "try": more.get("tried", {}),
         "seed": seed, "over_people": people, "at": at or {}, "digest": f"{name} {epsilon} {seed}"}
        for seed, score in enumerate(scores)
    ]  # fmt: skip
    return Line(name=name, epsilon=epsilon, runs=runs, refused=more.get("refused"),
                    seeds=max(len(scores), 1), settled=more.get("settled", True))  # fmt: skip


def advice(
    tmp_path: Path,
    aucs: dict[Any, Any],
    alone: float = 0.6,
    people: int = 600,
    rows: list[dict[str, Any]] | None = None,
    **named: Any,
) -> Advice:
    """Return advice on invented figures, given by contestant, or by contestant and epsilon."""
    found, data = asked(write(tmp_path / "t.csv", rows or visits(people)), **named)
    comparison = found.comparison(lambda: data)
    figures = {}
    for cell in found.cells(comparison, len(data.clients)):
        name, epsilon = cell.contestant, cell.epsilon or None
        given = aucs.get((name, epsilon), aucs.get(name, alone if "alone" in name else 0.8))
        if not isinstance(given, Line):
            tried = dict(comparison.contestant(cell).tries[0])
            kind = judged(data)
            given = measured(name, epsilon, [given] * 3, tried=tried, judged=kind)
        figures[name, epsilon] = replace(given, name=name, epsilon=epsilon)
    tested = held_people(found, data)
    told = Told(data.test, data.num_classes, tested.parts, data.label_range, tested.sites)
    return Advice(found, data, comparison, figures, told, None, 1.0)


@pytest.mark.parametrize(
    ("auc", "alone", "state"),
    [
        (0.5 + KEPT * 0.4 + 1e-9, 0.6, "viable"),
        (0.5 + KEPT * 0.4 - 1e-6, 0.6, "lost"),
        (0.85, 0.86, "no gain"),
        (0.85, 0.85, "not clear"),
        (0.5, 0.4, "lost"),
    ],
)
def test_the_rule(tmp_path: Path, auc: float, alone: float, state: str) -> None:
    found = advice(tmp_path, {FREE: 0.9, ANY: auc}, alone)
    assert found.state("none", 2.0) == state
    assert (found.viable("none") == list(EPSILONS)) == (state == "viable")
    word = {"viable": "viable", "not clear": "not clear"}.get(state, "not viable")
    assert found.told("word", found.verdict("none")).startswith(word)


spreads = st.floats(0, 0.05)
scores = st.floats(0.4, 0.95)


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.tuples(scores, st.lists(st.floats(-0.05, 0.05), min_size=1, max_size=5), spreads),
             min_size=len(EPSILONS), max_size=len(EPSILONS)),
    st.lists(st.tuples(scores, st.lists(st.floats(-0.05, 0.05), min_size=1, max_size=5), spreads),
             min_size=len(EPSILONS), max_size=len(EPSILONS)),
    st.tuples(scores, spreads), st.tuples(scores, spreads),
)  # fmt: skip
def test_no_verdict_stands_against_its_interval(
    any_server: list[Any], central: list[Any], free: Any, alone: Any
) -> None:
    """Each state is what the intervals of both differences say, and one seed says nothing."""
    base = made_once()
    figures = dict(base.figures)
    for (name, epsilon), old in base.figures.items():
        if name in (ANY, SUM, CENTRAL):
            mean, seeds, people = (central if name == CENTRAL else any_server)[
                EPSILONS.index(epsilon)
            ]
            aucs = [mean + each for each in seeds]
            figures[name, epsilon] = measured(name, epsilon, aucs, (len(seeds), people))
        elif name == FREE or "alone" in name:
            mean, people = free if name == FREE else alone
            figures[name, epsilon] = measured(name, None, [mean] * 3, (9, people))
        else:
            figures[name, epsilon] = old
    found = replace(base, figures=figures)
    for trust in TRUSTS:
        for epsilon in EPSILONS:
            of, state = found.at(trust, epsilon), found.state(trust, epsilon)
            if found.learns is False:
                assert state == "nothing learned"
                continue
            differences = [found.beyond(of), found.gain(of)]
            intervals = [each.interval for each in differences if each is not None]
            if len(of.runs) == 1 or found.learns is None:
                assert intervals == [None, None] or found.learns is None
                assert state == "not clear"
                continue
            lows, highs = zip(*intervals, strict=True)
            assert (state == "viable") == (min(lows) > 0)
            assert (state == "lost") == (highs[0] < 0)
            assert (state == "no gain") == (highs[0] >= 0 and highs[1] < 0)
    verdicts = [found.verdict(trust) for trust in TRUSTS]
    for less, more in pairwise(verdicts):
        if less.state == "viable":  # what is hidden from anyone is hidden from a trusted server
            assert more.state == "viable"
            assert more.epsilon <= less.epsilon
    for verdict in verdicts:
        own = found.viable(verdict.trust)
        if verdict.state == "viable":
            assert found.state(verdict.run, verdict.epsilon) == "viable"
            assert not own or verdict.epsilon <= own[0]
            assert not set(verdict.unlike) & set(own)
        else:
            assert own == []
        assert found.told("verdict", verdict)


@lru_cache
def made_once() -> Advice:
    with TemporaryDirectory() as folder:
        return advice(Path(folder), {FREE: 0.9})


def test_the_mean_over_sites_says_how_many_it_is_over(tmp_path: Path) -> None:
    name = "site 2 alone, no protection"
    found = advice(tmp_path, {FREE: 0.9, name: measured(name, None, [], refused="it diverged")})
    assert found.alone_mean().value == pytest.approx(0.6)
    assert "mean of 2 of 3 sites" in found.told("verdict", found.verdict("central"))
    assert any("mean of 2 of 3 sites" in row[0] for _, rows in found.groups() for row in rows)


def test_each_site_has_a_verdict_of_its_own(tmp_path: Path) -> None:
    """The largest site may do better alone where the mean over sites gains."""
    large, own = "site 1 alone, no protection", ("", "s0")  # as the table names it
    free = measured(FREE, None, [0.9] * 3, at={own: 0.82})
    joint = measured(ANY, None, [0.88] * 3, at={own: 0.80})
    alone = measured(large, None, [0.70] * 3, at={own: 0.84})
    found = advice(tmp_path, {FREE: free, ANY: joint, large: alone})
    assert found.state("none", 2.0) == "viable"
    lines = {(each.part[1], each.on): each for each in found.by_site("none", 2.0)}
    assert len(lines) == 2 * 3
    assert (lines["s0", "own"].state, lines["s0", "own"].viable) == ("no gain", False)
    assert lines["s0", "own"].gain.value == pytest.approx(-0.04)
    assert (lines["s0", "all"].viable, lines["s1", "own"].viable) == (True, True)
    assert "s0 alone 0.840, jointly 0.800: does better alone" in " ".join(found.advice)
    assert "does better alone" not in " ".join(advice(tmp_path, {FREE: 0.9, ANY: 0.88}).advice)


@pytest.mark.slow
def test_groups_are_scored_and_said_to_be_uncharged(tmp_path: Path) -> None:
    by = {"settings": {"by_columns": ["sex", "site"]}}
    found = advice(tmp_path, {FREE: 0.9, ANY: 0.88}, **by)
    (row,) = [each for each in found.rows if (each["trust"], each["epsilon"], each["metric"])
              == ("none", 2.0, "auc")]  # fmt: skip
    assert [(each["by"], each["value"]) for each in row["groups"]] == [
        ("sex", "f"), ("sex", "m"), ("site", "s0"), ("site", "s1"), ("site", "s2"),
    ]  # fmt: skip
    assert {each["charged"] for each in row["groups"]} == {False}
    assert {each["joint"]["rows"] for each in row["groups"]} == {"uncovered"}
    assert "not charged" in page_of(found)
    assert any("not charged: no epsilon covers them" in each for each in found.warnings)
    assert not found._config("none", 2.0).model_dump().get("by_columns")
    sizes = {part: rows.sum() for part, rows in found.tested.parts.items()}
    assert sizes["sex", "f"] + sizes["sex", "m"] == len(found.data.test)
    assert sum(sizes["", name] for name in ("s0", "s1", "s2")) == len(found.data.test)


def test_groups_are_what_the_model_sees(tmp_path: Path) -> None:
    """Spellings of a category are one group, as are strings that stand for others."""
    rows = visits(600)
    for at, row in enumerate(rows):
        row["sex"] = {0: "x", 1: "unknown", 2: ""}.get(at % 12, row["sex"])
    path = write(tmp_path / "t.csv", rows)
    declared = {
        "categories.sex": ["f", "m", "other"], "other_columns.sex": "other",
        "fill_columns.sex": "other", "by_columns": ["sex"],
    }  # fmt: skip
    parts = held_people(*asked(path, settings=declared)).parts
    assert {part for part in parts if part[0] == "sex"} == {
        ("sex", "f"), ("sex", "m"), ("sex", "other"),
    }  # fmt: skip


@pytest.mark.parametrize(("column", "problem"), [("age", "values; give a column"), ("x", "has no")])
def test_groups_need_a_column_with_few_values(tmp_path: Path, column: str, problem: str) -> None:
    with pytest.raises(FedldpError, match=problem):
        advice(tmp_path, {}, settings={"by_columns": [column]})


def test_a_network_that_failed_to_train_tells_no_cost(tmp_path: Path) -> None:
    bad = advice(tmp_path, {FREE: 0.9, LARGER: 0.6}).told("of_model")
    assert "says nothing about what a linear model costs" in bad
    good = advice(tmp_path, {FREE: 0.9, LARGER: 0.93}).told("of_model")
    assert "The linear model costs 0.030" in good


def test_if_nothing_is_learned_nothing_is_viable(tmp_path: Path) -> None:
    free = measured(FREE, None, [0.51] * 3, (1, 0.02))
    found = advice(tmp_path, {FREE: free, ANY: 0.9, SUM: 0.51})
    assert {found.state(trust, 8.0) for trust in ("none", "sum", "central")} == {"nothing learned"}
    assert "no better than guessing" in found.told("verdict", found.verdict("none"))
    assert found.best is None
    assert "NOT ADVISED" in (found.next_run() or "")


def days(persons: int = 600) -> list[dict[str, Any]]:
    """Return the same rows with a length of stay, which follows the age, in place of the class."""
    draw = np.random.default_rng(1)
    rows = visits(persons)
    return [
        {**{key: value for key, value in row.items() if key != "ill"},
         "days": round(float(np.exp(0.02 * row["age"] + draw.normal(0, 0.3))), 1)}
        for row in rows
    ]  # fmt: skip


OF_DAYS: dict[str, Any] = {
    "label": "days",
    "settings": {"label_range": [0, 20], "label_typical": 4},
}


@pytest.mark.slow
def test_numbers_are_judged_by_r2(tmp_path: Path) -> None:
    found = advice(tmp_path, {FREE: 0.4, ANY: 0.33}, 0.1, rows=days(), **OF_DAYS)
    assert found.judged == NUMBERS
    assert found.state("none", 2.0) == "viable"
    assert found.kept(found.at("none", 2.0)) == pytest.approx(0.33 / 0.4)
    assert LARGER not in found.comparison.contestants  # no other system predicts numbers
    told = found.told("verdict", found.verdict("none"))
    assert "the R2 is 0.330 (0.330 to 0.330); always predicting the mean has 0" in told
    assert {row["metric"] for row in found.rows} == {"r2", "mae", "calibration_gap"}
    text = " ".join(found.advice) + page_of(found).split("<h2>Warnings")[0]
    assert "AUC" not in text
    assert "most frequent" not in text
    labels = found.data.label_range.numbers(found.data.test.labels)
    naive = np.abs(labels - labels.mean()).mean()
    (mae,) = (
        row for row in found.rows
        if (row["trust"], row["epsilon"], row["metric"]) == ("none", 2.0, "mae")
    )  # fmt: skip
    assert mae["baseline"] == pytest.approx(0.5)  # of sites alone, as invented: less is better
    assert mae["figure"]["baseline"] == pytest.approx(naive)


@pytest.mark.parametrize(
    ("free", "any_server", "state"),
    [(0.4, 0.4 * KEPT + 1e-9, "viable"), (0.4, -0.7, "lost"), (-0.1, 0.3, "nothing learned")],
)
def test_the_rule_for_numbers(tmp_path: Path, free: float, any_server: float, state: str) -> None:
    found = advice(tmp_path, {FREE: free, ANY: any_server}, -0.2, rows=days(), **OF_DAYS)
    assert found.state("none", 2.0) == state


def test_numbers_cannot_hide_a_whole_client_and_must_differ(tmp_path: Path) -> None:
    path = write(
        tmp_path / "t.csv",
        [{**row, "site": f"c{number % 105}"} for number, row in enumerate(days())],
    )
    with pytest.raises(FedldpError, match="only people and rows can be hidden where numbers are"):
        asked(path, **{**OF_DAYS, "person": None, "settings": {
            **OF_DAYS["settings"], "ignore_columns": ["person"]}})  # fmt: skip
    path = write(tmp_path / "equal.csv", [{**row, "days": 25.0} for row in days()])
    with pytest.raises(FedldpError, match="are the same number, so R2 is not defined"):
        asked(path, **OF_DAYS)


@pytest.mark.slow
def test_a_length_of_stay_is_advised_on(tmp_path: Path) -> None:
    """Runs are made and chosen by R2, and those by the rule have all that is declared."""
    path = write(tmp_path / "t.csv", days(300))
    found = advise(
        path, **{**NAMED, "label": "days"}, settings={**DECLARED, **OF_DAYS["settings"]},
        epsilon=(8.0,), tries=2, seeds=(0,), workers=1, out=tmp_path / "out",
    )  # fmt: skip
    assert found.missing == []
    free = found.estimate(found.free(FREE))
    assert free.value > 0.4
    for run in found.free(FREE).runs:  # what is resampled is what the run scored
        mine = found.tested.scores(run)
        assert {name: mine[name][0] for name in NUMBERS.names} == pytest.approx(
            {name: run["metrics"][name] for name in NUMBERS.names}, abs=1e-4
        )
    config = found._config("sum", 8.0)
    assert (tuple(config.label_range), config.label_typical) == ((0.0, 20.0), 4.0)


def test_the_least_trust_and_the_smallest_epsilon_come_first(tmp_path: Path) -> None:
    weak = {(ANY, epsilon): 0.55 for epsilon in EPSILONS}
    found = advice(tmp_path, {FREE: 0.9, **weak, SUM: 0.55, (SUM, 4.0): 0.88, (SUM, 8.0): 0.89})
    assert found.best == ("sum", 4.0)
    config = found.next_run()
    assert config is not None
    assert 'channel = "sum"' in config
    target = tomllib.loads(config)["target"]  # pages and cards of such a run begin with its target
    assert (target["unit"], target["adversary"]) == ("person", "summing-server")
    assert target["epsilon"] == 4
    assert "this choice is a release" in config
    released = found.released("sum", 4.0)
    assert released is not None
    (line,) = [each for each in released.statement.guarantees
               if (each.unit, each.adversary) == ("person", "summing-server")]  # fmt: skip
    assert line.epsilon is not None
    assert 3.9 < line.epsilon <= 4


@pytest.mark.slow
def test_the_advised_run_can_be_read_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "runs" / "advice"
    out.mkdir(parents=True)
    write(Path("t.csv"), visits(600))
    found = advice(Path(), {FREE: 0.9, ANY: 0.88})
    found.write(out)
    assert 'dataset = "../../t.csv"' in (out / "next.toml").read_text()
    assert resolve("runs/advice/next.toml").dataset == "t.csv"
    monkeypatch.chdir(out)
    assert Path(resolve("next.toml").dataset).resolve() == tmp_path / "t.csv"
    # The meaning of a file does not depend on a table of that name in the current folder.
    write(Path("t.csv"), visits(40))
    monkeypatch.chdir(tmp_path / "runs")
    write(Path("t.csv"), visits(40))
    assert Path(resolve("advice/next.toml").dataset).resolve() == tmp_path / "t.csv"
    without_runs(found).write(out)
    assert not (out / "next.toml").exists()  # the file of earlier advice was removed


def without_runs(found: Advice) -> Advice:
    """Return advice of which nothing was measured."""
    return replace(found, figures={k: replace(each, runs=[]) for k, each in found.figures.items()})


@pytest.mark.slow
def test_a_way_that_is_not_viable_has_a_file_that_says_so(tmp_path: Path) -> None:
    """It is the run that the verdict of its kind of trust is about, and says what would help."""
    weak = advice(tmp_path, {FREE: 0.9, **dict.fromkeys([ANY, SUM, CENTRAL], 0.55)})
    assert weak.best is None
    assert weak.subject == ("central", EPSILONS[-1])
    weak.write(tmp_path)
    text = (tmp_path / "next.toml").read_text()
    told = " ".join(re.sub("^# ", "", text, flags=re.M).split())
    assert f"NOT ADVISED. {weak.told('verdict', weak.verdict('central'))}" in told
    assert "other settings or more people may" in told
    assert tomllib.loads(text)["target"]["epsilon"] == EPSILONS[-1]
    file = tmp_path / "next.toml"
    assert weak.told("next", file).startswith("no way is viable")
    assert "why they are not advised" in page_of(weak)
    good = advice(tmp_path, {FREE: 0.9, ANY: 0.88})
    assert good.told("next", file) == f"fedldp run {file}"
    assert "NOT ADVISED" not in (good.next_run() or "")
    nothing = without_runs(good)
    assert nothing.next_run() is None
    assert "no settings file is written" in nothing.told("next", None)


def test_the_target_of_a_link_is_not_revealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A configuration goes to all parties, and the name of a table may reveal what is in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hospital").mkdir()
    (tmp_path / "study").mkdir()
    write(tmp_path / "hospital" / "hiv.csv", visits(40))
    (tmp_path / "study" / "t.csv").symlink_to(tmp_path / "hospital" / "hiv.csv")
    found = beside(Path("study/run.toml"), {"dataset": "t.csv"})
    assert found == {"dataset": "study/t.csv"}
    config = resolve("quickstart").changed(**found)
    assert seen_from(tmp_path / "study", config) == {"dataset": "t.csv"}


@pytest.mark.slow
def test_sums_have_the_noise_of_one_server(tmp_path: Path) -> None:
    found = advice(tmp_path, {FREE: 0.9, SUM: 0.88, CENTRAL: 0.6})
    assert "Sums and one server have noise of the same size" in found.told("of_trust")
    assert found.verdict("central").run == "sum"
    for epsilon in (EPSILONS[0], EPSILONS[-1]):  # the basis of the sentence
        noise = []
        for trust, shares in (("sum", 3), ("central", 1)):
            config = found._config(trust, epsilon)
            assert config is not None
            calibration = config.composition.calibration
            assert isinstance(calibration, PerPersonRun)
            one = calibration.noise(8)
            noise.append(math.sqrt(one.event(8).variance * shares) * one.step)
        assert noise[0] == pytest.approx(noise[1], rel=1e-3)


def test_the_first_page_has_what_an_officer_decides_by(tmp_path: Path) -> None:
    """Its sections come in this order, and the details begin a new page."""
    page = page_of(advice(tmp_path, {FREE: 0.9, ANY: 0.6, SUM: 0.89}))
    first, details = page.split('<div class="details">')
    assert "This page is private" in first
    assert "is a release of private rows" in page
    assert re.findall(r"<h2>(.*?)</h2>", first) == [
        "Decision", "Guarantee", "Conditions", "Each site", "What is not covered",
        "What you must still ask",
    ]  # fmt: skip
    assert ".details { break-before: page; }" in page
    assert "@page { size: A4;" in page
    questions = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", first)
    for word in ("kept", "withdraws", "collusion", "keys", "a year", "group"):
        assert [answer for question, answer in questions if word in question], word
    body = first.split("<body>")[1]
    text = " ".join(re.sub(r"<[^>]+>", " ", body).split())
    assert len(text) < 6500  # of 8 points; 5,600 characters and four sites leave room for six more
    assert "12 times a year costs epsilon" in text
    assert "Only as many as" in text or "only as many as" in text  # of sites that collude
    assert "Why these verdicts" in details


def test_missing_results_are_reported(tmp_path: Path) -> None:
    found = advice(tmp_path, {FREE: 0.9})
    figures = dict(found.figures)
    figures[ANY, 2.0] = Line(name=ANY, epsilon=2.0, seeds=3)
    figures[SUM, 2.0] = Line(name=SUM, epsilon=2.0, refused="it diverged", seeds=3)
    less = replace(found, figures=figures)
    assert less.state("none", 2.0) == "not measured"
    assert less.state("sum", 2.0) == "refused"
    assert f"{ANY} at epsilon 2" in less.missing
    assert any("it diverged" in line for line in less.warnings)
    figures |= {(CENTRAL, each): replace(figures[ANY, 2.0], name=CENTRAL, epsilon=each)
                for each in (0.5, 8.0)}  # fmt: skip
    (line,) = (
        each for each in replace(found, figures=figures).warnings
        if each.startswith("runs are missing of: ")
    )  # fmt: skip
    assert line == f"runs are missing of: {ANY} at epsilon 2, {CENTRAL} at epsilon 0.5 and 8"
    page_of(less)


# Answers before all runs are made


@pytest.mark.slow
def test_a_first_answer_is_no_verdict(tmp_path: Path) -> None:
    first = measured(ANY, 2.0, [0.89], settled=False)
    found = advice(tmp_path, {FREE: 0.9, (ANY, 2.0): first, ANY: measured(ANY, 0.5, [])})
    assert found.state("none", 2.0) == "not clear"
    assert found.state("none", 4.0) == "not measured"
    assert found.told("word", found.verdict("none")) == "not clear yet"
    assert not found.summary()["complete"]


@pytest.mark.slow
@pytest.mark.parametrize("known", [(), (ANY,), (SUM, CENTRAL)])
def test_an_unfinished_page_is_about_a_way_that_is_measured(
    tmp_path: Path, known: tuple[str, ...]
) -> None:
    """It says once that it is not final, and shows no epsilon of a way without runs."""
    first: dict[str, Any] = {"settled": False, "tried": {"path": 1.0}}
    ways = {name: measured(name, 2.0, [0.89], **first) for name in known}
    none = {name: measured(name, 2.0, []) for name in (ANY, SUM, CENTRAL)}
    none = none if known else {**none, **{(name, each): measured(name, each, [])
            for name in none for each in EPSILONS}}  # fmt: skip
    given = none | {(name, 2.0): each for name, each in ways.items()}
    found = advice(tmp_path, {FREE: 0.9, CLIPPED: 0.9, WHOLE: measured(WHOLE, 8.0, []), **given})
    assert bool(found.at(*found.subject).runs) == bool(known)
    page, told = page_of(found), " ".join(found.advice)
    assert told.count("the same command continues") == 1
    assert page.count("the same command continues") == 1
    assert "was not trained alone" not in told
    assert "<p>.</p>" not in page
    assert ("By site" in told) == bool(known)
    rows = re.findall(r"Not measured yet</td>(.*?)</tr>", page)
    assert len(rows) == 3 - len(known)
    assert all(re.findall(r">([^<]+)<", row) == ["not known"] for row in rows)
    losses = re.findall(r" 0\.\d{3} at 2[,;.]", told)
    assert len(losses) == len(known)
    assert ("Where no interval is given, it is not known so far." in told) == bool(known)


@pytest.mark.slow
def test_every_question_is_answered_before_an_answer_is_improved(tmp_path: Path) -> None:
    found, data = asked(write(tmp_path / "t.csv", visits(300)))
    comparison = found.comparison(lambda: data)
    plan = BreadthFirst(comparison, found.cells(comparison, len(data.clients)))
    known: dict[str, Any] = {}
    count = len(plan.cells)
    runs = list(plan.due(known))
    assert [run.labels["purpose"] for run in runs[:count]] == ["measured"] * count
    assert {run.labels["purpose"] for run in runs[count:]} == {"tried"}
    tries = sum(len(comparison.contestant(cell).tries) for cell in plan.cells)
    assert [run.keeps_predictions for run in runs] == [True] * count + [False] * tries
    cell = plan.cells[-1]
    scores = {run.digest: 0.5 + k / 100 for k, run in enumerate(comparison.tries(cell))}

    def tell(run: Any) -> None:
        score = scores.get(run.digest, 0.7)
        known[run.digest] = {**run.labels, "digest": run.digest, "refused": None,
                             "accuracy": score, "metrics": {"auc": score}}  # fmt: skip

    for run in comparison.tries(cell)[1:]:
        tell(run)
    first = plan.first(cell).digest
    assert first in {run.digest for run in plan.due(known)}  # the rung is not complete
    tell(comparison.tries(cell)[0])
    assert first not in {run.digest for run in plan.due(known)}
    assert comparison.chosen(cell, known) == comparison.contestant(cell).tries[-1]
    assert {run.digest for run in comparison.measured(cell, known)} <= {
        run.digest for run in plan.due(known)
    }


# A whole run


SMALL: dict[str, Any] = {**NAMED, "settings": DECLARED, "epsilon": [8.0], "tries": 2,
                         "seeds": [0], "workers": 1}  # fmt: skip


@pytest.mark.slow
def test_a_whole_run_is_resumed_and_each_run_meets_its_epsilon(tmp_path: Path) -> None:
    path, out = write(tmp_path / "t.csv", visits(200)), tmp_path / "out"
    begun = advise(path, out=out, budget=1e-9, **SMALL)
    assert len(begun.missing) == len(begun.figures) == 6 + 3 + 1
    assert begun.told("word", begun.verdict("none")) == "not measured yet"
    lines: list[str] = []
    found = advise(path, out=out, say=lines.append, **SMALL)
    assert found.missing == []
    rows = rows_in(out)
    made = len(rows)
    assert 30 <= made <= 30 + 10  # first answers whose try was not chosen
    runs = [line for line in lines if not line.startswith("note")]
    assert [line.split("/")[0] for line in runs] == [f"{number}" for number in range(1, made + 1)]
    assert runs[0].startswith(f"1/{30 + 10} ")
    assert runs[-1].startswith(f"{made}/{made} ")
    assert {row["purpose"] for row in rows[:10]} == {"measured"}
    assert len({json.dumps(row["cell"]) for row in rows[:10]}) == 10  # one of each before a second
    proven = [row for row in rows if row["cell"]["epsilon"]]
    assert 3 * 4 <= len(proven) <= 4 * 4
    assert all(0 < row["proven"]["epsilon"] <= row["cell"]["epsilon"] for row in proven)
    assert all(0 <= row["metrics"]["calibration_error"] <= 1 for row in rows)
    again = advise(path, out=out, say=lines.append, **SMALL)
    assert len([line for line in lines if not line.startswith("note")]) == made
    assert again.summary() == found.summary() == json.loads((out / "results.json").read_text())
    assert (found.summary()["complete"], begun.summary()["complete"]) == (True, False)
    assert {row["viable"] for row in found.rows} == {False}  # of one seed each
    assert {len(row["predicted"][0]) for row in rows[:10]} == {len(found.data.test)}
    assert not any("predicted" in row for row in rows if row["purpose"] == "tried")
    for row in found.rows:
        assert {"simulated", "discrete-noise"} <= {each["kind"] for each in row["conditions"]}
    sums = {each["adversary"]: each for each in found.summary()["together"]}
    assert {each["runs"] + each["unprotected"] for each in sums.values()} == {made}
    assert sums["downlink"]["runs"] == len(proven)
    assert min(each["epsilon"] for each in sums.values()) > 8
    pages = ((out / "advice.html").read_text(), page_of(found))
    assert len({re.sub(r"\d\d:\d\d:\d\d UTC", "", page) for page in pages}) == 1
    with pytest.raises(fedldp.FedldpError, match="advice there differs in its settings"):
        advise(path, out=out, **{**SMALL, "settings": {**DECLARED, "persons_at_sites": 2}})


@pytest.mark.slow
def test_clients_as_a_whole(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", visits(900, 120))
    settings = {**DECLARED, "ignore_columns": ["person"]}
    found = advise(path, **{**SMALL, "person": None, "settings": settings})
    assert found.unit == "client-run"
    assert [figure.refused for figure in found.figures.values()] == [None] * len(found.figures)
    assert all(row["mean"] is not None for row in found.rows)
    page_of(found)
