"""PrivUnit FL (Bhowmick et al. 2018): large budgets for one whole report.

Sun, Qian, Chen 2021 quote it with epsilon 500 on MNIST, after more than 200 rounds, and with no
accuracy. Model, clients and local work are those of LDP-FL on MNIST.
"""

from __future__ import annotations

from fedldp.recipes import Recipe, Source, fedavg, ldp_fl, shared_settings
from fedldp.systems.privunit_fl import PrivUnitFlConfig

RECIPES = (
    Recipe(
        name="privunit-fl-mnist",
        config=PrivUnitFlConfig(**shared_settings(fedavg.MNIST), epsilon=500.0),
        summary="PrivUnit FL on MNIST: eps {epsilon:g} for a report, and otherwise the settings "
        "of fedavg-mnist",
        source=Source(
            paper=ldp_fl.PAPER, place="Section 5.2", row="MNIST, PrivUnit FL (Bhowmick et al. 2018)"
        ),
    ),
    Recipe(
        name="privunit-fl-digits",
        config=PrivUnitFlConfig(**shared_settings(fedavg.DIGITS), epsilon=32.0),
        summary="PrivUnit FL on scikit-learn's digits: eps {epsilon:g} for a report, "
        "{num_clients} clients",
    ),
)
