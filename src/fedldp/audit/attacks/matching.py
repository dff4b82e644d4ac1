"""Finds an image that trains like a client's, for models without a dense first layer.

Using Adam on the signs of gradients, it searches for the image that changes the weights in the
direction that was sent, with a penalty on the image's total variation. The local steps are
simulated as the client takes them on its one image, because after five steps the change of the
weights no longer lies along the first gradient. The search begins at the mean of public images of
the guessed class.

Source: Geiping, Bauermeister, Droege, Moeller 2020, "Inverting Gradients: How easy is it to break
privacy in federated learning?", eq. 4, and Section 6 on several local steps.
"""

from __future__ import annotations

import torch
from torch.func import functional_call
from torch.nn import functional

from fedldp.audit.attacks.scenario import Floats
from fedldp.audit.attacks.scoring import Scoring
from fedldp.training.tensors import one_thread

VARIATION = 0.03
"""Weight of the total variation, relative to the range of pixels."""

_RATE = 0.1
_MOST_LOCAL = 5
"""The largest number of local steps that are simulated; additional steps are left out."""


def matching(scoring: Scoring, steps: int, update: Floats, label: int, start: Floats) -> Floats:
    """Return the image, shape (pixels,), that explains the first round's update best.

    Args:
        scoring: the model.
        steps: the number of steps of the search.
        update: the update of one client, shape (d,).
        label: the guessed class.
        start: the image to begin with, shape (pixels,).
    """
    scenario = scoring.scenario
    low, high = float(scenario.public.features.min()), float(scenario.public.features.max())
    scoring.load(scenario.states[0].weights)
    scoring.module.eval()
    weights = {name: p.detach() for name, p in scoring.module.named_parameters()}
    target = torch.from_numpy(update).float()
    answer = torch.tensor([label])
    # If a pixel is the same in all images, the gradient of its variation would stay 0.
    generator = torch.Generator().manual_seed(scenario.seed)
    noise = torch.randn((1, *scenario.problem.input_shape), generator=generator)
    image = torch.from_numpy(start).float().reshape(noise.shape) + 0.05 * (high - low) * noise
    image = image.clamp(low, high).requires_grad_()
    optimizer = torch.optim.Adam([image], lr=_RATE * (high - low))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    with one_thread():
        for _ in range(steps):
            change = _trained(scoring, weights, image, answer)
            cosine = functional.cosine_similarity(change, target, dim=0)
            objective = 1 - cosine + VARIATION / (high - low) * _total_variation(image)
            (slope,) = torch.autograd.grad(objective, [image])
            image.grad = slope.sign()
            optimizer.step()
            schedule.step()
            with torch.no_grad():
                image.clamp_(low, high)
    return image.detach().double().numpy().ravel()


def _trained(
    scoring: Scoring, weights: dict[str, torch.Tensor], image: torch.Tensor, answer: torch.Tensor
) -> torch.Tensor:
    """Return the change from a client's steps, shape (d,), differentiable in the client's image."""
    config, now = scoring.scenario.config, dict(weights)
    now = {name: value.requires_grad_() for name, value in now.items()}
    for _ in range(min(config.local_epochs, _MOST_LOCAL)):
        loss = functional.cross_entropy(functional_call(scoring.module, now, (image,)), answer)
        rows = torch.autograd.grad(loss, list(now.values()), create_graph=True)
        now = {
            name: value - config.learning_rate * row
            for (name, value), row in zip(now.items(), rows, strict=True)
        }
    return torch.cat([(now[name] - weights[name]).flatten() for name in weights])


def _total_variation(image: torch.Tensor) -> torch.Tensor:
    across = (image[..., 1:] - image[..., :-1]).abs().mean()
    down = (image[..., 1:, :] - image[..., :-1, :]).abs().mean()
    return across + down
