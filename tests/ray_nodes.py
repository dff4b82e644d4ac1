"""A Ray cluster of two nodes on this machine, and models that record the node they run on."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import fedldp

installed = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None,
    reason="needs Ray: pip install 'fedldp[ray]'",
)
of_two_nodes = pytest.mark.slow  # starting them takes half a minute

# Models that record their node in every task. One of them ends its process once, where it is told
# to; one ends it every time; one fails.
WATCHED = """
import math
import os
import signal
from contextlib import suppress
from pathlib import Path

from torch import nn


class Watched(nn.Sequential):
    def __init__(self, shape, classes):
        super().__init__(nn.Flatten(), nn.Linear(math.prod(shape), classes))

    def forward(self, x):
        import ray

        if ray.is_initialized() and ray.get_runtime_context().get_task_id() is not None:
            marks = Path(os.environ["FEDLDP_TEST_MARKS"])
            (marks / ray.get_runtime_context().get_node_id()).touch()
            with suppress(FileNotFoundError):  # no one is to be killed, or another was
                if self.training:
                    (marks / "kill").rename(marks / "killed")
                    os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(x)


class Deadly(Watched):
    def forward(self, x):
        os.kill(os.getpid(), signal.SIGKILL)


class Broken(Watched):
    trained = False

    def forward(self, x):
        Broken.trained |= self.training and len(x) > 4  # fewer are tried before the run
        return super().forward(x)

    def eval(self):
        if Broken.trained:  # what fails in forward is refused in a line, without a traceback
            print("said before the end")
            raise ValueError("the model is broken")
        return super().eval()
"""


@contextmanager
def two_nodes(folder: Path, marks: Path) -> Iterator[Any]:
    """Yield a cluster of two nodes with one CPU each, and connect this process to it.

    Args:
        folder: where to write the module ``watched_model``.
        marks: where its models record their nodes.
    """
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    (folder / "watched_model.py").write_text(WATCHED)
    source = str(Path(fedldp.__file__).parents[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), source]))
        patch.setenv("FEDLDP_TEST_MARKS", str(marks))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        node = {"num_cpus": 1, "object_store_memory": 100 * 2**20}
        cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
        cluster.add_node(**node)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        yield cluster
        ray.shutdown()
        cluster.shutdown()
