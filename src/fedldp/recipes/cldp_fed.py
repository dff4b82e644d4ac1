"""CLDP-Fed (Truex et al. 2020): condensed privacy.

Sun, Qian, Chen 2021 quote alpha 1, c 1 and ten digits for its 86.93 % on Fashion-MNIST, the upper
end of the row in LDPFL's Table 1, which begins at 85.28 %.
"""

from __future__ import annotations

from fedldp.recipes import Expected, Recipe, Source, ldpfl, shared_settings
from fedldp.recipes.dp_sgd import TABLE1
from fedldp.recipes.fedavg import DIGITS
from fedldp.systems.cldp_fed import CldpFedConfig

RECIPES = (
    Recipe(
        name="cldp-fed-fmnist-table1",
        config=CldpFedConfig(**TABLE1, learning_rate=0.05, alpha=1.0, clip=1.0, precision=10),
        summary="CLDP-Fed on Fashion-MNIST: alpha {alpha:g}, {precision} digits; LDPFL's Table 1",
        source=Source(paper=ldpfl.PAPER, place="Table 1", row="CLDP-Fed"),
        expected=Expected(accuracy=0.8693, tolerance=ldpfl.TOLERANCE),
    ),
    Recipe(
        name="cldp-fed-digits",
        config=CldpFedConfig(
            **{**shared_settings(DIGITS), "clients_per_round": 90}, alpha=1.0, clip=0.5, precision=1
        ),
        summary="CLDP-Fed on scikit-learn's digits: alpha {alpha:g} for steps of 0.1, "
        "{clients_per_round} of {num_clients} clients a round",
    ),
)
