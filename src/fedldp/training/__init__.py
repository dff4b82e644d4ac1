"""What clients compute: training by torch, for one client or a group at a time.

The modules import torch. Statements are made, and sites answer, before any of them is loaded.

It may use core, accounting, data, protocol, mechanisms, models.
"""

__all__ = [
    "architecture",
    "batched_sgd",
    "bit_training",
    "codes",
    "device_bits",
    "exported_encoder",
    "feature_importance",
    "linear_models",
    "local_sgd",
    "losses",
    "mapped_examples",
    "noisy_sums",
    "person_gradients",
    "portions",
    "private_sgd",
    "public_encoder",
    "randomised_sgd",
    "ranking_sgd",
    "ridge",
    "single_gradients",
    "tensors",
]
