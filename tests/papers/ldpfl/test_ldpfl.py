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
from numpy.typing import NDArray
from torch.nn import functional

from fedldp.accounting.guarantees import Guarantee
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.release import Encoder
from fedldp.core.errors import ConfigError
from fedldp.core.facts import Unprotected, alike
from fedldp.core.kinds import NUMBER_OF_EXAMPLES, SCORES, SENT_IN_CLEAR
from fedldp.core.randomness import Stream
from fedldp.data import Examples, load_dataset
from fedldp.papers.ldpfl.encoding import Codes, from_public, num_trained, to_public
from fedldp.papers.ldpfl.mechanism_bits import RandomisedBits
from fedldp.papers.ldpfl.networks import FeatureNet, build, train
from fedldp.papers.ldpfl.parts import LABELS, Bits, OnBits
from fedldp.papers.ldpfl.preset import ldpfl
from fedldp.papers.ldpfl.training import TrainOnBits
from fedldp.protocol.keys import SecretKeys
from fedldp.protocol.roles import Client
from fedldp.protocol.wire import Broadcast, Reports
from fedldp.simulation.engine import simulate
from fedldp.simulation.plan import plan
from fedldp.testing.clients import Roles, client_of, clients_of, trained, trained_apart
from fedldp.testing.data import PROBLEM as TINY
from fedldp.testing.data import SMALL, images
from fedldp.training.batched_sgd import GROUP

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
        "learning_rate": 0.05, "encoder_channels": [4, 6],
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


def test_the_encoder_is_trained_on_nine_tenths_and_never_on_test_data(
    client: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Examples] = []

    def watch(net: Any, examples: Examples, *how: Any, **options: Any) -> bool:
        seen.append(examples)
        return train(net, examples, *how, **options)

    monkeypatch.setattr("fedldp.papers.ldpfl.networks.train", watch)
    roles, codes = built(config())
    codes.for_training(roles.broadcast, client())
    codes.for_test(roles.broadcast, client(), DIGITS.test)
    (trained,) = seen
    assert len(trained) == 180
    rows = {row.tobytes() for row in trained.features}
    rest = [row for row in OWN.features if row.tobytes() not in rows]
    assert len(rest) == 20


def test_the_network_may_train_on_what_the_encoder_was_not_trained_on(
    client: Callable[..., Client],
) -> None:
    """As in the authors' code, and only if these examples are not the test."""
    common = {"evaluation": "common", "encoder": "public", "label_epsilon": 1.0}
    settings = config(**common, trains_on_held_out=True)
    roles, codes = built(settings)
    kept = codes.for_training(roles.broadcast, client())
    assert kept["labels"].shape == (200,)
    assert unpacked(settings, kept["bits"]).shape == (200, 240)
    wholly, partly = (
        dict(each.algorithm(PROBLEM).encoder(0).event().client.drawn.groups)  # type: ignore[attr-defined]
        for each in (settings, config(**common))
    )
    most = math.ceil(1437 / 4)
    assert most in wholly.values()
    assert most not in partly.values()
    with pytest.raises(ConfigError, match="trains_on_held_out = true: with evaluation = clients"):
        config(trains_on_held_out=True)


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


def test_the_fused_adam_agrees_with_adam(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A fused optimizer that receives a gradient with other strides steps in a wrong direction.
    roles, _ = built(config(encoder="public", optimizer="adam", learning_rate=0.001))
    step, told = roles.local_update, roles.broadcast
    assert isinstance(step, TrainOnBits)
    clients = clients_of(OWN, [60, 60, 60], folder=tmp_path)
    together = step(told, clients, GROUP).open().rows
    alone = trained_apart(step, told, clients).rows

    def plain(self: TrainOnBits, parameters: list[torch.Tensor]) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, lr=self.sgd.learning_rate, foreach=False)

    monkeypatch.setattr(TrainOnBits, "_optimizer", plain)
    expected = trained_apart(step, told, clients).rows
    for found in (together, alone):
        np.testing.assert_allclose(found, expected, atol=1e-4)
    assert np.abs(expected - told.weights).max() > 1e-3


