"""fedldp itself: the recipe ldp-fl-mnist with the workload's settings, one worker per core.

``inputs_of`` also gives the driver the common starting point of all frameworks: the same examples,
the same share of each client, the same first weights.

``--cores`` is the number of workers.
"""

from __future__ import annotations

from importlib.metadata import version

from workloads import EPSILON, RADIUS, WORKLOADS, Workload

import fedldp
from fedldp.algorithms.config import RunConfig
from fedldp.protocol.keys import draws_of_seed
from fedldp.protocol.server_loop import Round
from fedldp.simulation.engine import simulate
from fedldp.simulation.inputs import Inputs

MNIST = 60_000


def configuration(workload: Workload, seed: int, rounds: int) -> RunConfig:
    """Return the recipe's configuration, changed to the workload's settings."""
    total = workload.clients * workload.examples
    return fedldp.recipe(
        "ldp-fl-mnist",
        model=workload.model,
        num_clients=workload.clients,
        num_examples=min(MNIST, total),
        partition="iid" if total <= MNIST else f"drawn:{workload.examples}",
        rounds=rounds,
        local_epochs=1,
        batch_size=workload.batch_size,
        learning_rate=workload.learning_rate,
        epsilon=EPSILON,
        range_radius=RADIUS,
        seed=seed,
    )


def inputs_of(workload: Workload, seed: int) -> tuple[Inputs, object]:
    """Return the data of a run, its clients' shares, and the first weights, shape (d,)."""
    config = configuration(workload, seed, rounds=workload.rounds)
    inputs = Inputs.of(config, None, None)
    server = config.algorithm(inputs.problem).server()
    return inputs, server.initial(draws_of_seed(seed)(0)).weights


def main() -> None:
    """Run the workload's rounds."""
    from common import arguments, say

    given = arguments()

    def tell(record: Round) -> None:
        say("round", round=record.round, accuracy=record.accuracy)

    simulate(
        configuration(WORKLOADS[given.workload], given.seed, given.rounds),
        workers=given.cores,
        after_round=tell,
    )
    say("done", version=version("fedldp"))


if __name__ == "__main__":
    main()
