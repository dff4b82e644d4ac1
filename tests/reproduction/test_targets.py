"""The papers' tables and figures as targets, all made from recipes that have a source."""

from __future__ import annotations

import inspect
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import fedldp.algorithms.recipes
import fedldp.reproduction
from fedldp.algorithms.recipes import _tables, recipes
from fedldp.algorithms.systems import systems
from fedldp.reproduction.comparison import WORTH_A_REASON, compare
from fedldp.reproduction.known import known
from fedldp.reproduction.results import (
    MeasurementStore,
    published,
    published_gains,
)
from fedldp.reproduction.targets import papers_with_targets, source_of, targets
from fedldp.simulation.identity import data_digests, family_digest

TARGETS, PAPERS = targets(), papers_with_targets()


def test_every_table_and_figure_with_results_is_a_target() -> None:
    assert set(TARGETS) == {
        *(f"ldp-fl-{place}" for place in ("table1", "fig3", "fig4", "fig5", "text52")),
        "ldp-fl-fmnist-gap",
        "personalized-fig2-digits",
        *(f"personalized-fig{number}-whole" for number in (4, 7)),
        *(f"ldpfl-{place}" for place in ("table1", "fig3", "fig5", "fig6", "fig7")),
        *(f"ldpfl-fig{number}" for number in (2, 4, 8, 9, 10, 11, 12)),
        *(f"priority-fig{number}" for number in (5, 6, 7, 8)),
        *(f"personalized-fig{number}" for number in range(2, 8)),
        *(f"{paper}-sound" for paper in ("ldpfl", "priority", "personalized")),
        *(f"{paper}-tried" for paper in ("ldp-fl", "ldpfl", "priority", "personalized")),
    }


def test_this_room_names_no_paper_and_no_recipe_of_one() -> None:
    """Everything about a paper is data of its folder, so a new paper changes no file here."""
    room = Path(inspect.getfile(fedldp.reproduction)).parent
    folders = [path for path in (room.parent / "papers").iterdir() if path.is_dir()]
    files = [file for folder in folders for file in folder.glob("recipes/*.toml")]
    tables = [table for file in files for table in tomllib.loads(file.read_text("utf-8"))["recipe"]]
    starts = {table["name"].partition("{")[0] for table in tables}
    words = (
        starts | {folder.name for folder in folders} | {paper.paper for paper in PAPERS.values()}
    )
    assert len(words) > 100
    assert {path.suffix for path in room.iterdir() if path.is_file()} == {".py"}
    for file in room.glob("*.py"):
        text = file.read_text("utf-8")
        found = [word for word in words if re.search(rf"(?<![\w-]){re.escape(word)}", text)]
        assert not found, file.name


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


# Sun, Qian, Chen 2021, Table 1, as printed.
@pytest.mark.parametrize(
    ("row", "numbers"),
    [
        ("MNIST, fixed", (96.34, 96.39)),
        ("MNIST, adaptive", (96.06, 96.11)),
        ("Fashion-MNIST, fixed", (85.95, 86.10)),
        ("Fashion-MNIST, adaptive", (87.54, 87.57)),
        ("CIFAR-10, fixed", (13.54, 14.28)),
        ("CIFAR-10, adaptive", (58.89, 60.37)),
    ],
)
def test_ldp_fl_table_1_has_the_papers_numbers(row: str, numbers: tuple[float, float]) -> None:
    found = {
        source_of(cell).column: cell.expected.accuracy
        for cell in TARGETS["ldp-fl-table1"].cells
        if source_of(cell).row == row and cell.expected is not None
    }
    assert found == {
        f"epsilon {epsilon}": pytest.approx(number / 100)
        for epsilon, number in zip((5, 10), numbers, strict=True)
    }


def test_each_variation_for_the_gap_has_its_noise_free_twin() -> None:
    """Sun, Qian, Chen 2021: Table 1, adaptive, epsilon 5; Section 5.2, 86.26 + 1.32."""
    cells = {
        (source_of(cell).row, source_of(cell).column): cell
        for cell in TARGETS["ldp-fl-fmnist-gap"].cells
    }
    assert len(cells) == 11  # including, once, half the range of Table 1
    rows = {row for row, _ in cells}
    assert len(rows) == 5
    for row in rows:
        noisy, twin = cells[row, "LDP-FL, adaptive, epsilon 5"], cells[row, "FedAvg"]
        shared = ("dataset", "model", "num_clients", "rounds", "learning_rate", "standardise")
        for setting in (*shared, "local_epochs", "batch_size", "momentum"):
            assert getattr(noisy.config, setting) == getattr(twin.config, setting), setting
        assert noisy.expected is not None
        assert twin.expected is not None
        assert noisy.expected.accuracy == pytest.approx(0.8754)
        assert twin.expected.accuracy == pytest.approx(0.8758)


def test_the_digits_have_the_settings_of_figure_2() -> None:
    """Wu, Xu, Zhu 2023, Section 5.2.1, except for the data: 8x8 images of integers from 0 to 16."""
    for cell in TARGETS["personalized-fig2-digits"].cells:
        of_mnist = recipes()[cell.name.replace("digits", "mnist")].config.model_dump()
        own = cell.config.model_dump()
        assert {name for name in own if own[name] != of_mnist[name]} == {
            "dataset", "feature_scale", "local_epochs", "num_examples",
        }  # fmt: skip
        assert (own["dataset"], own["feature_scale"], own["local_epochs"]) == ("digits", 16.0, 3)


def test_gains_refer_to_cells_of_their_target() -> None:
    for target in TARGETS.values():
        names = {cell.name for cell in target.cells}
        assert {name for gain in target.gains for pair in gain.pairs for name in pair} <= names
    assert len([gain for target in TARGETS.values() for gain in target.gains]) == 17


def test_no_tolerance_is_larger_than_half_its_value() -> None:
    for target in TARGETS.values():
        for gain in target.gains:
            if gain.expected is not None:
                assert gain.expected.tolerance <= abs(gain.expected.accuracy) / 2, gain.row
        for cell in target.cells:
            if cell.expected is not None:
                assert cell.expected.tolerance <= cell.expected.accuracy / 2, cell.name


def test_cldps_row_is_a_range_without_differences() -> None:
    """Chamikara et al. 2022, Table 1: about 85.28 % to 86.93 %."""
    expected = recipes()["cldp-fed-fmnist-table1"].expected
    assert expected is not None
    found = [round(100 * expected.difference(mean), 2) for mean in (0.84, 0.86, 0.87)]
    assert found == [-1.28, 0, 0.07]
    assert expected.text == "85.28 to 86.93"


def test_explanations_refer_to_existing_cells() -> None:
    gains = {f"{target.name}: {g.row}" for target in TARGETS.values() for g in target.gains}
    assert set(known()) <= set(recipes()) | gains
    assert {f"{target}: {row}" for target, row in published_gains()} <= gains


@pytest.mark.slow
def test_every_difference_of_more_than_a_point_has_a_cause_or_says_that_none_is_known(
    tmp_path: Path,
) -> None:
    found = 0
    for target in TARGETS.values():
        for row in compare(target, MeasurementStore(tmp_path), tmp_path, prove=False):
            far = row.difference is not None and abs(row.difference) > WORTH_A_REASON
            assert (row.why is not None) == far, (target.name, row.row)
            assert (row.verdict == "unexplained") <= str(row.why).startswith("not known")
            found += far
    assert found > 10


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
