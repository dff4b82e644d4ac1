"""LDPFL's tasks with a budget per example that holds, label included."""

from __future__ import annotations

from fedldp.systems import SystemConfig
from fedldp.systems.ldpfl_sound import LdpflSoundConfig


def ldpfl_sound_digits() -> SystemConfig:
    """LDPFL with a budget that holds, on digits: eps 8 per example, label included."""
    return LdpflSoundConfig(
        dataset="digits",
        num_clients=4,
        rounds=5,
        learning_rate=10.0,
        epsilon=8.0,
    )
