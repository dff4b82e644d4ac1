"""Runs in one process: their numbers, and the folders of runs that stopped."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from folders import assert_same, cut, quick
from gate.reports import RUNS
from safetensors.numpy import load_file
from torch import nn
from torch.nn import functional

import fedldp
from fedldp.accounting.statement import Statement
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.systems import find_system
from fedldp.core.errors import RunError
from fedldp.core.kinds import MODEL_SO_FAR, NOT_FINISHED
from fedldp.core.randomness import Stream
from fedldp.data import Dataset
from fedldp.models import build_model
from fedldp.protocol.keys import draws_of_seed
from fedldp.protocol.wire import (
    Report,
)
from fedldp.reporting import words
from fedldp.reporting.record import RunFolder
from fedldp.simulation import participation
from fedldp.simulation.engine import simulate
from fedldp.simulation.evaluating import evaluate, load_trained
from fedldp.simulation.plan import Plan, plan, state
from fedldp.simulation.result import read_run, weights_of
from fedldp.simulation.settings import resolve
from fedldp.testing.clients import Roles
from fedldp.training.batched_sgd import GROUP

FEATURES, CLASSES = 5, 3


def small_data(examples: int = 60, seed: int = 0) -> Dataset:
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(examples + 20, FEATURES)).astype(np.float32)
    labels = np.argmax(features[:, :CLASSES] + 0.3 * features[:, 1:4], axis=1)
    return Dataset.from_arrays(
        features[:examples],
        labels[:examples],
        test=(features[examples:], labels[examples:]),
    )


def fedavg(**settings: Any) -> RunConfig:
    known: dict[str, Any] = {
        "dataset": "digits", "model": "logistic", "num_clients": 4, "rounds": 2,
        "local_epochs": 1, "batch_size": 1000, "learning_rate": 0.5,
    }  # fmt: skip
    return find_system("fedavg")(**known | settings)


def ldp_fl(**settings: Any) -> RunConfig:
    shared = fedavg(**{k: v for k, v in settings.items() if k in RunConfig.model_fields})
    known = shared.model_dump(exclude={"system", "weighting"})
    return find_system("ldp_fl")(**{"epsilon": 4.0, "range_radius": 0.5} | known | settings)


def participants(config: RunConfig, round: int) -> list[int]:
    return list(participation.participants(config, round, draws_of_seed(config.seed)))


# A plain implementation: softmax regression by its closed-form gradient, in float64


def descend(
    weight: np.ndarray, bias: np.ndarray, x: np.ndarray, y: np.ndarray, rate: float, steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the parameters of softmax regression after full-batch gradient steps from a start."""
    x, target = x.reshape(len(x), -1).astype(np.float64), np.eye(len(bias))[y]
    for _ in range(steps):
        logits = x @ weight.T + bias
        odds = np.exp(logits - logits.max(1, keepdims=True))
        error = (odds / odds.sum(1, keepdims=True) - target) / len(x)
        weight, bias = weight - rate * error.T @ x, bias - rate * error.sum(0)
    return weight, bias


def test_the_recorded_accuracy_and_loss_are_those_of_the_final_weights() -> None:
    data = small_data()
    result = fedldp.run(fedavg(), dataset=data)
    weight, bias = (result.weights[name].astype(np.float64) for name in ("1.weight", "1.bias"))
    logits = data.test.features.astype(np.float64) @ weight.T + bias
    assert result.accuracy == np.mean(logits.argmax(1) == data.test.labels)
    likelihood = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    loss = -likelihood[np.arange(len(logits)), data.test.labels].mean()
    assert result.rounds[-1].loss == pytest.approx(loss, rel=1e-5)


