"""Training part of a model: the rest is frozen, public, and identified by its digest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

import fedldp
from fedldp.algorithms.problem import Problem
from fedldp.core.errors import ConfigError, RunError
from fedldp.core.kinds import BEGINS_PUBLIC
from fedldp.core.randomness import Stream
from fedldp.models import build_model, frozen_digest
from fedldp.protocol.wire import Broadcast
from fedldp.simulation.evaluating import evaluate, load_trained
from fedldp.simulation.plan import problem_of
from fedldp.testing.clients import clients_of
from fedldp.testing.data import images

SMALL: dict[str, Any] = {
    "num_clients": 4, "rounds": 2, "num_examples": 120, "local_epochs": 1, "learning_rate": 0.1,
    "channel": "named",
}  # fmt: skip
PARTS = [
    ("mlp", "head", 2570),
    ("mlp", "*.bias", 266),
    ("partly_frozen:normed", "head.*", 210),
    ("partly_frozen:adapted", "lora_*", 148),
    ("partly_frozen:shared", "first.*, last.*", 1210),
]


def of(model: str, trainable: str, **settings: Any) -> Any:
    """Return a configuration whose clients send one bit for each trained weight."""
    return fedldp.recipe("quickstart", **{**SMALL, **settings}, model=model, trainable=trainable)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "trainable", "size"), PARTS)
def test_frozen_weights_never_change_and_are_in_no_report(
    tmp_path: Path, model: str, trainable: str, size: int
) -> None:
    config = of(model, trainable)
    algorithm = config.algorithm(problem_of(config, None))
    before = dict(algorithm.frozen())
    result = fedldp.run(config, out=tmp_path / "run")
    assert algorithm.layout.size == size
    (cost,) = (
        line.epsilon
        for line in result.privacy.guarantees
        if (line.unit, line.adversary, line.kind) == ("client-round", "server", "pure")
    )
    assert cost == pytest.approx(size * config.epsilon)
    assert {one.uplink_bits_per_client for one in result.rounds} == {8 * -(-size // 8)}
    for name, value in before.items():
        assert result.weights[name].tobytes() == value.tobytes(), name
    trained = algorithm.layout.names
    assert set(result.weights) == {*before, *trained}
    start = algorithm.untrained().state_dict()
    assert any(not np.array_equal(result.weights[n], start[n].numpy()) for n in trained)
    saved = load_file(tmp_path / "run" / "model.safetensors")
    assert {n: w.tobytes() for n, w in saved.items()} == {
        n: w.tobytes() for n, w in result.weights.items()
    }
    # The model is used as a whole: its own code builds it, with the file's weights.
    assert evaluate(tmp_path / "run")["accuracy"] == pytest.approx(result.accuracy)


def test_frozen_weights_do_not_depend_on_the_seed_and_trained_ones_do() -> None:
    problem = Problem((1, 8, 8), 10, 100)
    algorithm = of("partly_frozen:adapted", "lora_a.weight").algorithm(problem)
    one, other = (algorithm.module(Stream.simulation(seed=seed, round=0, client=None, purpose="w"))
                  for seed in (1, 2))  # fmt: skip
    assert frozen_digest(one) == frozen_digest(other) == algorithm.frozen_digest()
    assert not torch.equal(one.lora_a.weight, other.lora_a.weight)
    assert torch.equal(one.scale, other.scale)  # although no file holds it


def test_frozen_layers_stay_as_in_evaluation() -> None:
    model = build_model("partly_frozen:normed", (1, 8, 8), 10, "head")
    model.train()
    assert model.training
    assert not any(part.training for part in model.encoder.modules())
    examples = torch.rand(5, 1, 8, 8)
    assert torch.equal(model(examples), model(examples))
    assert model.encoder[2].num_batches_tracked == 0
    assert [name for name, _ in model.named_parameters()] == ["head.weight", "head.bias"]


@pytest.mark.slow
def test_a_run_resumes_only_with_the_same_frozen_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import partly_frozen

    def interrupt(record: Any) -> None:
        if record.round == 1:
            raise KeyboardInterrupt

    config = of("partly_frozen:normed", "head")
    with pytest.raises(KeyboardInterrupt):
        fedldp.run(config, out=tmp_path / "run", after_round=interrupt)
    noted = json.loads((tmp_path / "run" / "config.json").read_text())["frozen"]
    assert noted == config.algorithm(problem_of(config, None)).frozen_digest()
    with monkeypatch.context() as patch:
        patch.setattr(partly_frozen, "normed", partly_frozen.another_encoder)
        with pytest.raises(
            RunError, match=r"frozen = .* in the run, but .* here; use the same files"
        ):
            fedldp.resume(tmp_path / "run")
    resumed = fedldp.resume(tmp_path / "run")
    whole = fedldp.run(config)
    assert {n: w.tobytes() for n, w in resumed.weights.items()} == {
        n: w.tobytes() for n, w in whole.weights.items()
    }
    weights = load_file(tmp_path / "run" / "model.safetensors")
    save_file({**weights, "encoder.1.bias": weights["encoder.1.bias"] + 1},
              tmp_path / "run" / "model.safetensors")  # fmt: skip
    with pytest.raises(RunError, match="frozen = "):
        load_trained(tmp_path / "run")


def test_a_run_begins_with_the_weights_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first = fedldp.run(of("mlp", "all", dataset="digits"), out="first")
    config = of("mlp", "head", initial="first/model.safetensors")
    problem = problem_of(config, None)
    begun = config.algorithm(problem).untrained().state_dict()
    assert {n: w.numpy().tobytes() for n, w in begun.items()} == {
        n: w.tobytes() for n, w in first.weights.items()
    }
    # Trained weights that the file lacks are drawn at random.
    saved = load_file("first/model.safetensors")
    frozen = {n: w for n, w in saved.items() if n.startswith("1.")}
    save_file(frozen, "encoder.safetensors")
    second = fedldp.run(config.changed(initial="encoder.safetensors"), out="second")
    for name, value in frozen.items():
        assert second.weights[name].tobytes() == value.tobytes()
    save_file({n: w + 1 for n, w in frozen.items()}, "encoder.safetensors")
    with pytest.raises(RunError, match="frozen = "):
        fedldp.resume("second")
    Path("encoder.safetensors").unlink()
    assert load_trained(Path("second")).config.initial == "encoder.safetensors"  # no longer needed
    for line in fedldp.account(config).guarantees:
        assert BEGINS_PUBLIC(of="first/model.safetensors") in line.assumptions


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"1.weight": (256, 64)}, "it lacks '1.bias', which is frozen"),
        ({"1.weight": (256, 64), "1.bias": (256,), "other": (1,)}, "the model has no 'other'"),
        ({"1.weight": (64, 64), "1.bias": (256,)}, r"1.weight is float32 of shape \(64, 64\), but"),
    ],
)
def test_a_file_of_another_model_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arrays: dict[str, Any], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    save_file({n: np.zeros(shape, np.float32) for n, shape in arrays.items()}, "w.safetensors")
    with pytest.raises(ConfigError, match=rf"^initial = w.safetensors: {says}"):
        fedldp.run(of("mlp", "head", initial="w.safetensors"))


def test_clients_that_train_in_a_batch_do_what_each_does_alone() -> None:
    algorithm = of("partly_frozen:normed", "head").algorithm(Problem((1, 8, 8), 10, 12))
    sgd, generator = algorithm.sgd(torch.device("cpu")), np.random.default_rng(0)
    weights = generator.normal(0, 0.1, algorithm.layout.size).astype(np.float32)
    batch = clients_of(images(12), [4] * 3)
    broadcast = Broadcast(round=1, weights=weights, ranges=None)
    together, alone = (np.asarray(sgd(broadcast, batch, group).open().rows) for group in (3, 1))
    assert together == pytest.approx(alone, abs=1e-6)
    assert not np.allclose(alone, weights)