# The statement


MNIST = Problem((1, 28, 28), 10, 60_000)
PAPER: dict[str, Any] = {
    "dataset": "mnist", "num_clients": 2, "encoder_channels": [32, 64], "encoder_layers": "mnist",
}  # fmt: skip
COMMON: dict[str, Any] = {**PAPER, "evaluation": "common"}


def lines(settings: RunConfig, problem: Problem = MNIST) -> dict[str, Guarantee]:
    found = plan(settings, problem).privacy.guarantees
    return {line.unit: line for line in found if line.kind != "approximate"}


@pytest.mark.slow
def test_the_papers_features_have_their_true_cost_for_a_record() -> None:
    # Theorem 2 at alpha 10, eps 0.5, 10,240 bits, here with a public encoder.
    settings = config(**COMMON, encoder="public", label_epsilon=1.0)
    assert bits_of(settings).num_bits(MNIST) == 10_240
    record = lines(settings)["record"]
    assert record.epsilon == pytest.approx(34884.836349495786 + 1.0, rel=1e-12)
    assert record.epsilon >= 34884.836349495786 + 1.0 - 1e-9
    assert (record.kind, record.lower) == ("pure", None)
    theorem_1 = lines(settings.changed(randomisation="theorem_1"))["record"]
    assert theorem_1.epsilon == pytest.approx(0.90909494436566567 + 1.0, rel=1e-9)
    symmetric = lines(settings.changed(randomisation="symmetric"))["record"]
    assert symmetric.epsilon == pytest.approx(0.5 + 1.0, rel=1e-9)
    assert symmetric.epsilon <= 1.5


NOISY: dict[str, Any] = {"label_epsilon": 1.0}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, LABELS(bits_epsilon=34884.836349495786)),
        # Scores reveal the number of held-out examples classified correctly, and the exact loss.
        (
            {**NOISY, "encoder": "public", "evaluation": "clients"},
            SCORES(on="own", encoder="public"),
        ),
        ({**NOISY, "evaluation": "clients"}, SCORES(on="own", encoder="own")),
        ({**NOISY, "evaluation": "common"}, SCORES(on="common", encoder="own")),
        ({"evaluation": "common"}, SCORES(on="common", encoder="own")),
    ],
)
def test_what_is_in_clear_leaves_no_guarantee_and_is_named(
    changes: dict[str, Any], said: Unprotected
) -> None:
    found = lines(config(**PAPER, **changes))
    assert set(found) == {"record", "client-round", "client-run"}
    for line in found.values():
        assert (line.kind, line.epsilon) == ("none", None)
        assert line.reason is not None
        assert any(alike(each, said) for each in line.reason.values["what"])


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
    found = {line.unit: line.epsilon for line in result.privacy.guarantees}
    if encoder == "public":
        assert losses[0] == losses[1]
        assert found["record"] < 0.2
    else:
        assert losses[0] != losses[1]
        assert set(found.values()) == {None}


def test_a_clients_number_of_examples_is_not_protected() -> None:
    found = lines(config(**COMMON, encoder="public", label_epsilon=1.0, partition="dirichlet:0.3"))
    assert found["record"].epsilon == pytest.approx(34885.836349495786, rel=1e-12)
    assert found["client-run"].kind == "none"
    assert found["client-run"].reason == SENT_IN_CLEAR(what=(NUMBER_OF_EXAMPLES,))


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


def small(**changes: Any) -> RunConfig:
    small = {"encoder_channels": [3], "encoder_epochs": 1, "label_epsilon": 1.0}
    return ldpfl(**{**SMALL, **small, **changes})


