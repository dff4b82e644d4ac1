"""Runs on tables of persons with several rows, as the owner of the table types them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedldp
from fedldp.accounting.statement import Statement
from fedldp.core.errors import ConfigError
from fedldp.core.kinds import ROWS_DRAWN
from fedldp.data import Dataset
from fedldp.experiments.held_out import held_out
from fedldp.experiments.sweeping.sweeps import bases
from fedldp.reporting.record import read_schema
from fedldp.simulation.inputs import Inputs
from fedldp.simulation.plan import Plan, plan, problem_of
from fedldp.simulation.settings import resolve

SETTINGS = """
system = "fedavg"
dataset = "visits.csv"
label_column = "outcome"
client_column = "hospital"
person_column = "patient"
ignore_columns = ["visit"]
num_clients = 2
rounds = 2
model = "logistic"
learning_rate = 0.5
[scale_columns]
age = [0, 100]
"""
HOSPITALS = ("north", "south")
PERSONS = 40


def row(visit: int, who: int | str, hospital: str, age: int) -> str:
    return f"{visit},{who},{hospital},{age},{'ill' if age % 3 == 0 else 'well'}\n"


def visits() -> str:
    """Return a row for each visit, one to five for each person; a person's age is its number."""
    return "".join(
        row(visit, f"p{who}", HOSPITALS[who % 2], who)
        for who in range(PERSONS)
        for visit in range(1 + who % 5)
    )


def write(rows: str) -> None:
    Path("visits.csv").write_text(f"visit,patient,hospital,age,outcome\n{rows}")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(SETTINGS)
    write(visits())
    return tmp_path


def ages(inputs: Inputs, client: int) -> set[int]:
    train = inputs.dataset.train
    return {round(100 * float(age)) for age in train.features[inputs.members[client], 0]}


def config(**settings: Any) -> fedldp.algorithms.config.RunConfig:
    return fedldp.recipe("mine.toml", **settings)


def of_no_client(**settings: Any) -> Inputs:
    """Return the same rows without clients, so that the run divides them."""
    own = config(client_column=None, ignore_columns=["visit", "hospital"], **settings)
    return Inputs.of(own, None, None)


def test_a_run_reports_persons_in_rounded_counts(fedldp_command: Any, place: Path) -> None:
    result = fedldp_command("run", "mine.toml", "--out", "mine")
    assert result.status == 0, result.err
    schema = read_schema(Path("mine"))
    assert (schema.num_examples, schema.rounded) == (None, True)
    assert "up to 100 rows of up to 50 persons" in Path("mine/config.json").read_text()
    assert problem_of(config(), None).people == 32
    # For a resumed run, another number of persons with the same number of rows is other data.
    data = Inputs.of(config(), None, None)
    assert "32 persons" in str(data.exact_data)
    # New tables do not name persons.
    Path("later.csv").write_text("age,outcome\n3,ill\n4,well\n")
    assert fedldp_command("evaluate", "mine", "--data", "later.csv").status == 0
    assert (
        fedldp_command("predict", "mine", "--data", "later.csv", "--out", "found.csv").status == 0
    )


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ("6,,north,3,ill\n", "column 'patient' holds '', a missing value; every row needs its"),
        ("6,p1,north,1,well\n", "1 person has rows at more than persons_at_sites = 1 client;"),
    ],
)
def test_rows_without_a_clear_person_are_refused(fedldp_command: Any, rows: str, says: str) -> None:
    write(visits() + rows)
    for command in ("run", "account"):
        assert says in fedldp_command(command, "mine.toml").assert_refused()
    assert not Path("runs").exists()


def test_a_person_at_two_clients_must_be_declared(fedldp_command: Any) -> None:
    write(visits() + row(6, "p1", "north", 1))
    assert fedldp_command("account", "mine.toml", "--set", "persons_at_sites=2").status == 0


@pytest.mark.parametrize("scheme", ["iid", "dirichlet:0.5", "power-law:1.5"])
def test_a_persons_rows_go_to_one_client(scheme: str) -> None:
    for seed in range(5):
        inputs = of_no_client(partition=scheme, num_clients=5, seed=seed)
        of_each = [ages(inputs, client) for client in range(5)]
        assert sum(map(len, of_each)) == len(set.union(*of_each)) == inputs.problem.people == 32
        assert sorted(np.concatenate(list(inputs.members)).tolist()) == list(
            range(len(inputs.dataset.train))
        )
        if scheme == "iid":
            assert {len(each) for each in of_each} == {6, 7}


