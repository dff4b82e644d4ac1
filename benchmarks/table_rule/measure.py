"""Measures the rule for tables beside settings tuned by hand, and Opacus.

    FEDLDP_DATA=... python -m benchmarks.table_rule.measure ROWS.jsonl [--minutes 30]
    python -m benchmarks.table_rule.measure ROWS.jsonl --page

Six ways, each the mean of five samples of people, tested on the same 10,000 others:

    before    the settings in the middle of the list that advice had, on ranges made -1 to 1
    default   ``FederatedClassifier`` as it is, on ranges made -3 to 3; nothing else is declared
    advised   the same with its rate times 0.4, 1 and 2.5, the best on people who do not count
    declared  the rule, where spreads and class shares are declared
    tuned     27 settings of the same linear model, the best on people who do not count
    opacus    4 settings of Opacus on rows scaled by spreads, the best on people who do not count

All but the last are runs of the package: a person, or row, at delta 1e-5, with five sites. Opacus
trusts its server. The ways take turns, but for Opacus, so that a file that was cut short compares
like with like; rows that it has are not measured again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

import fedldp
from benchmarks.table_rule.made import HELD, TABLES, Facts, Made, Rows
from benchmarks.table_rule.opacus_linear import SETTINGS, People, fitted
from fedldp.experiments.advising.rule import LENGTH, difficulty, ruled
from fedldp.experiments.advising.rule import PATHS as RULED
from fedldp.simulation.plan import problem_with
from fedldp.simulation.settings import from_mapping

EPSILONS, SITES, SEEDS = (1.0, 4.0), 5, (1, 2, 3, 4, 5)
TRUSTS = {"central": "downlink", "any server": "server"}
WAYS = ("before", "default", "advised", "declared", "tuned", "opacus")
TEST, TUNED_ON, TEST_SEED, HELD_SEED = 10_000, 100, HELD, HELD + 1
"""The number of people to test on, and the seeds of those to tune on, to test on, to choose by."""

CLIPS, PATHS, ROUNDS = (0.15, 0.44, 1.5), (0.3, 1.0, 3.0), (5, 20, 60)

Floats = NDArray[np.float64]
Scores = Callable[[NDArray[np.float32]], Floats]


class Cell:
    """One table at one epsilon and one kind of trust; samples are made once."""

    def __init__(self, table: Made, epsilon: float, trust: str) -> None:
        self.table, self.epsilon, self.adversary = table, epsilon, TRUSTS[trust]
        self.facts: Facts = table.facts()
        self.shares = [1 - table.share, table.share]

    def auc(self, way: str, seed: int, try_: Any, tested: Rows) -> float:
        """Train in one way on the people of a seed; return the AUC on other people."""
        scale = {"before": Rows.by_short_ranges, "default": Rows.by_ranges,
                 "advised": Rows.by_ranges}.get(way, Rows.by_spreads)  # fmt: skip
        train = self.table.sample(seed)
        rows = scale(train, self.facts)
        if way == "opacus":
            people = People.of(rows, train.labels, train.people)
            model = fitted(people, self.epsilon, try_, seed)
            weights, bias = (each.detach().numpy() for each in (model.weight, model.bias))
            found = scale(tested, self.facts) @ (weights[1] - weights[0]) + (bias[1] - bias[0])
        else:
            model = self._classifier(way, try_, seed, train, rows)
            found = model.predict_proba(scale(tested, self.facts))[:, 1]
        return float(roc_auc_score(tested.labels, found))

    def _classifier(
        self, way: str, try_: Any, seed: int, train: Rows, rows: NDArray[np.float32]
    ) -> Any:
        unit = "record" if train.people is None else "person"
        settings: dict[str, Any] = {}
        if way == "before":
            settings = {"model": "logistic"}
        elif way == "advised":
            settings = ruled(n=self._n(unit, train, rows), shares=[0.5, 0.5], path=try_)
        elif way != "default":
            n = self._n(unit, train, rows)
            rule = ruled(n=n, shares=self.shares, declared=True, spreads=True)
            settings = {**rule, "class_shares": self.shares}
            if way == "tuned":
                clip, path, rounds = try_
                rate = path * n / (clip / math.sqrt(2) * rounds * LENGTH) / 2
                settings |= {"clip": clip, "rounds": rounds, "learning_rate": min(rate, 1e3)}
                settings |= {"intercept_share": 0.0, "measure_share": 0.0}
        model = fedldp.FederatedClassifier(
            unit=unit, adversary=self.adversary, epsilon=self.epsilon, settings=settings,
            random_state=seed,
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", fedldp.DoubtWarning)
            return model.fit(rows, train.labels, groups=self._sites(train), persons=train.people)

    def _n(self, unit: str, train: Rows, rows: NDArray[np.float32]) -> float:
        data = fedldp.Dataset.from_arrays(
            rows, train.labels, clients=self._sites(train), groups=train.people, test_share=0
        )
        channel = {"downlink": "central", "server": "named"}[self.adversary]
        config = from_mapping(
            {
                "system": "person_dp_sgd", "dataset": "custom", "num_clients": SITES,
                "channel": channel, "model": "linear", "features": "unit-norm", "rounds": 5,
                "learning_rate": 1.0, "epsilon": self.epsilon,
            }
        )  # fmt: skip
        return difficulty(config, problem_with(config, data, None))

    def _sites(self, train: Rows) -> NDArray[np.int64]:
        """Return the site of each row: people are dealt to sites of unequal size."""
        people = np.arange(len(train.labels)) if train.people is None else train.people
        shares = [0.38, 0.27, 0.18, 0.11, 0.06]
        dealt = np.random.default_rng(0).choice(SITES, people.max() + 1, p=shares)
        return np.asarray(dealt[people], np.int64)


def planned() -> Iterator[tuple[Made, float, str, str]]:
    """Yield the cells with their ways, in the order of measurement; Opacus comes last."""
    tables = sorted(TABLES, key=lambda table: table.people)
    for epsilon, trust, table in itertools.product(EPSILONS, TRUSTS, tables):
        yield from ((table, epsilon, trust, way) for way in WAYS if way != "opacus")
    for epsilon, table in itertools.product(EPSILONS, tables if "opacus" in WAYS else []):
        yield table, epsilon, "central", "opacus"


def measure(path: Path, minutes: float) -> None:
    """Add rows to a file until the minutes are over."""
    ends = time.monotonic() + 60 * minutes
    done = {(r["table"], r["epsilon"], r["trust"], r["way"]) for r in rows_of(path)}
    for table, epsilon, trust, way in planned():
        if (table.name, epsilon, trust, way) in done:
            continue
        if time.monotonic() > ends:
            return
        begun, cell = time.process_time(), Cell(table, epsilon, trust)
        chosen = None
        tries: Any = {
            "advised": RULED, "tuned": itertools.product(CLIPS, PATHS, ROUNDS), "opacus": SETTINGS,
        }.get(way)  # fmt: skip
        if tries is not None:
            held = table.sample(HELD_SEED, TEST)
            chosen = max(tries, key=lambda try_: cell.auc(way, TUNED_ON, try_, held))
        tested = table.sample(TEST_SEED, TEST)
        aucs = [cell.auc(way, seed, chosen, tested) for seed in SEEDS]
        row = {
            "table": table.name, "epsilon": epsilon, "trust": trust, "way": way, "auc": aucs,
            "chosen": chosen, "cpu_seconds": round(time.process_time() - begun, 1),
        }  # fmt: skip
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file; none if it does not exist."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def page(path: Path) -> str:
    """Return the rows as a table of means, with the deviation of the five samples."""
    found: dict[tuple[str, float, str], dict[str, str]] = {}
    for row in rows_of(path):
        told = f"{statistics.mean(row['auc']):.3f} ± {statistics.stdev(row['auc']):.3f}"
        found.setdefault((row["table"], row["epsilon"], row["trust"]), {})[row["way"]] = told
    lines = ["| table | epsilon | trust | " + " | ".join(WAYS) + " |"]
    lines.append("|---" * (3 + len(WAYS)) + "|")
    for (table, epsilon, trust), ways in found.items():
        told = (ways.get(way, "-") for way in WAYS)
        lines.append(f"| {table} | {epsilon:g} | {trust} | {' | '.join(told)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, or print the page of what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("rows", type=Path, help="the file of rows, which is continued")
    parser.add_argument("--minutes", type=float, default=30, help="when to begin no further row")
    parser.add_argument("--page", action="store_true", help="print a table of the file's rows")
    given = parser.parse_args()
    if given.page:
        print(page(given.rows))
    else:
        measure(given.rows, given.minutes)


if __name__ == "__main__":
    main()
