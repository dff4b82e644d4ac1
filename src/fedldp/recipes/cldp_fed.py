"""CLDP-Fed (Truex et al. 2020): condensed privacy.

Sun, Qian, Chen 2021 quote alpha 1, c 1 and ten digits for its 86.93 % on Fashion-MNIST.
"""

from __future__ import annotations

from fedldp.recipes.dp_sgd import TABLE1
from fedldp.recipes.ldp_fl import fedavg_quickstart
from fedldp.systems import SystemConfig
from fedldp.systems.cldp_fed import CldpFedConfig

_SHARED = set(SystemConfig.model_fields) - {"system"}


def cldp_fed_fmnist_table1() -> SystemConfig:
    """CLDP-Fed on Fashion-MNIST: alpha 1, ten digits; LDPFL's Table 1 has 85.28 to 86.93 %."""
    return CldpFedConfig(**TABLE1, learning_rate=0.05, alpha=1.0, clip=1.0, precision=10)


def cldp_fed_digits() -> SystemConfig:
    """CLDP-Fed on scikit-learn's digits: alpha 1 for steps of 0.1, 90 of 100 clients a round."""
    shared = fedavg_quickstart().model_dump(include=_SHARED)
    return CldpFedConfig(**{**shared, "clients_per_round": 90}, alpha=1.0, clip=0.5, precision=1)
