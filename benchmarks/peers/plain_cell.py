"""The loop in plain PyTorch that one would write first: client after client, one process.

One module is trained for all clients in turn: copying the server's with ``copy.deepcopy`` for each
client, as other code does, would be slower.

``--cores`` is torch's number of threads.
"""

from __future__ import annotations

import torch
from common import Inputs, accuracy, arguments, build, say, train, two_point
from workloads import WORKLOADS


def main() -> None:
    """Run the workload's rounds."""
    given = arguments()
    torch.set_num_threads(given.cores)
    torch.manual_seed(given.seed)
    workload, inputs = WORKLOADS[given.workload], Inputs.read(given.inputs)
    server, model = build(workload, inputs.initial), build(workload, inputs.initial)
    for number in range(1, given.rounds + 1):
        total = {name: torch.zeros_like(p) for name, p in server.named_parameters()}
        for client in range(workload.clients):
            model.load_state_dict(server.state_dict())
            train(model, *inputs.of_client(client), workload)
            for name, parameter in model.named_parameters():
                total[name] += two_point(parameter)
        with torch.no_grad():
            for name, parameter in server.named_parameters():
                parameter.copy_(total[name] / workload.clients)
        say("round", round=number, accuracy=accuracy(server, inputs))
    say("done", version=torch.__version__)


if __name__ == "__main__":
    main()
