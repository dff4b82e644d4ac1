"""What a private evaluation tells of a model, and what it costs, against a large test set.

For each seed, made-up people train a model with ``person_dp_sgd`` behind a secure sum, and evaluate
it in the run's last two rounds. A test set of other people, which no real run has, says how good
the model is. A second run spends the same budget on training alone. A third one
also asks for the share of class 1 by sex and by hospital, of which the sum needs a column.

    python -m benchmarks.private_evaluation [SEEDS]
"""

from __future__ import annotations

import csv
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit
from sklearn.metrics import roc_auc_score

import fedldp
from fedldp.simulation.engine import simulate
from fedldp.simulation.settings import from_mapping
from fedldp.training.answers import private_figures

SEEDS, PEOPLE, TESTED = 10, 12_000, 40_000

COLUMNS = 20

SETTINGS = {
    "dataset": "made", "system": "person_dp_sgd", "channel": "sum", "num_clients": 5,
    "model": "linear", "features": "unit-norm", "epsilon": 4.0, "clip": 0.44, "learning_rate": 8.0,
    "measure_share": 0.1, "intercept_share": 0.05,
}  # fmt: skip
TRAINING = {"rounds": 20}
EVALUATED = {"rounds": 22, "evaluation_share": 0.033}

AUC = "private AUC"

HOSPITALS = {
    "north": (0.35, -0.3), "south": (0.25, 0.0), "east": (0.2, 0.2), "west": (0.12, 0.4),
    "coast": (0.08, 0.0),
}  # fmt: skip
"""The share of all people at each hospital, and what is added to the log odds there."""


@dataclass(frozen=True)
class Told:
    """What one evaluation told, and what is true.

    Attributes:
        share: the share of class 1 among the people.
        auc: the model's AUC on the test set.
        without: the AUC of the model that was trained with the whole budget.
        told: the AUC that people were asked for.
        half_width: half of its 95 % interval.
        shifted: how far the mean prediction is from ``share`` after the shift that was told.
    """

    share: float
    auc: float
    without: float
    told: float
    half_width: float
    shifted: float

    @property
    def holds(self) -> bool:
        """Whether the interval holds the AUC on the test set."""
        return abs(self.told - self.auc) <= self.half_width


@dataclass(frozen=True)
class Cell:
    """What was told of a group's share of class 1.

    Attributes:
        name: the group.
        true: the share in a test set of other people.
        told: the share that people were asked for; None if it was not seen.
        half_width: half of its 95 % interval.
    """

    name: str
    true: float
    told: float | None
    half_width: float

    @property
    def is_right(self) -> bool:
        """Whether the interval holds the share, or the cell says that it was not seen."""
        return self.told is None or abs(self.told - self.true) <= self.half_width


