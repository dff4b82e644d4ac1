"""LDPFL's tasks with a budget per example that holds, label included: measured, not from a paper.

Rounds and learning rates are those that did best for each budget on Fashion-MNIST. No line of a
statement charges for such a choice: on private data it would have to be made without them.
"""

from __future__ import annotations

from typing import Any

from fedldp.recipes import Recipe
from fedldp.systems import SystemConfig
from fedldp.systems.ldpfl_sound import LdpflSoundConfig

_TUNED: dict[float, dict[str, Any]] = {
    0.5: {"rounds": 20, "learning_rate": 2.0},
    1.0: {"rounds": 20, "learning_rate": 4.0},
    2.0: {"rounds": 40, "learning_rate": 6.0},
    4.0: {"rounds": 40, "learning_rate": 10.0},
    8.0: {"rounds": 40, "learning_rate": 20.0},
}
_TASKS: dict[str, dict[str, Any]] = {
    "fmnist": {"dataset": "fmnist", "num_clients": 10},
    "mnist": {"dataset": "mnist", "num_clients": 2},
}
_TITLES = {"fmnist": "Fashion-MNIST", "mnist": "MNIST"}


def ldpfl_sound_digits() -> SystemConfig:
    """LDPFL with a budget that holds, on digits: eps 8 per example, label included."""
    return LdpflSoundConfig(
        dataset="digits", num_clients=4, rounds=5, learning_rate=10.0, epsilon=8.0
    )


def _recipe(task: str, epsilon: float) -> tuple[str, Recipe]:
    def recipe() -> SystemConfig:
        return LdpflSoundConfig(**_TASKS[task], **_TUNED[epsilon], epsilon=epsilon)

    recipe.__doc__ = (
        f"LDPFL with a budget that holds, {_TITLES[task]}: eps {epsilon:g} per example."
    )
    return f"ldpfl-sound-{task}-eps{epsilon:g}", recipe


RECIPES: dict[str, Recipe] = dict(_recipe(task, epsilon) for task in _TASKS for epsilon in _TUNED)