@pytest.mark.parametrize("batch_size", [1, 7, 60])
def test_fedavg_of_one_client_is_a_plain_torch_loop(batch_size: int) -> None:
    data = small_data()
    config = fedavg(
        num_clients=1, rounds=2, local_epochs=3, batch_size=batch_size, learning_rate=0.1,
        model="mlp", seed=4,
    )  # fmt: skip
    result = fedldp.run(config, dataset=data)
    torch.manual_seed(0)
    model = build_model("mlp", (FEATURES,), CLASSES)
    start = Roles(config, Problem((FEATURES,), CLASSES, 100)).first
    nn.utils.vector_to_parameters(torch.from_numpy(start.weights.copy()), model.parameters())
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    features, labels = torch.tensor(data.train.features), torch.tensor(data.train.labels)
    for round in (1, 2):
        order = Stream.simulation(seed=4, round=round, client=0, purpose="batches").generator()
        for _ in range(3):
            for places in torch.from_numpy(order.permutation(60)).split(batch_size):
                optimiser.zero_grad()
                functional.cross_entropy(model(features[places]), labels[places]).backward()
                optimiser.step()
    for name, parameter in model.named_parameters():
        np.testing.assert_allclose(result.weights[name], parameter.detach().numpy(), atol=1e-5)


@pytest.mark.parametrize("weighting", ["examples", "uniform"])
def test_fedavg_weights_its_clients_as_configured(weighting: Any) -> None:
    data, sizes = small_data(), [5, 15, 40]
    own = np.split(np.arange(60), np.cumsum(sizes)[:-1])
    clients = [(data.train.features[rows], data.train.labels[rows]) for rows in own]
    config = fedavg(num_clients=3, local_epochs=2, weighting=weighting)
    found = fedldp.run(config, dataset=Dataset.from_clients(clients, test=clients[0])).weights
    shares = np.array(sizes) / 60 if weighting == "examples" else np.full(3, 1 / 3)
    weight, bias = np.zeros((CLASSES, FEATURES)), np.zeros(CLASSES)
    for _ in range(2):
        trained = [descend(weight, bias, *each, 0.5, 2) for each in clients]
        weight, bias = (np.tensordot(shares, each, 1) for each in zip(*trained, strict=True))
    np.testing.assert_allclose(found["1.weight"], weight, atol=1e-5)
    np.testing.assert_allclose(found["1.bias"], bias, atol=1e-5)
    assert np.abs(weight).max() > 0.05


def test_fedavg_averages_in_double_precision() -> None:
    roles = Roles(fedavg(), Problem((FEATURES,), CLASSES, 100))
    generator = np.random.default_rng(0)
    sent = generator.normal(size=(50, 18)).astype(np.float32)
    sent[:, 0] *= 1e37  # a float32 product with the example count would overflow
    weights = 1437.0 * generator.integers(1, 40, 50)
    reports = [
        Report(round=1, size=18, payload=row.tobytes(), chunk=18, weight=float(w))
        for row, w in zip(sent, weights, strict=True)
    ]
    found = roles.aggregate(iter(reports))[0].weights
    expected = (weights[:, None] * sent.astype(np.float64)).sum(0) / weights.sum()
    np.testing.assert_array_equal(found, expected.astype(np.float32))


# Who takes part


def test_clients_are_drawn_uniformly_and_anew_each_round() -> None:
    config = fedavg(num_clients=20, clients_per_round=6)
    drawn = [participants(config, round) for round in range(1, 1001)]
    for chosen in drawn:
        assert len(chosen) == 6
        assert chosen == sorted(set(chosen))
        assert set(chosen) <= set(range(20))
    counts = np.bincount(np.concatenate(drawn), minlength=20)
    # 300 expected; the sum of squares has 19 degrees of freedom and the factor 1 - 6/20.
    chi_square = ((counts - 300.0) ** 2 / 300 / 0.7).sum()
    assert 1.5 < chi_square < 65
    assert drawn != [participants(fedavg(num_clients=20, clients_per_round=6, seed=1), r)
                     for r in range(1, 1001)]  # fmt: skip
    assert participants(config, 17) == drawn[16]
    assert participants(fedavg(num_clients=20, clients_per_round=20), 1) == list(range(20))


# Reproducibility


@pytest.mark.slow
def test_two_workers_give_the_bits_and_charges_of_one() -> None:
    """Clients train in groups of ``GROUP``, and some of them refuse for want of budget."""
    config = ldp_fl(
        num_clients=2 * GROUP + 5, clients_per_round=2 * GROUP + 3, rounds=3, batch_size=8,
        partition="dirichlet:0.5", ranges="adaptive", seed=3, client_budget={"limit": 5400.0},
    )  # fmt: skip
    one = fedldp.run(config)
    two = fedldp.run(config, workers=2)
    assert_same(one, two)
    assert one.rounds[-1].refused
    assert one.ledger.to_record() == two.ledger.to_record()


