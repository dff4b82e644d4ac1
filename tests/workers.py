"""Worker processes that start at once, for tests of what they do, not of how they start."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def forked_workers() -> Iterator[None]:
    """Fork workers from a clean process that has imported everything, which saves seconds for each.

    They do not fork from this process: like the workers of a run, they know only what they are
        sent.
    """
    context = multiprocessing.get_context("forkserver")
    # torch's optimisers import the last module when they are first used.
    context.set_forkserver_preload(["pytest", "fedldp.simulation.engine", "torch._dynamo"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multiprocessing, "get_context", lambda method: context)
        yield
