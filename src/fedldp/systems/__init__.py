"""Systems: one paper or baseline per file, found by a scan of this package.

A system's file holds its configuration, frozen and public, and builds two halves from it: see
``parts.sides``. There is no ``run``: one loop and one client runtime drive all systems, in a
simulation and outside.
"""

from __future__ import annotations

from fedldp.registry import scan
from fedldp.systems.base import Problem, SystemConfig

__all__ = ["Problem", "SystemConfig", "systems"]


def systems() -> dict[str, type[SystemConfig]]:
    """Return the configuration class of every system by the system's name."""
    return {config.name(): config for config in scan(__name__, SystemConfig)}  # type: ignore[type-abstract]