def test_bits_are_drawn_once_even_if_a_later_broadcast_has_another_encoder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = small(encoder="public")
    codes, first = local_of(config).codes(TINY, torch.device("cpu")), Roles(config).broadcast
    drawn: list[int] = []
    bits = RandomisedBits.randomise

    def randomise(self: RandomisedBits, x: NDArray[np.uint8], stream: Stream) -> NDArray[np.uint8]:
        drawn.append(len(x))
        return bits(self, x, stream)

    monkeypatch.setattr(RandomisedBits, "randomise", randomise)
    kept = codes.for_training(first, client_of(images(20), folder=tmp_path))
    net = build(bits_of(config).architecture(TINY), Stream(bytes(32), simulated=True))
    other = Broadcast(round=2, weights=first.weights, public=to_public(net))
    again = codes.for_training(other, client_of(images(20), round=2, folder=tmp_path))
    assert np.array_equal(kept["bits"], again["bits"])
    assert np.array_equal(kept["labels"], again["labels"])
    assert drawn == [num_trained(20, config.test_share)]


@pytest.mark.parametrize("what", ["bits", "labels"])
def test_bits_drawn_again_after_a_loss_are_the_same_or_independent(
    what: str, tmp_path: Path
) -> None:
    config = small(encoder="public", epsilon=1e-6, label_epsilon=1e-3, randomisation="symmetric")
    codes, first = local_of(config).codes(TINY, torch.device("cpu")), Roles(config).broadcast
    net = build(bits_of(config).architecture(TINY), Stream(bytes(32), simulated=True))
    other = Broadcast(round=1, weights=first.weights, public=to_public(net))
    keys = SecretKeys(bytes(32), "run")

    def drawn(told: Broadcast, life: str, seed: int = 0, codes: Codes = codes) -> NDArray[np.uint8]:
        client = replace(client_of(images(200, seed=seed), folder=tmp_path / life), kept=keys.kept)
        found = codes.for_training(told, client)[what]
        return np.unpackbits(found) if what == "bits" else found

    one = drawn(first, "one")
    assert np.array_equal(one, drawn(first, "two"))
    other_epsilon = config.changed(epsilon=2e-6, label_epsilon=2e-3)
    others = [
        drawn(first, "three", seed=1),
        drawn(first, "four", codes=local_of(other_epsilon).codes(TINY, torch.device("cpu"))),
    ]
    if what == "bits":
        others.append(drawn(other, "five"))
    else:  # encoders do not affect labels
        assert np.array_equal(one, drawn(other, "five"))
    classes = 2 if what == "bits" else TINY.num_classes
    for again in others:
        # Like two coins: with the same stream for both, all entries that do not differ would be
        # equal.
        equal_share = np.mean(one == again)
        assert equal_share == pytest.approx(1 / classes, abs=5 / math.sqrt(len(one)))


def test_if_one_bit_differs_on_another_machine_all_are_drawn_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = small(encoder="public", epsilon=1e-6, randomisation="symmetric")
    codes, told = local_of(config).codes(TINY, torch.device("cpu")), Roles(config).broadcast
    keys, features = SecretKeys(bytes(32), "run"), FeatureNet.features

    def drawn(life: str, change: float) -> NDArray[np.uint8]:
        def here(net: FeatureNet, images: NDArray[np.float32], device: torch.device) -> Any:
            found = features(net, images, device).copy()
            found[0, 0] += change
            return found

        monkeypatch.setattr(FeatureNet, "features", here)
        client = replace(client_of(images(200), folder=tmp_path / life), kept=keys.kept)
        return np.unpackbits(codes.for_training(told, client)["bits"])

    one, step = drawn("one", 0.0), 2.0**-codes.code.fraction_bits
    assert np.array_equal(one, drawn("two", 1e-9 * step))  # the same bits
    assert np.mean(one == drawn("three", step)) == pytest.approx(0.5, abs=5 / math.sqrt(len(one)))


def test_public_data_are_distinguished_from_the_clients_even_if_given_as_objects() -> None:
    """Otherwise the public encoder could be trained on the clients' records."""
    config = small(dataset="svhn", encoder="public", public_dataset="digits")
    with pytest.raises(ConfigError, match=r"dataset = svhn: the run was given .* digits"):
        simulate(config, dataset=load_dataset("digits"))
    with pytest.raises(ConfigError, match="it is not public here"):
        small(encoder="public", public_dataset="digits")
