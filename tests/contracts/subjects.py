"""The configurations on which the contracts of clients are tested."""

from __future__ import annotations

from samples import one_of_a_kind

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.recipes import recipes
from fedldp.mechanisms import mechanisms
from fedldp.testing.cases import ROUNDS, SEED
from fedldp.testing.toys import DEEP_MODEL


def configs() -> dict[str, RunConfig]:
    """Return short configurations: a digits recipe of every kind, then variants that can be
    deployed."""
    made = {name: recipe.config for name, recipe in sorted(recipes().items())}
    found = {name: _short(config) for name, config in made.items() if config.dataset == "digits"}
    ldp_fl, sound = found["quickstart"], found["ldpfl-sound-digits"]
    for name in mechanisms():
        found[f"ldp-fl, {name}"] = ldp_fl.changed(mechanism=name)
    found["ldp-fl, deep model"] = ldp_fl.changed(model=DEEP_MODEL)
    found["ldpfl-sound, laplace"] = sound.changed(mechanism="laplace")
    found["ldpfl-sound, deep model"] = sound.changed(mechanism="laplace", model=DEEP_MODEL)
    found["personalized-sound, sign"] = found["personalized-sound-digits"].changed(report="sign")
    return one_of_a_kind(dict(sorted(found.items(), key=lambda item: (", " in item[0], item[0]))))


def _short(config: RunConfig) -> RunConfig:
    epochs = [name for name in type(config).model_fields if name.endswith("epochs")]
    return config.changed(rounds=ROUNDS, seed=SEED, **dict.fromkeys(epochs, 1))
