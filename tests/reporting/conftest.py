"""Runs for the tests of reports, made once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pages import SMALL
from visits import write_visits

import fedldp
from fedldp.simulation.engine import simulate


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the folders of finished runs, by recipe."""
    place = tmp_path_factory.mktemp("runs")
    for name in ("quickstart", "fedavg-quickstart"):
        simulate(fedldp.recipe(name, **SMALL), recipe=name, out=place / name)
    return {path.name: path for path in place.iterdir()}


@pytest.fixture
def own_copy(runs: dict[str, Path], tmp_path: Path) -> Callable[..., Path]:
    """Return a function that copies a run, for a test to change."""

    def copied(name: str = "quickstart", to: str = "copy") -> Path:
        return Path(shutil.copytree(runs[name], tmp_path / to))

    return copied


@pytest.fixture(scope="session")
def visits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run on the table of visits, at a guarantee for a person."""
    place = tmp_path_factory.mktemp("visits")
    write_visits(place)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        fedldp.run("visits.toml", out="run")
    return place / "run"
