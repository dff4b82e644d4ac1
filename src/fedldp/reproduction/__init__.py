"""Reproduction: the papers' tables and figures as targets, our measurements, and the comparison."""
