"""LoRA on a small transformer: a DataLoader for each client, and FedAdam at the server.

The transformer was trained on public sentences; 50 clients have sentences of another task. Each
client is protected as a whole against a server that sees only sums (epsilon 8 for the run).
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import fedldp

WORDS, LENGTH, WIDTH, RANK = 64, 12, 32, 2


class LoRA(nn.Module):
    """A frozen linear layer, and a trained update of low rank that begins at zero."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.a = nn.Parameter(torch.randn(RANK, layer.in_features) / layer.in_features**0.5)
        self.b = nn.Parameter(torch.zeros(layer.out_features, RANK))

    def forward(self, x):
        return self.layer(x) + x @ self.a.T @ self.b.T


class Transformer(nn.Module):
    """One block of attention over token ids, and a head on the mean of all places."""

    def __init__(self, classes):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, classes)

    def forward(self, x):
        x = self.words(x.long()) + self.places.weight  # ids come as float32
        q, k, v = self.query(x), self.key(x), self.value(x)
        x = x + nn.functional.scaled_dot_product_attention(q, k, v)
        return self.head(self.norm(x).mean(1))


def sentences(count, seed):
    """Return made-up sentences of token ids, and their topics: 0 to 3, of eight words each."""
    draw = torch.Generator().manual_seed(seed)
    topics = torch.randint(4, (count,), generator=draw)
    own = topics[:, None] * 8 + torch.randint(8, (count, LENGTH), generator=draw)
    other = torch.randint(32, WORDS, (count, LENGTH), generator=draw)
    return other.where(torch.rand(count, LENGTH, generator=draw) > 0.3, own), topics


def pretrained():
    """Return the transformer, trained on public sentences to tell four topics apart."""
    torch.manual_seed(0)
    model, (ids, topics) = Transformer(4), sentences(2000, seed=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(40):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(ids), topics).backward()
        optimizer.step()
    return model


def private(count, seed):
    """Return sentences of the clients' task: two classes, of two topics each."""
    ids, topics = sentences(count, seed)
    return TensorDataset(ids, topics % 2)


model = pretrained().requires_grad_(False)
model.query, model.value = LoRA(model.query), LoRA(model.value)
model.head = nn.Linear(WIDTH, 2)

result = fedldp.run(
    "distributed-gaussian-digits",
    dataset=[DataLoader(private(30, seed), batch_size=10) for seed in range(1, 51)],
    test=private(500, seed=51),
    model=model,
    trainable="query.[ab], value.[ab], head.*",
    server_optimizer="adam",
    server_rate=0.03,
    local_epochs=2,
    epsilon=8,
)
trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
print(f"{trained} of {sum(p.numel() for p in model.parameters())} weights are trained")
print(f"accuracy {result.accuracy:.1%}")
