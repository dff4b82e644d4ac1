"""PrivUnit FL (Bhowmick et al. 2018): large budgets for one whole report.

Sun, Qian, Chen 2021 quote it with epsilon 500 on MNIST, after more than 200 rounds. Model, clients
and local work are those of LDP-FL on MNIST.
"""

from __future__ import annotations

from fedldp.recipes.ldp_fl import fedavg_mnist, fedavg_quickstart
from fedldp.systems import SystemConfig
from fedldp.systems.privunit_fl import PrivUnitFlConfig

_SHARED = set(SystemConfig.model_fields) - {"system"}


def privunit_fl_mnist() -> SystemConfig:
    """PrivUnit FL on MNIST: eps 500 for a report, and otherwise the settings of fedavg-mnist."""
    return PrivUnitFlConfig(**fedavg_mnist().model_dump(include=_SHARED), epsilon=500.0)


def privunit_fl_digits() -> SystemConfig:
    """PrivUnit FL on scikit-learn's digits: eps 32 for a report, 100 clients."""
    return PrivUnitFlConfig(**fedavg_quickstart().model_dump(include=_SHARED), epsilon=32.0)
