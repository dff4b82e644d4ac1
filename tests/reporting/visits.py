"""An invented table of visits, whose runs get every warning: a rare class, noise, missing
values."""

from __future__ import annotations

from pathlib import Path

import numpy as np

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
    """Write a table of five sites, 13 % positive, with missing values and no signal."""
    rng = np.random.default_rng(3)
    lines = ["hospital,patient,age,pressure,after"]
    for patient in range(200):
        for _ in range(rng.integers(1, 4)):
            pressure = "" if rng.random() < 0.1 else f"{rng.normal(130, 15):.0f}"
            back = NAMES[int(rng.random() < 0.13)]
            lines.append(f"h{patient % 5},p{patient},{rng.integers(18, 95)},{pressure},{back}")
    (folder / "visits.csv").write_text("\n".join(lines) + "\n")
    (folder / "visits.toml").write_text(VISITS)
