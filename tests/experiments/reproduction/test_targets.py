"""The papers' tables and figures as targets, all made from recipes that have a source."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

import fedldp.algorithms.recipes
import fedldp.experiments.reproduction
from fedldp.algorithms.recipes import _tables, recipes
from fedldp.algorithms.systems import systems
from fedldp.experiments.identity import data_digests, family_digest
from fedldp.experiments.reproduction.comparison import WORTH_A_REASON, compare, known
from fedldp.experiments.reproduction.results import (
    Measurements,
    published,
)
from fedldp.experiments.reproduction.targets import papers_with_targets, source_of, targets

TARGETS, PAPERS = targets(), papers_with_targets()


def test_every_recipe_with_a_source_has_a_place_in_its_papers_folder() -> None:
    here = {name for name, recipe in recipes().items() if recipe.source is not None}
    core = Path(inspect.getfile(fedldp.algorithms.recipes)).parent
    for file in core.glob("*.toml"):
        assert not here & set(_tables(file)), file.name
    assert {recipes()[name].source.paper for name in here} == set(PAPERS)  # type: ignore[union-attr]


def test_every_recipe_with_a_source_is_a_cell_under_one_of_its_names() -> None:
    cells = {repr(recipe.config) for target in TARGETS.values() for recipe in target.cells}
    for name, recipe in recipes().items():
        assert recipe.source is None or repr(recipe.config) in cells, name


def test_no_target_has_two_cells_of_one_place() -> None:
    for target in TARGETS.values():
        places = [(source_of(cell).row, source_of(cell).column) for cell in target.cells]
        assert len(set(places)) == len(places), target.name


def test_no_tolerance_is_larger_than_half_its_value() -> None:
    for target in TARGETS.values():
        for cell in target.cells:
            if cell.expected is not None:
                assert cell.expected.tolerance <= cell.expected.accuracy / 2, cell.name


def test_explanations_refer_to_existing_cells() -> None:
    assert set(known()) <= set(recipes())


@pytest.mark.slow
def test_every_difference_of_more_than_a_point_has_a_cause_or_says_that_none_is_known() -> None:
    found = 0
    for target in TARGETS.values():
        for row in compare(target, Measurements(), prove=False):
            far = row.verdict in ("explained", "differs", "not comparable") or (
                row.difference is not None and abs(row.difference) > WORTH_A_REASON
            )
            assert (row.why is not None) == far, (target.name, row.row)
            found += far
    assert found > 10


@pytest.mark.slow
def test_committed_results_are_of_the_current_recipes() -> None:
    """A result that fails was measured with other settings: measure it again, or remove it."""
    for name, row in published().items():
        config = recipes()[name].config
        assert row.digest in {family_digest(config, data) for data in data_digests(config)}, name
        assert row.rounds == config.rounds, name


@pytest.mark.slow
def test_the_check_passes_on_the_committed_results(
    fedldp_command: Any, monkeypatch: Any, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # a relative one would be ignored
    assert fedldp_command("reproduce", "--check", "--json").status == 0


DEFAULTS = {
    "fedavg": {
        "weighting": "examples",
        "local_epochs": 1,
        "batch_size": 10,
        "partition": "iid",
        "momentum": 0.0,
    },
    "ldp_fl": {
        "mechanism": "two_point",
        "ranges": "fixed",
        "chunk": 1,
        "momentum": 0.0,
    },
    "ldpfl": {
        "alpha": 10.0,
        "epsilon": 0.5,
        "randomisation": "theorem_2",
        "encoder_epochs": 50,
        "encoder_layers": "deep",
    },
    "nbafl": {"exposures": None, "send": "weights"},
    "personalized": {"aggregation": "mean", "perturbation": "gaussian"},
}


def test_defaults_are_those_of_the_measurements() -> None:
    """Digests leave out defaults: if a default changes, ``version`` of its system must rise."""
    for name, defaults in DEFAULTS.items():
        fields = systems()[name].model_fields
        assert {each: fields[each].default for each in defaults} == defaults
        assert systems()[name].version == 1
