"""Flower's ClientApp and ServerApp (https://flower.ai): message API, FedAvg, state dicts.

It is a separate module, so that Ray's workers import it once instead of unpickling it with each
client. Data and module, which do not change between clients, stay in the worker.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import torch
from common import Inputs, accuracy, build, say, train, two_point
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from torch import nn
from workloads import WORKLOADS

client_app = ClientApp()


@lru_cache(maxsize=1)
def kept(folder: str, workload: str) -> tuple[Inputs, nn.Module]:
    """Return what a worker keeps: the data, mapped into memory, and the module that it trains."""
    torch.set_num_threads(1)
    torch.seed()  # torch has the same seed in every process: clients would share their noise
    inputs = Inputs.read(Path(folder))
    return inputs, build(WORKLOADS[workload], inputs.initial)


@client_app.train()
def client_round(message: Message, context: Context) -> Message:
    """Train one client from the server's weights and send its randomised ones."""
    config = message.content["config"]
    inputs, model = kept(config["inputs"], config["workload"])
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    features, labels = inputs.of_client(int(context.node_config["partition-id"]))
    train(model, features, labels, WORKLOADS[config["workload"]])
    sent = {name: two_point(parameter) for name, parameter in model.named_parameters()}
    content = RecordDict(
        {
            "arrays": ArrayRecord(sent),
            "metrics": MetricRecord({"num-examples": len(labels)}),
        }
    )
    return Message(content=content, reply_to=message)


def server_app(folder: Path, workload: str, rounds: int) -> ServerApp:
    """Return the server of one workload."""
    app, task = ServerApp(), WORKLOADS[workload]

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        inputs = Inputs.read(folder)
        model = build(task, inputs.initial)

        def test(number: int, arrays: ArrayRecord) -> MetricRecord:
            model.load_state_dict(arrays.to_torch_state_dict())
            found = accuracy(model, inputs)
            if number > 0:
                say("round", round=number, accuracy=found)
            return MetricRecord({"accuracy": found})

        strategy = FedAvg(
            fraction_train=1.0,
            fraction_evaluate=0.0,
            min_train_nodes=task.clients,
            min_available_nodes=task.clients,
        )
        strategy.start(
            grid=grid,
            initial_arrays=ArrayRecord(model.state_dict()),
            num_rounds=rounds,
            train_config=ConfigRecord({"inputs": str(folder), "workload": workload}),
            evaluate_fn=test,
        )

    return app
