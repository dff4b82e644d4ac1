"""Attacks on what is claimed and on what is proven: empirical lower bounds on epsilon."""
