"""Lines of a statement say on whose word they rely."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from folders import quick

from fedldp.accounting.events import BinaryRandomizedResponse, Event, InClear, PureReport
from fedldp.accounting.releases import ReleaseHistory
from fedldp.accounting.statement import (
    SCHEMA_VERSION,
    ShufflerInPath,
    Statement,
    SumInPath,
    statement,
)
from fedldp.core.errors import RunError
from fedldp.core.facts import Method
from fedldp.core.kinds import ONE_COORDINATE, SHUFFLED_MESSAGES
from fedldp.simulation.engine import simulate
from fedldp.simulation.recorded import read_run


def stated(event: Event, *own: str) -> Statement:
    releases = ReleaseHistory.planned({event: range(3)}, {1: range(3)}, None)
    return statement(releases, claim=None, shuffler=None, delta=1e-5, own_code=own)


def nested(method: Method | None) -> Iterator[Method]:
    while method is not None:
        yield method
        method = method.values.get("of")


@pytest.mark.parametrize("own", [(), ("mine:Noise",), ("mine:System", "mine:Noise")])
def test_a_line_says_on_whose_word_it_relies(own: tuple[str, ...]) -> None:
    found = stated(PureReport(epsilon=1.0), *own)
    assert {line.stated_by for line in found.guarantees} == {", ".join(own) or "fedldp"}


def test_no_lower_bound_is_shown_for_a_users_own_code() -> None:
    bits = BinaryRandomizedResponse(epsilon=1.0, coordinates=8)
    ours, theirs = (
        statement(
            ReleaseHistory.planned({bits: range(100)}, {1: range(100)}, None),
            claim=None,
            shuffler=ShufflerInPath(chunk=1, untrusted_clients=0, prediction_error=0.0),
            summed=SumInPath(untrusted_clients=1),
            delta=1e-5,
            own_code=own,
        )
        for own in ((), ("mine:Bits",))
    )
    methods = [each for line in ours.guarantees for each in nested(line.method)]
    assert ONE_COORDINATE(tight="exact") in methods
    assert any(each.values["lower"] for each in SHUFFLED_MESSAGES.among(methods))
    assert {line.adversary for line in ours.guarantees if line.lower is not None} == {
        "server",
        "shuffled-server",
        "summing-server",
    }
    assert all(line.lower is None for line in theirs.guarantees)
    for line, same in zip(theirs.guarantees, ours.guarantees, strict=True):
        assert line.epsilon == same.epsilon
        methods = list(nested(line.method))
        assert ONE_COORDINATE(tight="exact") not in methods
        assert all(each.values["lower"] is None for each in SHUFFLED_MESSAGES.among(methods))


def test_an_absent_guarantee_relies_on_nobodys_word() -> None:
    found = stated(InClear(what="weights"), "mine:Noise")
    assert {line.stated_by for line in found.guarantees} == {"fedldp"}


def test_a_statement_of_another_schema_version_is_refused(tmp_path: Path) -> None:
    simulate(quick(rounds=1), recipe="quickstart", out=tmp_path / "run")
    path = tmp_path / "run" / "summary.json"
    found = json.loads(path.read_text())
    found["privacy"]["schema_version"] = SCHEMA_VERSION + 1
    path.write_text(json.dumps(found))
    with pytest.raises(RunError, match="schema_version"):
        read_run(tmp_path / "run")
