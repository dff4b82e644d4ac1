"""CPU time of a client with a small model, beside the leanest loop and the closed form.

    FEDLDP_DATA=... python -m benchmarks.small_clients [TIMES] [OTHER_SOURCE]

The work is that of ``ldp-fl-mnist`` with logistic regression on 10,000 clients: one step on 6
examples, then a randomised bit for each of 7,850 weights. The leanest loop trains one module of
plain PyTorch for all clients in turn, and draws with torch's generator. The closed form computes
the gradients of 64 clients at once, without autograd, and draws from one AES keystream a client,
as it must to be repeatable in any number of processes; it checks nothing and keeps no ledger. The
same clients also send their weights in the clear, with Gaussian noise, and with shares of noise for
a secure sum, and the CNN is tested on MNIST's 10,000 test images. With OTHER_SOURCE, the folder src
of another version, that version takes turns too. Each measurement is a process of one thread, and
what counts is its CPU time for a round after the first, or for a test.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from torch import nn
from torch.nn import functional

import fedldp
from fedldp.algorithms.config import RunConfig
from fedldp.core.randomness import Stream, torch_seeded
from fedldp.data import load_dataset
from fedldp.models import build_model
from fedldp.simulation.engine import simulate
from fedldp.training.local_sgd import PIECE, evaluate

CLIENTS, EXAMPLES, ROUNDS, TOGETHER = 10_000, 6, 3, 64
EPSILON, RADIUS, RATE = 1.0, 0.075, 0.03
SCALE = (math.exp(EPSILON) + 1) / (math.exp(EPSILON) - 1)


RECIPES: dict[str, tuple[str, dict[str, Any]]] = {
    "bits": ("ldp-fl-mnist", {}),
    "in the clear": ("fedavg-mnist", {}),
    "Gaussian noise": (
        "ldp-fl-mnist",
        {"mechanism": "gaussian", "epsilon": 8.0, "channel": "named", "send": "update",
         "clip": 1.0},
    ),
    "shares of noise": ("distributed-gaussian-mnist-logistic", {}),
}  # fmt: skip


def configured(kind: str) -> RunConfig:
    name, changed = RECIPES[kind]
    return fedldp.recipe(
        name, model="logistic", rounds=ROUNDS, num_clients=CLIENTS,
        partition=f"drawn:{EXAMPLES}", local_epochs=1, batch_size=EXAMPLES, **changed,
    )  # fmt: skip


def rounds_of_fedldp(kind: str) -> Iterator[float]:
    """Yield the CPU seconds of each round after the first, and print the digest of the weights."""
    config, marks = configured(kind), list[float]()
    result = simulate(config, after_round=lambda record: marks.append(time.process_time()))
    digest = hashlib.sha256(b"".join(w.tobytes() for w in result.weights.values())).hexdigest()
    print(digest, file=sys.stderr)
    yield from np.diff(marks).tolist()


def data() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return images, labels, and the rows of each client's examples."""
    train = load_dataset("mnist", standardise=True).train
    rows = np.random.default_rng(0).integers(len(train), size=(CLIENTS, EXAMPLES))
    return torch.from_numpy(train.features), torch.from_numpy(train.labels), torch.from_numpy(rows)


def rounds_of_loop() -> Iterator[float]:
    images, labels, rows = data()
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    start = [own.detach().clone() for own in model.parameters()]
    parameters = list(model.parameters())
    for _ in range(ROUNDS - 1):
        began = time.process_time()
        totals = [torch.zeros_like(own) for own in start]
        for own in rows:
            with torch.no_grad():
                torch._foreach_copy_(parameters, start)
            loss = functional.cross_entropy(model(images[own]), labels[own])
            slopes = torch.autograd.grad(loss, parameters)
            with torch.no_grad():
                torch._foreach_add_(parameters, slopes, alpha=-RATE)
                for total, weights in zip(totals, parameters, strict=True):
                    share = (weights.clamp(-RADIUS, RADIUS) / (RADIUS * SCALE) + 1) / 2
                    total += torch.where(torch.rand_like(share) < share, 1.0, -1.0)
        yield time.process_time() - began


