"""Measures how well a length of stay is predicted, beside least squares without privacy.

    python -m benchmarks.table_rule.stay [--people 12000] [--epsilon 1]

Each line is the mean R2 of five samples of people, on 10,000 others, and its deviation. Everything
that is declared about columns is a little wrong; see ``made``. The range of the days is 0 to 30,
and 4 is typical. Five sites, a person, delta 1e-5.
"""

from __future__ import annotations

import argparse
import statistics
import warnings

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score

import fedldp
from benchmarks.table_rule.made import HELD, facts_of, stays
from fedldp.data.public_features import with_constant

RANGE, TYPICAL, SITES, SEEDS, TEST = (0.0, 30.0), 4.0, 5, (1, 2, 3, 4, 5), 10_000
TRUSTS = {"trusted server": "downlink", "secure sum": "summing-server", "any server": "server"}

Floats = NDArray[np.float64]


class Sample:
    """People to train on, and others to test on.

    Args:
        people: how many people train.
        seed: draws them.
    """

    def __init__(self, people: int, seed: int, tested: int = TEST) -> None:
        facts = facts_of(stays(TEST, 1 << 20)[0].numbers)
        (train, days), (test, true) = stays(people, seed), stays(tested, HELD)
        self.train, self.days, self.people = train.by_spreads(facts), days, train.people
        self.test, self.true = test.by_spreads(facts), true.clip(*RANGE)

    def without_privacy(self) -> float:
        """Return the R2 of least squares on everybody's rows."""
        return self._of_least_squares(self.train, self.test)

    def on_norm_1(self) -> float:
        """Return the same on what the rule trains on: rows of norm 1, and the constant."""
        train, test = (with_constant(rows.astype(np.float64)) for rows in (self.train, self.test))
        return self._of_least_squares(train, test, fit_intercept=False)

    def _of_least_squares(
        self, train: NDArray[np.float32], test: NDArray[np.float32], **options: bool
    ) -> float:
        model = Ridge(alpha=1.0, **options).fit(train, self.days.clip(*RANGE))
        return float(r2_score(self.true, model.predict(test).clip(*RANGE)))

    def protected(self, adversary: str, epsilon: float, seed: int) -> float:
        """Return the R2 of ``FederatedRegressor``."""
        assert self.people is not None
        sites = np.random.default_rng(0).integers(0, SITES, self.people.max() + 1)[self.people]
        model = fedldp.FederatedRegressor(
            RANGE, TYPICAL, unit="person", adversary=adversary, epsilon=epsilon, random_state=seed,
            settings={"measure_share": 0.0},  # the rows are scaled by declared spreads
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", fedldp.DoubtWarning)
            model.fit(self.train, self.days, groups=sites, persons=self.people)
        return float(r2_score(self.true, model.predict(self.test)))


def main() -> None:
    """Measure, and print a line for each kind of trust."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--people", type=int, default=12_000)
    parser.add_argument("--epsilon", type=float, default=1.0)
    given = parser.parse_args()
    samples = [Sample(given.people, seed) for seed in SEEDS]
    _print("no privacy", [sample.without_privacy() for sample in samples])
    _print("rows of norm 1", [sample.on_norm_1() for sample in samples])
    for name, adversary in TRUSTS.items():
        found = [
            sample.protected(adversary, given.epsilon, seed)
            for sample, seed in zip(samples, SEEDS, strict=True)
        ]
        _print(name, found)


def _print(name: str, found: list[float]) -> None:
    print(f"{name:15} {statistics.mean(found):.4f} +- {statistics.stdev(found):.4f}", flush=True)


if __name__ == "__main__":
    main()
