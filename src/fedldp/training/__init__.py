"""What clients compute: training by torch, for one client or a group at a time.

The modules import torch. Statements are made, and sites answer, before any of them is loaded.

It may use core, accounting, data, protocol, mechanisms, models.
"""

__all__ = [
    "batched_sgd",
    "exported_encoder",
    "linear_models",
    "local_sgd",
    "losses",
    "noisy_sums",
    "person_gradients",
    "portions",
    "private_sgd",
    "ridge",
    "tensors",
]
