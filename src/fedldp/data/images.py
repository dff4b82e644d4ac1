"""The check that a data set consists of images, as some encoders require."""

from __future__ import annotations

from fedldp.core.errors import ConfigError


def check_images(input_shape: tuple[int, ...], dataset: str = "of the clients") -> None:
    """Refuse examples that are not images.

    Args:
        input_shape: the shape of an example; an image's is (channels, height, width).
        dataset: the setting, if it is known.

    Raises:
        ConfigError: they are not images.
    """
    if len(input_shape) != 3:
        raise ConfigError(
            f"dataset = {dataset}: examples of shape {input_shape} are not images, and the "
            "clients' encoders accept only images; choose a data set of images, or another system"
        )
