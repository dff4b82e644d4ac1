"""DP-SGD in a federation: its clipped sums, its samples, and its guarantees."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

import fedldp
from fedldp.accounting.events import PerRecord, SampledGaussian
from fedldp.accounting.guarantees import Guarantee
from fedldp.accounting.numerics.subsampled import poisson_sample, sampled_epsilon
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.presets.dp_sgd import NoisySteps, dp_sgd
from fedldp.core.errors import PrivacyError
from fedldp.core.randomness import Stream
from fedldp.data import Examples
from fedldp.models import build_model, layout_of_module
from fedldp.protocol.wire import Broadcast
from fedldp.simulation.plan import plan, problem_of
from fedldp.testing.clients import Roles, client_of, trained
from fedldp.testing.data import PROBLEM, SMALL, images
from fedldp.training.batched_sgd import single_gradients
from fedldp.training.noisy_sums import NoisySums, sampling_rate
from fedldp.training.private_sgd import PIECE, PrivateSgd
from fedldp.training.tensors import load_weights, read_weights

CPU = torch.device("cpu")
SUMS = NoisySums(steps=1, sampling_rate=1.0, batch_size=8, clip=0.5, noise_multiplier=1e-9)


def examples_of(count: int, shape: tuple[int, ...] = (1, 8, 8), seed: int = 0) -> Examples:
    drawn = np.random.default_rng(seed)
    features = drawn.normal(size=(count, *shape)).astype(np.float32)
    return Examples(features, drawn.integers(0, 10, count))


def model_of(name: str, shape: tuple[int, ...] = (1, 8, 8)) -> nn.Module:
    torch.manual_seed(0)
    model = build_model(name, shape, 10)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.1)
    return model


def change(step: PrivateSgd, examples: Examples, *, seed: int = 0) -> NDArray[np.float64]:
    """Return how one client changes its weights in one round."""
    start = Broadcast(round=1, weights=read_weights(step.model).copy())
    found = trained(step, start, client_of(examples, seed=seed))
    load_weights(step.model, layout_of_module(step.model), start.weights)
    return found.astype(np.float64) - start.weights


def sum_of_clipped(model: nn.Module, examples: Examples, clip: float) -> NDArray[np.float64]:
    """Sum gradients that are computed one by one, each scaled down to the norm ``clip``."""
    total = np.zeros(sum(p.numel() for p in model.parameters()))
    for features, label in zip(examples.features, examples.labels, strict=True):
        logits = model(torch.from_numpy(features[None]))
        loss = functional.cross_entropy(logits, torch.tensor([label]))
        pieces = torch.autograd.grad(loss, list(model.parameters()))
        gradient = np.concatenate([p.numpy().ravel() for p in pieces]).astype(np.float64)
        total += gradient / max(1.0, float(np.linalg.norm(gradient)) / clip)
    return total


# Algorithm 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("logistic", (1, 8, 8)), ("mlp", (1, 8, 8)), ("cnn", (1, 16, 16)), ("vgg", (3, 8, 8)),
        ("own_models:good", (1, 8, 8)), ("own_models:tied", (1, 8, 8)),
        ("own_models:own_parameter", (1, 8, 8)), ("own_models:several_rows", (1, 8, 8)),
        ("own_models:mixing", (1, 8, 8)), ("own_models:silent_batch_norm", (1, 8, 8)),
    ],
)  # fmt: skip
def test_a_step_adds_up_gradients_that_are_clipped_one_by_one(
    name: str, shape: tuple[int, ...]
) -> None:
    examples = examples_of(7, shape)
    for clip in (0.5, 1e3):
        model = model_of(name, shape)
        expected = -0.1 / 8 * sum_of_clipped(model, examples, clip)
        found = change(PrivateSgd(model, replace(SUMS, clip=clip), 0.1, CPU), examples)
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=2e-6)


def test_a_sample_in_pieces_gets_its_noise_once() -> None:
    sums = replace(SUMS, clip=1e-6, noise_multiplier=3.0)
    step = PrivateSgd(model_of("mlp"), sums, 1e3, CPU)
    # All gradients together move a weight by less than the noise: 769 clips are spread over 5,000
    # weights.
    found = change(step, examples_of(3 * PIECE + 1))
    assert np.std(found) == pytest.approx(3.0 * 1e-6 * 1e3 / 8, rel=0.05)


def test_a_step_without_examples_adds_noise_of_the_stated_deviation() -> None:
    sums = replace(SUMS, sampling_rate=1e-12, noise_multiplier=3.0, steps=4)
    found = change(PrivateSgd(model_of("mlp"), sums, 0.1, CPU), examples_of(5))
    # Four steps of N(0, (3 clip lr/batch)^2) in 19,210 coordinates: 0.5 % standard error.
    assert np.std(found) == pytest.approx(2 * 3.0 * 0.5 * 0.1 / 8, rel=0.03)
    assert abs(np.mean(found)) < 1e-3


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_steps_are_those_of_opacus_to_the_bit(name: str) -> None:
    optimizers = pytest.importorskip("opacus.optimizers")
    sums = NoisySums(steps=3, sampling_rate=0.6, batch_size=4, clip=0.5, noise_multiplier=1.0)
    examples, model = examples_of(9, (1, 16, 16)), model_of(name, (1, 16, 16))
    ours = trained(
        PrivateSgd(model, sums, 0.1, CPU),
        Broadcast(round=1, weights=read_weights(model).copy()),
        client_of(examples),
    )
    model, client = model_of(name, (1, 16, 16)), client_of(examples)
    optimizer = optimizers.DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1),
        noise_multiplier=1.0,
        max_grad_norm=0.5,
        expected_batch_size=4,
        generator=client.fresh("mechanism").torch_generator(CPU),
    )
    features, labels = torch.from_numpy(examples.features), torch.from_numpy(examples.labels)
    for sample in map(torch.from_numpy, sums.samples(client.fresh("batches"), 9)):
        single = single_gradients(model, features[sample], labels[sample])
        for each, own in model.named_parameters():
            own.grad_sample = single[each]  # type: ignore[attr-defined]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    assert ours.tobytes() == read_weights(model).tobytes()


@pytest.mark.parametrize("scale", [1.0, 1e8, 1e38, math.inf])
@pytest.mark.parametrize("model", ["mlp", "own_models:dropout"])
def test_replacing_one_example_moves_a_step_by_twice_the_clip_at_most(
    model: str, scale: float
) -> None:
    """The noise, the sample and what is dropped are the same for every example."""
    step = PrivateSgd(model_of(model), replace(SUMS, noise_multiplier=1.0), 1.0, CPU)
    examples, others = examples_of(4), examples_of(4, seed=1)
    replaced = Examples(examples.features.copy(), examples.labels.copy())
    replaced.features[2] = others.features[2] * np.float32(scale)
    replaced.labels[2] = (replaced.labels[2] + 5) % 10
    moved = change(step, examples) - change(step, replaced)
    assert 0 < np.linalg.norm(moved) <= 2 * 0.5 / 8 * (1 + 1e-4)


# Poisson samples


def test_a_clients_samples_do_not_reveal_its_number_of_examples() -> None:
    config = dp_sgd(**SMALL, noise_multiplier=1.0, partition="power-law:1", local_epochs=3)
    sums = NoisySteps(settings=config).sums(PROBLEM)
    released = Roles(config).encoder().event()
    assert isinstance(released, PerRecord)
    event = released.record
    assert isinstance(event, SampledGaussian)
    for count in (1, 7, 53):
        for round in (1, 2):
            stream = client_of(images(count), round=round).fresh("batches")
            assert len(list(sums.samples(stream, count))) == event.steps
    assert event.sampling_rate >= config.batch_size * config.num_clients / 60
    assert event.sampling_rate == sums.sampling_rate


def test_steps_rounds_and_examples_are_sampled_independently() -> None:
    sums = NoisySums(steps=400, sampling_rate=0.5, batch_size=1, clip=1.0, noise_multiplier=1.0)
    drawn = np.zeros((800, 20))
    for round in (1, 2):
        steps = sums.samples(client_of(images(20), round=round).fresh("batches"), 20)
        for step, places in enumerate(steps, start=400 * (round - 1)):
            drawn[step, places] = 1
    # 16,000 fair bits, consecutive in steps, examples and rounds: five standard deviations.
    signs = 2 * drawn - 1
    for product in (
        signs,
        signs[1:] * signs[:-1],
        signs[:, 1:] * signs[:, :-1],
        signs[:400] * signs[400:],
    ):
        assert abs(product.mean()) < 5 / math.sqrt(product.size)


def test_the_rate_is_that_of_the_mean_client_and_an_exact_probability() -> None:
    assert sampling_rate(10, 100, 1000) == 1.0
    assert sampling_rate(1, 2, 8) == 0.25
    for batch, clients, examples in ((24, 10, 1437), (1, 3, 10), (64, 10, 60_000)):
        rate = sampling_rate(batch, clients, examples)
        assert (rate * 2**53).is_integer()
        share = batch * clients / examples
        assert share * (1 - 1e-15) <= rate <= share * (1 + 1e-13)


# Refusals


def test_dp_sgd_is_for_simulation_only() -> None:
    step = PrivateSgd(model_of("logistic"), SUMS, 0.1, CPU)
    client = replace(client_of(examples_of(5)), fresh=lambda purpose: Stream.fresh())
    with pytest.raises(PrivacyError, match="simulation only"):
        trained(step, Broadcast(round=1, weights=read_weights(step.model)), client)


# The statement


def lines(config: RunConfig) -> dict[str, Guarantee]:
    found = plan(config, problem_of(config, None)).privacy.guarantees
    assert {line.adversary for line in found} == {"server"}
    return {line.unit: line for line in found}


def test_a_record_is_protected_as_by_all_steps_of_the_rounds_with_its_client() -> None:
    config = fedldp.recipe("dp-sgd-digits", noise_multiplier=2.0, rounds=7, batch_size=24)
    line = lines(config)["record"]
    rate = sampling_rate(24, 10, 1437)
    assert line.epsilon == sampled_epsilon({poisson_sample(2.0, rate): 7 * 6}, 1e-5)
    assert (line.kind, line.neighbours) == ("approximate", "replace-record")
    fewer = lines(config.changed(clients_per_round=1))["record"]
    assert fewer.epsilon < line.epsilon
