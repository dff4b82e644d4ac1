"""One digest names a run: by what its settings mean, so that a new setting changes no digest."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import create_model

from fedldp.algorithms.bounds import Unbounded
from fedldp.algorithms.calibration import Fixed
from fedldp.algorithms.composition import Composition
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.participation import Drawn, Once
from fedldp.algorithms.preset import preset
from fedldp.algorithms.presets.fedavg import FedAvg, fedavg
from fedldp.algorithms.recipes import find_recipe
from fedldp.algorithms.settings import AugmentationSettings, MomentumSettings
from fedldp.algorithms.systems import systems, with_defaults
from fedldp.experiments.identity import OWN, family_digest, run_digest
from fedldp.simulation.result import run_name
from fedldp.simulation.settings import from_mapping
from fedldp.testing.toys import ToyBits, ToyLocal

NAMES = ("fedavg-quickstart", "dp-sgd-digits", "person-dp-sgd-digits", "quickstart")
BASE = find_recipe("fedavg-quickstart").config


@pytest.mark.parametrize("name", NAMES)
def test_a_configuration_is_written_whole_and_hashed_without_defaults(name: str) -> None:
    config = find_recipe(name).config
    fields = type(config).model_fields
    written = json.loads(config.model_dump_json())
    assert written.keys() == fields.keys()
    assert from_mapping(written) == config
    told = config.identity()["settings"]
    assert all(value != fields[key].default for key, value in told.items())
    assert from_mapping({"system": config.system, **told}).identity() == config.identity()


def _with_one_more(default: float) -> type[RunConfig]:
    def fedavg_two(settings: Any) -> Any:
        return fedavg.compose(settings)

    fedavg_two.__name__, fedavg_two.__module__ = "fedavg", "fedldp.algorithms.presets.fedavg"
    later = create_model("Later", __base__=FedAvg, new=(float, default))
    return preset(later, MomentumSettings, AugmentationSettings)(fedavg_two)


def test_a_new_setting_changes_no_digest() -> None:
    settings = BASE.model_dump()
    later = _with_one_more(1.0).model_validate(settings)
    assert "new" in later.model_dump()
    assert later.identity() == BASE.identity()
    assert later.changed(new=2.0).identity() != BASE.identity()


def test_a_missing_setting_is_read_as_its_default() -> None:
    whole = BASE.model_dump()
    less = {name: value for name, value in whole.items() if name != "average"}
    assert with_defaults(less) == whole
    assert with_defaults({"system": "a:B", "x": 1}) == {"system": "a:B", "x": 1}


def test_all_clients_in_each_round_are_no_clients_per_round() -> None:
    all_of_them = BASE.changed(clients_per_round=BASE.num_clients)
    assert all_of_them.identity() == BASE.changed(clients_per_round=None).identity()
    assert all_of_them.identity() != BASE.changed(clients_per_round=2).identity()


def test_runs_that_cost_differently_have_different_digests() -> None:
    """An automatic participation is "once" only if clients_per_round is not set."""
    once = find_recipe("privunit-fl-mnist").config.changed(
        clients_per_round=None, participation="auto"
    )
    every = once.changed(clients_per_round=once.num_clients)
    assert isinstance(once.composition.participation, Once)
    assert isinstance(every.composition.participation, Drawn)
    assert run_name(once, None) != run_name(every, None)


@preset()
def own(settings: Any) -> Composition:
    """A user's own system, which could do anything with a setting."""
    return Composition(
        local=ToyLocal(),
        bound=Unbounded(send="update"),
        calibration=Fixed(every=ToyBits(1.0)),
    )


def test_an_own_system_may_read_more_from_a_setting_than_fedldp_does() -> None:
    several = own.model_validate(BASE.model_dump(include={*RunConfig.model_fields} - {"system"}))
    all_of_them = several.changed(clients_per_round=several.num_clients)
    assert all_of_them.identity() != several.changed(clients_per_round=None).identity()


def test_a_version_of_the_preset_or_of_a_part_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    before = BASE.identity()
    assert "version" not in before
    monkeypatch.setattr(type(BASE), "version", 2)
    assert BASE.identity() == {**before, "version": 2}
    part = type(BASE.composition.local)
    monkeypatch.setattr(part, "version", 3, raising=False)
    assert BASE.identity() == {**before, "version": 4}
    monkeypatch.setattr(BASE.composition.calibration.kind, "version", 2, raising=False)
    assert BASE.identity() == {**before, "version": 5}
    monkeypatch.setattr(part, "version", "of a user's own", raising=False)
    assert BASE.identity() == {**before, "version": 3}


@pytest.mark.parametrize(
    "change",
    [{"part": "site 1"}, {"code": "ab"}, {"device": "cuda"}, {"data": "other"}],
    ids=str,
)
def test_what_determines_the_numbers_changes_the_digest(change: dict[str, Any]) -> None:
    before = run_digest(BASE, "data")
    assert run_digest(BASE, **{"data": "data", **change}) != before
    assert run_digest(BASE.changed(seed=7), "data") != before
    assert len(before) == 32


def test_private_data_are_named_by_a_word() -> None:
    here, there = BASE.changed(dataset="a.csv"), BASE.changed(dataset="b.csv", test_file="c.csv")
    assert run_digest(here, OWN) == run_digest(there, OWN)


def test_a_family_leaves_out_the_seed_and_rounds_that_only_add() -> None:
    assert BASE.longer_begins_with_shorter
    longer = BASE.changed(seed=7, rounds=BASE.rounds + 1)
    assert family_digest(longer, "a") == family_digest(BASE, "a")
    averaged = BASE.changed(average=0.5)
    assert family_digest(averaged.changed(rounds=9), "a") != family_digest(averaged, "a")


def test_composed_keeps_its_version() -> None:
    versions = {name: cls.version for name, cls in systems().items()}
    assert {name for name, version in versions.items() if version != 1} == {"composed"}
    assert versions["composed"] == 2
