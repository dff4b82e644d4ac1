"""Sites whose people have several rows: what is told beforehand, and what is used."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds import bits, make_world

import fedldp
from fedldp.algorithms.problem import Problem
from fedldp.core.errors import ConfigError, DataError
from fedldp.data import Columns, Examples
from fedldp.deployment.agreeing import agree
from fedldp.deployment.agreement import Agreement, parse_agreement
from fedldp.deployment.examples import _filled, check_people, examples_for
from fedldp.deployment.source import Source, open_source
from fedldp.protocol.client_keys import SecretKeys
from fedldp.simulation.inputs import Inputs

TABLE = "age,patient,label\n1,a,0\n2,,1\n3,b,1\n4,a,0\n5,a,1\n"


def written(folder: Path, text: str = TABLE) -> Path:
    path = folder / "site.csv"
    path.write_text(text)
    return path


def agreement(people: int | None = 20, **settings: Any) -> Agreement:
    config = fedldp.recipe(
        "fedavg-quickstart", dataset="all.csv", model="logistic", standardise=False, **settings
    )
    return agree(config, Problem((1,), 2, 99, people=people), {"a": "0" * 64}, channel="named")


def used(made: Agreement, source: Source, secret: int = 0) -> Examples:
    keys = SecretKeys(bytes([secret]) * 32, made.run)
    return examples_for(made, source, Path("site.csv"), None, keys.kept)


def ages(examples: Examples) -> list[float]:
    found: list[float] = examples.features[:, 0].tolist()
    return found


def test_the_column_of_people_is_what_the_site_calls_it(tmp_path: Path) -> None:
    path = written(tmp_path, TABLE.replace("2,,1", "2,b,1"))
    for own, agreed in ((None, "patient"), ("patient", "person"), ("patient", None)):
        source = open_source(path, "label", own)
        found = source.examples(Columns(person=agreed), leave_out=False)
        assert found.features.shape == (5, 1)
        assert found.people is not None
        assert found.people.tolist() == [0, 1, 1, 0, 0]
    # Where others leave the column out.
    source = open_source(path, "label", "patient")
    assert source.examples(Columns(ignored=("patient",))).people is not None


def test_a_gap_is_told_to_the_operator_and_left_out_of_a_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = agreement(person_column="patient")
    source = open_source(written(tmp_path), "label")
    with pytest.raises(DataError, match="line 3: column 'patient' holds '', a missing value"):
        check_people(made, source, Path("site.csv"))
    found = used(made, source)
    assert ages(found) == [1, 3, 4, 5]
    assert "1 of 5 examples are left out" in caplog.text
    assert "every row needs its person" in caplog.text


def test_a_file_that_names_no_people_is_not_used_where_they_are_agreed(tmp_path: Path) -> None:
    nobody = open_source(written(tmp_path, "age,label\n1,0\n"), "label")
    with pytest.raises(ConfigError, match="person_column names 'patient'"):
        check_people(agreement(person_column="patient"), nobody, Path("site.csv"))
    path = tmp_path / "site.npz"
    np.savez(path, features=np.ones((4, 1)), labels=np.arange(4) % 2)
    bare = open_source(path, "label")
    for made in (agreement(), agreement(None, rows_per_person=2)):
        for refused in (lambda: check_people(made, bare, path), lambda: used(made, bare)):  # noqa: B023
            with pytest.raises(ConfigError, match="does not say which rows are one person's"):
                refused()
    check_people(agreement(None), bare, path)  # of rows, then
    np.savez(path, features=np.ones((4, 1)), labels=np.arange(4) % 2, groups=[3, 3, 3, 1])
    assert str(open_source(path, "label")) == "4 examples of 2 persons of shape (1,)"
    assert used(agreement(), open_source(path, "label")).people is not None


def test_which_rows_of_a_person_are_used_follows_from_the_sites_secret(tmp_path: Path) -> None:
    path = tmp_path / "site.npz"
    whose = np.repeat(np.arange(6), 5)
    np.savez(path, features=np.arange(30.0)[:, None], labels=whose % 2, groups=whose)
    made, source = agreement(rows_per_person=2), open_source(path, "label")
    found = used(made, source)
    assert found.people is not None
    assert found.people.tolist() == np.repeat(np.arange(6), 2).tolist()
    assert (np.floor(found.features[:, 0] / 5) == found.people).all()
    assert ages(found) == ages(used(made, source))  # as after a restart
    assert ages(found) != ages(used(made, source, secret=1))
    assert ages(found) != ages(used(agreement(rows_per_person=2), source))  # in another run


def test_the_number_of_people_is_agreed_where_it_is_given() -> None:
    made = agreement(20, person_column="patient", rows_per_person=3, persons_at_sites=2)
    read = parse_agreement(made.to_bytes())
    assert read.digest == made.digest
    assert read.problem.people == 20
    assert read.config.columns.person == "patient"
    assert (read.config.rows_per_person, read.config.persons_at_sites) == (3, 2)
    assert "people" not in agreement(None).document["problem"]


def test_what_is_made_up_for_is_nobodys() -> None:
    some = Examples(np.ones((3, 1), np.float32), np.zeros(3, np.int64), np.array([4, 0, 4]))
    found = _filled(some, 5, 2)
    assert found.people is not None
    assert found.people.tolist() == [4, 0, 4, 5, 6]


def test_sites_with_people_train_as_a_simulation_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"{who % 9 / 9},h{who % 3},p{who},{who % 2}\n" * (1 + who % 4) for who in range(30)]
    (tmp_path / "all.csv").write_text("age,hospital,patient,label\n" + "".join(rows))
    world = make_world(
        tmp_path, "dataset=all.csv", "client_column=hospital", "person_column=patient",
        "rows_per_person=2", "model=logistic", "num_examples=", "standardise=false",
        recipe="fedavg-quickstart",
        policy={"allow_in_clear": True, "budget": {"kind": "zcdp", "limit": math.inf}},
    )  # fmt: skip
    assert world.agreement.problem.people == 24
    site = world.agent(0)._runs[world.agreement.digest].runtime.members.batch([0], 1)
    own = world.inputs.dataset.train.taken(world.inputs.members[0])
    assert own.people is not None
    assert site.examples.people is not None
    np.testing.assert_array_equal(np.unique(own.people, return_inverse=True)[1],
                                  site.examples.people)  # fmt: skip
    served = world.serve()
    assert bits(served) == bits(fedldp.run(world.config))
    assert Inputs.of(world.config, None, None).problem.people == 24