@pytest.mark.slow
def test_a_killed_worker_ends_the_run_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def start(*given: Any, **named: Any) -> subprocess.Popen[bytes]:
        started.append(popen(*given, **named))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    with pytest.raises(RunError, match=r"^a worker process died[^\n]*$"):
        simulate(ldp_fl(rounds=9), workers=2, out=tmp_path / "run",
                 after_round=lambda _: [each.kill() for each in started])  # fmt: skip
    assert RunFolder(tmp_path / "run").read_checkpoint() is not None
    assert started
    assert all(each.returncode is not None for each in started)


@pytest.mark.slow
def test_global_generators_have_no_effect_and_do_not_change() -> None:
    results = []
    for seed in (0, 1):
        np.random.seed(seed)
        torch.manual_seed(seed)
        expected = torch.get_rng_state(), np.random.get_state()[1].tolist()  # type: ignore[union-attr]
        results.append(fedldp.run(ldp_fl(model="mlp")))
        assert torch.equal(torch.get_rng_state(), expected[0])
        assert np.random.get_state()[1].tolist() == expected[1]  # type: ignore[union-attr]
    assert_same(*results)


def test_the_number_of_torch_threads_has_no_effect_and_does_not_change() -> None:
    threads, results = torch.get_num_threads(), []
    try:
        for number in (1, 2):
            torch.set_num_threads(number)
            results.append(fedldp.run(fedavg(model="mlp")))
            assert torch.get_num_threads() == number
    finally:
        torch.set_num_threads(threads)
    assert_same(*results)


def test_read_only_data_are_accepted_without_a_warning() -> None:
    data = small_data()
    for examples in (data.train, data.test):
        examples.features.flags.writeable = False
        examples.labels.flags.writeable = False
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)  # otherwise torch warns only once per process
    try:
        fedldp.run(fedavg(rounds=1), dataset=data)
    finally:
        torch.set_warn_always(before)


AVERAGED = "composed-balanced"
STATED = ("ldp_fl-budget", "ldp_fl-budget-own", "person_dp_sgd")


def checkpoint_weights(folder: Path) -> Any:
    saved = RunFolder(folder).read_checkpoint()
    assert saved is not None
    return saved[0].weights


@pytest.mark.slow
@pytest.mark.parametrize("name", [AVERAGED, "ldp_fl-adaptive", "ldpfl_sound"])
def test_the_checkpoint_holds_the_model_of_every_system(tmp_path: Path, name: str) -> None:
    recipe, settings = RUNS[name]
    simulate(resolve(recipe, settings), out=tmp_path / "run")
    expected = load_file(tmp_path / "run" / "model.safetensors")
    for file in ("summary.json", "model.safetensors", "report.html"):
        (tmp_path / "run" / file).unlink()
    found = weights_of(tmp_path / "run")
    assert found.keys() == expected.keys()
    for key, weights in expected.items():
        assert found[key].tobytes() == weights.tobytes()
    assert len(read_run(tmp_path / "run").summary["rounds"]) == 3


@pytest.mark.parametrize("rounds", [1, 3])
def test_a_stopped_run_has_the_model_of_its_checkpoint(tmp_path: Path, rounds: int) -> None:
    cut(quick(), tmp_path / "run", rounds)
    saved, found = checkpoint_weights(tmp_path / "run"), weights_of(tmp_path / "run")
    vector = np.concatenate([each.ravel() for each in found.values()])
    assert vector.tobytes() == saved.tobytes()
    line = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1]
    scores = evaluate(tmp_path / "run")
    assert scores["accuracy"] == pytest.approx(json.loads(line)["accuracy"])
    so_far = MODEL_SO_FAR(done=rounds, of=4)
    assert scores["warnings"][0] == words.shown(so_far)
    assert load_trained(tmp_path / "run").so_far == so_far
    assert f"after {rounds} of 4 rounds" in repr(fedldp.load(tmp_path / "run"))


