"""Times one step of person_dp_sgd on one core: exact sums of many people's clipped gradients.

    FEDLDP_DATA=... python -m benchmarks.person_step

The rows are MNIST's 60,000, as 201 soft gradients and as pixels, with one row a person and with
five. The step alternates with torch's plain mean gradient of the same rows, which protects nobody.
A profile shows the time by function.
"""

from __future__ import annotations

import cProfile
import platform
import pstats
import statistics
import time
from dataclasses import replace

import numpy as np
import torch

from fedldp.algorithms.features import OnFeatures
from fedldp.algorithms.recipes import recipes
from fedldp.data import load_dataset
from fedldp.data.examples import Examples
from fedldp.simulation.plan import problem_of
from fedldp.training.person_gradients import PersonGradients
from fedldp.training.tensors import one_thread

REPETITIONS = 7


def main() -> None:
    """Print the time of a step on two kinds of features."""
    for features in ("soft-gradients", "unit-norm"):
        measure(features)


def measure(features: str) -> None:
    """Print the seconds of a step, their ratio to a plain gradient's, and a profile."""
    config = recipes()["person-dp-sgd-mnist"].config.changed(features=features)
    problem = problem_of(config, None)
    algorithm = config.algorithm(problem)
    update = algorithm.local_update(torch.device("cpu"))
    assert isinstance(update, OnFeatures)
    assert isinstance(update.update, PersonGradients)
    train = load_dataset(config.dataset).train
    rows = update.once(train).features
    single = Examples(rows, train.labels)
    several = replace(single, people=np.arange(len(rows)) // 5)
    weights = np.random.default_rng(0).normal(0, 0.01, algorithm.layout.size).astype(np.float32)
    print(f"{len(rows):,} rows, d = {weights.size:,}; {platform.processor()}, torch "
          f"{torch.__version__}, NumPy {np.__version__}, one thread")  # fmt: skip
    with one_thread():
        model = torch.nn.Linear(rows.shape[1], problem.num_classes)
        inputs, labels = torch.from_numpy(rows), torch.from_numpy(train.labels)

        def plain() -> None:
            model.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), labels).backward()

        summed = update.update.summed
        tasks = {
            "one row a person": lambda: summed(weights, single),
            "five rows a person": lambda: summed(weights, several),
            "plain mean gradient": plain,
        }
        times: dict[str, list[float]] = {name: [] for name in tasks}
        for _ in range(REPETITIONS):
            for name, task in tasks.items():
                started = time.perf_counter()
                task()
                times[name].append(time.perf_counter() - started)
        base = statistics.median(times["plain mean gradient"])
        for name, found in times.items():
            middle = statistics.median(found)
            print(f"{name:22} {middle:.3f} s, {middle / base:.1f} times the plain gradient")
        profile = cProfile.Profile()
        profile.runcall(summed, weights, several)
    pstats.Stats(profile).sort_stats("tottime").print_stats(10)


if __name__ == "__main__":
    main()
