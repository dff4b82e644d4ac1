"""The configurations on which contracts of systems and clients are tested: by kinds of parts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import Any

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.recipes import recipes
from fedldp.algorithms.systems import find_system
from fedldp.core.errors import ConfigError
from fedldp.mechanisms import mechanisms
from fedldp.models import layers_of
from fedldp.simulation.plan import problem_of
from fedldp.testing.cases import ROUNDS, SEED
from fedldp.testing.toys import TOY, TOY_BITS

COMPOSED: tuple[dict[str, Any], ...] = (
    *({"mechanism": name} for name in mechanisms()),
    *({"channel": channel, "mechanism": "two_point"} for channel in ("shuffle", "sum", "central")),
    *({"participation": each, "clients_per_round": 4} for each in ("drawn", "balanced")),
    {"participation": "once"},
    {"bound": "norm", "mechanism": "gaussian"},
    {"bound": "direction", "mechanism": "k_closest", "epsilon": 8.0, "channel": "shuffle"},
    {"mechanism": "gaussian_share", "channel": "sum", "bound": "layers"},
    {"mechanism": "none", "server_optimizer": "adam", "server_rate": 0.05},
    {"server_optimizer": "momentum"},
    {"mechanism": TOY_BITS},
    {"model": "own_models:deep"},
    {"local_update": "scaffold", "clients_per_round": 3},
    {"local_update": "own_head", "model": "mlp", "bound": "norm", "mechanism": "gaussian"},
    {"local_update": "own_head", "model": "mlp", "mechanism": "none"},
    {"epsilon_growth": 2.0, "participation": "all"},
)
STAGED = {
    "model": "linear", "features": "unit-norm", "rounds": 6, "server_optimizer": "none",
    "measure_share": 0.1, "intercept_share": 0.05,
}  # fmt: skip
PEOPLE: tuple[dict[str, Any], ...] = (
    {"held_out_people": 0.5}, {"channel": "sum"},
    {"channel": "central"}, {"channel": "central", "sample_rate": 0.5},
    *({"channel": channel, **STAGED} for channel in ("named", "sum", "central")),
)  # fmt: skip


@cache
def candidates() -> dict[str, RunConfig]:
    """Return short configurations of the digits: all recipes, and more of plain presets."""
    made = {name: recipe.config for name, recipe in sorted(recipes().items())}
    found = {name: each for name, each in made.items() if each.dataset == "digits"}
    composed = {"dataset": "digits", "model": "logistic", "num_clients": 6, "learning_rate": 0.1}
    for changes in COMPOSED:
        unit = changes.get("mechanism", "two_point")
        epsilon = {} if unit == "none" else {"epsilon": 4.0}
        with suppress(ConfigError):
            found[f"composed, {_named(changes)}"] = find_system("composed").model_validate(
                {**composed, "rounds": ROUNDS, **epsilon, **changes}
            )
    for changes in PEOPLE:
        found[f"people, {_named(changes)}"] = made["person-dp-sgd-digits"].changed(**changes)
    code = {"noise": "code", "example_clip": 1.8}
    found["nbafl, as its authors' code"] = made["nbafl-digits"].changed(**code)
    # Few rounds with more clients leave nothing for the server to add.
    found["nbafl, with the server's noise"] = made["nbafl-digits"].changed(
        exposures=1, num_clients=6
    )
    found["toy"] = find_system(TOY).model_validate({**composed, "rounds": ROUNDS})
    return {name: _short(config) for name, config in found.items()}


def _named(changes: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in changes.items())


def _short(config: RunConfig) -> RunConfig:
    epochs = [name for name in type(config).model_fields if name.endswith("epochs")]
    trained = config.composition.trained
    rounds = ROUNDS if trained is None else config.rounds - len(trained) + 1
    small = {"encoder_channels": [4]} if "encoder_channels" in type(config).model_fields else {}
    return config.changed(rounds=rounds, seed=SEED, **dict.fromkeys(epochs, 1), **small)


def layers(model: str) -> str:
    """Return the kinds of a model's layers, whatever their sizes; of others, the model's name."""
    found = layers_of(model, (1, 8, 8), 10)
    return model if found is None else " ".join(sorted({type(each).__name__ for each in found}))


def kinds(config: RunConfig) -> Iterator[str]:
    """Yield the kinds of a configuration's parts, and what an encoder releases."""
    parts = config.composition
    yield f"system {config.system}"
    yield f"model {layers(config.model)}"
    for each in ("local", "channel", "participation", "estimate", "calibration"):
        yield f"{each} {type(getattr(parts, each)).__name__}"
    yield f"features {getattr(config, 'features', 'none')}"
    yield f"bound {type(parts.bound_of(0)).__name__}"
    yield f"mechanism {parts.calibration.kind.__name__}"
    yield f"stages {len(parts.stages)} {type(parts.channel).__name__}"
    noise = parts.server_noise
    yield f"server_noise {noise is not None and noise(problem_of(config, None)) is not None}"
    for each in ("downlink", "shaped", "finish"):
        yield f"{each} {getattr(parts, each) is not None}"
    yield f"per client {any(isinstance(getattr(config, n), list) for n in config.per_client)}"


@cache
def subjects(*slots: str) -> dict[str, RunConfig]:
    """Return few configurations that have every kind of part, always the same ones.

    Args:
        slots: the slots whose kinds count, such as "local"; none for all.
    """
    have = {
        name: {kind for kind in kinds(config) if not slots or kind.startswith(slots)}
        for name, config in candidates().items()
    }
    open_kinds, found = set[str]().union(*have.values()), dict[str, RunConfig]()
    while open_kinds:
        best = max(have, key=lambda name: len(have[name] & open_kinds))
        open_kinds -= have[best]
        found[best] = candidates()[best]
    return found
