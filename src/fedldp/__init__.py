"""Federated learning under local differential privacy, with an honest account of what it protects.

>>> import fedldp
>>> result = fedldp.run("quickstart", rounds=2)
>>> len(result.rounds)
2
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedldp.core.errors import FedldpError

if TYPE_CHECKING:
    from fedldp.accounting.statement import Statement
    from fedldp.api import account, evaluate, load, recipe, resume, run
    from fedldp.data import Dataset
    from fedldp.estimator import (
        DoubtWarning,
        FederatedClassifier,
        FederatedRegressor,
        ReleaseWarning,
    )
    from fedldp.experiments.advising import Advice, Draft, advise, draft
    from fedldp.experiments.comparing import Compared, compare
    from fedldp.experiments.sweeping import Sweep, sweep
    from fedldp.simulation.engine import Result

    __version__: str

__all__ = [
    "Advice",
    "Compared",
    "Dataset",
    "DoubtWarning",
    "Draft",
    "FederatedClassifier",
    "FederatedRegressor",
    "FedldpError",
    "ReleaseWarning",
    "Result",
    "Statement",
    "Sweep",
    "__version__",
    "account",
    "advise",
    "compare",
    "draft",
    "evaluate",
    "load",
    "recipe",
    "resume",
    "run",
    "sweep",
]

_HOMES = {
    name: module
    for module, names in {
        "accounting.statement": ["Statement"],
        "api": ["account", "evaluate", "load", "recipe", "resume", "run"],
        "data": ["Dataset"],
        "estimator": [
            "DoubtWarning", "FederatedClassifier", "FederatedRegressor", "ReleaseWarning"
        ],
        "experiments.advising": ["Advice", "Draft", "advise", "draft"],
        "experiments.comparing": ["Compared", "compare"],
        "experiments.sweeping": ["Sweep", "sweep"],
        "simulation.engine": ["Result"],
    }.items()
    for name in names
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a name on first use, so that `fedldp --help` does not wait for torch."""
    if name == "__version__":
        from importlib.metadata import version

        found: Any = version("fedldp")
    elif name in _HOMES:
        found = getattr(import_module(f"fedldp.{_HOMES[name]}"), name)
    else:
        raise AttributeError(f"module fedldp has no attribute {name}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
