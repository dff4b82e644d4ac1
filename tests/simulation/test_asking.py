"""Questions about a table, and the evaluation of a given model: answers, prices and refusals."""

from __future__ import annotations

import json
import math
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

import fedldp
from fedldp.algorithms.asking import Asked, rounds_to_ask
from fedldp.cli import app
from fedldp.core.errors import ConfigError, FedldpError
from fedldp.core.kinds import (
    BEGINS_PUBLIC,
    CLASSES_FROM_ROWS,
    COUNT_NOISE,
    DECLARED_PUBLIC,
    GIVEN_MODEL,
)
from fedldp.data.examples import Examples
from fedldp.reporting.card import model_card, schema, write_card
from fedldp.reporting.scores import answers_of
from fedldp.simulation.asking import config_to_ask, lines_of, problem_to_ask, settings_from
from fedldp.simulation.engine import simulate
from fedldp.simulation.plan import plan, problem_of
from fedldp.simulation.result import read_run
from fedldp.training import questions
from fedldp.training.answers import Answer, as_metrics
from fedldp.training.questions import Rows

NUMBER = 4_000

FILE = """
ask = ["shares", "sex", "age"]
num_clients = 3
client_column = "site"
person_column = "who"
channel = "{channel}"
epsilon = {epsilon}
edges.age = [20, 40, 60, 80]
categories.sex = ["f", "m", "other"]
other_columns.sex = "other"
fill_columns.age = 0
ignore_columns = ["crea"]
"""


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a table of people with one row each, at three sites; some ages are missing."""
    generator = np.random.default_rng(1)
    ages = generator.normal(60, 15, NUMBER).clip(18, 100).round()
    crea = generator.normal(size=NUMBER).round(3)
    sexes = generator.choice(["f", "m", "x"], NUMBER, p=[0.5, 0.4, 0.1])
    odds = 0.05 * (ages - 60) + crea - 1
    labels = (generator.random(NUMBER) < 1 / (1 + np.exp(-odds))).astype(int)
    rows = [
        f"{age if who % 40 else ''},{c},{sex},{'abc'[who % 3]},{who},{label}"
        for who, (age, c, sex, label) in enumerate(zip(ages, crea, sexes, labels, strict=True))
    ]
    path = tmp_path_factory.mktemp("asking") / "visits.csv"
    path.write_text("\n".join(["age,crea,sex,site,who,label", *rows]) + "\n")
    return path


def read(table: Path) -> list[list[str]]:
    return [line.split(",") for line in table.read_text().splitlines()[1:]]


def half_of(answer: dict[str, Any]) -> float:
    return 1.96 * float(answer["deviation"])


def written(folder: Path, text: str = FILE, channel: str = "sum", epsilon: float = 2.0) -> Path:
    path = folder / "questions.toml"
    path.write_text(text.format(channel=channel, epsilon=epsilon))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("channel", ["named", "sum", "central"])
def test_answers_hold_the_shares_of_all_people(tmp_path: Path, table: Path, channel: str) -> None:
    """Nobody is held out for testing, and no score is taken on private rows."""
    config = config_to_ask(written(tmp_path, channel=channel), table, None, [])
    result = simulate(config)
    answers = {each["question"]: each for each in answers_of(result.metrics)}
    rows = read(table)
    ages = [float(row[0]) for row in rows if row[0]]
    truth = {
        "share of class 1": np.mean([row[5] == "1" for row in rows]),
        "sex=f": np.mean([row[2] == "f" for row in rows]),
        "sex=other": np.mean([row[2] == "x" for row in rows]),
        "age 40 to 60": np.sum([40 <= age < 60 for age in ages]) / NUMBER,
        "age from 80 on": np.sum([age >= 80 for age in ages]) / NUMBER,
        "age=missing": 1 - len(ages) / NUMBER,
        "median of age": np.median(ages),
    }
    for question, value in truth.items():
        answer = answers[question]
        assert answer["seen"], question
        low, high = answer["interval"]
        assert low - (high - low) / 4 <= value <= high + (high - low) / 4, question
    assert "sex=none of these" not in answers  # which every other string is, by declaration
    assert result.rounds[-1].accuracy is None
    (note,) = COUNT_NOISE.among(result.privacy.warnings)
    half, own = half_of(answers["age below 20"]) * NUMBER, 1.96**2 * np.sum(np.array(ages) < 20)
    assert half == pytest.approx(math.sqrt(note.values["half_width"] ** 2 + own), rel=0.1)


@pytest.mark.parametrize("ask", ['["shares"]', '["age", "shares"]'])
def test_columns_that_are_not_asked_for_need_no_words(
    tmp_path: Path, table: Path, ask: str
) -> None:
    """They may hold undeclared strings, or nothing; a model's evaluation needs its columns."""
    asked = config_to_ask(written(tmp_path), table, None, [f"ask={ask}"])
    bare = asked.changed(ignore_columns=[], categories={}, other_columns={})
    assert answers_of(simulate(bare).metrics) == answers_of(simulate(asked).metrics)
    with pytest.raises(FedldpError, match="column 'sex' holds 'm'"):
        problem_of(bare.changed(ask=["evaluation"], rounds=2), None)


