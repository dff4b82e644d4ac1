"""Settings of the server's step: every system has them, and they do not change its statement."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedldp
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.recipes import recipes
from fedldp.reporting.record import RunFolder
from fedldp.simulation.engine import simulate
from fedldp.simulation.plan import plan, problem_of

DIGITS = [r.config for r in recipes().values() if r.config.dataset == "digits"]
SYSTEMS = {c.system: c for c in DIGITS if not c.composition.stages}  # stages refuse an optimiser
every_system = pytest.mark.parametrize("config", SYSTEMS.values(), ids=SYSTEMS)
ADAM = {"server_optimizer": "adam", "server_rate": 0.05}


def stepped(config: RunConfig, **changes: Any) -> RunConfig:
    """Return a short configuration with a server step, except if reports are signs."""
    epochs = {n: 1 for n in type(config).model_fields if "epochs" in n and getattr(config, n)}
    signs = getattr(config, "perturbation", "gaussian") in ("sign", "bare-sign")
    step = {} if signs else ADAM
    return config.changed(rounds=3, **epochs, **{**step, "average": 0.7, **changes})


@every_system
def test_no_step_and_no_average_changes_a_line_of_a_statement(config: RunConfig) -> None:
    problem = problem_of(config, None)
    known = plan(config.changed(rounds=3), problem)
    for changes in ({}, {"server_rate": 0.5, "server_optimizer": "momentum"}, {"average": 1.0}):
        made = config.changed(rounds=3, **changes) if changes else stepped(config)
        found = plan(made, problem)
        assert found.privacy == known.privacy
        assert found.releases == known.releases


# Runs

SHORT = {"rounds": 4, "num_clients": 20, "num_examples": 400, "local_epochs": 1}


def short(name: str, **changes: Any) -> RunConfig:
    return fedldp.recipe(name, **{**SHORT, **changes})


def weights_of(result: Any) -> bytes:
    return b"".join(value.tobytes() for value in result.weights.values())


def test_the_model_is_the_average_and_broadcasts_are_not(tmp_path: Path) -> None:
    config = short("fedavg-quickstart")
    last = simulate(config, out=tmp_path / "last")
    mean = simulate(config.changed(average=0.5), out=tmp_path / "mean")
    # Nothing that leaves a client changes, nor does any round before the averaged ones.
    assert [r.accuracy for r in mean.rounds[:3]] == [r.accuracy for r in last.rounds[:3]]
    states = [RunFolder(tmp_path / name).read_checkpoint() for name in ("last", "mean")]
    assert states[0] is not None
    assert states[1] is not None
    assert states[0][0].weights.tobytes() == states[1][0].weights.tobytes()
    before = simulate(config.changed(rounds=3))
    expected = (np.frombuffer(weights_of(before), np.float32).astype(float)
                + np.frombuffer(weights_of(last), np.float32)) / 2  # fmt: skip
    found = np.frombuffer(weights_of(mean), np.float32)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)
    loaded = fedldp.load(tmp_path / "mean").weights
    assert all(np.array_equal(loaded[name], value) for name, value in mean.weights.items())
