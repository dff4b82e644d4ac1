"""LDP-FL (Sun, Qian, Chen 2021)."""

__all__ = [
    "preset",
]