def test_every_cell_of_a_column_that_is_asked_for_is_counted(tmp_path: Path) -> None:
    """Numbers below, above, missing and infinite, and strings that nobody declared."""
    ages = ["3", "30", "1e30", "", "nan", "inf", "-inf", "1e300"]
    sexes = ["f", "m", "x", "?", "f", "f", "f", "f"]
    rows = [f"{a},{s},{'ab'[n % 2]}" for n, (a, s) in enumerate(zip(ages, sexes, strict=True))]
    (path := tmp_path / "odd.csv").write_text("\n".join(["age,sex,site", *rows * 500]))
    text = 'ask = ["age", "sex"]\nclient_column = "site"\nchannel = "sum"\nepsilon = 50.0\n'
    questions = written(tmp_path, text + 'edges.age = [20, 40]\ncategories.sex = ["f"]\n')
    config = config_to_ask(questions, path, None, [])
    assert config.num_clients == 2  # as the table has them
    told = {e["question"]: e["value"] for e in answers_of(simulate(config).metrics)}
    cells = ("age below 20", "age 20 to 40", "age from 40 on", "age=missing")
    assert [told[cell] for cell in cells] == pytest.approx([1 / 8, 1 / 8, 1 / 8, 5 / 8], abs=0.01)
    assert told["sex=none of these"] == pytest.approx(3 / 8, abs=0.01)
    path.write_text(path.read_text().replace("30,m", "thirty,m", 1))
    with pytest.raises(FedldpError, match=r"line 3: column 'age' holds 'thirty'.*not a number"):
        problem_of(config, None)


def test_one_value_of_a_table_of_settings_keeps_the_others(tmp_path: Path, table: Path) -> None:
    changes = ["edges.crea=[0, 1]", "categories.ward=['a']", "edges.age=[50]"]
    config = config_to_ask(written(tmp_path), table, None, changes)
    assert config.model_dump()["edges"] == {"age": [50.0], "crea": [0.0, 1.0]}
    assert config.categories == {"sex": ["f", "m", "other"], "ward": ["a"]}


