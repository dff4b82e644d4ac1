"""A grid over settings, seeds and recipes, with one table of results."""

from fedldp.experiments.sweeping.results import Sweep
from fedldp.experiments.sweeping.sweeps import sweep

__all__ = ["Sweep", "results", "sweep", "sweeps"]
