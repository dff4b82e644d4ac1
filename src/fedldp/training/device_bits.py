"""Two-point bits for weights that are stored on a device, equal to the bits computed on the CPU.

The arithmetic is that of ``mechanisms.comparison``, operation by operation in float32, which every
device rounds in the same way. The random words come from the clients' keystreams on the CPU, and
the few coordinates that are close to a threshold are decided there in exact integers. The result is
a bit for each weight.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedldp.core.bounding import Ranges
from fedldp.core.errors import PrivacyError
from fedldp.core.randomness import Stream
from fedldp.mechanisms.comparison import DRAWN
from fedldp.mechanisms.two_point import TwoPoint


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
