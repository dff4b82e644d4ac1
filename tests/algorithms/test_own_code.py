"""Own code that keeps something of rows is refused before a statement or an agreement is made."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import numpy as np
import own_code as planted
import pytest
import torch

import fedldp
from fedldp.algorithms.composition import Algorithm
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.own_code import _WAYS, check_own_code
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.recipes import recipes
from fedldp.core.errors import ConfigError
from fedldp.data.own_features import difference
from fedldp.deployment.agreeing import agree
from fedldp.simulation.plan import plan, problem_of

SHAPE, CLASSES = (1, 8, 8), 3

WAYS: dict[str, dict[str, Any]] = {
    "people": {"system": "person_dp_sgd", "epsilon": 1.0},
    "rows of people": {"system": "person_dp_sgd", "epsilon": 1.0},
    "rows": {"system": "dp_sgd", "noise_multiplier": 1.0},
    "clients": {"system": "fedavg"},
}
"""Systems in which a unit is a person, a person with a single row, a row, a client."""

EVERY = set(WAYS)
KEEPING: dict[str, set[str]] = {
    "Largest": EVERY, "Caching": {"people", "rows"}, "CachingByShape": {"rows of people"},
    "CachedWeights": {"clients", "rows"}, "Global": {"people", "clients"},
    "OwnGenerator": {"rows", "rows of people"}, "NumpyGenerator": {"clients"},
    "PythonGenerator": {"people"}, "InPlace": EVERY, "Lazy": {"clients"}, "nested": {"people"},
    "WithinACall": {"people", "rows of people"},
}  # fmt: skip
"""Models that keep something, and some systems in which that reaches another unit."""

HONEST = {
    "own_models:good": EVERY, "own_models:dropout": EVERY, "own_models:tied": {"people"},
    "own_models:mixing": {"rows"}, "own_models:several_rows": {"clients"},
    "own_models:own_parameter": {"rows of people"}, "own_code:Shapes": {"people", "rows"},
    "own_code:Gru": EVERY - {"rows"}, "own_code:Words": {"clients", "rows"},
    "own_models:Branching": {"people"},
}  # fmt: skip


def config_of(way: str, **settings: Any) -> RunConfig:
    common = {"dataset": "x", "rounds": 2, "learning_rate": 0.1, "num_clients": 3, "model": "mlp"}
    found = {**common, **WAYS.get(way, {}), **settings}
    from fedldp.simulation.settings import from_mapping

    return from_mapping(found)


def problem(way: str = "clients") -> Problem:
    return Problem(SHAPE, CLASSES, 300, people=100 if way == "people" else None)


def check(way: str, **settings: Any) -> None:
    check_own_code(config_of(way, **settings).algorithm(problem(way)))


def changed_by_others(algorithm: Algorithm) -> str | None:
    trial = _WAYS[algorithm.parts.local.alone](algorithm)
    return None if trial is None else difference(trial)


@pytest.fixture(autouse=True)
def forgotten() -> None:
    """Let every test begin as a new process would."""
    planted.LARGEST[:], planted.LOGITS[:] = [1.0], [1.0]


def cases(named: dict[str, set[str]]) -> list[tuple[str, str]]:
    return [(name, way) for name, ways in named.items() for way in WAYS if way in ways]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "way"), cases(KEEPING))
def test_a_model_that_keeps_something_is_refused_by_name(name: str, way: str) -> None:
    with pytest.raises(ConfigError, match=rf"^model = own_code:{name}: ") as refused:
        check(way, model=f"own_code:{name}")
    assert "\n" not in str(refused.value)
    named = {"nested": "Inner", "Lazy": "scale"}.get(name, name)
    assert named in str(refused.value).partition(": ")[2]


def test_what_is_kept_in_a_global_is_found_in_every_trial() -> None:
    """It is still there when the same run is tried again in the same process."""
    for _ in range(3):
        with pytest.raises(ConfigError, match="Global"):
            check("people", model="own_code:Global")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "way"), cases(HONEST))
def test_a_model_that_keeps_nothing_is_accepted(name: str, way: str) -> None:
    for _ in range(2):
        check(way, model=name)


@cache
def kinds() -> dict[tuple[str, ...], RunConfig]:
    """Return a recipe for each kind of local update with each kind of model and of features; on
    small data if there is one."""
    found: dict[tuple[str, ...], RunConfig] = {}
    configs = (recipe.config for recipe in recipes().values())
    for config in sorted(configs, key=lambda each: each.dataset != "digits"):
        local = type(config.composition.local).__name__
        for other in (config.model, str(config.model_dump().get("features"))):
            found.setdefault((local, other), config)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("config", kinds().values(), ids=map("-".join, kinds()))
def test_the_local_updates_of_fedldp_pass(config: RunConfig) -> None:
    config = config.changed(target=None) if config.target else config
    assert changed_by_others(config.algorithm(problem_of(config, None))) is None


@pytest.mark.parametrize("name", ["own_code:Gru", "own_models:Branching"])
def test_a_model_that_cannot_be_differentiated_for_single_rows_is_refused_by_name(
    name: str,
) -> None:
    with pytest.raises(ConfigError, match=f"^model = {name}: .*person_dp_sgd") as refused:
        check("rows", model=name)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("model", ["mlp", "own_models:good"])
def test_a_loss_that_keeps_something_is_refused_by_name(model: str) -> None:
    with pytest.raises(ConfigError, match="loss = own_code:scaled: tried on public rows"):
        check("clients", loss="own_code:scaled", model=model)
    check("clients", loss="own_code:focal", model=model)


@pytest.mark.parametrize("name", ["mixes_clients", "changes_rows", "changed_sgd"])
def test_a_local_update_that_keeps_something_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigError, match=f"^system = own_code:{name}: tried on public rows"):
        check("", system=f"own_code:{name}")
    check("", system="own_code:honest")


def test_a_refusal_comes_before_the_statement() -> None:
    settings: dict[str, Any] = {"system": "dp_sgd", "noise_multiplier": 1.0}
    config = config_of("rows", **settings, model="own_code:Largest")
    with pytest.raises(ConfigError, match="Largest"):
        plan(config, problem())


@pytest.mark.parametrize("way", WAYS)
def test_a_trial_leaves_the_random_generators_and_a_given_model_alone(way: str) -> None:
    torch.manual_seed(5)
    given = planted.Base(SHAPE, CLASSES)
    weights = [parameter.detach().clone() for parameter in given.parameters()]
    config = fedldp.recipe(config_of(way), model=given)
    before = torch.random.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    check_own_code(config.algorithm(problem(way)))
    assert torch.equal(before[0], torch.random.get_rng_state())
    assert (before[1] == np.random.get_state()[1]).all()
    assert before[2] == random.getstate()
    assert all(map(torch.equal, weights, given.parameters()))


def test_an_agreement_and_a_sites_own_copy_are_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server's copy keeps nothing; the site's copy of the same name does."""
    import own_models

    config = config_of("clients", model="own_models:good", num_clients=2)
    keys = {"a": "0" * 64, "b": "1" * 64}
    agreement = agree(config, problem(), keys, channel="named")
    agreement.check()
    monkeypatch.setattr(own_models, "good", planted.Largest)
    with pytest.raises(ConfigError, match="Largest"):
        agreement.check()
    with pytest.raises(ConfigError, match="Largest"):
        agree(config, problem(), keys, channel="named")
