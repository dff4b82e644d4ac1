"""Federated learning under local differential privacy, with the truth about what it protects.

>>> import fedldp
>>> result = fedldp.run(fedldp.recipe("quickstart", rounds=2))
>>> len(result.rounds)
2
"""

from importlib.metadata import version

from fedldp.api import recipe, resume, run
from fedldp.data import Dataset
from fedldp.errors import FedldpError
from fedldp.simulation.engine import Result

__version__ = version("fedldp")
__all__ = ["Dataset", "FedldpError", "Result", "__version__", "recipe", "resume", "run"]
