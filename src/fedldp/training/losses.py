"""Losses of single examples: cross-entropy, or a user's own function."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from fedldp.core.errors import ConfigError, first_line
from fedldp.core.registry import is_address, load

Losses = Callable[[Tensor, Tensor], Tensor]
"""Gives the loss of each example, shape (n,), from logits, (n, classes), and labels, (n,)."""


def one_vs_rest(logits: Tensor, labels: Tensor) -> Tensor:
    """Return each example's loss, summed over one logistic regression for each class.

    To use this loss, set ``loss = fedldp.training.losses:one_vs_rest``. The setting
    ``weight_decay`` is then the alpha of an L2 penalty, which here covers the biases too.

    Source: scikit-learn, ``SGDClassifier``, loss="log_loss", which solves a separate problem for
        each class.

    >>> one_vs_rest(torch.zeros(1, 10), torch.tensor([3]))
    tensor([6.9315])
    """
    right = functional.one_hot(labels, logits.shape[1]).to(logits.dtype)
    each = functional.binary_cross_entropy_with_logits(logits, right, reduction="none")
    return each.sum(1)


def losses_of(address: str, num_classes: int, class_weights: Tensor | None) -> Losses | None:
    """Return the user's own losses, times the weight of each example's class.

    Args:
        address: "module:function" of a ``Losses``, which must not mix examples.
        num_classes: the number of logits.
        class_weights: shape (classes,); None for no factor.

    Returns:
        None if the setting is no address: then the loss is plain cross-entropy.

    Raises:
        ConfigError: the function cannot be loaded, or does not return a loss with a gradient for
            each example.
    """
    if not is_address(address):
        return None
    function = load(address, "loss")
    logits = torch.zeros(2, num_classes, requires_grad=True)
    try:
        found = function(logits, torch.tensor([0, num_classes - 1]))
        torch.autograd.grad(found.sum(), logits)
        if found.shape != (2,):
            raise ValueError(f"for 2 examples it returns the shape {tuple(found.shape)}")
    except Exception as error:  # the user's own function may raise any error
        raise ConfigError(
            f"loss = {address}: {type(error).__name__}: {first_line(error)}; it must take logits, "
            "shape (n, classes), and labels, (n,), and return a loss for each example, computed "
            "with torch"
        ) from error
    if class_weights is None:
        return function  # type: ignore[no-any-return]
    return lambda logits, labels: function(logits, labels) * class_weights[labels]
