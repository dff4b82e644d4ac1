"""LDPFL (Chamikara et al. 2022): randomised bits of each example's features, and its sound form.

- ``preset``, ``preset_sound``: the system as published, and with a budget for an example that
  holds.
- ``parts``: features as bits, training on them, and randomised gradients of the sound form.
- ``architecture``, ``networks``, ``encoding``: the network that computes features; of these, only
  ``networks`` loads torch.
- ``bits``, ``mechanism_bits``, ``mechanism_unary``: how bits are randomised, and what they cost.
- ``training``: the global network on clients' bits.
- ``attacks``: from a client's bits back to its images.
- ``claims``: what ``claims.toml`` names.
"""
