"""Many runs: a grid over settings, seeds and recipes, with one table of results."""

from fedldp.simulation.sweeps.results import Sweep
from fedldp.simulation.sweeps.sweeps import sweep

__all__ = [
    "Sweep",
    "chart",
    "cluster_tasks",
    "folder",
    "grid",
    "one_run",
    "processes",
    "progress",
    "results",
    "sweep",
    "sweeps",
]
