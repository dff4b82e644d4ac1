"""pfl-research (https://github.com/apple/pfl-research): FederatedAveraging on SimulatedBackend.

As its guides and benchmarks do: a ``FederatedDataset`` whose users' data sets are made lazily from
tensors in memory, ``PyTorchModel`` with torch's SGD on both sides, a ``CentralEvaluationCallback``,
and several processes through ``PFL_WORKER_ADDRESSES`` and ``PFL_WORKER_RANK`` ("Fast distributed
simulations"), one thread each. The randomiser is a ``LocalPrivacyMechanism``, pfl's hook for local
DP; it sees the model's change, so it adds the server's weights and takes them off again.

pfl always measures every user before and after local training in the first round. That round is
not part of the seconds per round.

``--cores`` is the number of processes.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from importlib.metadata import version

from common import Inputs, arguments, build, say, two_point
from workloads import WORKLOADS

RANK = "PFL_WORKER_RANK"


def launch(processes: int) -> None:
    """Run this script in several processes, as pfl's guide says."""
    with_port = [socket.create_server(("localhost", 0)) for _ in range(processes)]
    addresses = ",".join(f"localhost:{s.getsockname()[1]}" for s in with_port)
    for listener in with_port:
        listener.close()
    started = [
        subprocess.Popen(
            [sys.executable, *sys.argv],
            env={**os.environ, "PFL_WORKER_ADDRESSES": addresses, RANK: str(rank)},
        )
        for rank in range(processes)
    ]
    for process in started:
        if process.wait() != 0:
            sys.exit(f"a process of pfl ended with {process.returncode}")


def work() -> None:
    """Run the workload's rounds; in each of the processes."""
    import numpy as np
    import torch
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.callback.central_evaluation import CentralEvaluationCallback
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
    from pfl.metrics import Metrics, Weighted
    from pfl.model.pytorch import PyTorchModel
    from pfl.privacy.privacy_mechanism import LocalPrivacyMechanism

    given = arguments()
    rank = int(os.environ.get(RANK, "0"))
    torch.set_num_threads(1)
    np.random.seed(given.seed)  # equal in all processes: pfl draws the cohorts from it
    torch.manual_seed(1000 * given.seed + rank)
    workload, inputs = WORKLOADS[given.workload], Inputs.read(given.inputs)

    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = build(workload, inputs.initial)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.network(x)

        def loss(self, x: torch.Tensor, y: torch.Tensor, **kwargs: bool) -> torch.Tensor:
            return torch.nn.functional.cross_entropy(self(x), y)

        @torch.no_grad()
        def metrics(self, x: torch.Tensor, y: torch.Tensor, **kwargs: bool) -> dict[str, Weighted]:
            return {"accuracy": Weighted(int((self(x).argmax(1) == y).sum()), len(y))}

    class TwoPoint(LocalPrivacyMechanism):
        def privatize(self, statistics, name_formatting_fn=str, seed=None):
            for name, server in model.variable_map.items():
                own = server.detach()
                statistics[name] = two_point(own + statistics[name]) - own
            return statistics, Metrics()

    class Tell(TrainingProcessCallback):
        def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
            if rank == 0:
                found = aggregate_metrics.to_simple_dict().get("Central val | accuracy")
                say("round", round=central_iteration + 1, accuracy=found)
            return False, Metrics()

    module = Module()
    model = PyTorchModel(
        module,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(module.parameters(), 1.0),
    )
    users = FederatedDataset(
        lambda user: PyTorchTensorDataset(inputs.of_client_shuffled(user), user_id=str(user)),
        get_user_sampler("minimize_reuse", range(workload.clients)),
    )
    backend = SimulatedBackend(training_data=users, val_data=None, postprocessors=[TwoPoint()])
    evaluation = CentralEvaluationCallback(
        PyTorchTensorDataset((inputs.test_features, inputs.test_labels)),
        model_eval_params=NNEvalHyperParams(local_batch_size=10_000),
    )
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=given.rounds,
            evaluation_frequency=given.rounds + 1,
            train_cohort_size=workload.clients,
            val_cohort_size=None,
        ),
        backend=backend,
        model=model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=1,
            local_learning_rate=workload.learning_rate,
            local_batch_size=workload.batch_size,
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=10_000),
        callbacks=[evaluation, Tell()],
    )
    if rank == 0:
        say("done", version=version("pfl"))


if __name__ == "__main__":
    cores = arguments().cores
    if cores > 1 and RANK not in os.environ:
        launch(cores)
    else:
        work()
