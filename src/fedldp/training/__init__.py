"""What clients compute: training by torch, one client or a group at a time.

Its modules import torch; a statement is made, and a site answers, before any of them is loaded.

It may use core, accounting, data, protocol, mechanisms, models.
"""

__all__ = [
    "batched_sgd",
    "local_sgd",
    "noisy_sums",
    "private_sgd",
    "single_gradients",
    "tensors",
]
