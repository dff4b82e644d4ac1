"""Codes of a public encoder show the image; those of a client's own encoder do not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.recipes import find_recipe
from fedldp.audit.attacks.scenario import AttackScenario
from fedldp.audit.efforts import QUICK
from fedldp.data import Dataset
from fedldp.papers.ldpfl.attacks import OWN, attacks

FEW = replace(QUICK, image_count=12, image_public=300)


def scenario_of(
    config: RunConfig, dataset: Dataset | None = None, **more: object
) -> AttackScenario:
    given: dict[str, object] = {"seed": 0, "most_examples": 14, "rounds": 1}
    return AttackScenario.of(config, dataset, **(given | more))  # type: ignore[arg-type]


def digits(name: str, **changes: object) -> RunConfig:
    return find_recipe(name).config.changed(**changes)


@pytest.mark.slow
def test_codes_of_a_public_encoder_show_the_image_and_those_of_a_clients_own_do_not() -> None:
    (public,) = attacks(scenario_of(digits("ldpfl-digits-public")), FEW)
    assert public.succeeds
    assert public.note == ""
    own = digits("ldpfl-digits", encoder_epochs=2)
    (secret,) = attacks(scenario_of(own), FEW)
    assert not secret.succeeds
    assert secret.note == OWN
    assert attacks(scenario_of(digits("fedavg-digits")), FEW) == []
