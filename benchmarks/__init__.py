"""Measurements; they are not part of the package."""