def test_a_table_beside_the_file_of_questions_is_meant(
    tmp_path: Path, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with ``fedldp run``; once a table of that name in the current folder was asked about."""
    (tmp_path / "of").mkdir()
    monkeypatch.chdir(tmp_path)
    for folder in (tmp_path, tmp_path / "of"):
        (folder / "visits.csv").write_bytes(table.read_bytes())
    path = written(tmp_path / "of", FILE + 'dataset = "visits.csv"\n')
    assert config_to_ask(path, None, None, []).dataset == str(Path("of", "visits.csv"))
    assert config_to_ask(path, Path("visits.csv"), None, []).dataset == "visits.csv"


@pytest.mark.parametrize("label", ["label", "site", "days"])
def test_columns_are_asked_for_without_any_label(tmp_path: Path, table: Path, label: str) -> None:
    """Whether the table has no such column, or one that holds no classes."""
    asked = config_to_ask(written(tmp_path), table, None, ['ask=["age"]', f"label_column={label}"])
    bare = tmp_path / "bare.csv"
    bare.write_text("\n".join(line.rpartition(",")[0] for line in table.read_text().splitlines()))
    known = answers_of(simulate(asked.changed(label_column="label")).metrics)
    assert len(known) == 9
    assert answers_of(simulate(asked.changed(dataset=str(bare))).metrics) == known
    with pytest.raises(FedldpError, match="label_column"):
        problem_of(asked.changed(dataset=str(bare), ask=["age", "shares"]), None)


def test_a_number_of_classes_that_rows_told_is_named(tmp_path: Path, table: Path) -> None:
    unlisted = config_to_ask(written(tmp_path), table, None, [])
    privacy = plan(unlisted, problem_of(unlisted, None)).privacy
    assert [each.values for each in CLASSES_FROM_ROWS.among(privacy.warnings)] == [{"classes": 2}]
    for change in ('classes=["0", "1"]', 'ask=["sex", "age"]'):
        config = config_to_ask(written(tmp_path), table, None, [change])
        assert not CLASSES_FROM_ROWS.among(plan(config, problem_of(config, None)).privacy.warnings)


@pytest.mark.slow
def test_answers_become_settings_with_their_price(
    tmp_path: Path, table: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They are printed as lines of TOML with which a run can be made."""
    found = CliRunner().invoke(app, ["ask", str(written(tmp_path)), str(table)])
    assert found.exit_code == 0, found.output
    reads = [each for each in caplog.messages if "count as 'other'" in each]
    assert len(reads) == len(set(reads)), "the table was read twice"
    shown = found.output.split("may have these lines:\n")[1]
    made = tomllib.loads(shown.split("price ")[0])
    rows = read(table)
    share = np.mean([row[5] == "1" for row in rows])
    assert made["class_shares"] == pytest.approx([1 - share, share], abs=0.02)
    ages = [float(row[0]) for row in rows if row[0]]
    assert made["spread_columns"]["age"] == pytest.approx([60.0, np.std(ages)], abs=4.0)
    assert made["categories"] == {"sex": ["f", "m", "other"]}
    assert made["other_columns"] == {"sex": "other"}
    (price,) = (line for line in shown.splitlines() if line.startswith("price "))
    assert "epsilon 2 per person" in price
    more = {
        "system": "person_dp_sgd", "dataset": str(table), "rounds": 3, "learning_rate": 1.0,
        "epsilon": 4.0, "clip": 0.44, "model": "linear", "features": "unit-norm", "num_clients": 3,
        "channel": "sum", "client_column": "site", "person_column": "who",
        "ignore_columns": ["crea"], "fill_columns": {"age": 60.0},
    }  # fmt: skip
    config = fedldp.simulation.settings.from_mapping({**more, **made})
    plan(config, problem_of(config, None))


def private(name: str, value: float | None, half: float = 0.01) -> dict[str, float]:
    return as_metrics([Answer(name, value, half)])


def test_an_answer_that_was_not_seen_becomes_no_setting(tmp_path: Path, table: Path) -> None:
    config = config_to_ask(written(tmp_path), table, None, [])
    seen = {
        **private("share of class 0", 0.9), **private("share of class 1", 0.1),
        **private("share of class 0, client 0", 0.8), **private("share of class 1, client 0", 0.2),
        **private("sex=f", 0.6), **private("sex=m", None), **private("sex=other", None),
        **private("first quartile of age", 50.0), **private("median of age", 60.0),
        **private("third quartile of age", 80.0),
    }  # fmt: skip
    assert lines_of(settings_from(config, seen)) == [
        "class_shares = [0.9, 0.1]",
        'categories.sex = ["f", "other"]',
        'other_columns.sex = "other"',
        "spread_columns.age = [60.0, 22.24]",
    ]
    hidden = {
        **seen, **private("share of class 1", None), **private("median of age", None),
        **private("sex=f", None),
    }  # fmt: skip
    for name in ("private share of class 1", "private median of age", "private sex=f"):
        del hidden[name]
    assert settings_from(config, hidden) == {}
    without = config.changed(other_columns={})
    assert settings_from(without, seen)["categories"] == {"sex": ["f", "m", "other"]}


@pytest.mark.parametrize(
    "asked", [["shares"], ["sex"], ["shares", "sex"], ["shares", "age", "sex"]], ids=str
)
@pytest.mark.parametrize("people", [None, "who"])
def test_what_is_told_of_no_row_is_what_the_rows_tell(
    tmp_path: Path, table: Path, asked: list[str], people: str | None
) -> None:
    """Also if no column is asked for: a model without any input was once refused."""
    changes = [f"ask={json.dumps(asked)}", 'classes=["0", "1"]', f"person_column={people or ''}"]
    config = config_to_ask(written(tmp_path), table, None, changes)
    unread = config_to_ask(written(tmp_path), tmp_path / "later.csv", None, changes, read=False)
    told = plan(unread, problem_to_ask(unread, NUMBER, None, None)).privacy
    assert told == plan(config, problem_of(config, None)).privacy


def test_half_widths_are_told_before_any_row_is_read(tmp_path: Path, table: Path) -> None:
    """The table need not exist yet, and what is told is what the table's statement will say."""
    there, later = str(written(tmp_path)), str(tmp_path / "later.csv")
    declared = ["--people", "4000", "--set", 'classes=["0", "1"]']
    found = CliRunner().invoke(app, ["ask", there, later, "--account", *declared])
    assert found.exit_code == 0, found.output
    assert "the number of people in a cell is known to within" in found.output
    assert "asked" not in found.output
    halves = []
    for epsilon in (0.5, 2.0):
        path, listed = written(tmp_path, epsilon=epsilon), ['classes=["0", "1"]']
        config = config_to_ask(path, table, None, listed)
        privacy = plan(config, problem_of(config, None)).privacy
        halves.append(COUNT_NOISE.among(privacy.warnings)[0].values["half_width"])
        (line,) = [
            each for each in privacy.guarantees
            if (each.unit, each.adversary) == ("person", "summing-server")
        ]  # fmt: skip
        assert line.epsilon is not None
        assert 0.99 * epsilon < line.epsilon <= epsilon
        (declared_public,) = DECLARED_PUBLIC.among(line.assumptions)
        assert "edges" in declared_public.values["of"], "edges that follow rows are a release"
    assert halves[0] > 3 * halves[1]


@pytest.mark.parametrize(
    ("people", "lacks", "said"),
    [
        (None, 'classes=["0", "1"]', "approximate if need be: --people NUMBER$"),
        (4000, "epsilon=1.0", r"need be: classes = \[...\]$"),
        (None, "epsilon=1.0", r"need be: --people NUMBER and classes = \[...\]$"),
    ],
)
def test_what_only_rows_would_tell_must_be_declared(
    tmp_path: Path, people: int | None, lacks: str, said: str
) -> None:
    config = config_to_ask(written(tmp_path), tmp_path / "later.csv", None, [lacks], read=False)
    with pytest.raises(ConfigError, match=said):
        problem_to_ask(config, people, None, None)


def test_clients_that_nobody_counts_must_be_declared(tmp_path: Path) -> None:
    path = written(tmp_path, FILE.replace("num_clients = 3\n", ""))
    with pytest.raises(ConfigError, match="need be: num_clients = NUMBER"):
        config_to_ask(path, tmp_path / "later.csv", None, [], read=False)


def test_columns_alone_need_no_classes_and_a_built_in_data_set_nothing(tmp_path: Path) -> None:
    path, later = written(tmp_path), tmp_path / "later.csv"
    config = config_to_ask(path, later, None, ['ask=["age", "sex"]'], read=False)
    privacy = plan(config, problem_to_ask(config, 500, None, None)).privacy
    assert [each.values["of"] for each in COUNT_NOISE.among(privacy.warnings)] == [500]
    text = 'ask = ["shares"]\nchannel = "named"\nepsilon = 1.0\ndataset = "digits"\n'
    known = config_to_ask(written(tmp_path, text), None, None, [], read=False)
    assert problem_to_ask(known, None, None, None) == problem_of(known, None)
    with pytest.raises(ConfigError, match=r"people = 500: .* digits has; leave people out"):
        problem_to_ask(known, 500, None, None)
    refused = CliRunner().invoke(app, ["ask", str(path), str(later), "--people", "500"])
    assert isinstance(refused.exception, ConfigError)


def test_a_given_model_may_have_been_trained_on_the_people_who_are_asked(
    tmp_path: Path, table: Path
) -> None:
    """As a run's model that its own people evaluate: it is not assumed to be public."""
    text = 'ask = ["evaluation"]\nnum_clients = 3\nepsilon = 1.0\ninitial = "m.safetensors"\n'
    changes = ['person_column="who"', 'client_column="site"', 'ignore_columns=["sex", "age"]']
    config = config_to_ask(written(tmp_path, text), table, None, changes)
    for line in plan(config, problem_of(config, None)).privacy.guarantees:
        if line.epsilon is not None:
            assert GIVEN_MODEL(of="m.safetensors") in line.assumptions
        assert not BEGINS_PUBLIC.among(line.assumptions)


def test_columns_mean_for_an_evaluation_what_they_meant_for_the_model(tmp_path: Path) -> None:
    """Every declaration about columns comes from the run; once the range of labels did not."""
    rows = [f"{20 + n},{n % 9},{'fx'[n % 2]},{n % 30},{'ab'[n % 2]},{n // 2},7" for n in range(60)]
    (table := tmp_path / "t.csv").write_text("\n".join(["age,crea,sex,days,site,who,no", *rows]))
    settings = {
        "system": "person_dp_sgd", "dataset": str(table), "rounds": 1, "epsilon": 8.0,
        "learning_rate": 1.0, "channel": "sum", "model": "linear", "features": "unit-norm",
        "num_clients": 2, "label_column": "days", "label_range": [0, 30], "client_column": "site",
        "person_column": "who", "persons_at_sites": 2, "ignore_columns": ["no"],
        "scale_columns": {"crea": [0, 9]}, "spread_columns": {"age": [50, 20]},
        "fold_columns": ["age"], "categories": {"sex": ["f", "other"]},
        "other_columns": {"sex": "other"}, "fill_columns": {"crea": 5},
        "centre_columns": {"sex=f": 0.5},
    }  # fmt: skip
    config = fedldp.simulation.settings.from_mapping(settings)
    fedldp.run(config, out=tmp_path / "run")
    text = 'ask = ["evaluation"]\nchannel = "sum"\nepsilon = 4.0\n'
    found = config_to_ask(written(tmp_path, text), table, tmp_path / "run", [])
    assert found.columns == config.columns
    broken = {n: np.full_like(w, np.nan) for n, w in load_file(str(found.initial)).items()}
    save_file(broken, tmp_path / "nan.safetensors")
    with pytest.raises(ConfigError, match=r"nan.safetensors: .* holds NaN or infinity; give fin"):
        simulate(found.changed(initial=str(tmp_path / "nan.safetensors")))
    assert all(value or name in ("classes", "only") for name, value in vars(found.columns).items())
    with_rows = plan(found, replace(problem_of(found, None), counted_in_private=False)).privacy
    told = [each.values for each in COUNT_NOISE.among(with_rows.warnings)]
    table.unlink()
    unread = plan(found, problem_to_ask(found, 30, tmp_path / "run", None)).privacy
    assert [each.values for each in COUNT_NOISE.among(unread.warnings)] == told


@pytest.mark.slow
def test_a_given_model_is_evaluated_on_the_people_of_a_table(tmp_path: Path, table: Path) -> None:
    """Of the model in a run's folder, with that run's declarations of columns."""
    settings = {
        "system": "person_dp_sgd", "dataset": str(table), "model": "logistic", "rounds": 20,
        "learning_rate": 2.0, "epsilon": 8.0, "num_clients": 3, "channel": "sum",
        "client_column": "site", "person_column": "who", "ignore_columns": ["sex"],
        "scale_columns": {"age": [0.0, 120.0], "crea": [-4.0, 4.0]}, "fill_columns": {"age": 60.0},
    }  # fmt: skip
    run = fedldp.run(fedldp.simulation.settings.from_mapping(settings), out=tmp_path / "run")
    assert fedldp.evaluate(run)["answers"] == []
    text = 'ask = ["evaluation"]\nnum_clients = 3\nchannel = "sum"\nepsilon = 4.0\n'
    path = written(tmp_path, text)
    arguments = ["ask", str(path), str(table), "--model", str(tmp_path / "run"), "--json"]
    found = CliRunner().invoke(app, arguments)
    assert found.exit_code == 0, found.output
    document = json.loads(found.stdout)
    answers = {each["question"]: each for each in document["answers"]}
    assert abs(answers["AUC"]["value"] - run.rounds[-1].auc) < half_of(answers["AUC"]) + 0.03
    assert half_of(answers["AUC"]) < 0.03
    kinds = [each["kind"] for each in document["privacy"]["warnings"]]
    assert "scores-on-private-rows" not in kinds


@pytest.mark.slow
@pytest.mark.parametrize("channel", ["named", "sum", "central"])
def test_an_evaluation_tells_shares_by_group(tmp_path: Path, table: Path, channel: str) -> None:
    """Of columns as they are, while the model sees rows of norm 1 that were measured."""
    rows = read(table)
    settings = {
        "system": "person_dp_sgd", "dataset": str(table), "model": "linear", "rounds": 12,
        "features": "unit-norm", "learning_rate": 8.0, "clip": 0.44, "epsilon": 20.0,
        "num_clients": 3, "channel": channel, "client_column": "site", "person_column": "who",
        "categories": {"sex": ["f", "m", "other", "none"]}, "other_columns": {"sex": "other"},
        "scale_columns": {"age": [0.0, 120.0], "crea": [-4.0, 4.0]}, "fill_columns": {"age": 60.0},
        "measure_share": 0.1, "evaluation_share": 0.3, "by_columns": ["sex"],
    }  # fmt: skip
    data = fedldp.simulation.settings.from_mapping(settings)
    result = fedldp.run(data)
    answers = {each["question"]: each for each in answers_of(result.metrics)}
    for sex, text in (("f", "f"), ("m", "m"), ("other", "x")):
        answer = answers[f"observed share of class 1, sex={sex}"]
        truth = np.mean([row[5] == "1" for row in rows if row[2] == text])
        assert answer["seen"]
        assert abs(answer["value"] - truth) <= 1.3 * half_of(answer)
        area = answers[f"AUC, sex={sex}"]
        assert area["seen"]
        assert area["interval"][0] < answers["AUC"]["interval"][1]
        assert area["interval"][1] > answers["AUC"]["interval"][0]
    assert not answers["observed share of class 1, sex=none"]["seen"]
    assert not answers["AUC, sex=none"]["seen"]
    with pytest.raises(ConfigError, match="'age' is no column of features with declared"):
        fedldp.run(data.changed(by_columns=["age"]))


def test_a_card_lists_all_that_was_asked(tmp_path: Path, table: Path) -> None:
    """Also the scores of every round, and what was not seen; nothing of it is hidden."""
    settings = {
        "system": "person_dp_sgd", "dataset": str(table), "model": "logistic", "rounds": 3,
        "learning_rate": 2.0, "epsilon": 8.0, "num_clients": 3, "channel": "sum",
        "client_column": "site", "person_column": "who", "ignore_columns": ["sex", "age"],
        "scale_columns": {"crea": [-4.0, 4.0]}, "held_out_people": 0.3,
    }  # fmt: skip
    place = tmp_path / "run"
    result = fedldp.run(fedldp.simulation.settings.from_mapping(settings), out=place)
    found = read_run(place)
    folder, document = write_card(found)
    assert [*jsonschema.Draft202012Validator(schema()).iter_errors(document)] == []
    asked = [(each["round"], each["question"]) for each in document["answers"]]
    assert asked == [(round, "held-out accuracy") for round in (1, 2, 3)]
    assert document["scores"] is None
    assert fedldp.evaluate(place)["answers"] == document["answers"]
    assert fedldp.evaluate(result)["answers"] == document["answers"]
    last = document["answers"][-1]
    assert last["value"] == result.metrics["private held-out accuracy"]
    low, high = last["interval"]
    card = (folder / "README.md").read_text()
    assert f"| 3 | held-out accuracy | {last['value']:.4g} | {low:.4g} to {high:.4g} |" in card
    hidden = {**last, "value": None, "interval": None, "seen": False}
    card = model_card(found, {**document, "answers": [hidden]})
    assert "| 3 | held-out accuracy | not seen |  |" in card
    assert "Asked privately" not in model_card(found, {**document, "answers": []})
    (place / "metrics.jsonl").unlink()
    assert fedldp.evaluate(place)["answers"] is None


def test_a_card_of_answers_speaks_of_no_model(tmp_path: Path, table: Path) -> None:
    """Nothing was trained, so there is nothing to use; nobody says otherwise."""
    fedldp.run(config_to_ask(written(tmp_path), table, None, []), out=tmp_path / "run")
    folder, document = write_card(read_run(tmp_path / "run"))
    assert [*jsonschema.Draft202012Validator(schema()).iter_errors(document)] == []
    assert document["registry"]["basic"]["data_product_type"] is None
    card = (folder / "README.md").read_text()
    assert "| 1 | share of class 1 | 0." in card
    told = card.partition("```json")[0].lower().replace("no model was trained", "")
    for false in ("trained by", "classifier", "fedldp predict", "pipeline_tag", "not tested"):
        assert false not in told, false
    assert "## Use" not in card
    assert "Do not publish these answers as if" in card


def rows_of(features: Any) -> Rows:
    found = np.asarray(features, np.float32)
    return Rows(
        examples=Examples(found, np.zeros(len(found), np.int64)),
        logits=lambda: np.zeros((len(found), 2)),
    )


def test_numbers_below_above_and_missing_have_cells_of_their_own() -> None:
    given = [[v, 0] for v in (-1e30, 0.7, 1.9, 2.0, 7.0, 3e38, np.nan, np.inf, -np.inf)]
    cell = questions.numbers(0, (0.7, 2.0), 1).told({})
    assert cell(rows_of([*given, [1.0, 1.0]])).tolist() == [0, 1, 1, 2, 2, 2, 3, 3, 3, 3]
    assert questions.numbers(0, (0.7, 2.0)).cells == 4


def test_quartiles_are_those_of_numbers_without_noise() -> None:
    generator = np.random.default_rng(0)
    edges = tuple(np.arange(0.0, 10.1, 0.5))
    numbers = generator.gamma(4, 1, 50_000)
    counts = np.bincount(np.searchsorted(edges, numbers, side="right"), minlength=len(edges) + 2)
    asked = Asked(
        "x", questions.numbers(0, edges), (*map(str, range(counts.size - 1)), "x=missing"), edges
    )
    found = {each.name: each for each in asked.answers(counts.astype(float), 0.0)}
    for name, level in (("first quartile", 0.25), ("median", 0.5), ("third quartile", 0.75)):
        assert found[f"{name} of x"].value == pytest.approx(np.quantile(numbers, level), abs=0.05)
        interval = found[f"{name} of x"].interval
        assert interval is not None
        assert set(interval) <= set(edges), "an end is an edge of the counts, on its own side"
        assert 0 < interval[1] - interval[0] < 1.1


@pytest.mark.slow
def test_an_interval_of_a_median_holds_it_beside_many_edges_where_nobody_is() -> None:
    """49 % are below 10 and all others above 90; noise at each of 80 edges could mislead."""
    generator = np.random.default_rng(0)
    edges = tuple(np.arange(100.0))
    asked = Asked("x", questions.numbers(0, edges), (*map(str, range(101)), "x=missing"), edges)
    held = []
    for _ in range(400):
        low = generator.random(1_500) < 0.49
        numbers = np.where(low, generator.uniform(0, 10, 1_500), generator.uniform(90, 100, 1_500))
        counts = np.bincount(np.searchsorted(edges, numbers, side="right"), minlength=102)
        noisy = counts + generator.normal(0, 10, 102)
        (found,) = (each for each in asked.answers(noisy, 10.0) if each.name == "median of x")
        if found.interval is not None:
            held.append(found.interval[0] <= 90 + 10 * 0.01 / 0.51 <= found.interval[1])
    assert len(held) > 300
    assert np.mean(held) > 0.94


def test_a_quartile_outside_the_edges_is_not_seen() -> None:
    names = ("x below 0", "x 0 to 1", "x from 1 on", "x=missing")
    asked = Asked("x", questions.numbers(0, (0.0, 1.0)), names, (0.0, 1.0))
    found = {e.name: e for e in asked.answers(np.array([10.0, 10.0, 980.0, 0.0]), 3.0)}
    assert found["median of x"].value is None
    assert found["x from 1 on"].value == pytest.approx(0.98)


@pytest.mark.parametrize(
    ("ask", "rounds"),
    [(["shares"], (1, 0)), (["evaluation"], (0, 2)), (["age", "evaluation"], (1, 2))],
)
def test_a_run_that_asks_has_as_many_rounds_as_questions(
    ask: list[str], rounds: tuple[int, int]
) -> None:
    assert rounds_to_ask(ask) == rounds


@pytest.mark.slow
def test_cells_that_do_not_fit_into_a_sum_are_refused(tmp_path: Path, table: Path) -> None:
    edges = f"edges={{age={[*range(1 << 20)]}}}"
    config = config_to_ask(written(tmp_path), table, None, [edges])
    with pytest.raises(ConfigError, match="cells do not fit into a sum"):
        plan(config, problem_of(config, None))
