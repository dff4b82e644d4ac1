"""Features: the model's input for an example, a public function of one example at a time.

Clients apply it themselves (``OnFeatures``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedldp.algorithms.settings import Offers
from fedldp.core.errors import ConfigError
from fedldp.core.registry import is_address
from fedldp.data.folder import PublicFile, read_public
from fedldp.data.image_features import (
    ExampleMap,
    MapOnce,
    oriented_gradients,
)
from fedldp.data.own_features import OwnFeatures
from fedldp.data.public_features import (
    file_axes,
    pose,
    random_convolutions,
    soft_gradients,
    stroke_axes,
    unit_norm,
)
from fedldp.protocol.roles import Batch, Client, LocalUpdate, Update
from fedldp.protocol.wire import Broadcast, Sensitive

if TYPE_CHECKING:
    from torch import nn

    from fedldp.algorithms.problem import Problem


class FeatureSettings(Offers):
    """The setting of ``ChosenFeatures``."""

    features: str = "none"
    """public function that is applied to each example before the model sees it: none,
    oriented-gradients, soft-gradients, pose (of handwriting), random-convolutions,
    public-axes:strokes (of handwriting), public-axes:FILE, unit-norm (of a table's rows),
    encoder:FILE, or your own "module:function" """


KINDS: Mapping[str, Callable[[tuple[int, ...]], ExampleMap]] = {
    "oriented-gradients": lambda shape: oriented_gradients(shape, cells=4, orientations=8),
    "soft-gradients": soft_gradients,
    "pose": pose,
    "random-convolutions": random_convolutions,
    "public-axes:strokes": stroke_axes,
    "unit-norm": unit_norm,
}
"""For each kind that comes with fedldp and needs no file, builds the features for a shape."""

_AXES, _ENCODER = "public-axes:", "encoder:"
_OF_ANY_SHAPE = ("unit-norm",)
_CHOICES = f'none, {", ".join(KINDS)}, {_AXES}FILE, {_ENCODER}FILE or "module:function"'


def file_of(kind: str) -> str | None:
    """Return the file that features are read from; None if they need none."""
    if kind in KINDS:
        return None
    found = [kind.removeprefix(name) for name in (_AXES, _ENCODER) if kind.startswith(name)]
    return found[0] if found else None


def rests_on(kind: str) -> Literal["file", "code"] | None:
    """Return whether features use the user's own file or code; None for fedldp's own features."""
    if file_of(kind) is not None:
        return "file"
    return "code" if kind not in KINDS and is_address(kind) else None


@dataclass(frozen=True, kw_only=True)
class Features:
    """Examples that are multiplied by a factor and otherwise unchanged.

    Attributes:
        scale: the factor, such as 255 for images in bytes. The model itself multiplies its input by
            the factor, so users of the model need not know it.
    """

    scale: float = 1.0

    def mapping(self, problem: Problem) -> ExampleMap | None:
        """Return the public function that clients and tests apply to each example.

        Returns:
            None if examples are used unchanged, or if another part of the preset maps them.

        Raises:
            ConfigError: these features cannot be computed from such examples.
        """
        return None

    def shape(self, problem: Problem) -> tuple[int, ...]:
        """Return the shape of the model's input for one example.

        Raises:
            ConfigError: these features cannot be computed from such examples.
        """
        mapping = self.mapping(problem)
        return problem.input_shape if mapping is None else (mapping.size,)

    def prepare(self, model: nn.Module) -> None:
        """Make ``model`` multiply its input by the factor."""
        if self.scale != 1:
            scale = self.scale  # not this object, which a model would keep
            model.register_forward_pre_hook(lambda _, inputs: (inputs[0] * scale, *inputs[1:]))

    def __call__(
        self, problem: Problem, broadcast: Broadcast, examples: NDArray[np.float32]
    ) -> NDArray[np.float32] | None:
        """Return the model's input for examples, computed from public values alone.

        Returns:
            Shape (n, ``shape(problem)``); None if each client has its own features.
        """
        mapping = self.mapping(problem)
        return examples if mapping is None else mapping(examples)


@dataclass(frozen=True, kw_only=True)
class ChosenFeatures(Features):
    """A public function of one example at a time, which the setting ``features`` names.

    Clients apply it to their own examples before they train, and anyone who tests or uses the model
    applies it too.

    Attributes:
        kind: the setting ``features``.
        dataset: the setting, for error messages.

    Raises:
        ConfigError: there is no such kind.
    """

    kind: str
    dataset: str

    def __post_init__(self) -> None:
        if (self.kind not in KINDS and not is_address(self.kind)) or file_of(self.kind) == "":
            raise ConfigError(f"features = {self.kind}: choose {_CHOICES}")

    def mapping(self, problem: Problem) -> ExampleMap:
        """Return the function; see ``Features``."""
        name = file_of(self.kind)
        file = None
        if name is not None:
            file = read_public(name, f"features = {self.kind}", problem.data_dir)
        return _mapping(self.kind, self.dataset, problem.input_shape, file)


@lru_cache(maxsize=8)
def _mapping(
    kind: str, dataset: str, input_shape: tuple[int, ...], file: PublicFile | None
) -> ExampleMap:
    if file is not None and kind.startswith(_AXES):
        return file_axes(file, input_shape)
    if file is not None:
        from fedldp.training.exported_encoder import exported_encoder  # this import loads torch

        return exported_encoder(file, input_shape)
    if rests_on(kind) == "code":
        return OwnFeatures(kind, input_shape)
    if kind in _OF_ANY_SHAPE:
        return KINDS[kind](input_shape)
    if len(input_shape) != 3:
        raise ConfigError(
            f"features = {kind} and dataset = {dataset}: the data set's examples, of shape "
            f"{input_shape}, are not images; leave features out, or choose a data set of images"
        )
    if min(input_shape[1:]) < _SMALLEST:
        raise ConfigError(
            f"features = {kind} and dataset = {dataset}: images of "
            f"{input_shape[1]}x{input_shape[2]} are too small for these features; leave features "
            f"out, or choose images of at least {_SMALLEST}x{_SMALLEST}"
        )
    return KINDS[kind](input_shape)


_SMALLEST = 4
"""The smallest number of pixels along each side of an image."""


def chosen_features(settings: Any, own: Features) -> Features:
    """Return the features that the setting ``features`` names, or else the preset's own.

    Raises:
        ConfigError: there are no such features, or the preset has features of its own.
    """
    if settings.features == "none":
        return own
    if type(own) is not Features:
        raise ConfigError(
            f"features = {settings.features} and system = {settings.name()}: the system has its "
            "own features; leave features out"
        )
    return ChosenFeatures(
        kind=settings.features,
        dataset=settings.dataset,
        scale=own.scale,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class OnFeatures:
    """Maps examples inside the client, one by one, and then computes the update.

    Attributes:
        update: the update that is computed on the features.
        once: the public map.
    """

    update: LocalUpdate
    once: MapOnce

    def group(self, most_examples: int) -> int:
        """Return how many clients train at once; see ``LocalUpdate``."""
        return self.update.group(most_examples)

    def __call__(self, broadcast: Broadcast, batch: Batch, group: int = 1) -> Sensitive[Update]:
        """Return a row for each client; see ``LocalUpdate``."""
        mapped = self.once(batch.examples)

        def alone(place: int) -> Client:
            return replace(batch.alone(place), examples=mapped.taken(batch.rows[place]))

        return self.update(broadcast, replace(batch, examples=mapped, alone=alone), group)
