"""Every output has the console's warnings and the requested guarantee."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import Page

from fedldp.accounting.guarantees import Guarantee
from fedldp.accounting.statement import Statement
from fedldp.core.kinds import PURE_SUM
from fedldp.reporting.html import page
from fedldp.reporting.lines import asked_first
from fedldp.reporting.words import explain
from fedldp.simulation.result import read_run
from fedldp.simulation.settings import resolve


def test_the_requested_guarantee_comes_first(visits: Path) -> None:
    run = read_run(visits)
    assert run.asked == ("person", "server")
    assert run.headline is not None
    assert run.headline.unit == "person"
    told = Page(page([run])).text()
    asked = (
        "Asked for: epsilon 2 (delta 1e-05) about all data of one person, against the server; "
        "proven: epsilon"
    )
    said = "This run was simulated and protects nothing itself: the guarantee holds for a deploym"
    assert told.index(asked) < told.index(said) < told.index("AUC")
    assert told.index("AUC") < told.index("Privacy: what is claimed")


def test_any_requested_line_comes_first() -> None:
    lines = tuple(
        Guarantee(unit=unit, adversary=adversary, epsilon=epsilon, delta=0.0,
                  method=PURE_SUM(over="reports"))
        for unit, adversary, epsilon in (
            ("weight", "server", 1.0), ("client-run", "server", 9.0),
            ("client-run", "summing-server", 3.0),
        )
    )  # fmt: skip
    privacy = Statement(claim=None, guarantees=lines, warnings=())
    for line in lines:
        found = asked_first(privacy, (line.unit, line.adversary))
        assert found.guarantees[0] == line
        assert set(found.guarantees) == set(lines)
        places = {each: explain(found).index(f"epsilon {each.epsilon:g}") for each in lines}
        assert min(places, key=places.__getitem__) == line
    assert asked_first(privacy, None) == privacy


def test_a_dotted_key_leaves_the_rest_of_its_table(
    visits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(visits.parent)
    changed = resolve("visits.toml", ["target.epsilon=3", "scale_columns.age=[0, 99]"])
    whole = resolve("visits.toml")
    assert changed.target == whole.target.changed(epsilon=3.0)  # type: ignore[union-attr]
    assert changed.scale_columns == whole.scale_columns | {"age": [0.0, 99.0]}
    replaced = resolve("visits.toml", ['target={unit="record", epsilon=1.0}', "person_column="])
    assert replaced.target is not None
    assert replaced.target.unit == "record"