def rounds_of_closed_form() -> Iterator[float]:
    images, labels, rows = data()
    flat, answers = images.flatten(1), functional.one_hot(labels, 10).float()
    start = np.zeros(7850, np.float32)
    words = np.empty(TOGETHER * 4 * 7850 + 15, np.uint8)
    zeros = bytes(4 * 7850)
    for number in range(ROUNDS - 1):
        began = time.process_time()
        totals = np.zeros(7850, np.int64)
        for left in range(0, CLIENTS, TOGETHER):
            own = rows[left : left + TOGETHER]
            x = flat[own]
            weights = torch.from_numpy(start)[:7840].view(10, 784)
            slopes = torch.softmax(x @ weights.T + torch.from_numpy(start)[7840:], 2) - answers[own]
            slopes *= RATE / EXAMPLES
            trained = torch.empty(len(own), 7850)
            torch.bmm(slopes.transpose(1, 2), x, out=trained[:, :7840].view(-1, 10, 784))
            trained[:, 7840:] = slopes.sum(1)
            values = start - trained.numpy()
            for place in range(len(own)):
                key = hashlib.sha256(b"%d/%d" % (number, left + place)).digest()
                cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
                cipher.update_into(zeros, words.data[place * len(zeros) :])
            drawn = words[: len(own) * len(zeros)].view(np.int32).reshape(len(own), -1)
            thresholds = np.clip(values, -RADIUS, RADIUS) * np.float32(2**31 / (RADIUS * SCALE))
            totals += (drawn < thresholds.astype(np.int32)).sum(0)
        yield time.process_time() - began


def tests_of_cnn() -> Iterator[float]:
    """Yield the CPU seconds of tests of the CNN on 10,000 images, and print the last loss."""
    test, device = load_dataset("mnist", standardise=True).test, torch.device("cpu")
    with torch_seeded(Stream(bytes(32), simulated=True)):
        model = build_model("cnn", (1, 28, 28), 10)
    for _ in range(ROUNDS):
        began, loss = time.process_time(), 0.0
        for left in range(0, len(test), PIECE):
            part = test.taken(slice(left, left + PIECE))
            loss += evaluate(model, part, device).loss
        yield time.process_time() - began
    print(loss.hex(), file=sys.stderr)


OF_FEDLDP: dict[str, Callable[[], Iterator[float]]] = {
    **{f"fedldp, {kind}": partial(rounds_of_fedldp, kind) for kind in RECIPES},
    "fedldp, a test of the CNN": tests_of_cnn,
}
SIDES: dict[str, Callable[[], Iterator[float]]] = {
    **OF_FEDLDP,
    "leanest loop": rounds_of_loop,
    "closed form": rounds_of_closed_form,
}


def measured(side: str, source: str | None = None) -> tuple[float, str]:
    """Return the CPU microseconds of a client, or of a test image, in a process of its own.

    The second result is what it printed.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    if source is not None:
        environment["PYTHONPATH"] = os.pathsep.join([source, str(Path(__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.small_clients", "--one", side],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return 1e6 * statistics.median(json.loads(done.stdout)) / CLIENTS, done.stderr.strip()


def main() -> None:
    """Print microseconds, and ratios to fedldp's bits, or to the same side of this version."""
    if sys.argv[1:2] == ["--one"]:
        torch.set_num_threads(1)
        print(json.dumps(list(SIDES[sys.argv[2]]())))
        return
    times, *other = [*sys.argv[1:], "5"] if len(sys.argv) == 1 else sys.argv[1:]
    sides: list[tuple[str, str | None]] = [(side, None) for side in SIDES]
    sides += [(side, source) for source in other for side in OF_FEDLDP]
    found: dict[tuple[str, str | None], list[tuple[float, str]]] = {side: [] for side in sides}
    for _ in range(int(times)):
        for side in sides:
            found[side].append(measured(*side))
            print(*side, *found[side][-1], file=sys.stderr, flush=True)
    for (side, source), taken in found.items():
        base = found[side if source else sides[0][0], None]
        here = statistics.median(a[0] / b[0] for a, b in zip(taken, base, strict=True))
        print(
            f"{side if source is None else f'{side}, of {source}':60} "
            f"{statistics.median(t for t, _ in taken):6.1f} us  {here:.2f}  {taken[0][1][:16]}"
        )


if __name__ == "__main__":
    main()
