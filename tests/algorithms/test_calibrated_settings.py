"""A calibrated setting may be left out, in every system that needs it."""

from __future__ import annotations

import json
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.recipes import recipes
from fedldp.core.errors import ConfigError
from fedldp.simulation.plan import plan, problem_of
from fedldp.simulation.settings import from_mapping, read_toml, to_toml

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
