"""What `fedldp run` does without a name: LDP-FL on the data set that needs no download."""

from __future__ import annotations

from fedldp.recipes import Recipe
from fedldp.systems.ldp_fl import LdpFlConfig

DIGITS = LdpFlConfig(
    dataset="digits",
    standardise=True,
    model="logistic",
    num_clients=100,
    rounds=15,
    local_epochs=5,
    batch_size=5,
    learning_rate=0.3,
    epsilon=1.0,
    range_radius=0.2,
)

SUMMARY = (
    "LDP-FL on scikit-learn's digits, which need no download: eps {epsilon:g} per weight, "
    "{num_clients} clients"
)

RECIPES = (Recipe(name="quickstart", config=DIGITS, summary=SUMMARY),)
