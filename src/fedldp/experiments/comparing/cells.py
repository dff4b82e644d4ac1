"""The parts of a comparison: contestants with their tries, and cells at an epsilon."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fedldp.algorithms.config import RunConfig
from fedldp.core.errors import ConfigError
from fedldp.experiments.proving import GuaranteeKind
from fedldp.experiments.runs import Settings

Try = Mapping[str, Any]
"""One choice of hyperparameters: plain values by name, as in JSON.

The values are either settings (``Contestant.of``), or ``Contestant.configure`` makes settings from
them.
"""

Role = Literal["calibrated", "reference"]
"""How a contestant is treated.

- calibrated: its budget is solved for, so that its statement meets the cell's epsilon.
- reference: it runs unchanged, at epsilon 0, which means no guarantee.
"""


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """One system, with its configuration and its tries.

    Attributes:
        name: its name in tables; no two contestants of a comparison share a name.
        configure: makes its configuration from the settings that all contestants share in a cell
            (the task's settings, ``standardise``, ``num_clients``, ``delta``, ``seed``, and the
            ``target`` if it is calibrated) and from one try. The budget is solved for.
        tries: its candidate hyperparameters; if two have the same score, the earlier one is chosen.
        guarantee: the guarantee to which it is calibrated.
        role: how it is treated.
        data_of: the task whose data it gets instead of the cell's data, if it has its own features;
            None for the cell's data.
        quick_to_state: whether its statement takes milliseconds. If not, its budget is found only
            to within a thousandth, and never exceeds the budget that meets the epsilon.
        code: a digest of the user's own code that the contestant runs; when the digest changes, its
            runs are repeated. Empty if it runs no such code.

    Raises:
        ConfigError: it has no tries, or has the same try twice.
    """

    name: str
    configure: Callable[[Settings, Try], RunConfig]
    tries: Sequence[Try]
    guarantee: GuaranteeKind
    role: Role = "calibrated"
    data_of: str | None = None
    quick_to_state: bool = True
    code: str = ""

    def __post_init__(self) -> None:
        """Check the tries."""
        if not self.tries:
            raise ConfigError(f"contestant {self.name}: it has no tries; give at least one")
        for number, attempt in enumerate(self.tries):
            if attempt in self.tries[:number]:
                raise ConfigError(
                    f"contestant {self.name}: {dict(attempt)} is tried twice; leave one out"
                )

    @property
    def is_calibrated(self) -> bool:
        """Whether a budget is solved for, so that a guarantee is proven for the runs."""
        return self.role == "calibrated"

    @classmethod
    def of(
        cls,
        name: str,
        config: RunConfig,
        tries: Sequence[Try],
        guarantee: GuaranteeKind,
        role: Role = "calibrated",
    ) -> Contestant:
        """Return a contestant with tries that change settings of ``config``.

        Raises:
            ConfigError: it has no tries, or has the same try twice.
        """
        return cls(
            name=name,
            configure=lambda shared, attempt: config.changed(**{**shared, **attempt}),
            tries=tries,
            guarantee=guarantee,
            role=role,
        )


@dataclass(frozen=True)
class Cell:
    """One contestant, on one task, at one epsilon: one cell in a table.

    Attributes:
        task: the task's name.
        clients: the number of clients.
        contestant: the contestant's name.
        epsilon: the epsilon for the contestant's unit, adversary and delta; 0 if nothing is proven.
    """

    task: str
    clients: int
    contestant: str
    epsilon: float
