"""A user's own function of an example, which is tried on public rows before it is trusted.

So is other code that sees rows and must keep nothing of them; see ``difference``.
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import ConfigError, first_line
from fedldp.core.randomness import numbered_generator
from fedldp.core.registry import load
from fedldp.data.image_features import digest_of, mapped_alone, tried_size


@dataclass(frozen=True)
class OwnFeatures:
    """A user's own function, from one example to a vector of numbers.

    It receives a copy of one example at a time, so that nothing else in a batch can change what it
    returns. Two conditions are not checked, and every line of a statement says so: the function
    keeps nothing from one call to the next, and it was not fitted on any client's examples. If the
    function fails, or returns anything but the right number of finite numbers, the example's
    features are zeros, because an error would reveal the failure.

    Attributes:
        address: "module:function", or "module:Class" for a class that is built without arguments
            and whose objects are called.
        input_shape: the shape of an example.

    Raises:
        ConfigError: the function cannot be loaded, fails on public examples, or returns different
            numbers for the same example after other examples; see ``difference``.
    """

    address: str
    input_shape: tuple[int, ...]
    size: int = field(init=False)
    _function: Callable[[NDArray[np.float32]], Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        function = load(self.address, "features")
        if isinstance(function, type):
            function = self._made(function)
        if not callable(function):
            raise ConfigError(f"features = {self.address}: it is not a function; check the name")
        object.__setattr__(self, "_function", function)
        self._try()

    def _made(self, owner: type) -> Any:
        try:
            return owner()
        except Exception as error:  # the user's own code may raise anything
            raise ConfigError(
                f"features = {self.address}: it cannot be created without arguments: "
                f"{type(error).__name__}: {first_line(error)}; give its arguments default values"
            ) from error

    @property
    def digest(self) -> str:
        """The digest of the source of the function's module; see ``ExampleMap``."""
        try:
            named = load(self.address, "features")
            source = Path(inspect.getfile(inspect.unwrap(named))).read_bytes()
        except (TypeError, OSError):  # no source file, as for a partial or a compiled module
            raise ConfigError(
                f"features = {self.address}: its source cannot be read, so an agreement could not "
                "tell it from another function; give a function that is defined in a file"
            ) from None
        return digest_of(self.address, self.input_shape, hashlib.sha256(source).hexdigest())

    def __call__(self, examples: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the features of examples, shape (n, size)."""
        return mapped_alone(self._of, examples, self.size)

    def _of(self, example: NDArray[np.float32]) -> NDArray[np.float32]:
        with np.errstate(all="ignore"):
            return np.asarray(self._function(example.copy()), np.float32)

    def _try(self) -> None:
        """Find the number of features, and refuse a function that fails or keeps something."""
        named = f"features = {self.address}"
        object.__setattr__(self, "size", tried_size(self._of, self.input_shape, named))
        after = difference(Trial(self.input_shape, lambda: self._answer))
        if after is not None:
            raise ConfigError(
                f"{named}: for an example of shape {self.input_shape} it returned different "
                f"numbers after {after}; its result must depend on the example alone"
            )

    def _answer(self, units: Sequence[NDArray[np.float32]], factor: float) -> bytes:
        """Return the last example's features, computed after the others'; see ``Answer``."""
        found: bytes = self(np.stack(units))[-1].tobytes()
        return found


# Trials of whether code keeps something of rows that it was used on

Rows = NDArray[np.float32]

Answer = Callable[[Sequence[Rows], float], bytes]
"""Gives the contribution of the last of several units, whose rows are used one after another.

A unit is what a system treats alone: a client, a person, or a row. The second argument is a factor
on the broadcast weights.
"""

_NUMBERS = itertools.count()
"""Every trial has its own rows, the larger ones larger than before: what code keeps in a global
would otherwise be the same before and after."""


@dataclass(frozen=True)
class Trial:
    """How to try the code that computes a unit's contribution.

    Attributes:
        shape: the shape of one unit's rows.
        make: builds the code anew, with memory of no row; see ``Answer``. An answer raises what the
            code raises on the last unit's rows.
    """

    shape: tuple[int, ...]
    make: Callable[[], Answer]


def difference(trial: Trial) -> str | None:
    """Return after what the contribution of the same public rows differs; None if it never does."""
    number = next(_NUMBERS)
    own, other = numbered_generator(0, number).random((2, *trial.shape), np.float32)
    large = other * np.float32(1e6 * (1 + number) / other.max())
    reordered = own.reshape(-1)[::-1].reshape(trial.shape).copy()
    alone, used = trial.make()([own], 1.0), trial.make()
    for after, units in {
        "other rows": [other, own],  # first, for code that keeps what it sees first
        "the same rows": [own],
        "the same numbers in another order": [reordered, own],
        "rows a million times as large": [large, own],
    }.items():
        if used(units, 1.0) != alone:
            return after
    return None if used([own], 0.5) == trial.make()([own], 0.5) else "another broadcast"
