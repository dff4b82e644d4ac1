"""Images are recovered from updates in clear; more noise makes the recovery worse."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scenarios import digits, scenario_of

from fedldp.audit.attacks.inversion import (
    FEATURES,
    OF_SUMS,
    Prior,
    Shrinking,
    first_dense,
    first_layer,
    is_images,
    of_reports,
)
from fedldp.audit.efforts import QUICK
from fedldp.data import Dataset

EFFORT = replace(
    QUICK, image_count=12, image_known=40, image_matched=2, image_steps=60, image_public=300
)


@pytest.mark.parametrize("model", ["logistic", "mlp_64"])
@pytest.mark.parametrize("batch", [1, 5])
def test_an_update_in_clear_from_one_image_reveals_the_image(model: str, batch: int) -> None:
    """Exact up to rounding: weights are sent as float32, and an update is a difference of larger
    weights."""
    config = digits("fedavg-digits", model=model, batch_size=batch)
    scenario = scenario_of(config)
    names = first_dense(scenario)
    assert names is not None
    for at in range(5):
        image = scenario.private.taken(np.array([at]))
        pieces = scenario.config.layout(scenario.problem).split(
            scenario.report_updates(image, at)[0]
        )
        found = first_layer(*(pieces[name][None].astype(np.float64) for name in names))
        np.testing.assert_allclose(found, image.features.ravel(), atol=2e-5)


def test_systems_that_cannot_be_inverted_say_why() -> None:
    (attack,) = of_reports(scenario_of(digits("ldpfl-sound-digits")), EFFORT)
    assert (attack.measured, attack.note) == (None, FEATURES)
    data = Dataset.from_arrays(np.random.default_rng(0).random((60, 1, 16, 16)), np.arange(60) % 3)
    summed = digits("secure-aggregation-digits", model="cnn", num_clients=4, standardise=False)
    (attack,) = of_reports(scenario_of(summed, data), EFFORT)
    assert (attack.measured, attack.note) == (None, OF_SUMS)
    table = Dataset.from_arrays(np.random.default_rng(0).random((60, 5)), np.arange(60) % 3)
    assert not is_images(
        scenario_of(digits("fedavg-digits", num_clients=4, standardise=False), table)
    )


def test_shrinking_keeps_reliable_values_and_drops_noise() -> None:
    generator = np.random.default_rng(0)
    scenario = scenario_of(digits("fedavg-digits"))
    prior = Prior.of(scenario.public, 10)
    own = scenario.public.features.reshape(len(scenario.public), -1).astype(np.float64)
    labels = scenario.public.labels
    exact = Shrinking.learned(prior, own, labels, own)
    np.testing.assert_allclose(exact(own, labels), own, atol=1e-9)
    noise = generator.normal(0, 100, own.shape)
    none = Shrinking.learned(prior, noise, labels, own)
    assert none.trust.max() < 0.1
    assert none.class_trust == pytest.approx(1, abs=0.01)
    wrong = generator.integers(0, 10, len(labels))
    assert Shrinking.learned(prior, noise, wrong, own).class_trust < 0.1


def test_pictures_are_not_in_the_json_and_the_effort_is() -> None:
    (attack,) = of_reports(scenario_of(digits("fedavg-digits")), replace(EFFORT, image_count=3))
    assert len(attack.pictures) == 3
    assert "pictures" not in attack.as_json()
