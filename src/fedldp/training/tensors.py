"""Weights and examples as torch's tensors, and two-point bits of weights on a device.

The arithmetic of the bits is that of ``mechanisms.comparison``, operation by operation in float32,
which every device rounds in the same way. The random words come from the clients' keystreams on the
CPU, and the few coordinates that are close to a threshold are decided there in exact integers. The
result is a bit for each weight.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedldp.core.bounding import Ranges
from fedldp.core.errors import PrivacyError
from fedldp.core.randomness import Stream
from fedldp.data.examples import Examples
from fedldp.mechanisms.comparison import DRAWN
from fedldp.mechanisms.two_point import TwoPoint
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


def laid_as(gradient: Tensor, parameter: Tensor) -> Tensor:
    """Return ``gradient`` with the strides of ``parameter``, which fused optimizers assume."""
    if gradient.stride() == parameter.stride():
        return gradient
    return torch.empty_like(parameter).copy_(gradient)


def encode_on_device(
    mechanism: TwoPoint, ranges: Ranges, weights: Tensor, streams: Sequence[Stream]
) -> NDArray[np.uint8]:
    """Return the reports of ``mechanism`` for rows of weights.

    Args:
        mechanism: the randomiser.
        ranges: the ranges of the weights.
        weights: float32, finite, on any device, shape (n, d).
        streams: n streams, one for each row.

    Returns:
        The same bytes as ``mechanism.encode_many(ranges.normalise(weights), streams)``, shape (n,
        ceil(d/8)).

    Raises:
        PrivacyError: a weight is not finite, or the shapes do not match; nothing was drawn.
    """
    if weights.dtype != torch.float32 or weights.shape != (len(streams), sum(ranges.sizes)):
        raise PrivacyError(
            f"weights of shape {tuple(weights.shape)} and type {weights.dtype} for {len(streams)} "
            f"streams and ranges of {sum(ranges.sizes)} weights"
        )
    if not bool(weights.isfinite().all()):
        raise PrivacyError("the weights to release contain NaN or infinity: nothing was released")
    center, factor = ranges.as_single
    # A number beyond the largest float32 becomes infinity, which is clipped like any number above
    # 1.
    scaled = weights if center is None else weights - _there(center, weights)
    scaled = scaled * _there(factor, weights)
    pieces = [
        _draw(mechanism, scaled[:, left : left + DRAWN], streams)
        for left in range(0, scaled.shape[1], DRAWN)
    ]
    return np.concatenate([_packed(ones).cpu().numpy() for ones in pieces], axis=1)


def _there(numbers: NDArray[np.float32], weights: Tensor) -> Tensor:
    return torch.from_numpy(np.atleast_1d(numbers)).to(weights.device)


def _draw(mechanism: TwoPoint, values: Tensor, streams: Sequence[Stream]) -> Tensor:
    comparison = mechanism.comparison
    factor, lowest, highest, raised, margin = comparison.quick(single=True)
    drawn = np.stack([stream.integers(values.shape[1], np.int32) for stream in streams])
    words = torch.from_numpy(drawn).to(values.device)
    clipped = values.clamp(float(lowest), float(highest))
    high = (clipped * float(factor)).to(torch.int32)  # rounds towards zero
    ones = words < high
    above = (high.long() - words.long() + int(raised)) & 0xFFFFFFFF
    for row, column in (above <= margin).nonzero().tolist():
        value = np.float32(values[row, column].item())
        ones[row, column] = comparison.settle(value, int(drawn[row, column]), streams[row])
    return ones


def _packed(ones: Tensor) -> Tensor:
    """Return bits as bytes, most significant bit first, padded with zeros."""
    filled = torch.nn.functional.pad(ones.to(torch.uint8), (0, -ones.shape[1] % 8))
    places = torch.tensor([128, 64, 32, 16, 8, 4, 2, 1], dtype=torch.uint8, device=ones.device)
    return (filled.view(len(ones), -1, 8) * places).sum(2, dtype=torch.uint8)
