"""A linear model by Opacus, for a trusted server: DP-SGD with one sample for each person.

Opacus' epsilon is about one person more or less, ours about one person replaced, which may move a
sum twice as far; so its noise is doubled. Source: https://opacus.ai (tried with 1.6).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray

DELTA = 1e-5
SETTINGS = (
    (0.5, 10, 1.0), (2.0, 10, 1.0), (0.5, 40, 1.0), (4.0, 20, 0.3),
)  # fmt: skip
"""Learning rate, epochs and clip of each try; a tenth of the people is in a batch."""


@dataclass(frozen=True, eq=False)
class People:
    """Rows by person, filled up with rows of weight 0.

    Attributes:
        features: shape (people, most rows of one, columns).
        labels: shape (people, most rows of one).
        weights: one over the person's number of rows, or 0.
    """

    features: torch.Tensor
    labels: torch.Tensor
    weights: torch.Tensor

    @classmethod
    def of(
        cls,
        features: NDArray[np.float32],
        labels: NDArray[np.int64],
        people: NDArray[np.int64] | None,
    ) -> People:
        """Return the rows of each person."""
        whose = np.arange(len(labels))
        if people is not None:
            whose = np.unique(people, return_inverse=True)[1]
        counts = np.bincount(whose)
        order = np.argsort(whose, kind="stable")
        place = np.arange(len(whose)) - np.repeat(np.cumsum(counts) - counts, counts)
        shape = (len(counts), counts.max())
        found = np.zeros((*shape, features.shape[1]), np.float32)
        answers, weights = np.zeros(shape, np.int64), np.zeros(shape, np.float32)
        at = whose[order], place
        found[at], answers[at], weights[at] = features[order], labels[order], 1 / counts[at[0]]
        return cls(*map(torch.from_numpy, (found, answers, weights)))


def fitted(
    train: People, epsilon: float, setting: tuple[float, int, float], seed: int
) -> torch.nn.Linear:
    """Return the model."""
    from opacus import PrivacyEngine

    rate, epochs, clip = setting
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    people, _, columns = train.features.shape
    batch = max(1, people // 10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the random numbers, which need not be secure here
        model = torch.nn.Linear(columns, 2)
        torch.nn.init.zeros_(model.weight)
        torch.nn.init.zeros_(model.bias)
        data = torch.utils.data.TensorDataset(train.features, train.labels, train.weights)
        made, optimizer, batches = PrivacyEngine(accountant="rdp").make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=rate),
            data_loader=torch.utils.data.DataLoader(data, batch_size=batch),
            noise_multiplier=2 * _noise(epsilon, batch / people, epochs),
            max_grad_norm=clip,
        )
        for _ in range(epochs):
            for features, labels, weights in batches:
                optimizer.zero_grad()
                logits = made(features)
                losses = torch.nn.functional.cross_entropy(
                    logits.flatten(0, 1), labels.flatten(), reduction="none"
                )
                (losses * weights.flatten()).sum().div(max(1, len(labels))).backward()
                optimizer.step()
    return model


@cache
def _noise(epsilon: float, sample_rate: float, epochs: int) -> float:
    from opacus.accountants.utils import get_noise_multiplier

    return float(
        get_noise_multiplier(
            target_epsilon=epsilon,
            target_delta=DELTA,
            sample_rate=sample_rate,
            epochs=epochs,
            accountant="prv",
            eps_error=0.02,
        )
    )
