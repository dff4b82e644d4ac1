"""A client of the sound LDPFL pays for its records, composed."""

from __future__ import annotations

from typing import Any

import pytest

import fedldp
from fedldp.accounting.guarantees import IDEALISED
from fedldp.simulation.plan import plan, problem_of


def planned(name: str, unit: str, **settings: Any) -> dict[str, dict[str, Any]]:
    config = fedldp.recipe(name, **settings)
    lines = plan(config, problem_of(config, None)).privacy["guarantees"]
    return {g["kind"]: g for g in lines if (g["unit"], g["adversary"]) == (unit, "server")}


def test_a_client_of_the_sound_ldpfl_pays_for_records_that_are_composed() -> None:
    found = planned("ldpfl-sound-mnist-eps0.5", "client-run")
    assert found["pure"]["epsilon"] == pytest.approx(15_000, rel=1e-7)
    line = found["approximate"]
    assert line["epsilon"] == pytest.approx(4_030.1653, abs=1e-3)
    # A record's densities are only bounded, and two inputs need not attain the bound.
    assert line["lower"] is None
    assert found["pure"]["lower"] is None
    assert IDEALISED in line["assumptions"]
