"""What clients keep from round to round: it is what the papers say, and it never leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

import fedldp
from fedldp.algorithms.systems import find_system
from fedldp.core.errors import ConfigError, RunError
from fedldp.data.examples import Examples
from fedldp.models import trained_of
from fedldp.protocol.client_store import MemoryStore
from fedldp.protocol.keys import draws_of_seed
from fedldp.protocol.roles import Batch
from fedldp.protocol.wire import Broadcast
from fedldp.simulation.engine import simulate as run
from fedldp.simulation.plan import problem_with
from fedldp.simulation.result import RunFolder
from fedldp.testing.clients import Roles, client_of
from fedldp.training.kept import keep, kept_before

ROUNDS, RATE, EPOCHS = 5, 0.5, 3
SETTINGS: dict[str, Any] = {
    "dataset": "custom", "rounds": ROUNDS, "learning_rate": RATE, "local_epochs": EPOCHS,
    "batch_size": 1000, "mechanism": "none",
}  # fmt: skip


def data_of_clients(sizes: tuple[int, ...]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return examples of one or two classes for each client."""
    draw = np.random.default_rng(5)
    return [
        (
            draw.uniform(size=(size, 3)).astype(np.float32),
            draw.integers(each % 2, 2 + each, size) % 3,
        )
        for each, size in enumerate(sizes)
    ]


def configured(clients: int, **settings: Any) -> Any:
    return find_system("composed").model_validate({**SETTINGS, "num_clients": clients, **settings})


@pytest.mark.parametrize("taking_part", [None, 2])
def test_scaffold_is_option_two_of_its_paper(taking_part: int | None) -> None:
    data = data_of_clients((20, 31, 12, 8))
    config = configured(
        4, local_update="scaffold", model="logistic", clients_per_round=taking_part, average=0.0
    )
    dataset = fedldp.Dataset.from_clients(data, test=data[0], name="custom")
    problem = problem_with(config, dataset, None)
    algorithm, draws = config.algorithm(problem), draws_of_seed(config.seed)
    x = torch.from_numpy(algorithm.server().initial(draws(0)).weights).double()
    c, own = torch.zeros_like(x), [torch.zeros_like(x) for _ in data]
    for number in range(1, ROUNDS + 1):
        chosen = algorithm.parts.participation.clients(number, draws)
        moves, changes = [], []
        for i in range(4) if chosen is None else chosen:
            features, labels = (torch.from_numpy(each) for each in data[i])
            y = x.clone()
            for _ in range(EPOCHS):  # each batch is the client's whole data
                y.requires_grad_()
                weights, bias = y[:-3].view(3, -1), y[-3:]
                logits = features.double() @ weights.T + bias
                (slope,) = torch.autograd.grad(functional.cross_entropy(logits, labels), y)
                y = (y - RATE * (slope - own[i] + c)).detach()
            after = own[i] - c + (x - y) / (EPOCHS * RATE)
            moves.append(y - x)
            changes.append(after - own[i])
            own[i] = after
        x = x + torch.stack(moves).mean(0)
        c = c + len(moves) / 4 * torch.stack(changes).mean(0)
    found = run(config, dataset=dataset).weights
    found = np.concatenate([each.ravel() for each in found.values()])
    assert np.abs(found - x.numpy()).max() < 1e-5
    plain = run(config.changed(local_update="sgd"), dataset=dataset).weights
    plain = np.concatenate([each.ravel() for each in plain.values()])
    assert np.abs(plain - x.numpy()).max() > 1e-2


def test_a_state_is_that_of_the_last_round_and_of_the_same_round_again() -> None:
    client = client_of(fedldp.Dataset.from_clients(data_of_clients((5,))).train)
    assert isinstance(client.store, MemoryStore)
    first = np.zeros(2)
    assert (kept_before(client, 1, first) == first).all()
    keep(client, 1, first, np.ones(2))
    assert (kept_before(client, 1, first) == first).all()
    assert (kept_before(client, 5, first) == 1).all()
    keep(client, 5, np.ones(2), np.array([2.0, np.nan]))
    assert (kept_before(client, 9, first) == 1).all()


