"""Public features in a deployment: every site computes the same ones, and the agreement says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from worlds import make_world

from fedldp.core.errors import ConfigError
from fedldp.deployment.agreement import parse_agreement
from fedldp.simulation.engine import simulate

SETTINGS = ("features=oriented-gradients", "model=logistic", "rounds=2")


@pytest.mark.parametrize("kind", ["oriented-gradients", "pose"])
def test_sites_do_what_a_simulation_does(tmp_path: Path, kind: str) -> None:
    world = make_world(tmp_path, *SETTINGS, f"features={kind}")
    served = world.serve()
    simulated = simulate(world.config, device="cpu")
    for name, weights in served.weights.items():
        assert weights.tobytes() == simulated.weights[name].tobytes()
    assert served.rounds[-1].accuracy == pytest.approx(simulated.accuracy)


def test_an_agreement_names_them_with_their_digest(tmp_path: Path) -> None:
    document = make_world(tmp_path, *SETTINGS).agreement.document
    assert document["features"]["name"] == "oriented-gradients"
    assert parse_agreement(json.dumps(document).encode()).document == document
    other = {**document["features"], "digest": "0" * 64}
    without = {name: value for name, value in document.items() if name != "features"}
    for wrong in ({**document, "features": other}, without):
        with pytest.raises(ConfigError, match="features have another digest"):
            parse_agreement(json.dumps(wrong).encode())
    assert "features" not in make_world(tmp_path / "plain").agreement.document
