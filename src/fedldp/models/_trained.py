"""Which parameters of a model are trained; the others are frozen, and public."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from fedldp.core.errors import ConfigError

ALL = "all"
HEAD = "head"
REQUIRES_GRAD = "requires_grad"
"""Train the parameters that the model's own code marks with ``requires_grad``."""

_SHOWN = 5


def trained_of(names: Sequence[str], trainable: str) -> list[str]:
    """Return the names that the setting ``trainable`` selects, in their order.

    Args:
        names: the names of all parameters, in the model's order.
        trainable: "all", "head" (the last layer that has parameters), or name patterns separated by
            commas.

    Raises:
        ConfigError: a pattern selects nothing.

    >>> trained_of(["a.weight", "a.bias", "b.weight", "b.bias"], "head")
    ['b.weight', 'b.bias']
    >>> trained_of(["a.weight", "a.bias", "b.weight", "b.bias"], "*.bias, b.*")
    ['a.bias', 'b.weight', 'b.bias']
    """
    if trainable == ALL:
        return list(names)
    if trainable == HEAD:
        last = _layer(names[-1])
        return [name for name in names if _layer(name) == last]
    patterns = [pattern.strip() for pattern in trainable.split(",")]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            some = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
            raise ConfigError(
                f"trainable = {trainable}: no parameter of the model matches {pattern!r}; the "
                f"parameters are {some}"
            )
    return [name for name in names if any(fnmatchcase(name, each) for each in patterns)]


def _layer(name: str) -> str:
    return name.rpartition(".")[0]