def test_the_model_of_a_stopped_run_is_averaged_as_it_was_tested(tmp_path: Path) -> None:
    recipe, settings = RUNS[AVERAGED]
    cut(resolve(recipe, [*settings, "average=1.0"]), tmp_path / "run", 2)
    vector = np.concatenate([each.ravel() for each in weights_of(tmp_path / "run").values()])
    assert not np.array_equal(vector, checkpoint_weights(tmp_path / "run"))
    line = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1]
    assert evaluate(tmp_path / "run")["accuracy"] == pytest.approx(json.loads(line)["accuracy"])


@pytest.mark.parametrize("name", STATED)
def test_a_stopped_run_states_what_its_rounds_released(tmp_path: Path, name: str) -> None:
    """The oracle is the plan, cut after the same round."""
    recipe, settings = RUNS[name]
    config = resolve(recipe, settings)
    cut(config, tmp_path / "run", 2)
    found = read_run(tmp_path / "run")
    planned: Plan = plan(config, fedldp.simulation.inputs.Inputs.of(config, None, None).problem)
    releases = planned.releases.before(3)
    stated = state(planned.scheduled, planned.problem, releases, delta=planned.delta)
    assert found.privacy.guarantees == stated.guarantees
    assert found.privacy.warnings[: len(stated.warnings)] == stated.warnings
    assert found.privacy.warnings[-1] == NOT_FINISHED(done=2, of=3)
    assert _of_runs(found.privacy) <= _of_runs(planned.privacy)


def _of_runs(privacy: Statement) -> list[float]:
    """Return the epsilons of a statement that cover all rounds and are not infinite."""
    found = [each.epsilon for each in privacy.guarantees if each.unit != "weight"]
    return sorted(each for each in found if each is not None)


def test_the_commands_say_that_a_run_is_not_finished(
    tmp_path: Path, fedldp_command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cut(quick(), tmp_path / "run", 3)
    before = {
        path.name: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file()
    }
    np.savez("new.npz", features=np.zeros((2, 1, 8, 8), np.float32))
    for command in (("evaluate", "run"), ("predict", "run", "--data", "new.npz"), ("card", "run"),
                    ("report", "run")):  # fmt: skip
        outcome = fedldp_command(*command)
        assert outcome.status == 0, outcome.err
    for command in (("evaluate", "run"), ("predict", "run", "--data", "new.npz")):
        outcome = fedldp_command(*command)
        assert "after 3 of 4 rounds" in outcome.out + outcome.err
    assert "after 3 of 4 rounds" in Path("report.html").read_text()
    assert "3 of 4 rounds" in Path("run/card/README.md").read_text()
    assert json.loads(Path("run/card/privacy.json").read_text())["run"]["rounds"] == 3
    # What is published works by itself.
    for name in ("config.json", "schema.json"):
        shutil.copy(Path("run") / name, Path("run/card"))
    assert fedldp_command("predict", "run/card", "--data", "new.npz").status == 0
    # Reading has changed nothing.
    assert before == {n: (tmp_path / "run" / n).read_bytes() for n in before}


def test_a_model_beside_a_card_is_not_replaced(tmp_path: Path, fedldp_command: Any) -> None:
    cut(quick(), tmp_path / "run", 1)
    mine = tmp_path / "mine" / "model.safetensors"
    mine.parent.mkdir()
    mine.write_bytes(b"mine")
    line = fedldp_command("card", tmp_path / "run", "--out", mine.parent).assert_refused()
    assert "another model.safetensors" in line
    assert mine.read_bytes() == b"mine"
    for _ in range(2):  # our own is replaced
        assert fedldp_command("card", tmp_path / "run", "--out", tmp_path / "card").status == 0


def test_before_the_first_round_there_is_no_model(tmp_path: Path) -> None:
    cut(quick(), tmp_path / "run", 1)
    (tmp_path / "run" / "checkpoint").unlink()
    for read in (read_run, load_trained, fedldp.load):
        with pytest.raises(RunError, match="no round of the run is complete"):
            read(tmp_path / "run")  # type: ignore[operator]
