"""Presets: one paper or baseline per file, found by a scan of this package.

Each is a function from settings to a composition of parts; see ``algorithms.preset``.
"""
