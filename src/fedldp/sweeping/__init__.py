"""Many runs: a grid over settings, seeds and recipes, with one table of what came out."""

from fedldp.sweeping.results import Sweep
from fedldp.sweeping.sweeps import sweep

__all__ = ["Sweep", "sweep"]
