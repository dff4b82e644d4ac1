"""Tables at sites and the model of a deployed run work as in a simulation."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
from environments import make_environment

from fedldp import recipe
from fedldp.accounting.statement import Statement
from fedldp.algorithms.problem import Problem
from fedldp.core.errors import ConfigError, DataError, RunError
from fedldp.core.kinds import SIMULATED
from fedldp.data import Columns
from fedldp.deployment import server
from fedldp.deployment.agreeing import agree, input_of
from fedldp.deployment.agreement import parse_agreement
from fedldp.deployment.source import open_source
from fedldp.reporting.card import schema, write_card
from fedldp.simulation.recorded import read_run

AGREED = Columns(
    scaled={"age": (0.0, 100.0)}, categories={"sex": ("f", "m")}, classes=("no", "yes")
)


def test_a_sites_table_is_read_as_agreed(tmp_path: Path) -> None:
    path = tmp_path / "site.csv"
    path.write_text("age,sex,ill\n50,f,yes\n,m,no\n100,m,maybe\n0,m,no\n")
    source = open_source(path, "ill")
    assert str(source) == "4 rows of 3 columns"
    examples = source.examples(AGREED)
    assert examples.features.tolist() == [[0.5, 1, 0], [0, 0, 1]]
    assert examples.labels.tolist() == [1, 0]
    # The site's own operator learns what nobody else may know.
    with pytest.raises(DataError, match="line 3: column 'age' holds ''"):
        source.examples(AGREED, leave_out=False)


def test_a_sites_columns_are_found_by_the_agreed_names(tmp_path: Path) -> None:
    path = tmp_path / "site.csv"
    path.write_text("sex,ill,age\nf,yes,50\n")
    features = ("age", "sex=f", "sex=m")
    assert open_source(path, "ill").examples(AGREED, features).features.tolist() == [[0.5, 1, 0]]
    with pytest.raises(ConfigError, match="no column for the feature 'pressure'"):
        open_source(path, "ill").examples(AGREED, ("pressure", *features))


def test_names_of_features_are_agreed_on_and_kept_with_the_model(tmp_path: Path) -> None:
    assert input_of("age,sex=f, sex=m") == ((3,), ("age", "sex=f", "sex=m"))
    assert input_of("1x8x8") == ((1, 8, 8), None)
    config = recipe("fedavg-quickstart", model="logistic", standardise=False)
    names = tuple(f"pixel {i}" for i in range(64))
    made = agree(config, Problem((64,), 10, 99, features=names), {"a": "0" * 64}, channel="named")
    read = parse_agreement(made.to_bytes())
    assert read.problem.features == names
    assert read.digest == made.digest
    assert server._schema(read).features == names
    with pytest.raises(ConfigError, match="give one name for each number of an example"):
        agree(config, Problem((64,), 10, 99, features=names[1:]), {"a": "0" * 64}, channel="named")


def test_a_deployed_run_has_a_card_and_its_sites_have_none(tmp_path: Path) -> None:
    served = make_environment(tmp_path, seeded=False).serve()
    _, document = write_card(read_run(served.run_dir))
    jsonschema.validate(document, schema(), cls=jsonschema.Draft202012Validator)
    assert document["run"]["simulated"] is False
    shown = Statement.from_json(document)
    assert SIMULATED not in shown.warnings
    first, *others = shown.guarantees  # all of the run, the widest unit first
    assert (first.unit, first.adversary) == ("client-run", "server")
    assert {first, *others} == set(served.privacy.guarantees)
    assert "/registry/deployment_model/data_source_type" in document["to_be_filled"]["fields"]
    assert "only reports leave" in document["hazards"]["data_collection_exposure"]["finding"]
    assert "A simulation" not in (served.run_dir / "card" / "README.md").read_text()
    with pytest.raises(RunError, match="not a run folder"):
        write_card(read_run(tmp_path / "site-0"))
