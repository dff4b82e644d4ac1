"""Feature priority (Talaei, Izadi 2024), and its form with public importance."""

__all__ = [
    "importance",
    "mechanism",
    "parts",
    "preset",
    "preset_public",
    "training",
]
