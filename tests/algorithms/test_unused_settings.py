"""A setting without effect is refused, so that nobody relies on it."""

from __future__ import annotations

import re

import pytest

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.recipes import recipes
from fedldp.core.errors import ConfigError
from fedldp.simulation.plan import plan, problem_of
from fedldp.simulation.settings import resolve

CONFIGS = {name: recipe.config for name, recipe in sorted(recipes().items())}
ON_DIGITS = {name: config for name, config in CONFIGS.items() if config.dataset == "digits"}
SYSTEMS = {config.system: config for config in ON_DIGITS.values()}


@pytest.mark.parametrize("config", SYSTEMS.values(), ids=SYSTEMS)
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
