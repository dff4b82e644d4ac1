"""Maps of feature importance at four rounds, as in Fig. 4 of Talaei, Izadi 2024.

    FEDLDP_DATA=... python benchmarks/priority_maps.py OUT [RUN_DIR]     (about a minute)

Writes sensitivity.png and variance.png to the folder OUT: what the first client finds important in
a run without noise. That is private to the client, and no run keeps it: this script looks over the
client's shoulder. Dark features are unimportant. With RUN_DIR, the run folder of a priority-public
recipe on images, also public.png: the importance that its server has published.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from matplotlib import pyplot
from numpy.typing import NDArray

import fedldp
from fedldp.parts import Client
from fedldp.reporting.record import RunFolder
from fedldp.systems import Encoder, Problem, System
from fedldp.systems.fedavg import FedAvgConfig
from fedldp.systems.priority import PerturbByPriority
from fedldp.wire import Broadcast, Report, Sensitive, Vector

ROUNDS = (1, 8, 16, 25)
RECIPES = {
    "sensitivity": "priority-mnist-fig8-least20",
    "variance": "priority-mnist-fig6-least20",
}
MAPS: dict[str, dict[int, NDArray[np.float64]]] = {name: {} for name in RECIPES}


@dataclass(frozen=True)
class Watch:
    """An encoder that also notes what the first client finds important."""

    encoder: Encoder
    watched: dict[str, PerturbByPriority]

    def __call__(self, update: Sensitive[Vector], broadcast: Broadcast, client: Client) -> Report:
        if client.index == 0 and broadcast.round in ROUNDS:
            for name, priority in self.watched.items():
                importance = priority.importance(update.open(), broadcast, client)
                MAPS[name][broadcast.round] = importance
        return self.encoder(update, broadcast, client)


class WatchedConfig(FedAvgConfig):
    """FedAvg whose first client is watched."""

    def build(self, problem: Problem, *, device: torch.device) -> System:
        system = super().build(problem, device=device)
        watched = {}
        for name, recipe in RECIPES.items():
            encoder = fedldp.recipe(recipe).build(problem, device=device).encoder
            assert isinstance(encoder, PerturbByPriority)
            watched[name] = encoder
        return replace(system, encoder=Watch(system.encoder, watched))


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
    config = fedldp.recipe("fedavg-mnist-fig5", rounds=max(ROUNDS))
    fedldp.run(WatchedConfig(**config.model_dump()))
    for name, maps in MAPS.items():
        draw(out / f"{name}.png", {f"round {round}": maps[round] for round in ROUNDS})
    if run_dir is not None:
        saved = RunFolder(run_dir).read_checkpoint()
        assert saved is not None
        draw(out / "public.png", {f"before round {saved[0].round}": saved[0].public["importance"]})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
