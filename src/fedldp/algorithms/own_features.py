"""The user's own features, "module:function" or a class, called with one example at a time."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import ConfigError, first_line
from fedldp.core.randomness import numbered_generator
from fedldp.core.registry import load
from fedldp.core.trial import Trial, difference
from fedldp.data.image_features import digest_of

_MOST = 1_000_000
"""The largest number of features of one example."""


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
        found = np.zeros((len(examples), self.size), np.float32)
        for row, example in zip(found, examples, strict=True):
            try:
                own = self._of(example)
            except Exception:  # the user's own code may raise anything
                continue
            if own.shape == row.shape and np.isfinite(own).all():
                row[:] = own
        return found

    def _of(self, example: NDArray[np.float32]) -> NDArray[np.float32]:
        with np.errstate(all="ignore"):
            return np.asarray(self._function(example.copy()), np.float32)

    def _try(self) -> None:
        """Find the number of features, and refuse a function that fails or keeps something."""
        drawn = numbered_generator(0, 0).random((3, *self.input_shape)).astype(np.float32)
        drawn[1] = 0
        refused = f"features = {self.address}: for an example of shape {self.input_shape}"
        try:
            found = [self._of(each) for each in drawn]
        except Exception as error:
            raise ConfigError(
                f"{refused} it failed with {type(error).__name__}: {first_line(error)}"
            ) from error
        shapes = {each.shape for each in found}
        (size,) = shape if len(shape := found[0].shape) == 1 else (0,)
        if len(shapes) > 1 or not 1 <= size <= _MOST or not np.isfinite(found).all():
            raise ConfigError(
                f"{refused} it must return a vector of finite numbers, always of the same length, "
                f"at most {_MOST:,}"
            )
        object.__setattr__(self, "size", int(size))
        after = difference(Trial(self.input_shape, lambda: self._answer))
        if after is not None:
            raise ConfigError(
                f"{refused} it returned different numbers after {after}; its result must depend on "
                "the example alone"
            )

    def _answer(self, units: Sequence[NDArray[np.float32]], factor: float) -> bytes:
        """Return the last example's features, computed after the others'; see ``Answer``."""
        found: bytes = self(np.stack(units))[-1].tobytes()
        return found
