"""Measures which accuracy few sites with many people reach, with one guarantee for each person.

    FEDLDP_DATA=... python -m benchmarks.people RESULTS.jsonl --budget 60
    python -m benchmarks.people RESULTS.jsonl --page benchmarks/pages/people.md

Every contestant is ``person_dp_sgd`` on the same features, and every row belongs to another person.
The rule is ``fedldp.experiments.comparing``'s: each contestant has eight tries, scored with a
separate seed on training examples that no site has. The chosen try then runs on the test set
with other seeds: ten if all sites together have at most 1,000 people, else three. RESULTS.jsonl has
a line for each run; lines are only added. The study (``benchmarks.study``) has the results for
fewer people.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedldp.algorithms.config import RunConfig
from fedldp.data import Dataset, Examples, load_dataset
from fedldp.data.public_features import soft_gradients, unit_norm
from fedldp.experiments.comparing import Cell, Comparison, Contestant, Try
from fedldp.experiments.comparing.comparison import Cells
from fedldp.experiments.engine import Means, Processes, carry_out, end_of
from fedldp.experiments.proving import GuaranteeKind
from fedldp.experiments.runs import Row, Task
from fedldp.experiments.store import RunStore
from fedldp.simulation.settings import from_mapping

DELTA = 1e-5
MARK, CHOSEN = "<!-- people -->", "<!-- people, chosen -->"
END = "<!-- end of people -->"

NO_NOISE = 1e4
"""The epsilon of runs with negligible noise."""

SETTINGS: Mapping[str, Any] = {"system": "person_dp_sgd", "model": "logistic", "epsilon": 1.0}


def _momentum(*tries: tuple[int, float, float]) -> list[Try]:
    return [
        {"rounds": rounds, "clip": clip, "learning_rate": rate, "server_optimizer": "momentum"}
        for rounds, clip, rate in tries
    ]


IMAGES: Sequence[Try] = [
    *_momentum(
        (25, 0.3, 8.0), (50, 0.3, 8.0), (100, 0.3, 2.0), (100, 0.3, 4.0),
        (100, 1.0, 2.4), (100, 1.0, 8.0), (200, 0.3, 4.0),
    ),
    {
        "rounds": 50, "clip": 0.3, "learning_rate": 1.0,
        "server_optimizer": "adam", "server_rate": 0.3,
    },
]  # fmt: skip
TABLES: Sequence[Try] = _momentum(
    (25, 1.0, 4.0), (25, 1.0, 16.0), (50, 1.0, 4.0), (50, 1.0, 16.0),
    (100, 0.3, 4.0), (100, 1.0, 2.0), (100, 1.0, 8.0), (200, 1.0, 8.0),
)  # fmt: skip
"""The tries for examples of norm 1; the same for all contestants."""

SERVER = GuaranteeKind("record", "server", DELTA)
SUMMING = GuaranteeKind("record", "summing-server", DELTA)

ANY, SUM, CENTRAL, POOLED = "any server", "behind a sum", "pooled", "pooled, no noise"
ALONE, ALONE_FREE = "one site", "one site, no noise"
ALL = (ANY, SUM, CENTRAL, POOLED, ALONE, ALONE_FREE)
"""The contestants: sites together, the people of all sites in one place, and one site's people.

