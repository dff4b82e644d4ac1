"""Personalised LDP (Wu, Xu, Zhu 2023): each client has its own budget; and its sound form.

- ``preset``, ``preset_sound``: the system as published, and with budgets that hold for a client's
  whole run.
- ``parts``: the clients' own settings, their portions, and the weighing by noise.
- ``selection``: which clients are averaged, and the mean by sender.
- ``mechanism_sign``, ``mechanism_gaussian_sign``: the private sign as published, and the sign of a
  vector with Gaussian noise.
- ``training``: SGD on a portion of a client's examples in each round.
- ``claims``: what ``claims.toml`` names.
"""
