"""Worker processes that start at once, for tests of what workers do and not of how they start."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def forked_workers() -> Iterator[None]:
    """Let workers fork from a clean process that has imported all: else each does so for seconds.

    That process is not this one: as those of a run, workers have nothing but what they are sent.
    """
    context = multiprocessing.get_context("forkserver")
    # The last two are what torch's optimisers and dp_sgd import when they are first used.
    context.set_forkserver_preload(
        ["pytest", "fedldp.simulation.engine", "torch._dynamo", "opacus"]
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multiprocessing, "get_context", lambda method: context)
        yield
