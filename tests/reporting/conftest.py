"""Runs for the tests of reports, made once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pages import SMALL

import fedldp
from fedldp.simulation.engine import simulate

NAMES = ("sent home", "back before day 30")

VISITS = """
system = "person_dp_sgd"
channel = "named"
dataset = "visits.csv"
label_column = "after"
classes = ["sent home", "back before day 30"]
client_column = "hospital"
person_column = "patient"
num_clients = 5
model = "logistic"
rounds = 2
clip = 1.0
learning_rate = 1.0

[target]
unit = "person"
epsilon = 2.0

[scale_columns]
age = [0, 120]
pressure = [60, 220]

[fill_columns]
pressure = 125
"""


def write_visits(folder: Path) -> None:
    """Write an invented table of five sites, 13 % positive, with missing values and no signal: its
    runs get every warning."""
    rng = np.random.default_rng(3)
    lines = ["hospital,patient,age,pressure,after"]
    for patient in range(200):
        for _ in range(rng.integers(1, 4)):
            pressure = "" if rng.random() < 0.1 else f"{rng.normal(130, 15):.0f}"
            back = NAMES[int(rng.random() < 0.13)]
            lines.append(f"h{patient % 5},p{patient},{rng.integers(18, 95)},{pressure},{back}")
    (folder / "visits.csv").write_text("\n".join(lines) + "\n")
    (folder / "visits.toml").write_text(VISITS)


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
