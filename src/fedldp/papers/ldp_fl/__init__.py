"""LDP-FL (Sun, Qian, Chen 2021): one randomised bit for each weight, sent through a shuffler.

``preset`` is the system. Its mechanism, ``fedldp.mechanisms.two_point``, and its parts are used by
others as well, so they are in those rooms. ``recipes`` has its rows, FedAvg and central DP beside
them; ``claims`` computes what ``claims.toml`` names.
"""
