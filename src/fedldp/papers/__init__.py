"""The papers: one folder each, with all that only this paper has.

A folder holds presets (``preset*.py``), mechanisms (``mechanism*.py``), local updates for
``composed`` (``local_update.py``) and recipes (``recipes/*.toml``), which are found by a scan, and
the paper's own parts and training. If the paper's results are compared with ours, it also holds its
tables (``targets.toml``), our results (``published.json``), the reasons for differences
(``known.toml``), and its claims (``claims.toml``; what they compute is in ``claims.py``). No other
room imports or names what is in a folder.

Only ``attacks.py``, the attacks on the paper's system, uses the audit, which finds it by the scan,
and the simulations that an attack plays.

It may use core, accounting, data, protocol, mechanisms, models, training, algorithms, simulation,
audit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from fedldp.accounting.guarantees import Guarantee
    from fedldp.algorithms.config import RunConfig
    from fedldp.algorithms.problem import Problem

__all__ = ["Engine", "nbafl"]


class Engine(Protocol):
    """What a function in ``claims.py`` may ask of the rooms above, before anything is trained."""

    def problem(self, config: RunConfig) -> Problem:
        """Return a configuration's problem, without data."""

    def lines(self, config: RunConfig, unit: str, adversary: str) -> Sequence[Guarantee]:
        """Return the lines of a configuration's statement for a unit and an adversary."""

    def epsilon(self, recipe: str, unit: str, adversary: str = "server") -> float:
        """Return the least epsilon that is proven for a recipe; infinity if none is."""
