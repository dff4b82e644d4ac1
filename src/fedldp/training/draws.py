"""What a model draws while it is trained: from one stream, whatever other threads train."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from fedldp.core.randomness import Stream, torch_seeded

_DRAW_NOTHING = frozenset(
    getattr(nn, name)
    for name in (
        *("Sequential", "ModuleList", "Identity", "Flatten", "Unflatten", "Linear", "Embedding"),
        *(f"{kind}{d}d" for kind in ("Conv", "BatchNorm", "InstanceNorm") for d in (1, 2, 3)),
        *(f"{kind}Pool{d}d" for kind in ("Max", "Avg", "AdaptiveAvg") for d in (1, 2, 3)),
        *("LayerNorm", "GroupNorm", "ReLU", "LeakyReLU", "ELU", "GELU", "SiLU", "Tanh", "Sigmoid"),
    )
)


def draws_by_dropout_alone(model: nn.Module) -> bool:
    """Return whether nothing in a model draws random numbers except ``nn.Dropout``.

    True only for modules of torch that are known to draw nothing else; what a user's own module or
    hook draws is unknown.
    """
    return all(
        (type(each) in _DRAW_NOTHING or isinstance(each, nn.Dropout))
        and type(each).__module__.startswith(("torch.nn.", "fedldp.models."))
        and not (each._forward_hooks or each._forward_pre_hooks or "forward" in vars(each))
        for each in model.modules()
    )


@contextmanager
def drawing(model: nn.Module, stream: Stream, *, other_code: bool = False) -> Iterator[None]:
    """Let a model draw from ``stream`` alone within the block, the same in whichever thread.

    If only dropout draws, on a CPU, it draws from a generator of this block, so that other threads
    train at the same time. Otherwise the block waits for those of other threads, as in
    ``torch_seeded``. The bits are the same in both ways.

    Args:
        model: the model, on one device.
        stream: gives the seed.
        other_code: whether something else that may draw runs in the block, such as a user's loss.
    """
    on_cpu = all(each.device.type == "cpu" for each in model.parameters())
    if other_code or not on_cpu or not draws_by_dropout_alone(model):
        with torch_seeded(stream):
            yield
        return
    draws = any(isinstance(each, nn.Dropout) for each in model.modules())
    with _OwnDropout(stream.torch_generator(torch.device("cpu"))) if draws else nullcontext():
        yield


class _OwnDropout(TorchFunctionMode):
    """Makes dropout draw from a generator, as torch draws from its global one; of this thread."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self._generator = generator

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        return self._dropout(*args, **given) if func is functional.dropout else func(*args, **given)

    def _dropout(
        self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Tensor:
        if not training or p in (0, 1) or not input.numel():
            return functional.dropout(input, p, training, inplace)  # which draws nothing
        kept = torch.empty_like(input).bernoulli_(1 - p, generator=self._generator).div_(1 - p)
        return input.mul_(kept) if inplace else input * kept
