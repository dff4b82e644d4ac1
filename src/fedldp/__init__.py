"""Federated learning under local differential privacy, with the truth about what it protects.

>>> import fedldp
>>> result = fedldp.run(fedldp.recipe("quickstart", rounds=2))
>>> len(result.rounds)
2
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedldp.errors import FedldpError

if TYPE_CHECKING:
    from fedldp.api import recipe, resume, run
    from fedldp.data import Dataset
    from fedldp.simulation.engine import Result

    __version__: str

__all__ = ["Dataset", "FedldpError", "Result", "__version__", "recipe", "resume", "run"]

_HOMES = {
    "Dataset": "fedldp.data",
    "Result": "fedldp.simulation.engine",
    "recipe": "fedldp.api",
    "resume": "fedldp.api",
    "run": "fedldp.api",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for, then: `fedldp --help` should not wait for torch."""
    if name == "__version__":
        from importlib.metadata import version

        found: Any = version("fedldp")
    elif name in _HOMES:
        found = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module fedldp has no attribute {name}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
