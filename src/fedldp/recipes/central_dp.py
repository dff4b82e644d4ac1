"""Central DP (Geyer, Klein, Nabi 2017): as published, and with a norm bound that can be proven.

The paper fixes epsilon 8 and, for 100 clients, delta 1e-3; Sun, Qian, Chen 2021 quote its accuracy
after 11 rounds. The noise multiplier 1, 30 clients in a
round and 4 epochs of 10 batches are those of the code that its authors published. The model (theirs
has hidden layers of 600 and 100) and the learning rate are ours.
"""

from __future__ import annotations

from fedldp.recipes import Expected, Recipe, Source, ldp_fl
from fedldp.systems.central_dp import CentralDpConfig

_MNIST = CentralDpConfig(
    dataset="mnist", standardise=True, model="mlp", partition="shards:2", num_clients=100,
    clients_per_round=30, rounds=11, local_epochs=4, batch_size=60, learning_rate=0.05,
    noise_multiplier=1.0, delta=1e-3,
)  # fmt: skip
_DIGITS = CentralDpConfig(
    dataset="digits", standardise=True, model="logistic", num_clients=100, clients_per_round=50,
    rounds=15, local_epochs=5, batch_size=5, learning_rate=0.1, noise_multiplier=4.0, clip=0.5,
    delta=1e-3,
)  # fmt: skip

RECIPES = (
    Recipe(
        name="central-dp-mnist",
        config=_MNIST,
        summary="Central DP on MNIST: {num_clients} clients of two digits, median clip; the "
        "paper's is at eps 8",
        source=Source(
            paper=ldp_fl.PAPER, place="Section 5.2", row="MNIST, central DP (Geyer et al. 2017)"
        ),
        expected=Expected(accuracy=0.78, tolerance=0.03),
    ),
    Recipe(
        name="central-dp-mnist-fixed-clip",
        config=_MNIST.changed(clip=1.0),
        summary="Central DP on MNIST with a fixed clip: what the broadcasts reveal then has a "
        "proven bound",
        source=Source(
            paper=ldp_fl.PAPER, place="Section 5.2", row="MNIST, central DP, clip fixed at 1"
        ),
    ),
    Recipe(
        name="central-dp-digits",
        config=_DIGITS,
        summary="Central DP on digits with a fixed clip: {clients_per_round} of {num_clients} "
        "clients a round, noise multiplier {noise_multiplier:g}",
    ),
    Recipe(
        name="central-dp-digits-median",
        config=_DIGITS.changed(clip=None),
        summary="Central DP on digits as published: the clip is the median of each round's norms",
    ),
)
