"""Gradients of single examples, each computed as if the model saw no other example."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from fedldp.core.errors import ConfigError, first_line


def single_gradients(
    model: nn.Module, inputs: Tensor, answers: Tensor, class_weights: Tensor | None = None
) -> dict[str, Tensor]:
    """Return each example's gradient of the cross-entropy, by parameter.

    The model receives one example at a time, so no example affects the gradient of another example.
    Random draws of the model, such as dropout, come from torch's global generator and are made
    again for each example.

    Args:
        model: the model at whose parameters the gradients are taken.
        inputs: examples, shape (n, *input_shape), n at least 1.
        answers: their labels, shape (n,).
        class_weights: a weight for each class in the loss, shape (classes,).

    Returns:
        Tensors of shape (n, *shape of the parameter).

    Raises:
        ConfigError: the model cannot be differentiated for one example at a time.
    """
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    single = vmap(_gradient(model, class_weights), in_dims=(None, 0, 0), randomness="different")
    try:
        found: dict[str, Tensor] = single(weights, inputs, answers)
    except Exception as error:  # a user's model may raise any error
        raise _cannot(error) from error
    return found


def single_gradients_of_many(
    model: nn.Module,
    weights: dict[str, Tensor],
    inputs: Tensor,
    answers: Tensor,
    class_weights: Tensor | None = None,
) -> dict[str, Tensor]:
    """Return the result of ``single_gradients`` for several clients, each at its own weights.

    Args:
        model: the architecture.
        weights: by parameter, each of shape (clients, *shape).
        inputs: shape (clients, n, *input_shape).
        answers: shape (clients, n).
        class_weights: as in ``single_gradients``.

    Returns:
        Tensors of shape (clients, n, *shape of the parameter).

    Raises:
        ConfigError: as for ``single_gradients``; or the model draws random numbers.
    """
    try:
        single = vmap(_gradient(model, class_weights), in_dims=(None, 0, 0))
        found: dict[str, Tensor] = vmap(single)(weights, inputs, answers)
    except Exception as error:  # a user's model may raise any error
        raise _cannot(error) from error
    return found


def _gradient(model: nn.Module, class_weights: Tensor | None) -> Callable[..., dict[str, Tensor]]:
    def loss(weights: dict[str, Tensor], example: Tensor, answer: Tensor) -> Tensor:
        logits = functional_call(model, weights, (example[None],))
        # A sum, because torch's mean divides by the weight and would cancel it.
        return functional.cross_entropy(logits, answer[None], class_weights, reduction="sum")

    gradient: Callable[..., dict[str, Tensor]] = grad(loss)
    return gradient


def _cannot(error: Exception) -> ConfigError:
    return ConfigError(
        f"model: torch.func cannot differentiate it for single examples: {first_line(error)}; use "
        "other layers, or system = person_dp_sgd, which takes one person or row after another"
    )