def test_a_report_depends_on_no_head_and_changes_none() -> None:
    settings = {"local_update": "own_head", "model": "mlp"}
    config = configured(1, **settings)
    ((features, labels),) = data_of_clients((30,))
    dataset = fedldp.Dataset.from_clients([(features, labels)], test=(features, labels))
    roles = Roles(config, problem_with(config, dataset, None))
    client = client_of(dataset.train)
    report = roles.report(roles.broadcast, client)
    head = sum(roles.layout.sizes[-len(trained_of(roles.layout.names, "head")) :])
    assert 0 < head < roles.layout.size
    assert len(report.payload) == 4 * (roles.layout.size - head)
    following, _ = roles.aggregate([report])
    changed = following.weights != roles.first.weights
    assert changed[:-head].any()
    assert not changed[-head:].any()
    own = kept_before(client, 2, roles.first.weights[-head:])
    assert (own != roles.first.weights[-head:]).any()


@pytest.mark.slow
def test_each_client_is_tested_by_its_own_model_on_labels_like_its_own() -> None:
    draw = np.random.default_rng(2)
    features = draw.uniform(size=(40, 3)).astype(np.float32)
    # The two clients call the same examples by other names, so that only own heads can be right.
    clients = [(features, (features[:, 0] > 0.5) + 0), (features, (features[:, 0] <= 0.5) + 2)]
    test = (np.concatenate([features, features]), np.concatenate([each for _, each in clients]))
    data = fedldp.Dataset.from_clients(clients, test=test, name="custom")
    changes = {"model": "mlp", "rounds": 30, "batch_size": 5, "average": 0.0}
    own = run(configured(2, local_update="own_head", **changes), dataset=data)
    assert own.accuracy > 0.9
    shared = run(configured(2, local_update="sgd", **changes), dataset=data)
    assert shared.accuracy < 0.6
    assert "last layers were trained on their rows" in str(own.privacy)
    with pytest.raises(ConfigError, match="last layers never left their clients"):
        own.predict(features)


@pytest.mark.slow
@pytest.mark.parametrize("local_update", ["scaffold", "own_head"])
def test_a_run_that_dies_before_its_checkpoint_ends_with_the_same_bits(
    local_update: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = {"model": "mlp", "clients_per_round": 3, "batch_size": 10, "dataset": "digits"}
    config = configured(6, local_update=local_update, **settings)
    whole = run(config)
    kept = RunFolder.write_round

    def dies(folder: RunFolder, state: Any, rounds: Any, ledger: Any) -> None:
        if len(rounds) == 4:  # all of its clients have kept what they had at its end
            raise KeyboardInterrupt
        kept(folder, state, rounds, ledger)

    monkeypatch.setattr(RunFolder, "write_round", dies)
    with pytest.raises(KeyboardInterrupt):
        run(config, out=tmp_path / "run")
    monkeypatch.undo()
    resumed = fedldp.resume(tmp_path / "run")
    for name, weights in whole.weights.items():
        assert resumed.weights[name].tobytes() == weights.tobytes()


@pytest.mark.parametrize("shape", [(1,), (1, -1), (-1, 1)])
def test_a_control_variate_of_another_shape_changes_nothing_at_a_client(shape: Any) -> None:
    data = data_of_clients((20, 31))
    config = configured(2, local_update="scaffold", model="logistic")
    dataset = fedldp.Dataset.from_clients(data, test=data[0], name="custom")
    algorithm = config.algorithm(problem_with(config, dataset, None))
    weights = np.zeros(algorithm.layout.size, np.float32)
    control = (weights[:1] if shape == (1,) else weights).reshape(shape)
    client = client_of(Examples(*data[0]))
    asked = Broadcast(round=1, weights=weights, public={"control": control})
    with pytest.raises(RunError, match="the control variate has shape"):
        algorithm.local_update(torch.device("cpu"))(asked, Batch.of_one(client))
    assert client.store.known("state", 1) is None
