"""LDPFL (Chamikara et al. 2022) at the paper's settings, and shorter runs of them."""

from __future__ import annotations

from fedldp.systems import SystemConfig
from fedldp.systems.ldpfl import LdpflConfig


def ldpfl_digits() -> SystemConfig:
    """LDPFL on scikit-learn's digits, which need no download: 4 clients, small encoders."""
    return LdpflConfig(
        dataset="digits",
        model="mlp_64",
        num_clients=4,
        rounds=10,
        local_epochs=2,
        batch_size=32,
        learning_rate=0.1,
        encoder_channels=[8, 16],
        encoder_padding=True,
        encoder_epochs=5,
    )