In one place, one site's noise equals that of central DP-SGD.
"""

REFERENCES = (POOLED, ALONE_FREE)


@dataclass(frozen=True)
class Place:
    """Sites, their people, an epsilon, and the contestants measured there.

    Attributes:
        dataset: a name that ``load_dataset`` knows, or "breast-cancer".
        features: "soft-gradients", "unit-norm" or "centred".
        sites: number of sites.
        people: number of people at each site.
        epsilon: for one row.
        names: of the contestants.
        whole: whether to use all training examples; otherwise as many as there are people.
    """

    dataset: str
    features: str
    sites: int
    people: int
    epsilon: float
    names: tuple[str, ...] = ALL
    whole: bool = False


PLACES: Sequence[Place] = [
    Place("mnist", "soft-gradients", 10, 6_000, 1.0, whole=True),
    Place("mnist", "soft-gradients", 10, 6_000, 0.5, whole=True),
    Place("covertype", "unit-norm", 10, 7_400, 1.0, whole=True),
    Place("breast-cancer", "centred", 5, 90, 4.0, whole=True),
    Place("breast-cancer", "centred", 5, 90, 8.0, whole=True),
    Place("covertype", "unit-norm", 5, 200, 4.0, (ANY, SUM, CENTRAL, POOLED)),
]
"""In the order of measurement."""


# Contestants


def contestants(place: Place) -> list[Contestant]:
    """Return the contestants, which are the same for every epsilon."""
    pooled = {"num_clients": 1}
    alone = {"num_clients": 1, "num_examples": place.people}
    own: Mapping[str, Mapping[str, Any]] = {
        ANY: {}, SUM: {"channel": "sum"}, CENTRAL: pooled, POOLED: {**pooled, "epsilon": NO_NOISE},
        ALONE: alone, ALONE_FREE: {**alone, "epsilon": NO_NOISE},
    }  # fmt: skip
    return [
        Contestant(
            name=name,
            configure=_with(settings),
            tries=IMAGES if place.dataset == "mnist" else TABLES,
            guarantee=SUMMING if name == SUM else SERVER,
            reference=name in REFERENCES,
        )
        for name, settings in own.items()
    ]


def _with(own: Mapping[str, Any]) -> Callable[[Mapping[str, Any], Try], RunConfig]:
    return lambda shared, attempt: from_mapping({**SETTINGS, **shared, **own, **attempt})


def comparison(place: Place) -> Comparison:
    """Return the comparison that a place belongs to."""
    total = place.sites * place.people
    settings = {"dataset": place.dataset} | ({} if place.whole else {"num_examples": total})
    task = Task(
        f"{place.dataset}, {place.features}, {place.people:,} people a site",
        lambda: data(place.dataset, place.features),
        settings,
        part=place.features,
    )
    seeds = list(range(10 if total <= 1_000 else 3))  # results with few people vary more
    return Comparison(contestants(place), [task], seeds=seeds)


def cell(place: Place, name: str) -> Cell:
    """Return the cell of a contestant."""
    (task,) = comparison(place).tasks
    return Cell(task, place.sites, name, 0.0 if name in REFERENCES else place.epsilon)


# Data


@cache
def data(dataset: str, features: str) -> Dataset:
    """Return a data set in which each example is replaced by its public features."""
    if features == "centred":
        return breast_cancer()
    found = load_dataset(dataset)
    shape = found.input_shape
    mapping = soft_gradients(shape) if features == "soft-gradients" else unit_norm(shape)

    def mapped(examples: Examples) -> Examples:
        return replace(examples, features=mapping(examples.features))

    return replace(
        found, name=f"{dataset}-{features}", train=mapped(found.train), test=mapped(found.test)
    )


MOST = {
    "radius": (30, 3, 40), "texture": (40, 5, 50), "perimeter": (200, 20, 250),
    "area": (3_000, 300, 4_000), "smoothness": (0.2, 0.02, 0.25), "compactness": (0.4, 0.1, 1),
    "concavity": (0.5, 0.2, 1), "concave points": (0.25, 0.05, 0.3), "symmetry": (0.4, 0.05, 0.6),
    "fractal dimension": (0.1, 0.02, 0.2),
}  # fmt: skip
"""The upper ends of each feature's ranges: its mean, standard error and worst; each lower end is 0.

We chose these round numbers with the table's documentation at hand, which shows the extremes, so
they are not clinical ranges. A value beyond an end counts as the end.
"""

CENTRE = 0.3
"""The centre of every range, as a share of it, because most people are in the lower part."""


def breast_cancer() -> Dataset:
    """Return the table of 569 people that comes with scikit-learn; class 1 is benign.

    Features are divided by ``MOST``, ``CENTRE`` is subtracted, and each row, including a constant,
    is scaled to norm 1.
    """
    from sklearn.datasets import load_breast_cancer

    table = load_breast_cancer()
    most = np.array([sizes[kind] for kind in range(3) for sizes in MOST.values()])
    scaled: NDArray[np.float64] = np.clip(table.data / most, 0, 1) - CENTRE
    rows = unit_norm((len(most),))(scaled.astype(np.float32))
    return Dataset.from_arrays(rows, table.target, name="breast-cancer")


# Measuring


def _say(line: str) -> None:
    print(line, flush=True)


def measure(store: RunStore, only: str, budget: float) -> None:
    """Measure place by place until the time is used up."""
    means = Means(end=end_of(60 * budget), say=_say)
    for place in PLACES:
        wanted = [each for each in (cell(place, name) for name in place.names) if only in str(each)]
        found = comparison(place)
        carry_out(
            Cells(found, wanted),
            store,
            Processes(found.maker, 1, 1),
            means,
        )


# Pages


def figures(rows: Mapping[str, Row]) -> dict[tuple[Place, str], list[Row]]:
    """Return each place's runs by contestant, with the chosen settings, in order."""
    found = {}
    for place in PLACES:
        compared = comparison(place)
        for name in place.names:
            runs = list(compared.result(cell(place, name), rows).runs)
            found[place, name] = runs if len(runs) == len(compared.seeds) else []
    return found


