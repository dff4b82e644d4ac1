"""The convolutional networks of clients, and public encoders."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedldp.core.errors import ConfigError, RunError
from fedldp.core.randomness import Stream
from fedldp.data import Examples, load_dataset
from fedldp.data.image_features import Augmentation
from fedldp.papers.ldpfl.architecture import Architecture
from fedldp.papers.ldpfl.encoding import PublicEncoder, check_is_public, from_public, to_public
from fedldp.papers.ldpfl.networks import FeatureNet, build, restore, state_of, train
from fedldp.papers.ldpfl.preset import ldpfl
from fedldp.protocol.keys import draws_of_seed
from fedldp.protocol.roles import Draw
from fedldp.protocol.wire import Broadcast
from fedldp.training.augmentation import augmented

CPU = torch.device("cpu")
SMALL = Architecture((1, 8, 8), 10, (4, 6))
ONE_EPOCH = ldpfl(
    dataset="digits", num_clients=2, rounds=1, model="linear", learning_rate=0.1, encoder_epochs=1
)


def draw(purpose: str, seed: int = 0) -> Stream:
    return Stream.simulation(seed=seed, round=0, client=0, purpose=purpose)


def digits(count: int = 128) -> Examples:
    data = load_dataset("digits").train
    return Examples(data.features[:count], data.labels[:count])


APPENDIX_A = Architecture((1, 28, 28), 10, (32, 64), "mnist")


def test_the_network_for_mnist_has_its_norms_where_appendix_a_numbers_them() -> None:
    """Chamikara et al. 2022: conv 3, 6, 10, 13; pool 8, 15; batch norm 5, 9, 12, 17, 20."""
    net = build(APPENDIX_A, draw("weights"))
    layers = [*net.body, *net.head]  # type: ignore[misc]
    places: dict[type[nn.Module], list[int]] = {}
    for number, layer in enumerate(layers, start=3):
        places.setdefault(type(layer), []).append(number)
    assert places[nn.Conv2d] == [3, 6, 10, 13]
    assert places[nn.MaxPool2d] == [8, 15]
    assert places[nn.BatchNorm2d] + places[nn.BatchNorm1d] == [5, 9, 12, 17, 20]
    assert places[nn.Flatten] == [16]
    assert places[nn.Linear] == [18, 22]
    assert [layer.num_features for layer in layers if isinstance(layer, nn.BatchNorm2d)] == [
        32, 32, 64,
    ]  # fmt: skip
    assert net.features(np.zeros((2, 1, 28, 28), np.float32), CPU).shape == (2, 1024)
    assert len(net.body) == 17 - 2  # the features are those of layer 17


@pytest.mark.parametrize("count", [1, 65])
def test_a_batch_of_one_example_is_left_out_and_refuses_nothing(count: int) -> None:
    architecture = Architecture((1, 8, 8), 10, (4,), "mnist")
    net = build(architecture, draw("weights"))
    before = state_of(net)["0.weight"].copy()
    assert train(net, digits(count), ONE_EPOCH, draw=draw, device=CPU)
    assert np.array_equal(state_of(net)["0.weight"], before) == (count == 1)
    assert net.features(digits(1).features, CPU).shape == (1, 16)


def trained(seed: int = 0, **settings: Any) -> FeatureNet:
    net = build(SMALL, draw("weights"))
    how = ONE_EPOCH.changed(**{"encoder_epochs": 3, **settings})
    assert train(net, digits(), how, draw=lambda purpose: draw(purpose, seed), device=CPU)
    return net


def accuracy(net: FeatureNet) -> float:
    own = digits()
    with torch.no_grad():
        guess = net.eval()(torch.from_numpy(own.features)).argmax(1).numpy()
    return float((guess == own.labels).mean())


@pytest.mark.slow
def test_training_is_the_same_for_the_same_streams_and_learns() -> None:
    images = digits().features
    once, again, other = trained(), trained(), trained(seed=1)
    np.testing.assert_array_equal(once.features(images, CPU), again.features(images, CPU))
    assert not np.array_equal(once.features(images, CPU), other.features(images, CPU))
    assert (
        accuracy(trained(encoder_epochs=25)) > 0.5 > 0.3 > accuracy(build(SMALL, draw("weights")))
    )


@pytest.mark.parametrize("size", [0, 1, 499, 501])
def test_features_do_not_depend_on_the_batch(size: int) -> None:
    images = np.resize(digits().features, (size, 1, 8, 8))
    net = trained()
    found = net.features(images, CPU)
    assert found.shape == (size, SMALL.num_features)
    if size:
        alone = net.features(images[-1:], CPU)
        np.testing.assert_allclose(found[-1:], alone, rtol=1e-4, atol=1e-5)


def test_an_example_that_overflows_has_features_like_any_other() -> None:
    """A refusal would reveal such an example."""
    net = build(SMALL, draw("weights"))
    examples = digits(3).features.copy()
    few = net.features(examples, CPU)
    examples[1] *= np.float32(3e38)
    examples[2, 0, 0, 0] = np.nan
    found = net.features(examples, CPU)
    assert np.isfinite(found).all()
    assert found.shape == few.shape
    np.testing.assert_array_equal(found[0], few[0])


def diverging() -> Examples:
    return Examples(digits().features * np.float32(3e38), digits().labels)


def test_diverging_training_is_told_and_a_blank_network_gives_zeros() -> None:
    net = build(SMALL, draw("weights"))
    assert not train(net, diverging(), ONE_EPOCH, draw=draw, device=CPU)
    net.blank()
    for images in (digits().features, diverging().features):
        found = net.features(images, CPU)
        assert found.shape == (len(images), SMALL.num_features)
        assert not found.any()
    assert not restore(SMALL, state_of(net)).features(digits().features, CPU).any()


# The public encoder


def public(dataset: str | None = None, **changes: Any) -> PublicEncoder:
    settings = {"architecture": SMALL, "training": ONE_EPOCH, "data_dir": None}
    return PublicEncoder(dataset=dataset, **{**settings, **changes})


def of_server(seed: int = 0) -> Draw:
    return draws_of_seed(seed)(0)


def test_a_public_encoder_is_sent_in_the_broadcast() -> None:
    net, images = public("digits").build(of_server()), digits().features
    empty = Broadcast(round=1, weights=np.zeros(3, np.float32))
    back = from_public(replace(empty, public=to_public(net)), SMALL)
    np.testing.assert_array_equal(back.features(images, CPU), net.features(images, CPU))
    with pytest.raises(RunError, match="encoder"):
        from_public(empty, SMALL)


def test_a_public_encoder_that_diverges_ends_the_run_with_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing in the encoder is private, so the user who starts the run should know."""
    data = replace(load_dataset("digits"), train=diverging())
    monkeypatch.setattr("fedldp.papers.ldpfl.encoding.load_dataset", lambda *_, **__: data)
    with pytest.raises(RunError, match=r"^[^\n]*became NaN or infinite; scale the features down"):
        public("digits").build(of_server())


