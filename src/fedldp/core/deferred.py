"""Modules that take long to import, and are needed only once something is computed."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Deferred:
    """A module that is imported when one of its attributes is first used.

    Unlike ``importlib.util.LazyLoader``, it is safe if several threads use it first.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        found = getattr(import_module(self._name), attribute)
        setattr(self, attribute, found)
        return found


fft = Deferred("scipy.fft")
lapack = Deferred("scipy.linalg.lapack")
linalg = Deferred("scipy.linalg")
nn = Deferred("torch.nn")
special = Deferred("scipy.special")
