"""A DataLoader for each client, a network of torch, and the trained network back.

python examples/loaders.py
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

import fedldp


class Net(nn.Module):
    """A linear layer on the 64 pixels of a digit."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layers(images)  # type: ignore[no-any-return]


def main() -> float:
    digits = load_digits()
    images = torch.tensor(digits.images / 16, dtype=torch.float32)[:, None]
    draw = torch.Generator().manual_seed(0)
    whole = TensorDataset(images, torch.tensor(digits.target))
    *sites, test = random_split(whole, [300] * 5 + [297], generator=draw)
    loaders = [DataLoader(site, batch_size=32, shuffle=True) for site in sites]

    result = fedldp.run(
        "person-dp-sgd-digits",
        dataset=loaders,
        test=DataLoader(test),
        model=Net,
        epsilon=4.0,
        server_optimizer="adam",
        server_rate=0.05,
        learning_rate=1.0,
    )
    print(result.privacy)
    print(f"accuracy {result.accuracy:.3f}; {fedldp.evaluate(result, test)['f1_macro']:.3f} F1")
    print(result.model())
    return result.accuracy


if __name__ == "__main__":
    main()
