"""LDPFL (Chamikara et al. 2022), and its sound form."""

__all__ = [
    "architecture",
    "bits",
    "encoding",
    "mechanism_bits",
    "mechanism_unary",
    "networks",
    "numerics",
    "parts",
    "preset",
    "preset_sound",
    "training",
]
