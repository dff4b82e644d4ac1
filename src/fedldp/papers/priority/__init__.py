"""Feature priority (Talaei, Izadi 2024): more noise on the weights of some features.

- ``preset``, ``preset_public``: the system as published, and with features that the server ranks
  by what it has published.
- ``parts``: the ranking, and how it shapes a release; the noise levels are ``papers.nbafl``'s.
- ``importance``, ``training``: the importance of features, from weights, and a local update that
  computes it.
- ``mechanism``: Gaussian noise that is larger in some coordinates.
- ``claims``: what ``claims.toml`` names.
"""