def test_the_clients_own_data_set_is_not_public_and_another_is() -> None:
    own = [("fmnist", "fashion-mnist"), ("svhn", "svhn-extra"), ("digits", "digits")]
    for name, private in [*own, ("what", "mnist")]:
        with pytest.raises(ConfigError):
            check_is_public(name, private)
    for name, private in [("mnist", "fmnist"), ("mnist", "digits"), ("mnist", "my/own.npz")]:
        check_is_public(name, private)


@pytest.mark.parametrize(
    "setting",
    [{"encoder_batch_size": 32}, {"encoder_augmentation": "rotate-shift"}],
    ids=str,
)
def test_every_setting_of_the_training_changes_the_network(setting: dict[str, Any]) -> None:
    images = digits().features
    assert not np.array_equal(
        trained(**setting).features(images, CPU), trained().features(images, CPU)
    )


@pytest.mark.parametrize("flips", [False, True])
def test_augmented_images_are_shifted_by_a_tenth_of_their_side_and_mirrored_on_request(
    flips: bool,
) -> None:
    """Each result is one of the 5 x 5 shifts of the image, with repeated edges, or of its mirror
    image."""
    images = torch.rand(200, 2, 20, 24)
    found = augmented(images, np.random.default_rng(3), "shift-flip" if flips else "shift")
    seen = set()
    for image, moved in zip(images, found, strict=True):
        places = []
        for mirrored in (False, True):
            start = image.flip(2) if mirrored else image
            padded = nn.functional.pad(start[None], (2, 2, 2, 2), mode="replicate")[0]
            places += [
                (down, right, mirrored)
                for down in range(5)
                for right in range(5)
                if torch.equal(padded[:, down : down + 20, right : right + 24], moved)
            ]
        (place,) = places
        seen.add(place)
    assert len({(down, right) for down, right, _ in seen}) == 25
    assert {mirrored for *_, mirrored in seen} == ({False, True} if flips else {False})


def interpolated(image: Tensor, row: float, column: float) -> float:
    """Return the value between the four pixels around a place, which may lie beyond the edge."""
    row, column = min(max(row, 0), image.shape[0] - 1), min(max(column, 0), image.shape[1] - 1)
    up, left = int(row), int(column)
    down, right = min(up + 1, image.shape[0] - 1), min(left + 1, image.shape[1] - 1)
    below, beside = row - up, column - left
    upper = (1 - beside) * image[up, left] + beside * image[up, right]
    lower = (1 - beside) * image[down, left] + beside * image[down, right]
    return float((1 - below) * upper + below * lower)


@pytest.mark.parametrize("how", ["rotate-shift", "rotate-shift-flip"])
def test_rotated_images_are_those_of_a_slow_rotation(how: Augmentation) -> None:
    """The image of columns and that of rows tell where each pixel came from."""
    height, width = 9, 12
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    random = torch.rand(height, width)
    images = torch.stack([rows, columns, random]).float().expand(300, 3, height, width)
    found = augmented(images, np.random.default_rng(3), how)
    middle = (height - 1) / 2, (width - 1) / 2
    angles, mirrored = [], []
    for image in found:
        # In the middle no place is beyond an edge, so differences of places give the angle.
        down, right = image[:2, 5, 5] - image[:2, 4, 5], image[:2, 4, 6] - image[:2, 4, 5]
        angle = math.atan2(float(down[1]), float(down[0]))
        side = math.copysign(1, float(right[1]))
        angles.append(angle)
        mirrored.append(side < 0)
        turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
        seen = image[:2, 4, 5].numpy() - middle
        shift = turn.T @ seen - (4 - middle[0], (5 - middle[1]) * side)
        assert (np.abs(shift) <= np.array([0.1 * height, 0.1 * width]) + 1e-4).all()
        for row, column in ((0, 0), (4, 7), (8, 11)):
            start = np.array([row - middle[0], (column - middle[1]) * side]) + shift
            place = turn @ start + middle
            assert float(image[2, row, column]) == pytest.approx(
                interpolated(random, *place), abs=1e-4
            )
    assert max(map(abs, angles)) <= math.radians(15) + 1e-4
    assert min(angles) < -math.radians(13) < math.radians(13) < max(angles)
    assert 0.4 < np.mean(mirrored) < 0.6 if how.endswith("flip") else not any(mirrored)
