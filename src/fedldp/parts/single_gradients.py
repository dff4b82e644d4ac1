"""Gradients of single examples, each as if the model had seen no other."""

from __future__ import annotations

from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from fedldp.errors import ConfigError


def single_gradients(model: nn.Module, inputs: Tensor, answers: Tensor) -> dict[str, Tensor]:
    """Return each example's gradient of the cross-entropy, by parameter.

    The model is given one example at a time, so none has a part in another's gradient. What it
    draws, as dropout does, comes from torch's global generator, anew for each example.

    Args:
        model: at whose parameters the gradients are taken.
        inputs: examples, shape (n, *input_shape), n from 1.
        answers: their labels, shape (n,).

    Returns:
        Tensors of shape (n, *shape of the parameter).

    Raises:
        ConfigError: the model cannot be differentiated for examples one by one.
    """

    def loss(weights: dict[str, Tensor], example: Tensor, answer: Tensor) -> Tensor:
        logits = functional_call(model, weights, (example[None],))
        return functional.cross_entropy(logits, answer[None])

    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    single = vmap(grad(loss), in_dims=(None, 0, 0), randomness="different")
    try:
        found: dict[str, Tensor] = single(weights, inputs, answers)
    except Exception as error:  # a user's model may raise anything
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError(
            f"model: torch.func cannot differentiate it for single examples: {reason}"
        ) from error
    return found
