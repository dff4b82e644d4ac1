"""Features: what the model is given of an example; a public function of one example at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedldp.algorithms.own_features import OwnFeatures
from fedldp.algorithms.settings import Offer, Positive
from fedldp.core.errors import ConfigError
from fedldp.core.registry import is_address
from fedldp.data.handwriting import Pose, SoftGradients
from fedldp.data.image_features import ExampleMap
from fedldp.data.images import check_images
from fedldp.data.oriented_gradients import OrientedGradients
from fedldp.training.portions import scale_features

if TYPE_CHECKING:
    from torch import nn

    from fedldp.algorithms.problem import Problem
    from fedldp.protocol.wire import Broadcast

SCALE = Offer("feature_scale", Positive, "factor on features, such as 255 for images in bytes", 1.0)

FEATURES = Offer(
    "features",
    str,
    "public function of each example that the model is given in its place: none, "
    'oriented-gradients, soft-gradients, pose (of handwriting), or "module:function"',
    "none",
)

KINDS: Mapping[str, Callable[[tuple[int, ...]], ExampleMap]] = {
    "oriented-gradients": lambda shape: OrientedGradients(shape, cells=4, orientations=8),
    "soft-gradients": SoftGradients,
    "pose": Pose,
}
"""Makes each kind of features for examples of some shape, which are images."""


@dataclass(frozen=True, kw_only=True)
class Features:
    """Examples as they are, times a factor.

    Attributes:
        scale: the factor, such as 255 for images in bytes. The model multiplies by it, so that
            whoever has the model needs to know nothing else.
    """

    scale: float = 1.0

    def mapping(self, problem: Problem) -> ExampleMap | None:
        """Return the public function that clients and tests apply to each example.

        Returns:
            None where examples are taken as they are, or a part of the preset's own maps them.

        Raises:
            ConfigError: these are no features of such examples.
        """
        return None

    def shape(self, problem: Problem) -> tuple[int, ...]:
        """Return the shape of what the model is given of one example.

        Raises:
            ConfigError: these are no features of such examples.
        """
        return problem.input_shape

    def prepare(self, model: nn.Module) -> None:
        """Let the model do its share of the work on whatever it is given."""
        scale_features(model, self.scale)

    def __call__(
        self, problem: Problem, broadcast: Broadcast, examples: NDArray[np.float32]
    ) -> NDArray[np.float32] | None:
        """Return what the model is given of examples, by public means alone.

        Returns:
            Shape (n, ``shape(problem)``); None where each client has features of its own.
        """
        return examples


@dataclass(frozen=True, kw_only=True)
class OrientedFeatures(Features):
    """Histograms of oriented gradients: a public encoder of images, which no data set made.

    Attributes:
        cells: along each side of an image.
        orientations: directions of slopes that are told apart.
        dataset: the setting, for a refusal.
    """

    cells: int
    orientations: int
    dataset: str

    def encoder(self, problem: Problem) -> OrientedGradients:
        """Return the encoder.

        Raises:
            ConfigError: the examples are no images, or too small for so many cells.
        """
        check_images(problem.input_shape, self.dataset)
        return OrientedGradients(problem.input_shape, self.cells, self.orientations)

    def shape(self, problem: Problem) -> tuple[int, ...]:
        """Return the shape of one image's features; see ``Features``."""
        return (self.encoder(problem).size,)

    def __call__(
        self, problem: Problem, broadcast: Broadcast, examples: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Return the features of images, whatever the broadcast."""
        return self.encoder(problem)(examples)


@dataclass(frozen=True, kw_only=True)
class ChosenFeatures(Features):
    """A public function of one example at a time, which the setting ``features`` names.

    Clients apply it to their own examples before they train; whoever tests or uses the model
    applies it too.

    Attributes:
        kind: the setting.
        dataset: the setting, for a refusal.

    Raises:
        ConfigError: there is no such kind.
    """

    kind: str
    dataset: str

    def __post_init__(self) -> None:
        if self.kind not in KINDS and not is_address(self.kind):
            raise ConfigError(
                f'features = {self.kind}: choose none, {", ".join(KINDS)} or "module:function"'
            )

    def mapping(self, problem: Problem) -> ExampleMap:
        """Return the function; see ``Features``."""
        return _mapping(self.kind, self.dataset, problem.input_shape)

    def shape(self, problem: Problem) -> tuple[int, ...]:
        """Return the shape of one example's features; see ``Features``."""
        return (self.mapping(problem).size,)

    def __call__(
        self, problem: Problem, broadcast: Broadcast, examples: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Return the features of examples, whatever the broadcast."""
        return self.mapping(problem)(examples)


@lru_cache(maxsize=64)
def _mapping(kind: str, dataset: str, input_shape: tuple[int, ...]) -> ExampleMap:
    if is_address(kind):
        return OwnFeatures(kind, input_shape)
    if len(input_shape) != 3:
        raise ConfigError(
            f"features = {kind} and dataset = {dataset}: its examples, of shape {input_shape}, are "
            "no images; leave features out, or choose a data set of images"
        )
    if min(input_shape[1:]) < _SMALLEST:
        raise ConfigError(
            f"features = {kind} and dataset = {dataset}: images of {input_shape[1]}x"
            f"{input_shape[2]} are too small for it; leave features out, or choose a data set of "
            f"images from {_SMALLEST}x{_SMALLEST}"
        )
    return KINDS[kind](input_shape)


_SMALLEST = 4
"""Pixels along a side."""


def chosen_features(settings: Any, own: Features) -> Features:
    """Return the features that the setting ``features`` names, in place of a preset's own.

    Raises:
        ConfigError: there are none of that name, or the preset has another transform of examples.
    """
    if settings.features == "none":
        return own
    if type(own) is not Features:
        raise ConfigError(
            f"features = {settings.features} and system = {settings.name()}: the system has "
            "features of its own; leave features out"
        )
    return ChosenFeatures(kind=settings.features, dataset=settings.dataset, scale=own.scale)
