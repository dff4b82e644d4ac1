"""A frozen encoder with a trained head, beside training all of the model, at the same epsilon.

The encoder was trained on public images of the digits 0 to 4; 100 clients have images of 5 to 9.
Each client is protected as a whole against a server that sees only sums (epsilon 4 for the run).
"""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import fedldp

images, digits = load_digits(return_X_y=True)
images = (images.reshape(-1, 1, 8, 8) / 16).astype(np.float32)
public = digits < 5


def pretrained() -> nn.Module:
    """Return a small network, trained without privacy on the public digits alone."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(200):
        logits = model(torch.from_numpy(images[public]))
        loss = nn.functional.cross_entropy(logits, torch.from_numpy(digits[public]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


model = pretrained()
nn.init.zeros_(model[3].weight)  # the head starts from zero
nn.init.zeros_(model[3].bias)
data = fedldp.Dataset.from_arrays(images[~public], digits[~public] - 5)
for trainable in ("all", "head"):
    result = fedldp.run(
        "distributed-gaussian-digits",
        dataset=data,
        model=model,
        trainable=trainable,
        num_clients=100,
        epsilon=4,
    )
    bits = result.rounds[0].uplink_bits_per_client
    print(f"{trainable}: {bits / 8:,.0f} bytes a client and round, accuracy {result.accuracy:.1%}")