def people(
    number: int, seed: int, shifts: NDArray[np.float64] | float = 0.0
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return people with one row each, about 13 % of them of class 1.

    Args:
        number: how many.
        seed: draws them.
        shifts: what is added to the log odds of each person.
    """
    weights = np.random.default_rng(99).normal(size=COLUMNS) * 1.6
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(number, COLUMNS)) / np.sqrt(COLUMNS)
    labels = generator.random(number) < expit(-2.35 + shifts + rows @ weights)
    return rows.astype(np.float32), labels.astype(np.int64)


def evaluation(seed: int, number: int = PEOPLE, tested: int = TESTED) -> Told:
    """Train and evaluate a model, and train another with the whole budget.

    Raises:
        KeyError: the AUC was not seen.
    """
    rows, labels = people(number, seed)
    test = people(tested, 1_000 + seed)
    data = fedldp.Dataset.from_arrays(rows, labels, test=test)
    result, other = (
        simulate(from_mapping({**SETTINGS, **more, "seed": seed}), dataset=data)
        for more in (EVALUATED, TRAINING)
    )
    auc, without = (
        float(roc_auc_score(test[1], each.predict_proba(test[0])[:, 1])) for each in (result, other)
    )
    told = result.metrics
    log_odds = logit(result.predict_proba(rows)[:, 1])
    shifted = expit(log_odds + told.get("private shift of the log odds", 0.0)).mean()
    return Told(
        share=float(labels.mean()),
        auc=auc,
        without=without,
        told=told[AUC],
        half_width=told[f"{AUC}, 95 % half-width"],
        shifted=float(shifted - labels.mean()),
    )


def of_groups(number: int, seed: int) -> dict[str, NDArray[Any]]:
    """Return people with a sex and a hospital, on which their risk depends, by column."""
    draw = np.random.default_rng([7, seed])
    shares, by_hospital = np.array([*HOSPITALS.values()]).T
    sex, hospital = draw.integers(0, 2, number), draw.choice(len(shares), number, p=shares)
    rows, labels = people(number, seed, by_hospital[hospital] + 0.4 * (sex - 0.5))
    names = np.array([*HOSPITALS])[hospital]
    return {
        **{f"x{place}": column for place, column in enumerate(rows.T)},
        "sex": np.array(["f", "m"])[sex], "hospital": names, "site": names, "ill": labels,
    }  # fmt: skip


def by_group(seed: int, number: int = PEOPLE, tested: int = TESTED) -> list[Cell]:
    """Train and evaluate a model, and return what was told of each sex and each hospital."""
    train, test = of_groups(number, seed), of_groups(tested, 1_000 + seed)
    with TemporaryDirectory() as folder:
        for name, table in (("train", train), ("test", test)):
            some = [column[: len(train["ill"])].tolist() for column in table.values()]
            with (Path(folder) / f"{name}.csv").open("w", newline="") as file:
                csv.writer(file).writerows([table, *zip(*some, strict=True)])
        settings = {
            **SETTINGS, **EVALUATED, "seed": seed, "dataset": f"{folder}/train.csv",
            "test_file": f"{folder}/test.csv", "client_column": "site", "label_column": "ill",
            "categories": {"sex": ["f", "m"], "hospital": [*HOSPITALS]},
            "by_columns": ["sex", "hospital"],
        }  # fmt: skip
        result = simulate(from_mapping(settings))
    told = {each.name: (each.value, each.half_width) for each in private_figures(result.metrics)}
    return [
        Cell(f"{column}={value}", float(test["ill"][test[column] == value].mean()),
             *told[f"observed share of class 1, {column}={value}"])
        for column in ("sex", "hospital")
        for value in sorted({*test[column].tolist()})
    ]  # fmt: skip


def main() -> None:
    """Print what each seed's evaluation told, and a summary."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else SEEDS
    found = []
    for seed in range(seeds):
        one = evaluation(seed)
        found.append(one)
        print(f"seed {seed}: share {one.share:.4f}, AUC of the test set {one.auc:.4f}, asked "
              f"{one.told:.4f} +- {one.half_width:.4f}, without evaluation {one.without:.4f}, mean "
              f"prediction after the shift off by {one.shifted:+.4f}", flush=True)  # fmt: skip
    cells = []
    for seed in range(seeds):
        for cell in by_group(seed):
            cells.append(cell)
            told = "not seen" if cell.told is None else f"{cell.told:.4f} +- {cell.half_width:.4f}"
            print(f"seed {seed}, {cell.name}: share {cell.true:.4f}, asked {told}", flush=True)
    print(f"held {sum(one.holds for one in found)} of {seeds}; largest half-width "
          f"{max(one.half_width for one in found):.4f}; mean loss of AUC "
          f"{np.mean([one.without - one.auc for one in found]):.6f}; mean predictions after the "
          f"shift within {max(abs(one.shifted) for one in found):.4f}")  # fmt: skip
    print(f"by sex and hospital: held, or not seen, in {sum(cell.is_right for cell in cells)} of "
          f"{len(cells)} cells; not seen {sum(cell.told is None for cell in cells)}")  # fmt: skip


if __name__ == "__main__":
    main()
