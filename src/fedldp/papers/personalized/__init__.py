"""Personalised LDP (Wu, Xu, Zhu 2023), and its sound form."""

__all__ = [
    "mechanism_gaussian_sign",
    "mechanism_sign",
    "parts",
    "preset",
    "preset_sound",
    "training",
]
