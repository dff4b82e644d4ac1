"""A user's own data, mechanisms, systems and models on the command line; how good a model is."""

from __future__ import annotations

import csv
import json
import re
import tomllib
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import tomli_w
from documents import document

import fedldp
from fedldp.accounting.statement import Statement
from fedldp.core.errors import ConfigError
from fedldp.core.kinds import OWN_CODE, RESTS_ON
from fedldp.reporting.card import schema
from fedldp.simulation.settings import read_toml

CONFIG = """
system = "fedavg"
dataset = "patients.csv"
label_column = "outcome"
client_column = "hospital"
ignore_columns = ["patient"]
test_file = "later.csv"
classes = ["well", "ill"]
num_clients = 2
rounds = 2
model = "logistic"
learning_rate = 0.5
[scale_columns]
age = [20, 100]
[categories]
sex = ["f", "m"]
"""
MECHANISM = """
from dataclasses import dataclass
from fedldp.mechanisms.two_point import TwoPoint

@dataclass(frozen=True)
class Own(TwoPoint):
    name = "own"

class Thawed(TwoPoint):
    pass

class Nothing:
    pass
"""
SOUTH = [unicodedata.normalize(form, "süd") for form in ("NFC", "NFD")]
"""Two spellings of one client."""

WORD = OWN_CODE(of=("own_mech:Own",))
SYSTEM = """
from typing import Literal
from fedldp.algorithms.presets.fedavg import fedavg

class Mine(fedavg):
    system: Literal["own_system:Mine"] = "own_system:Mine"

class Unnamed(fedavg):
    pass
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    rng = np.random.default_rng(0)
    for name, count in (("patients.csv", 80), ("later.csv", 40)):
        ages = rng.integers(20, 100, count)
        rows = "".join(
            f"p{i},{'north' if i % 3 else SOUTH[i % 2]},{age},{'fm'[i % 2]},"
            f"{'ill' if age > 60 else 'well'}\n"
            for i, age in enumerate(ages)
        )
        (tmp_path / name).write_text("patient,hospital,age,sex,outcome\n" + rows)
    (tmp_path / "mine.toml").write_text(CONFIG)
    return tmp_path


def test_from_a_table_to_predictions_with_names(fedldp_command: Any, folder: Path) -> None:
    ran = fedldp_command("run", "mine.toml", "--out", "run", "--json", "--workers", 1)
    assert ran.status == 0, ran.err
    summary = json.loads(ran.out)
    assert [each["clients"] for each in summary["rounds"]] == [2, 2]
    schema = json.loads((folder / "run" / "schema.json").read_text())
    assert schema["classes"] == ["well", "ill"]
    assert schema["features"] == ["age", "sex=f", "sex=m"]
    assert "north" not in (folder / "run" / "schema.json").read_text()

    found = json.loads(fedldp_command("evaluate", "run", "--json").out)
    assert (found["examples"], found["rounded"]) == (50, True)  # as in the run's own warnings
    for name in ("accuracy", "auc", "average_precision", "balanced_accuracy", "brier"):
        assert found[name] == pytest.approx(summary["final"][name], abs=1e-6), name
    assert found["most_frequent"] == summary["final"]["most_frequent"]
    assert [row["class"] for row in found["classes"]] == ["well", "ill"]
    assert np.sum(found["confusion"], axis=1) == pytest.approx([1, 1], abs=0.011)  # shares
    assert found["auc"] == found["classes"][1]["auc"]
    other = json.loads(fedldp_command("evaluate", "run", "--data", "patients.csv", "--json").out)
    assert (other["examples"], other["rounded"]) == (80, False)
    shown = fedldp_command("evaluate", "run").out
    assert "balanced" in shown
    assert "ill" in shown

    (folder / "new.csv").write_text("age,sex\n95,m\n21,f\n")
    rows = json.loads(fedldp_command("predict", "run", "--data", "new.csv", "--json").out)
    assert {row["class"] for row in rows} <= {"well", "ill"}
    assert fedldp_command("predict", "run", "--data", "new.csv", "--out", "out.csv").status == 0
    lines = (folder / "out.csv").read_text().splitlines()
    assert lines[0] == "row,class,probability of well,probability of ill,problem"
    assert [line.split(",")[1] for line in lines[1:]] == [row["class"] for row in rows]
    (folder / "new.csv").write_text("age,sex\n95,x\n")
    line = fedldp_command("predict", "run", "--data", "new.csv").assert_refused()
    assert "write one of its categories (f, m), or drop the row" in line


def test_bad_rows_are_marked_and_an_id_is_kept(fedldp_command: Any, folder: Path) -> None:
    assert fedldp_command("run", "mine.toml", "--out", "run", "--workers", 1).status == 0
    Path("new.csv").write_text("visit,age,sex\nv1,95,m\nv2,old,x\nv3,21,f\nv4,,f\n")
    given = ("predict", "run", "--data", "new.csv", "--id", "visit")
    found = fedldp_command(*given, "--json")
    rows = json.loads(found.out)
    assert "2 of 4 rows have no prediction" in found.err
    assert [row["id"] for row in rows] == ["v1", "v2", "v3", "v4"]
    assert [row["class"] is None for row in rows] == [False, True, False, True]
    assert "column 'age' holds 'old', which is not a number" in rows[1]["problem"]
    assert "column 'sex' holds 'x', which is not a category" in rows[1]["problem"]
    assert "column 'age' holds '', a missing value" in rows[3]["problem"]
    Path("clean.csv").write_text("age,sex\n95,m\n21,f\n")  # the others do not change
    clean = json.loads(fedldp_command("predict", "run", "--data", "clean.csv", "--json").out)
    assert [row["probability"] for row in clean] == [rows[0]["probability"], rows[2]["probability"]]

    assert fedldp_command(*given, "--out", "p.csv").status == 0
    with Path("p.csv").open(newline="") as file:
        written = list(csv.reader(file))
    assert written[0][-2:] == ["problem", "visit"]
    assert [line[-1] for line in written[1:]] == ["v1", "v2", "v3", "v4"]
    assert written[2][1:4] == ["", "", ""]
    assert written[2][4] == rows[1]["problem"]
    line = fedldp_command("predict", "run", "--data", "new.csv", "--id", "no").assert_refused()
    assert "id = no: new.csv has no such column; name one of visit, age, sex" in line
    line = fedldp_command("predict", "run", "--data", "new.csv").assert_refused()
    assert "columns that the model does not take: visit" in line


def test_numbers_from_a_table_to_predictions_a_page_and_a_card(
    fedldp_command: Any, folder: Path
) -> None:
    rng = np.random.default_rng(3)
    ages = rng.integers(20, 100, 900)
    days = (2 + ages / 10 + rng.normal(0, 1, 900)).round(1)
    rows = (f"p{i},{'ns'[i % 2]},{age},{'fmx'[i % 3]},{day}\n"
            for i, (age, day) in enumerate(zip(ages, days, strict=True)))  # fmt: skip
    Path("stays.csv").write_text("patient,hospital,age,sex,days\n" + "".join(rows))
    Path("stays.toml").write_text(NUMBERS)
    given = ("run", "stays.toml", "--workers", 1)
    ran = fedldp_command(*given, "--out", "run", "--json")
    assert ran.status == 0, ran.err
    summary = json.loads(ran.out)
    final = summary["final"]
    assert final["accuracy"] is None
    assert final["r2"] > 0.5
    assert 0.5 < final["mae"] < 2
    figures = {each["metric"]: each for each in summary["figures"]}
    assert figures["r2"]["baseline"] == 0
    assert figures["mae"]["rows"] == "uncovered"
    shown = fedldp_command("evaluate", "run")
    assert f"R2         {final['r2']:.4f} on the run's test set" in shown.out
    assert "F1" not in shown.out
    found = json.loads(fedldp_command("evaluate", "run", "--json").out)
    for name in ("r2", "mae", "calibration_gap"):
        assert found[name] == pytest.approx(final[name], abs=1e-5)

    Path("new.csv").write_text("age,sex\n95,m\n21,q\nold,f\n")
    rows = json.loads(fedldp_command("predict", "run", "--data", "new.csv", "--json").out)
    assert rows[0]["number"] > rows[1]["number"] + 4  # q is another sex, as declared
    assert rows[2]["number"] is None
    assert "column 'age' holds 'old'" in rows[2]["problem"]
    assert fedldp_command("predict", "run", "--data", "new.csv", "--out", "p.csv").status == 0
    assert Path("p.csv").read_text().startswith("row,number,problem\n1,")
    for option in ("--threshold", "--shift"):
        line = fedldp_command("predict", "run", "--data", "new.csv", option, 0.5).assert_refused()
        assert "the model of run predicts numbers" in line

    assert fedldp_command("report", "run", "--out", "page.html").status == 0
    page = Path("page.html").read_text()
    assert f"R2 <b>{final['r2']:.4f}</b>" in page
    assert "R2 and mean absolute error by round" in page
    assert fedldp_command("card", "run", "--out", "card", "--scores").status == 0
    card = Path("card/README.md").read_text()
    assert "tabular-regression" in card
    assert "A model that predicts a number (model linear), trained by" in card
    assert "lassifier" not in card
    domain = json.loads(Path("card/privacy.json").read_text())["registry"]["dp_variant"]
    assert domain["data_domain"].endswith("; labels: numbers within a declared range")
    assert f"| R2 | {final['r2']:.4f} |" in card
    jsonschema.validate(json.loads(Path("card/privacy.json").read_text()), schema())
    text = fedldp_command(*given, "--out", "again").out
    assert f"{final['r2']:.4f}" in text
    assert "│ 30    │ 2       │ 0." in text
    assert [each["r2"] for each in summary["rounds"]][-1] == final["r2"]


def test_the_guide_to_numbers_makes_a_file_by_the_rule(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = (f"p{i},{'ns'[i % 2]},{20 + i % 80},{'fm'[i % 2]},{i % 30}\n" for i in range(900))
    Path("stays.csv").write_text("patient,hospital,age,sex,days\n" + "".join(rows))
    placeholders = re.sub("rounds = .*|learning_rate = .*", "", NUMBERS)
    Path("stays.toml").write_text("rounds = 1\nlearning_rate = 1\n" + placeholders)
    (code,) = (
        block for block in re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.M | re.S)
        if "by_rule" in block
    )  # fmt: skip
    exec(code, {})
    made = tomllib.loads(capsys.readouterr().out)
    assert made["rounds"] > 1
    assert made["learning_rate"] != 1
    Path("by_rule.toml").write_text(tomli_w.dumps(made))
    assert read_toml(Path("by_rule.toml")).clip == 0.313


GUIDE = Path(__file__).parents[1] / "docs/numbers.md"

NUMBERS = """
system = "person_dp_sgd"
dataset = "stays.csv"
label_column = "days"
client_column = "hospital"
person_column = "patient"
model = "linear"
features = "unit-norm"
channel = "central"
epsilon = 8.0
rounds = 30
clip = 0.313
learning_rate = 4.0
label_range = [0, 30]
label_typical = 8.0

