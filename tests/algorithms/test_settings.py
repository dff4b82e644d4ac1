"""Settings of every system: calibrated ones may be left out, and one without effect is refused."""

from __future__ import annotations

import json
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w

import fedldp
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.recipes import recipes
from fedldp.core.errors import ConfigError
from fedldp.reporting.record import RunFolder
from fedldp.simulation.engine import simulate
from fedldp.simulation.plan import plan, problem_of
from fedldp.simulation.settings import from_mapping, read_toml, resolve, to_toml

# The guarantees that can be proven about a system's reports, or about what others see of them.
TARGETS: dict[str, dict[str, Any]] = {
    "central_dp": {"unit": "client-run", "epsilon": 8.0, "adversary": "downlink"},
    "dp_sgd": {"unit": "record", "epsilon": 2.0},
    "person_dp_sgd": {"unit": "record", "epsilon": 2.0},
}


@cache
def configs() -> dict[str, RunConfig]:
    """Return a configuration on digits for each system that needs a calibrated setting."""
    found = {}
    for recipe in recipes().values():
        config = recipe.config
        field = type(config).model_fields.get(config.calibrated)
        if config.dataset == "digits" and field is not None and field.is_required():
            found.setdefault(config.system, config)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("config", configs().values(), ids=configs())
def test_a_calibrated_setting_may_be_left_out(
    config: RunConfig, tmp_path: Path, fedldp_command: Any
) -> None:
    target = TARGETS.get(config.system, {"unit": "client-run", "epsilon": 50.0})
    given = {**config.model_dump(exclude_none=True), "target": target}
    if isinstance(given[config.calibrated], list):
        given[config.calibrated] = 1.0
    whole = plan(from_mapping(given), problem_of(config, None)).config
    del given[config.calibrated]
    path = tmp_path / "own.toml"
    path.write_text(tomli_w.dumps(given))
    found = read_toml(path)
    assert plan(found, problem_of(found, None)).config == whole
    assert getattr(whole, config.calibrated) != 1
    says = f"{config.calibrated} is solved for the target, whatever its value here"
    printed = to_toml(found)
    assert printed.startswith(f"# {says}\n")
    assert from_mapping(tomllib.loads(printed)) == found
    assert json.loads(fedldp_command("show", path, "--json").out)["epsilon"] == says
    del given["target"]
    with pytest.raises(ConfigError, match=f"^{config.calibrated} is not set, but"):
        from_mapping(given)


# The server's step: every system has its settings, and they do not change its statement


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


# A setting without effect


CONFIGS = {name: recipe.config for name, recipe in sorted(recipes().items())}
ON_DIGITS = {name: config for name, config in CONFIGS.items() if config.dataset == "digits"}
ON_ALL_DIGITS = {config.system: config for config in ON_DIGITS.values()}


@pytest.mark.slow
@pytest.mark.parametrize("config", ON_ALL_DIGITS.values(), ids=ON_ALL_DIGITS)
def test_untrusted_clients_are_counted_or_refused(config: RunConfig) -> None:
    few = config.changed(rounds=2)
    most = few.round_size - 1
    if "untrusted_clients" in few.unused_settings():
        with pytest.raises(
            ConfigError, match=rf"^untrusted_clients = {most}: no line of"
        ) as refused:
            few.changed(untrusted_clients=most)
        assert "\n" not in str(refused.value)
        return
    problem = problem_of(config, None)
    pooled = few.changed(untrusted_clients=most)
    assert plan(pooled, problem).privacy != plan(few, problem).privacy


def test_no_recipe_sets_an_unused_setting() -> None:
    for config in ON_DIGITS.values():
        for name in config.unused_settings():
            assert getattr(config, name) == type(config).model_fields[name].default, name


@pytest.mark.parametrize(
    ("recipe", "given", "name"),
    [
        ("composed-digits", ["local_update=solution", "ridge=1", "epsilon=4", "channel=named",
                             "mechanism=k_closest", "bound=direction", "untrusted_clients=0",
                             "local_epochs=1", "batch_size=10"], "learning_rate"),
        ("quickstart", ["mechanism=gaussian", "channel=named", "chunk=2"], "chunk"),
    ],
)  # fmt: skip
def test_a_refused_setting_is_unset_on_the_command_line_as_its_line_says(
    recipe: str, given: list[str], name: str
) -> None:
    with pytest.raises(ConfigError, match=rf"^{name} = ") as refused:
        resolve(recipe, given)
    remedy = re.search(rf"`--set ({name}=)`\)?$|set it to (\w+)$", str(refused.value))
    assert remedy is not None, refused.value
    resolve(recipe, [*given, remedy[1] or f"{name}={remedy[2]}"])
