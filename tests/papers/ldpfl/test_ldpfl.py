"""LDPFL: a client's stored bits, its training, its reports and its tests, against slow oracles."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.release import Encoder
from fedldp.core.errors import ConfigError
from fedldp.data import Examples, load_dataset
from fedldp.papers.ldpfl.encoding import Codes, from_public, num_trained
from fedldp.papers.ldpfl.networks import train
from fedldp.papers.ldpfl.parts import Bits, OnBits
from fedldp.papers.ldpfl.preset import ldpfl
from fedldp.protocol.roles import Client
from fedldp.protocol.wire import Reports
from fedldp.simulation.engine import simulate
from fedldp.simulation.plan import plan
from fedldp.testing.clients import Roles, client_of, trained

DIGITS = load_dataset("digits")
PROBLEM = Problem((1, 8, 8), 10, 1437)
CPU = torch.device("cpu")
OWN = Examples(DIGITS.train.features[:200], DIGITS.train.labels[:200])


def bits_of(settings: RunConfig) -> Bits:
    found = settings.composition.features
    assert isinstance(found, Bits)
    return found


def local_of(settings: RunConfig) -> OnBits:
    found = settings.composition.local
    assert isinstance(found, OnBits)
    return found


def config(**changes: Any) -> RunConfig:
    settings: dict[str, Any] = {
        "dataset": "digits", "model": "mlp_64", "num_clients": 4, "rounds": 3, "batch_size": 32,
        "learning_rate": 0.05, "encoder_channels": [4, 6], "encoder_padding": True,
        "encoder_epochs": 1,
    }  # fmt: skip
    return ldpfl(**{**settings, **changes})


def built(settings: RunConfig) -> tuple[Roles, Codes]:
    return Roles(settings, PROBLEM), local_of(settings).codes(PROBLEM, CPU)


def unpacked(settings: RunConfig, packed: np.ndarray) -> np.ndarray:
    return np.unpackbits(packed, axis=1, count=bits_of(settings).num_bits(PROBLEM))


@pytest.fixture
def client(tmp_path: Path) -> Callable[..., Client]:
    def make(index: int = 0, **changes: Any) -> Client:
        examples = changes.pop("examples", OWN)
        return client_of(examples, index, folder=tmp_path / f"client-{index}", **changes)

    return make


# A client's stored bits


def test_without_flips_bits_are_the_codes_of_the_encoders_features(
    client: Callable[..., Client],
) -> None:
    # At so large a budget the symmetric variant flips a bit with probability e^-32.
    settings = config(encoder="public", randomisation="symmetric", epsilon=1e9)
    roles, codes = built(settings)
    broadcast = roles.broadcast
    kept = codes.for_training(broadcast, client())
    net = from_public(broadcast, bits_of(settings).architecture(PROBLEM))
    expected = bits_of(settings).code.encode(net.features(OWN.features, CPU))
    found = unpacked(settings, kept["bits"])
    assert found.shape == (180, 240)
    places = {row.tobytes(): place for place, row in enumerate(expected)}
    chosen = [places[row.tobytes()] for row in found]
    assert chosen == sorted(set(chosen))
    np.testing.assert_array_equal(kept["labels"], OWN.labels[chosen])


@pytest.mark.parametrize("alpha", [2.0, 10.0])
def test_bits_flip_as_often_as_theorem_2_says(client: Callable[..., Client], alpha: float) -> None:
    quiet = config(encoder="public", randomisation="symmetric", epsilon=1e9)
    noisy = config(encoder="public", alpha=alpha)
    roles, codes = built(quiet)
    broadcast, one, other = roles.broadcast, client(0), client(1)
    true = unpacked(quiet, codes.for_training(broadcast, one)["bits"])
    same = replace(one, store=other.store)  # the same client with an empty disk
    found = unpacked(noisy, built(noisy)[1].for_training(broadcast, same)["bits"])
    x = 0.5 / (240 / 2)
    zero = alpha * math.exp(x) / (1 + alpha * math.exp(x))
    for first, one_to_one in ((0, alpha / (1 + alpha)), (1, 1 / (1 + alpha**3))):
        before, after = true[:, first::2], found[:, first::2]
        for bit, kept in ((1, one_to_one), (0, zero)):
            share, count = (after[before == bit] == bit).mean(), (before == bit).sum()
            assert abs(share - kept) < 5 * math.sqrt(kept * (1 - kept) / count) + 1e-9


def test_a_client_draws_once_and_trains_its_own_encoder(
    client: Callable[..., Client], tmp_path: Path
) -> None:
    roles, codes = built(config(label_epsilon=2.0))
    broadcast = roles.broadcast
    assert broadcast.public == {}
    first = codes.for_training(broadcast, client(round=1))
    later = codes.for_training(replace(broadcast, round=2), client(round=2))
    for name in ("bits", "labels"):
        np.testing.assert_array_equal(first[name], later[name])
    other = codes.for_training(broadcast, client(1))
    assert not np.array_equal(first["bits"], other["bits"])
    (own,) = (tmp_path / "client-0").iterdir()  # of this run
    kept = sorted(path.name for path in own.iterdir())
    assert kept == ["encoder.safetensors", "training.safetensors"]


def test_the_encoder_is_trained_on_nine_tenths_and_never_on_test_data(
    client: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Examples] = []

    def watch(net: Any, examples: Examples, **options: Any) -> bool:
        seen.append(examples)
        return train(net, examples, **options)

    monkeypatch.setattr("fedldp.papers.ldpfl.networks.train", watch)
    roles, codes = built(config())
    codes.for_training(roles.broadcast, client())
    codes.for_test(roles.broadcast, client(), DIGITS.test)
    (trained,) = seen
    assert len(trained) == 180
    rows = {row.tobytes() for row in trained.features}
    rest = [row for row in OWN.features if row.tobytes() not in rows]
    assert len(rest) == 20


def test_an_own_encoder_that_diverges_gives_features_of_zeros(
    client: Callable[..., Client],
) -> None:
    """A refusal would reveal something, as would an output that no other data give."""
    settings = config(randomisation="symmetric", epsilon=1e9)
    roles, codes = built(settings)
    own = client(examples=Examples(OWN.features * np.float32(3e38), OWN.labels))
    for kept in (
        codes.for_training(roles.broadcast, own),
        codes.for_test(roles.broadcast, own, DIGITS.test),
    ):
        assert kept["bits"].size
        assert not unpacked(settings, kept["bits"]).any()
    assert np.isfinite(trained(roles.local_update, roles.broadcast, own)).all()


def test_labels_are_sent_in_clear_without_a_budget_and_randomised_with_one(
    client: Callable[..., Client],
) -> None:
    plain, noisy = config(encoder="public"), config(encoder="public", label_epsilon=1.0)
    broadcast = built(plain)[0].broadcast
    one, same = client(0), replace(client(0), store=client(1).store)
    true = built(plain)[1].for_training(broadcast, one)["labels"]
    found = built(noisy)[1].for_training(broadcast, same)["labels"]
    keep = math.e / (math.e + 9)
    assert abs((true == found).mean() - keep) < 5 * math.sqrt(keep * (1 - keep) / 180)
    assert built(noisy)[1].for_test(broadcast, one, DIGITS.test)["labels"].size == 20


# Training


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_training_is_that_of_the_optimizer_on_the_kept_bits(
    client: Callable[..., Client], optimizer: str
) -> None:
    settings = config(encoder="public", local_epochs=2, optimizer=optimizer)
    roles, codes = built(settings)
    broadcast = roles.broadcast
    own = client()
    found = trained(roles.local_update, broadcast, own)
    kept = codes.for_training(broadcast, own)
    inputs = torch.from_numpy(unpacked(settings, kept["bits"]).astype(np.float32))
    labels = torch.from_numpy(kept["labels"])
    weights = [torch.tensor(w) for w in roles.layout.split(broadcast.weights).values()]
    for weight in weights:
        weight.requires_grad_()
    method = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[optimizer](weights, lr=0.05)
    generator = own.fresh("batches").generator()
    for _ in range(2):
        for places in torch.from_numpy(generator.permutation(180)).split(32):
            hidden = functional.relu(inputs[places] @ weights[0].T + weights[1])
            logits = hidden @ weights[2].T + weights[3]
            method.zero_grad()
            functional.cross_entropy(logits, labels[places]).backward()  # type: ignore[no-untyped-call]
            method.step()
    expected = np.concatenate([w.detach().numpy().reshape(-1) for w in weights])
    np.testing.assert_allclose(found, expected, atol=2e-4 if optimizer == "adam" else 1e-5)


def test_a_report_holds_the_global_networks_weights_and_nothing_else(
    client: Callable[..., Client],
) -> None:
    roles, _ = built(config())
    report = roles.report(roles.broadcast, client())
    size = 240 * 64 + 64 + 640 + 10
    assert roles.layout.size == report.size == size
    assert report.uplink_bits == 32 * size
    assert (report.weight, report.epsilon, report.client) == (None, None, None)


# The tests


def scores(settings: RunConfig, client: Callable[..., Client]) -> list[Any]:
    roles, _ = built(settings)
    broadcast = roles.broadcast
    tester = settings.algorithm(PROBLEM).tester(CPU)
    return [tester(broadcast, client(index), DIGITS.test) for index in range(settings.num_clients)]


def test_a_common_test_takes_every_example_of_the_test_set_once(
    client: Callable[..., Client],
) -> None:
    found = scores(config(evaluation="common"), client)
    assert sum(score.total for score in found) == len(DIGITS.test)
    assert {score.total for score in found} == {90}


# Whole runs


# Settings


@pytest.mark.parametrize(
    ("changes", "problem", "named"),
    [
        ({}, Problem((54,), 7, 1437), "dataset"),
        ({"encoder_padding": False}, PROBLEM, "encoder_padding"),
        ({}, replace(PROBLEM, num_examples=4), "num_clients"),
        ({"encoder": "public", "public_dataset": "mnist"}, PROBLEM, "public_dataset = mnist"),
    ],
)
def test_settings_that_do_not_fit_the_data_are_refused_in_one_line(
    changes: dict[str, Any], problem: Problem, named: str
) -> None:
    settings = config(**changes)
    with pytest.raises(ConfigError, match=f"^[^\n]*{named}[^\n]*$"):
        plan(settings, problem)


# The statement


MNIST = Problem((1, 28, 28), 10, 60_000)
PAPER: dict[str, Any] = {
    "dataset": "mnist", "num_clients": 2, "encoder_channels": [32, 64], "encoder_padding": False,
}  # fmt: skip
COMMON: dict[str, Any] = {**PAPER, "evaluation": "common"}


def lines(settings: RunConfig, problem: Problem = MNIST) -> dict[str, dict[str, Any]]:
    found = plan(settings, problem).privacy["guarantees"]
    return {line["unit"]: line for line in found if line["kind"] != "approximate"}


@pytest.mark.slow
def test_the_papers_features_have_their_true_cost_for_a_record() -> None:
    # Theorem 2 at alpha 10, eps 0.5, 10,240 bits, here with a public encoder.
    settings = config(**COMMON, encoder="public", label_epsilon=1.0)
    assert bits_of(settings).num_bits(MNIST) == 10_240
    record = lines(settings)["record"]
    assert record["epsilon"] == pytest.approx(34884.836349495786 + 1.0, rel=1e-12)
    assert record["epsilon"] >= 34884.836349495786 + 1.0 - 1e-9
    assert (record["kind"], record["lower"]) == ("pure", None)
    theorem_1 = lines(settings.changed(randomisation="theorem_1"))["record"]
    assert theorem_1["epsilon"] == pytest.approx(0.90909494436566567 + 1.0, rel=1e-9)
    symmetric = lines(settings.changed(randomisation="symmetric"))["record"]
    assert symmetric["epsilon"] == pytest.approx(0.5 + 1.0, rel=1e-9)
    assert symmetric["epsilon"] <= 1.5


def test_labels_in_clear_leave_no_guarantee_and_the_line_says_what_the_bits_cost() -> None:
    found = lines(config(**PAPER))
    assert set(found) == {"record", "client-round", "client-run"}
    for line in found.values():
        assert line["kind"] == "none"
        assert "labels" in line["method"]
        assert "34,884.837" in line["method"]


def test_scores_on_a_clients_own_examples_are_charged() -> None:
    """Scores reveal the number of held-out examples classified correctly, and the exact loss."""
    for encoder in ("public", "own"):
        found = lines(config(**PAPER, encoder=encoder, label_epsilon=1.0, evaluation="clients"))
        for line in found.values():
            assert (line["kind"], line["epsilon"]) == ("none", None)
            assert "scores on own test examples" in line["method"]


@pytest.mark.parametrize("evaluation", ["clients", "common"])
@pytest.mark.parametrize("label_epsilon", [None, 1.0])
def test_a_clients_own_encoder_has_no_finite_line_for_any_scores(
    evaluation: str, label_epsilon: float | None
) -> None:
    own = lines(config(**PAPER, evaluation=evaluation, label_epsilon=label_epsilon))
    assert set(own) == {"record", "client-round", "client-run"}
    for line in own.values():
        assert (line["kind"], line["epsilon"]) == ("none", None)
        assert "an encoder trained on" in line["method"]


@pytest.mark.parametrize("encoder", ["own", "public"])
def test_scores_through_a_clients_own_encoder_distinguish_neighbours_with_equal_bits(
    encoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # At so small a budget, every bit becomes 1 with probability 1/2, up to 1e-9.
    settings = config(
        encoder=encoder, evaluation="common", label_epsilon=0.1,
        randomisation="theorem_1", epsilon=1e-6, rounds=1,
    )  # fmt: skip
    encoded, for_test = Codes._bits, Codes.for_test

    def in_clear(self: Codes, *given: Any) -> Any:
        """Return test examples whose bits are not randomised."""
        with monkeypatch.context() as patch:
            patch.setattr(Codes, "_bits", lambda self, net, own, _: encoded(self, net, own, None))
            return for_test(self, *given)

    monkeypatch.setattr(Codes, "for_test", in_clear)
    features = OWN.features.copy()
    features[7] = 1 - features[7]
    neighbours = [replace(DIGITS, train=train) for train in (OWN, Examples(features, OWN.labels))]
    sent: list[list[bytes]] = []
    encode = Encoder.__call__

    def watch(self: Encoder, *given: Any) -> Reports:
        reports = encode(self, *given)
        sent[-1] += [report.payload for report in reports]
        return reports

    monkeypatch.setattr(Encoder, "__call__", watch)
    losses = []
    for data in neighbours:
        sent.append([])
        result = simulate(settings, dataset=data)
        losses.append(result.rounds[0].loss)
    assert sent[0] == sent[1]
    assert len(sent[0]) == 4
    found = {line["unit"]: line["epsilon"] for line in result.privacy["guarantees"]}
    if encoder == "public":
        assert losses[0] == losses[1]
        assert found["record"] < 0.2
    else:
        assert losses[0] != losses[1]
        assert set(found.values()) == {None}


def test_a_clients_number_of_examples_is_not_protected() -> None:
    found = lines(config(**COMMON, encoder="public", label_epsilon=1.0, partition="dirichlet:0.3"))
    assert found["record"]["epsilon"] == pytest.approx(34885.836349495786, rel=1e-12)
    assert found["client-run"]["kind"] == "none"
    assert "number of examples" in found["client-run"]["method"]


def test_the_bound_on_a_clients_examples_holds_for_every_client() -> None:
    for total, clients in ((1437, 4), (1437, 10), (11, 5), (6, 5)):
        common = {"evaluation": "common", "label_epsilon": 1.0}
        settings = config(num_clients=clients, encoder="public", **common)
        problem = replace(PROBLEM, num_examples=total)
        event = settings.algorithm(problem).encoder(0).event()
        sizes = [len(part) for part in np.array_split(np.arange(total), clients)]
        groups = dict(event.client.drawn.groups)  # type: ignore[attr-defined]
        label = local_of(settings).labels(problem)
        assert label is not None
        ((epsilon, _),) = label.event(1).groups
        assert groups[epsilon] == max(num_trained(size, settings.test_share) for size in sizes)
        assert all(1 <= num_trained(size, settings.test_share) <= size for size in sizes)
