"""Images are recovered from updates in clear; more noise makes the recovery worse."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.recipes import find_recipe
from fedldp.audit.attacks.inversion import (
    FEATURES,
    OF_SUMS,
    first_dense,
    first_layer,
    guessed_classes,
    is_images,
    of_reports,
)
from fedldp.audit.attacks.matching import matching
from fedldp.audit.attacks.recovering import Prior, Shrinking
from fedldp.audit.attacks.scenario import AttackScenario
from fedldp.audit.attacks.scoring import Scoring
from fedldp.audit.efforts import QUICK
from fedldp.audit.results import Result
from fedldp.data import Dataset, load_dataset
from fedldp.papers.ldpfl.attacks import OWN, of_codes

EFFORT = replace(
    QUICK, image_count=12, image_known=40, image_matched=2, image_steps=60, image_public=300
)


def scenario_of(
    config: RunConfig, dataset: Dataset | None = None, **more: object
) -> AttackScenario:
    given: dict[str, object] = {"seed": 0, "most_examples": 14, "rounds": 1}
    return AttackScenario.of(config, dataset, **(given | more))  # type: ignore[arg-type]


def digits(name: str, **changes: object) -> RunConfig:
    return find_recipe(name).config.changed(**changes)


def attacked(config: RunConfig) -> Result:
    (attack,) = of_reports(scenario_of(config), EFFORT)
    return attack


@pytest.mark.sampled(2)
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


def test_the_whole_attack_also_finds_the_image() -> None:
    attack = attacked(digits("fedavg-digits"))
    assert attack.succeeds
    assert attack.measured is not None
    assert attack.measured.high < 1e-4
    assert len(attack.pictures) == 12
    for picture in attack.pictures:
        np.testing.assert_allclose(picture.recovered, picture.original, atol=1e-2)
        assert picture.original.shape == (1, 8, 8)


def test_smaller_budgets_give_worse_pictures() -> None:
    found = [
        attacked(digits("ldp-fl-digits", epsilon=epsilon, chunk=1)).measured
        for epsilon in (16.0, 1.0, 0.01)
    ]
    values = [each.value for each in found if each is not None]
    assert values == sorted(values)
    assert values[0] < 0.7  # the ranges clip most of the change
    assert 0.9 < values[2] < 1.1  # learning from pure noise costs a little


def test_a_model_that_scales_its_inputs_also_reveals_the_image() -> None:
    config = digits("personalized-digits-fig2-none")
    attack = attacked(config)
    assert attack.measured is not None
    assert "20 copies" in attack.setting
    assert (
        attack.measured.value < 0.1
    )  # two copies of an image are both left out with probability 0.04


@pytest.mark.slow
def test_a_sum_of_many_hides_the_image() -> None:
    few, many = (
        attacked(digits("secure-aggregation-digits", num_clients=n, dropout=0.0)) for n in (2, 60)
    )
    assert few.measured is not None
    assert many.measured is not None
    assert few.measured.high < many.measured.low
    assert many.measured.value > 0.8


@pytest.mark.slow
def test_the_gradients_of_a_convolution_are_matched() -> None:
    small = load_dataset("digits").train
    features = small.features[:200].repeat(2, 2).repeat(2, 3)  # the CNN needs 16x16
    data = Dataset.from_arrays(features, small.labels[:200])
    config = digits("fedavg-digits", model="cnn", local_epochs=2, num_clients=4, standardise=False)
    scenario = scenario_of(config, data)
    assert first_dense(scenario) is None
    scoring = Scoring(scenario)
    image = scenario.private.taken(np.array([0]))
    update = scenario.report_updates(image, 0)
    label = int(guessed_classes(scoring, update[None])[0])
    assert label == image.labels[0]
    start = scenario.public.features.mean(0).ravel()
    found = matching(scoring, 100, update[0], label, start)
    right = image.features.ravel()
    assert np.square(found - right).mean() < 0.4 * np.square(start - right).mean()


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


@pytest.mark.slow
def test_codes_of_a_public_encoder_show_the_image_and_those_of_a_clients_own_do_not() -> None:
    (public,) = of_codes(scenario_of(digits("ldpfl-digits-public")), 12, 300)
    assert public.succeeds
    assert public.note == ""
    own = digits("ldpfl-digits", encoder_epochs=2)
    (secret,) = of_codes(scenario_of(own), 12, 300)
    assert not secret.succeeds
    assert secret.note == OWN
    assert of_codes(scenario_of(digits("fedavg-digits")), 12, 300) == []


@pytest.mark.slow
def test_bits_that_are_all_noise_show_nothing() -> None:
    quiet = digits("ldpfl-digits-public", randomisation="symmetric", epsilon=0.1)
    (attack,) = of_codes(scenario_of(quiet), 12, 300)
    assert attack.measured is not None
    assert attack.measured.value > 0.95


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
