"""Gradients of single examples, each as if the model had seen no other."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from fedldp.core.errors import ConfigError


def single_gradients(
    model: nn.Module, inputs: Tensor, answers: Tensor, class_weights: Tensor | None = None
) -> dict[str, Tensor]:
    """Return each example's gradient of the cross-entropy, by parameter.

    The model is given one example at a time, so none has a part in another's gradient. What it
    draws, as dropout does, comes from torch's global generator, anew for each example.

    Args:
        model: at whose parameters the gradients are taken.
        inputs: examples, shape (n, *input_shape), n from 1.
        answers: their labels, shape (n,).
        class_weights: factor on the loss of an example of each class, shape (classes,).

    Returns:
        Tensors of shape (n, *shape of the parameter).

    Raises:
        ConfigError: the model cannot be differentiated for examples one by one.
    """
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    single = vmap(_gradient(model, class_weights), in_dims=(None, 0, 0), randomness="different")
    try:
        found: dict[str, Tensor] = single(weights, inputs, answers)
    except Exception as error:  # a user's model may raise anything
        raise _cannot(error) from error
    return found


def single_gradients_of_many(
    model: nn.Module,
    weights: dict[str, Tensor],
    inputs: Tensor,
    answers: Tensor,
    class_weights: Tensor | None = None,
) -> dict[str, Tensor]:
    """Return what ``single_gradients`` gives at several clients' weights.

    Args:
        model: the architecture.
        weights: by parameter, each of shape (clients, *shape).
        inputs: shape (clients, n, *input_shape).
        answers: shape (clients, n).
        class_weights: as in ``single_gradients``.

    Returns:
        Tensors of shape (clients, n, *shape of the parameter).

    Raises:
        ConfigError: as ``single_gradients``; or the model draws random numbers.
    """
    try:
        single = vmap(_gradient(model, class_weights), in_dims=(None, 0, 0))
        found: dict[str, Tensor] = vmap(single)(weights, inputs, answers)
    except Exception as error:  # a user's model may raise anything
        raise _cannot(error) from error
    return found


def _gradient(model: nn.Module, class_weights: Tensor | None) -> Callable[..., dict[str, Tensor]]:
    def loss(weights: dict[str, Tensor], example: Tensor, answer: Tensor) -> Tensor:
        logits = functional_call(model, weights, (example[None],))
        # A sum: torch's mean divides by the weight, and so would take it away again.
        return functional.cross_entropy(logits, answer[None], class_weights, reduction="sum")

    gradient: Callable[..., dict[str, Tensor]] = grad(loss)
    return gradient


def _cannot(error: Exception) -> ConfigError:
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return ConfigError(f"model: torch.func cannot differentiate it for single examples: {reason}")
