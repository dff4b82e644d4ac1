"""The Python interface: as small as the command line."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from fedldp.data import Dataset
from fedldp.recipes import find_recipe
from fedldp.reporting.record import RunFolder
from fedldp.settings import from_mapping
from fedldp.simulation.engine import Result, simulate
from fedldp.systems import SystemConfig


def recipe(name: str, **settings: Any) -> SystemConfig:
    """Return the configuration of a recipe, with some settings changed.

    Raises:
        ConfigError: the recipe, a setting or its value is wrong.

    >>> recipe("quickstart", rounds=3).rounds
    3
    """
    return find_recipe(name).changed(**settings)


def run(
    config: SystemConfig,
    *,
    dataset: Dataset | None = None,
    data_dir: Path | None = None,
    device: str = "cpu",
    workers: int = 1,
    cluster: str | None = None,
    out: Path | None = None,
) -> Result:
    """Run ``config`` over simulated clients and return what it gave.

    Args:
        config: from ``recipe``, or made of a system's configuration class.
        dataset: your own data (``Dataset.from_arrays``); else ``config.dataset`` is loaded.
        data_dir: the data folder; see ``fedldp.data.resolve_data_dir``.
        device: "auto", "cpu" or "cuda".
        workers: processes. With more than one, call this under ``if __name__ == "__main__":``,
            for each worker imports your script.
        cluster: "auto" or the address of a Ray cluster that does what clients do, in place of
            ``workers``; see docs/cluster.md.
        out: the run folder to make; nothing is written where it is None.

    Raises:
        FedldpError: a setting, the data or a value to release is refused.
    """
    return simulate(
        config,
        dataset=dataset,
        data_dir=data_dir,
        device=device,
        workers=workers,
        cluster=cluster,
        out=out,
    )


def resume(
    run_dir: Path,
    *,
    dataset: Dataset | None = None,
    data_dir: Path | None = None,
    device: str = "cpu",
    workers: int = 1,
    cluster: str | None = None,
) -> Result:
    """Continue an interrupted run from its last complete round.

    The final weights equal those of a run that was never interrupted. Arguments are as for ``run``.

    Raises:
        FedldpError: ``run_dir`` is no run folder, or as for ``run``.
    """
    folder = RunFolder(run_dir)
    document = folder.read_config()
    return simulate(
        from_mapping(document["config"]),
        recipe=document["recipe"],
        dataset=dataset,
        data_dir=data_dir,
        device=device,
        workers=workers,
        cluster=cluster,
        resume=folder,
    )


def new_run_dir(name: str, seed: int) -> Path:
    """Return the folder of a new run called ``name``, below runs/ in the working folder."""
    return Path("runs") / f"{name}-seed{seed}-{time.strftime('%Y%m%d-%H%M%S')}"