[spread_columns]
age = [60, 20]

[categories]
sex = ["f", "m", "other"]

[other_columns]
sex = "other"
"""


def test_a_shift_moves_the_log_odds(fedldp_command: Any, folder: Path) -> None:
    assert fedldp_command("run", "mine.toml", "--out", "run", "--workers", 1).status == 0

    def ill(*more: Any) -> np.ndarray:
        given = ("predict", "run", "--data", "later.csv", "--id", "patient", *more)
        assert fedldp_command(*given, "--out", "p.csv").status == 0
        with Path("p.csv").open(newline="") as file:
            return np.array([float(row["probability of ill"]) for row in csv.DictReader(file)])

    plain, shifted = ill(), ill("--shift", "0.7")
    odds = np.log(shifted / (1 - shifted)) - np.log(plain / (1 - plain))
    np.testing.assert_allclose(odds, 0.7, atol=1e-3)
    assert (
        "give a number above -50"
        in fedldp_command(
            "predict", "run", "--data", "later.csv", "--shift", "nan"
        ).assert_refused()
    )


def test_clients_are_counted_from_their_column(fedldp_command: Any, folder: Path) -> None:
    path = Path("uncounted.toml")
    path.write_text(CONFIG.replace("num_clients = 2\n", ""))
    assert read_toml(path).num_clients == 2
    # The header shows the number of clients in the data, not in the configuration file.
    path.write_text(CONFIG.replace("num_clients = 2", "num_clients = 7"))
    assert "patients.csv, 2 clients, 2 rounds" in fedldp_command("run", path).err
    path.write_text(CONFIG.replace("num_clients = 2\n", "").replace('"hospital"', '"clinic"'))
    with pytest.raises(ConfigError, match="client_column names 'clinic'"):
        read_toml(path)


def test_predictions_do_not_replace_data(fedldp_command: Any, folder: Path) -> None:
    assert fedldp_command("run", "mine.toml", "--out", "run").status == 0
    before = Path("patients.csv").read_bytes()
    outcome = fedldp_command("predict", "run", "--data", "later.csv", "--out", "patients.csv")
    assert (outcome.status, Path("patients.csv").read_bytes()) == (2, before)
    for _ in range(2):
        assert fedldp_command("predict", "run", "--data", "later.csv", "--out", "p.csv").status == 0
    header, *rows = Path("later.csv").read_text().splitlines()
    turned = [",".join(reversed(line.split(","))) for line in (header, *rows)]
    Path("turned.csv").write_text("\n".join(turned) + "\n")
    assert fedldp_command("predict", "run", "--data", "turned.csv", "--out", "q.csv").status == 0
    assert Path("q.csv").read_bytes() == Path("p.csv").read_bytes()


def test_a_run_is_evaluated_and_resumed_from_another_folder(
    fedldp_command: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fedldp_command("run", "mine.toml", "--out", "runs/mine").status == 0
    here = fedldp_command("evaluate", "runs/mine", "--json")
    (folder / "other").mkdir()
    (folder / "other" / "patients.csv").write_text("another file of that name")
    monkeypatch.chdir(folder / "other")
    mine = folder / "runs" / "mine"
    there = fedldp_command("evaluate", mine, "--json")
    assert {**json.loads(there.out), "run_dir": None} == {**json.loads(here.out), "run_dir": None}
    later = folder / "later.csv"
    assert fedldp_command("predict", mine, "--data", later).status == 0
    assert fedldp_command("run", "--resume", mine).status == 0
    assert str(folder) not in (mine / "environment.json").read_text()
    later.unlink()
    says = f"there is no file later.csv here, or in {folder}, where the run was started; "
    line = fedldp_command("evaluate", mine).assert_refused()
    remedy = "give --data FILE with labelled examples (Python: dataset=)"
    assert line == f"error: {mine}: {says}{remedy}"
    assert (
        fedldp_command("run", "--resume", mine).assert_refused()
        == f"error: {says}put the file there"
    )


# A mechanism, a system and a model from a file in the current folder


def test_a_users_mechanism_runs_and_is_stated(fedldp_command: Any, folder: Path) -> None:
    (folder / "own_mech.py").write_text(MECHANISM)
    own = fedldp_command("account", "--set", "mechanism=own_mech:Own", "--json")
    assert own.status == 0, own.err
    plain = Statement.from_json(document(fedldp_command("account", "--json").out))
    found = Statement.from_json(document(own.out))
    for line, same in zip(found.guarantees, plain.guarantees, strict=True):
        assert line == replace(
            same,
            lower=None,
            method=line.method,
            assumptions=same.assumptions | {WORD},
            stated_by="own_mech:Own",
        )
    assert found.warnings == (*plain.warnings, RESTS_ON(assumption=WORD, of="code"))
    for name, says in (
        ("Thawed", "frozen=True"),
        ("Nothing", "not a subclass of fedldp.mechanisms.Mechanism"),
        ("Gone", "own_mech"),
    ):
        line = fedldp_command("account", "--set", f"mechanism=own_mech:{name}").assert_refused()
        assert says in line


def test_a_users_system_is_loaded_again_from_its_file(fedldp_command: Any, folder: Path) -> None:
    (folder / "own_system.py").write_text(SYSTEM)
    for name in ("Mine", "Unnamed"):
        text = CONFIG.replace('"fedavg"', f'"own_system:{name}"')
        (folder / f"{name}.toml").write_text(text)
    printed = fedldp_command("run", "Mine.toml", "--print-config").out
    assert 'system = "own_system:Mine"' in printed
    line = fedldp_command("account", "Unnamed.toml").assert_refused()
    assert 'Literal["own_system:Unnamed"]' in line


def test_a_model_may_be_a_class_or_an_instance(folder: Path) -> None:
    from own_models import Base
    from torch import nn

    assert fedldp.recipe("fedavg-quickstart", model=Base).model == "own_models:Base"
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    config = fedldp.recipe("fedavg-quickstart", model=net, rounds=1, learning_rate=1e-9)
    given = net[1].weight.detach().numpy().copy()
    net[1].weight.data.add_(1.0)  # it is trained as it was when it was given
    np.testing.assert_allclose(fedldp.run(config).weights["1.weight"], given, atol=1e-6)
    with pytest.raises(ConfigError, match=r"workers = 2: the model was given as an object"):
        fedldp.run(config, workers=2)


# What show prints, and files of settings


@pytest.mark.parametrize(("name", "kind"), [("ldp_fl", "system"), ("ldp-fl-mnist", "recipe")])
def test_systems_and_recipes_are_shown(fedldp_command: Any, name: str, kind: str) -> None:
    found = json.loads(fedldp_command("show", name, "--json").out)
    assert (found["kind"], found["name"]) == (kind, name)
    assert found["description"]
    assert all(each["meaning"] for each in found["settings"])
    assert name in fedldp_command("show", name).out
    if kind == "recipe":
        assert found["expected"]["accuracy"] == pytest.approx(0.9624)
        values = {each["name"]: each["value"] for each in found["settings"]}
        assert values["num_clients"] == 100
        assert list(found["parts"]) == [
            "features", "local update", "bound", "calibration", "channel", "estimate",
            "participation",
        ]  # fmt: skip
        assert "without names" in found["parts"]["channel"]
        assert "secure sum" in fedldp_command("show", "composed-digits").out
