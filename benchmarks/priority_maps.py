"""Draws maps of feature importance at four rounds, as in Figs. 3 and 4 of Talaei, Izadi 2024.

    FEDLDP_DATA=... python benchmarks/priority_maps.py OUT [RUN_DIR]     (about a minute)

It prints numbers on these maps as JSON, which are committed as importance.json in the paper's
folder: the rank correlation between the two methods in each round, of all pixels and of those
inside alone; and each method's mean rank of the outer region's pixels and of those inside, from 0
(least important) to 1. And it writes sensitivity.png and variance.png to the folder OUT, the
features that the first client finds important in a run without noise; and mean.png, the mean of
that client's images. All this is private to the client, and no run keeps it: the script looks over
the client's shoulder. Dark features are unimportant. With RUN_DIR, the run folder of a
priority-public recipe on images, it also writes public.png: the importance that the server of that
run published.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib import pyplot
from numpy.typing import NDArray
from scipy.stats import rankdata, spearmanr

import fedldp
from fedldp.algorithms.composition import Algorithm, Composition, Sgd
from fedldp.algorithms.presets.fedavg import fedavg
from fedldp.papers.priority.preset import priority
from fedldp.papers.priority.training import RankingSgd
from fedldp.protocol.roles import Batch, Update
from fedldp.protocol.wire import Broadcast, Sensitive
from fedldp.reporting.record import RunFolder
from fedldp.training.local_sgd import LocalSgd

ROUNDS = (1, 8, 16, 25)
SETTINGS: dict[str, Any] = {"rounds": max(ROUNDS)}
RECIPES = {
    "sensitivity": "priority-mnist-fig8-least20",
    "variance": "priority-mnist-fig6-least20",
}
MAPS: dict[str, dict[int, NDArray[np.float64]]] = {name: {} for name in RECIPES}
MEAN: list[NDArray[np.float64]] = []


@dataclass(frozen=True, eq=False)
class Watch:
    """A local update that also records what the first client finds important."""

    training: LocalSgd
    watched: dict[str, RankingSgd]

    def group(self, most_examples: int) -> int:
        return self.training.group(most_examples)

    def __call__(self, broadcast: Broadcast, batch: Batch, group: int = 1) -> Sensitive[Update]:
        if batch.indices[0] == 0 and broadcast.round in ROUNDS:
            first = Batch.of_one(batch.alone(0))
            MEAN.append(batch.alone(0).examples.features.mean(axis=0, dtype=np.float64))
            for name, ranking in self.watched.items():
                (found,) = ranking(broadcast, first).open().aux["importance"]
                MAPS[name][broadcast.round] = found
        return self.training(broadcast, batch, group)


@dataclass(frozen=True, kw_only=True)
class WatchedSgd(Sgd):
    """SGD that watches its first client."""

    def __call__(self, algorithm: Algorithm, device: torch.device) -> Any:
        training, watched = super().__call__(algorithm, device), {}
        for name, recipe in RECIPES.items():
            config = fedldp.recipe(recipe)
            assert isinstance(config, priority)
            ranking = config.algorithm(algorithm.problem).local_update(device)
            watched[name] = replace(ranking, training=training)  # sees this run's weights
        return Watch(training, watched)


class WatchedConfig(fedavg):
    """FedAvg that watches its first client."""

    @property
    def composition(self) -> Composition:
        return replace(super().composition, local=WatchedSgd())


OUTER = 4
"""The width of the outer region, in pixels: MNIST's digits are scaled into the middle 20 by 20."""


def numbers() -> dict[str, Any]:
    """Return what the maps say in numbers; see above."""
    side = round(MEAN[0].size ** 0.5)
    outer = np.ones((side, side), bool)
    outer[OUTER:-OUTER, OUTER:-OUTER] = False
    of_pixels, ranks = outer.ravel(), {}
    for name, maps in MAPS.items():
        each = [(rankdata(maps[r], "average") - 1) / (maps[r].size - 1) for r in ROUNDS]
        ranks[name] = [[float(e[part].mean()) for e in each] for part in (of_pixels, ~of_pixels)]
    everywhere, inside = (
        [float(spearmanr(*(m[r][part] for m in MAPS.values())).statistic) for r in ROUNDS]
        for part in (slice(None), ~of_pixels)
    )
    return {
        "rounds": list(ROUNDS),
        "rank_correlation": everywhere,
        "rank_correlation_inside": inside,
        "mean_ranks_outside_and_inside": ranks,
    }


def draw(path: Path, maps: dict[str, NDArray[np.float64]]) -> None:
    """Draw square maps side by side, each from its least to its greatest value."""
    figure, panels = pyplot.subplots(1, len(maps), figsize=(2.4 * len(maps), 2.6), squeeze=False)
    for panel, (title, importance) in zip(panels[0], maps.items(), strict=True):
        side = round(importance.size**0.5)
        panel.imshow(importance.reshape(side, side), cmap="gray")
        panel.set(title=title, xticks=[], yticks=[])
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    print(path)


def main(out: Path, run_dir: Path | None) -> None:
    out.mkdir(parents=True, exist_ok=True)
    config = fedldp.recipe("fedavg-mnist-fig5", **SETTINGS)
    fedldp.run(WatchedConfig(**config.model_dump()), workers=1)
    print(json.dumps(numbers(), indent=1))
    draw(out / "mean.png", {"mean of the first client's images": MEAN[0]})
    for name, maps in MAPS.items():
        draw(out / f"{name}.png", {f"round {round}": maps[round] for round in ROUNDS})
    if run_dir is not None:
        saved = RunFolder(run_dir).read_checkpoint()
        assert saved is not None
        draw(out / "public.png", {f"before round {saved[0].round}": saved[0].arrays["importance"]})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
