"""What clients compute: training by torch, for one client or a group at a time.

``local_sgd`` trains a client, and ``batched_sgd`` many clients at once; ``augmentation`` changes
images at random, and ``kept`` is what a client keeps from round to round. ``private_sgd`` is
DP-SGD, whose sums ``noisy_sums`` describes.
``person_gradients`` sums one clipped gradient for each person,
and ``column_sums`` what each person tells of a table's columns, both as ``exact_sums``;
``questions`` are what people are counted by, and ``answers`` what noisy counts of them tell.
``ridge`` solves ``linear_models`` in closed form. ``portions`` divides a client's examples among
rounds. ``draws`` keeps apart what models draw that are trained at once. ``losses`` has losses that
a setting may name, ``exported_encoder`` an encoder from a file, and ``tensors`` what all of them
need from torch.

Most modules import torch. Statements are made, and sites answer, before any of these is loaded.

It may use core, accounting, data, protocol, mechanisms, models.
"""

__all__ = [
    "answers",
    "augmentation",
    "batched_sgd",
    "column_sums",
    "draws",
    "exact_sums",
    "exported_encoder",
    "kept",
    "linear_models",
    "local_sgd",
    "losses",
    "noisy_sums",
    "person_gradients",
    "portions",
    "private_sgd",
    "questions",
    "ridge",
    "tensors",
]
