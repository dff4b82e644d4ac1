"""Parts that several systems share: client steps, encoders, server steps.

It may use core, accounting, data, protocol, mechanisms, models, secure_sum, training.
"""

__all__ = [
    "architecture",
    "bit_training",
    "changes",
    "codes",
    "device_bits",
    "feature_importance",
    "fixed_point",
    "images",
    "nbafl",
    "oriented_gradients",
    "per_client",
    "portions",
    "public_encoder",
    "randomised_sgd",
    "ranking_sgd",
    "rotation",
    "summed_client",
    "summed_server",
]