def shown(runs: Sequence[Row]) -> str:
    """Return the mean with its standard error, or a dash; AUC for two classes, else accuracy.

    Accuracy is in percent.
    """
    if not runs:
        return "-"
    auc = runs[0]["cell"]["task"].startswith("breast-cancer")
    scores = [run["auc"] if auc else 100 * run["accuracy"] for run in runs]
    error = statistics.stdev(scores) / math.sqrt(len(scores))
    digits = 3 if auc else 1
    return f"{statistics.mean(scores):.{digits}f} ± {error:.{digits}f}"


def ordered(rows: Mapping[str, Row]) -> list[tuple[Place, list[list[Row]]]]:
    """Return the places by data, people and epsilon, each with the runs of all contestants."""
    found = figures(rows)
    places = sorted(
        PLACES,
        key=lambda each: (
            ("mnist", "covertype", "breast-cancer").index(each.dataset),
            each.features, -each.sites * each.people, each.sites, each.epsilon,
        ),
    )  # fmt: skip
    return [(place, [found.get((place, name), []) for name in ALL]) for place in places]


def lines(rows: Mapping[str, Row]) -> list[str]:
    """Return the lines of the table."""
    found = [
        "| data | sites x people | epsilon | any server | behind a sum | pooled, central noise "
        "| one site by itself, same epsilon | one site, no noise | pooled, no noise |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for place, (any_server, summed, central, pooled, alone, free) in ordered(rows):
        cells = map(shown, (any_server, summed, central, alone, free, pooled))
        found.append(
            f"| {place.dataset}, {place.features} | {place.sites} x {place.people:,} "
            f"| {place.epsilon:g} | {' | '.join(cells)} |"
        )
    return found


def chosen(rows: Mapping[str, Row]) -> list[str]:
    """Return the lines of a table of the settings chosen for sites that train together."""
    found = [
        "| data | sites x people | epsilon | any server | behind a sum |",
        "|---|---|---|---|---|",
    ]
    for place, (any_server, summed, *_) in ordered(rows):
        if any_server or summed:
            found.append(
                f"| {place.dataset}, {place.features} | {place.sites} x {place.people:,} "
                f"| {place.epsilon:g} | {_tried(any_server)} | {_tried(summed)} |"
            )
    return found


def _tried(runs: Sequence[Row]) -> str:
    if not runs:
        return "-"
    settings = runs[0]["try"]
    rate = settings.get("server_rate", settings["learning_rate"])
    return (
        f"{settings['rounds']} rounds, clip {settings['clip']:g}, "
        f"{settings['server_optimizer']} {rate:g}"
    )


MADE = {MARK: lines, CHOSEN: chosen}


def updated(page: str, rows: Mapping[str, Row]) -> str:
    """Return a page with new tables."""
    for mark, table in MADE.items():
        if mark in page:
            before, _, rest = page.partition(mark)
            after = rest.partition(END)[2]
            page = before + mark + "\n" + "\n".join(table(rows)) + "\n" + END + after
    return page


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.people", description=__doc__)
    parser.add_argument("results", type=Path, help="the file of lines")
    parser.add_argument("--budget", type=float, default=60.0, help="minutes to measure")
    parser.add_argument("--only", default="", help="cells whose description has these words")
    parser.add_argument("--page", type=Path, help="a page whose tables are made anew")
    options = parser.parse_args()
    store = RunStore(options.results)
    if options.page is not None:
        options.page.write_text(
            updated(options.page.read_text(encoding="utf-8"), store.rows), encoding="utf-8"
        )
    else:
        measure(store, options.only, options.budget)


if __name__ == "__main__":
    main()
