"""A server's folder has a card; a site's does not."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from environments import make_environment

from fedldp.accounting.statement import SIMULATED
from fedldp.core.errors import RunError
from fedldp.reporting.card import schema, write_card
from fedldp.simulation.recorded import read_run


def test_a_deployed_run_has_a_card(tmp_path: Path) -> None:
    env = make_environment(tmp_path, seeded=False)
    served = env.serve()
    _, document = write_card(read_run(served.run_dir))
    jsonschema.validate(document, schema(), cls=jsonschema.Draft202012Validator)
    assert document["run"]["simulated"] is False
    assert SIMULATED not in document["warnings"]
    lines = document["guarantees"]  # all of the run, the widest unit first
    assert (lines[0]["unit"], lines[0]["adversary"]) == ("client-run", "server")
    assert sorted(map(json.dumps, lines)) == sorted(map(json.dumps, served.privacy["guarantees"]))
    assert "/registry/deployment_model/data_source_type" in document["to_be_filled"]["fields"]
    assert "only reports leave" in document["hazards"]["data_collection_exposure"]["finding"]
    text = (served.run_dir / "card" / "README.md").read_text()
    assert "A simulation" not in text
    told = (served.run_dir / "report.html").read_text()
    assert "By class" in told
    assert "simulator" not in told
    with pytest.raises(RunError, match="not a run folder"):
        write_card(read_run(tmp_path / "site-0"))
