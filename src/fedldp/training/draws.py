"""What a model draws while it is trained: from one stream, whatever other threads train."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from torch import nn

from fedldp.core.randomness import Stream, torch_seeded
from fedldp.training.column_stack import is_changed

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
        and not is_changed(each)
        for each in model.modules()
    )


@contextmanager
def drawing(model: nn.Module, stream: Stream, *, other_code: bool = False) -> Iterator[None]:
    """Let a model draw from ``stream`` alone within the block, the same in whichever thread.

    Torch has one generator for all threads. So the block waits for those of other threads, as in
    ``torch_seeded``, unless the model is known to draw nothing.

    Args:
        model: the model.
        stream: gives the seed.
        other_code: whether something else that may draw runs in the block, such as a user's loss.
    """
    dropout = any(isinstance(each, nn.Dropout) for each in model.modules())
    waits = other_code or dropout or not draws_by_dropout_alone(model)
    with torch_seeded(stream) if waits else nullcontext():
        yield
