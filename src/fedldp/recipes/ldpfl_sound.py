"""LDPFL's tasks with a budget per example that holds, label included: measured, not from a paper.

Rounds and learning rates are those that did best for each budget on Fashion-MNIST. No line of a
statement charges for such a choice: on private data it would have to be made without them.
"""

from __future__ import annotations

from fedldp.recipes import Recipe, Source, ldpfl
from fedldp.systems.ldpfl_sound import LdpflSoundConfig

_TUNED = {0.5: (20, 2.0), 1.0: (20, 4.0), 2.0: (40, 6.0), 4.0: (40, 10.0), 8.0: (40, 20.0)}
"""Rounds and learning rate by epsilon."""

_TASKS = {"fmnist": ("Fashion-MNIST", 10), "mnist": ("MNIST", 2)}
"""Title and number of clients by data set."""

_MECHANISMS = {"privunit": "", "nearest_direction": "-nearest"}
"""What each adds to a recipe's name."""

RECIPES = (
    Recipe(
        name="ldpfl-sound-digits",
        config=LdpflSoundConfig(
            dataset="digits", num_clients=4, rounds=5, learning_rate=10.0, epsilon=8.0
        ),
        summary="LDPFL with a budget that holds, on digits: eps {epsilon:g} per example, label "
        "included",
    ),
    *(
        Recipe(
            name=f"ldpfl-sound-{dataset}{added}-eps{epsilon:g}",
            config=LdpflSoundConfig(
                dataset=dataset,
                num_clients=clients,
                rounds=rounds,
                learning_rate=rate,
                mechanism=mechanism,
                epsilon=epsilon,
            ),
            summary=f"LDPFL with a budget that holds, {title}: eps {{epsilon:g}} per example, "
            "by {mechanism}",
            source=Source(
                paper=ldpfl.PAPER,
                place="Sound",
                row=f"{title}, {clients} clients, {mechanism}",
                column=f"epsilon {epsilon:g}",
            ),
        )
        for dataset, (title, clients) in _TASKS.items()
        for mechanism, added in _MECHANISMS.items()
        for epsilon, (rounds, rate) in _TUNED.items()
    ),
)
