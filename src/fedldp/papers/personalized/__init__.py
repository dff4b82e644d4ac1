"""Personalised LDP (Wu, Xu, Zhu 2023): each client has its own budget; and its sound form.

- ``preset``, ``preset_sound``: the system as published, and with budgets that hold for a client's
  whole run.
- ``parts``: the clients' own settings, SGD on their portions, and who is averaged, by noise.
- ``mechanism_sign``, ``mechanism_gaussian_sign``: the private sign as published, and the sign of a
  vector with Gaussian noise.
- ``claims``: what ``claims.toml`` names.
"""