@pytest.mark.parametrize("scheme", ["shards:2", "drawn:6"])
def test_schemes_that_divide_rows_are_refused(scheme: str) -> None:
    with pytest.raises(ConfigError, match="all rows of a person go to one client; give iid"):
        of_no_client(partition=scheme, num_clients=5)


def test_there_are_no_more_clients_than_persons() -> None:
    with pytest.raises(ConfigError, match="num_clients is 33, more than the 32 people"):
        of_no_client(num_clients=33)


def test_equal_shares_of_persons_are_not_equal_shares_of_rows() -> None:
    """Charging for the stated number of rows would be too little."""
    inputs = of_no_client(num_clients=5)
    assert config().equal_share(inputs.problem, 5) is None
    assert len(set(inputs.members.sizes.tolist())) > 1
    with pytest.raises(ConfigError, match="all rows of a person at one client"):
        fedldp.account("nbafl-digits", dataset=inputs.dataset, model="logistic", num_clients=5)


def test_some_rows_of_a_person_with_many_are_kept() -> None:
    whole = Inputs.of(config(), None, None)
    few = [Inputs.of(config(rows_per_person=2, seed=seed), None, None) for seed in (0, 0, 1)]
    for inputs in few:
        for examples in (inputs.dataset.train, inputs.dataset.test):
            assert examples.people is not None
            assert np.bincount(examples.people).max() == 2
        assert inputs.problem.people == whole.problem.people
        assert [ages(inputs, client) for client in (0, 1)] == [
            ages(whole, client) for client in (0, 1)
        ]
        assert inputs.members.sizes.sum() == len(inputs.dataset.train)
        again = problem_of(config(rows_per_person=2), None)
        assert again.num_examples == len(inputs.dataset.train)


def test_a_bound_on_rows_is_stated_without_counting_anyone(fedldp_command: Any) -> None:
    for rows in (2, 500):
        given = f"rows_per_person={rows}"
        found = json.loads(fedldp_command("account", "mine.toml", "--json", "--set", given).out)
        said = ROWS_DRAWN.among(Statement.from_json(found).warnings)
        assert said == [ROWS_DRAWN(rows=rows)]


def test_settings_are_tried_on_held_out_persons_of_all_clients() -> None:
    whole = Inputs.of(config(), None, None).dataset
    for data in (whole, of_no_client().dataset):
        tried = held_out(data, 100)
        assert tried.train.people is not None
        assert tried.test.people is not None
        assert not np.isin(tried.test.people, tried.train.people).any()
        assert len(tried.train) + len(tried.test) == len(data.train)
        assert tried.num_people == 32 - 6
    tried = held_out(whole, 100)
    assert tried.clients is not None
    assert len(tried.clients) == 2
    lonely = Dataset.from_clients([([[0.0]], [0], [0]), ([[1.0]], [1], [0])], test=([[0.0]], [0]))
    with pytest.raises(ConfigError, match="no client has two"):
        held_out(lonely, 100)


def planned(assignment: str) -> Plan:
    config = resolve("mine.toml", [assignment])
    return plan(config, problem_of(config, None))


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        (
            'client_budget={kind="zcdp", limit=9}',
            "client_budget: .*, give a person_budget",
        ),
        ("person_budget.limit=9", 'person_budget: .*; set kind = "zcdp"'),
    ],
)
def test_a_budget_that_can_never_pay_is_refused_before_the_run(budget: str, said: str) -> None:
    text = Path("mine.toml").read_text().replace('"fedavg"', '"person_dp_sgd"')
    Path("mine.toml").write_text("epsilon = 4\n" + text)
    with pytest.raises(ConfigError, match=said):
        planned(budget)
    assert planned('person_budget={kind="zcdp", limit=9}').privacy.guarantees


def test_a_file_may_omit_what_is_given_separately() -> None:
    """The file of an agreement does: its clients are the sites of the roster."""
    text = Path("mine.toml").read_text()
    for line in ("num_clients = 2\n", 'client_column = "hospital"\n'):
        text = text.replace(line, "")
    Path("mine.toml").write_text(text)
    with pytest.raises(ConfigError, match="num_clients is not set"):
        resolve("mine.toml")
    found = resolve("mine.toml", ["num_clients=3", "rounds=7"])
    assert (found.num_clients, found.rounds) == (3, 7)
    assert fedldp.recipe("mine.toml", num_clients=3).num_clients == 3
    assert bases(["mine.toml"], {"num_clients": 3})["mine.toml"].num_clients == 3
    assert resolve("mine.toml", ["client_column=hospital"]).num_clients == len(HOSPITALS)
    with pytest.raises(ConfigError, match="num_clients is not set"):
        resolve("mine.toml", ["num_clients="])
