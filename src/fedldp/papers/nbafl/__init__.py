"""NbAFL (Wei et al. 2020): ``preset``, with ``parts``; ``training`` is that of its newer code."""

__all__ = ["parts"]
