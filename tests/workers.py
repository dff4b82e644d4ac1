"""Worker processes that start at once, for tests of their work rather than of their start."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def forked_workers() -> Iterator[None]:
    """Let workers fork from a clean process with everything imported, which saves each seconds.

    That process is not this one: like those of a run, workers have only what they are sent.
    """
    context = multiprocessing.get_context("forkserver")
    # torch's optimisers and dp_sgd import the last two when they are first used.
    context.set_forkserver_preload(
        ["pytest", "fedldp.simulation.engine", "torch._dynamo", "opacus"]
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multiprocessing, "get_context", lambda method: context)
        yield
