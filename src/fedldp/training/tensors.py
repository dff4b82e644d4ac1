"""Weights and examples as torch's tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedldp.data.examples import Examples
from fedldp.protocol.wire import Layout, Vector


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch with one thread, so that float sums agree bit for bit across processes."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def read_weights(model: nn.Module) -> Vector:
    """Return the parameters of ``model`` as one float32 vector, shape (d,)."""
    return np.concatenate(
        [p.detach().cpu().contiguous().numpy().reshape(-1) for p in model.parameters()]
    )


def load_weights(model: nn.Module, layout: Layout, weights: Vector) -> None:
    """Set the parameters of ``model`` to ``weights``, shape (d,)."""
    pieces = layout.split(writable(weights))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(pieces[name]))


def writable(array: NDArray[Any]) -> NDArray[Any]:
    """Return ``array``, or a copy if it is read-only, because torch has no read-only tensors."""
    return np.require(array, requirements="W")


def as_tensors(examples: Examples) -> tuple[Tensor, Tensor]:
    """Return features and labels as tensors, without a copy if the arrays are writable."""
    features, labels = writable(examples.features), writable(examples.labels)
    return torch.from_numpy(features), torch.from_numpy(labels)


def weights_of_classes(weights: Sequence[float] | None, device: torch.device) -> Tensor | None:
    """Return the weight of each class in the loss, shape (classes,), or None if there are none."""
    return None if weights is None else torch.tensor(weights, dtype=torch.float32, device=device)


def to_device(features: Tensor, device: torch.device) -> Tensor:
    """Return examples on ``device``; images are channels-last, for faster convolutions."""
    moved = features.to(device)
    return moved.contiguous(memory_format=torch.channels_last) if moved.ndim == 4 else moved
