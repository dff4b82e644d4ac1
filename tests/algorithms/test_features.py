"""Public features in every preset: mapped one by one, the same everywhere, and free of charge."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedldp
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.features import KINDS, OnFeatures
from fedldp.algorithms.recipes import recipes
from fedldp.core.errors import ConfigError
from fedldp.core.randomness import numbered_generator
from fedldp.data import Examples, load_dataset
from fedldp.data.image_features import MapOnce
from fedldp.protocol.roles import Batch
from fedldp.protocol.wire import Broadcast, Sensitive
from fedldp.simulation.evaluating import evaluate, load_trained
from fedldp.simulation.plan import plan, problem_of
from fedldp.testing.clients import client_of, clients_of

WITH_THEIR_OWN = ("ldpfl", "ldpfl_sound")
SYSTEMS = {
    c.system: c
    for c in (r.config for r in recipes().values())
    if c.dataset == "digits"
    and c.model_dump()["features"] == "none"
    and getattr(c, "local_update", "sgd") == "sgd"
}
every_system = pytest.mark.parametrize("config", SYSTEMS.values(), ids=SYSTEMS)
every_kind = pytest.mark.parametrize("kind", KINDS)
SHORT: dict[str, Any] = {"rounds": 2, "num_clients": 10, "num_examples": 200, "local_epochs": 1}
IMAGES = numbered_generator(5, 0).random((7, 2, 9, 8)).astype(np.float32)


def small(**changes: Any) -> RunConfig:
    return fedldp.recipe(
        "fedavg-quickstart", **{**SHORT, "model": "logistic", "standardise": False, **changes}
    )


@every_system
def test_public_features_change_a_statement_only_by_the_size(config: RunConfig) -> None:
    """Compared with a model of the same size, because the cost depends on the size of what
    leaves."""
    if config.system in WITH_THEIR_OWN:
        with pytest.raises(ConfigError, match="has its own features; leave features out"):
            config.changed(features="oriented-gradients")
        return
    problem = problem_of(config, None)
    plain = config.changed(model="logistic")
    made = plain.changed(features="oriented-gradients")
    as_large = replace(problem, input_shape=(2, 8, 8))
    found, known = plan(made, problem), plan(plain, as_large)
    assert found.privacy == known.privacy
    assert found.releases == known.releases
    assert made.algorithm(problem).input_shape == (128,)
    assert made.for_client(0).model_dump()["features"] == "oriented-gradients"


@pytest.mark.slow
@every_kind
def test_an_image_has_the_same_bits_whatever_else_is_in_the_batch(kind: str) -> None:
    mapping = KINDS[kind]((2, 9, 8))
    whole = mapping(IMAGES)
    assert whole.dtype == np.float32
    assert whole.shape == (7, mapping.size)
    for index, image in enumerate(IMAGES):
        assert mapping(image[None])[0].tobytes() == whole[index].tobytes()
        others = np.concatenate([IMAGES[:index] * 1e3, image[None], np.zeros_like(IMAGES)])
        assert mapping(others)[index].tobytes() == whole[index].tobytes()
    assert mapping(IMAGES[:0]).shape == (0, mapping.size)


def test_data_without_images_are_refused() -> None:
    made = small(features="oriented-gradients")
    problem = problem_of(made, None)
    for shape, match in (
        ((54,), r"examples, of shape \(54,\), are not images; leave features out"),
        ((1, 3, 9), "images of 3x9 are too small"),
    ):
        with pytest.raises(ConfigError, match=match):
            made.layout(replace(problem, input_shape=shape))


def test_a_client_maps_its_own_examples_alone_or_together() -> None:
    mapping = KINDS["oriented-gradients"]((2, 9, 8))
    seen: list[Any] = []

    class Watch:
        def group(self, most_examples: int) -> int:
            return 3

        def __call__(self, broadcast: Broadcast, batch: Batch, group: int = 1) -> Sensitive[Any]:
            seen.append((batch.examples, [each.examples for each in batch]))
            return Sensitive(None)

    whose = np.arange(7) // 2
    examples = Examples(IMAGES, np.arange(7), whose)
    rows = [np.array([4, 0]), np.array([2])]
    batch = replace(
        clients_of(examples, [2, 1]),
        rows=rows,
        alone=lambda place: client_of(examples.taken(rows[place]), place),
    )
    update = OnFeatures(update=Watch(), once=MapOnce(mapping))
    told = Broadcast(round=1, weights=np.zeros(3, np.float32), ranges=None)
    update(told, batch, 3)
    update(told, batch, 3)
    assert update.group(9) == 3
    (together, apart), (again, _) = seen
    assert together.features is again.features  # kept, not computed again
    assert together.people is whose
    for own, found in zip(rows, apart, strict=True):
        assert found.features.tobytes() == mapping(IMAGES[own]).tobytes()
        assert found.people.tolist() == whose[own].tolist()
    assert MapOnce(mapping)(examples) is MapOnce(mapping)(examples)  # of another run too
    assert MapOnce(None)(examples) is examples


def test_a_run_trains_tests_and_predicts_on_features(tmp_path: Path) -> None:
    """The result equals that of a run on data mapped beforehand."""
    made = small(features="oriented-gradients", learning_rate=3.0, rounds=3)
    result = fedldp.run(made, out=tmp_path / "run")
    data = load_dataset("digits")
    mapping = KINDS["oriented-gradients"]((1, 8, 8))
    mapped = fedldp.Dataset(
        "mapped digits",
        train=Examples(mapping(data.train.features), data.train.labels),
        test=Examples(mapping(data.test.features), data.test.labels),
        num_classes=10,
    )
    beside = fedldp.run(made.changed(features="none"), dataset=mapped)
    for name, weights in result.weights.items():
        assert weights.tobytes() == beside.weights[name].tobytes()
    assert result.accuracy == beside.accuracy
    assert result.accuracy is not None
    assert result.accuracy > 0.5
    assert evaluate(tmp_path / "run")["accuracy"] == pytest.approx(result.accuracy)
    trained = load_trained(tmp_path / "run")
    assert trained.schema.input_shape == (1, 8, 8)
    with pytest.raises(ConfigError, match="reshape the data"):
        trained.probabilities(mapped.test.features)
