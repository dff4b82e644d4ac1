"""What is compared: contestants with their tries, on tasks, at an epsilon."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from fedldp.accounting.guarantees import Adversary
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.settings import PrivacyTarget, TargetUnit
from fedldp.core.errors import ConfigError
from fedldp.data import Dataset

Settings = Mapping[str, Any]
"""Settings by name."""

Try = Mapping[str, Any]
"""One choice of hyperparameters: plain values by name, as JSON holds them.

Settings as they are (``Contestant.of``), or whatever ``Contestant.configure`` makes settings of.
"""

Role = Literal["calibrated", "reference", "stated"]
"""What is done with a contestant.

- calibrated: its budget is solved for, so that its statement meets the epsilon of the cell.
- reference: it runs as it is, at epsilon 0, which stands for no guarantee.
- stated: nothing is trained; its row says why its statement proves nothing.
"""


@dataclass(frozen=True)
class GuaranteeKind:
    """What a guarantee is about, before there is an epsilon.

    Attributes:
        unit: what is protected.
        adversary: against whom.
        delta: at most.
    """

    unit: TargetUnit
    adversary: Adversary
    delta: float

    def target(self, epsilon: float) -> PrivacyTarget:
        """Return the target of a run that must meet ``epsilon``."""
        return PrivacyTarget(
            unit=self.unit, epsilon=epsilon, delta=self.delta, adversary=self.adversary
        )


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """One system, with how it is configured and what is tried of it.

    Attributes:
        name: for people; no two contestants of a comparison have the same.
        configure: its configuration, of the settings that all share in a cell (those of the task,
            ``standardise``, ``num_clients``, ``delta`` and ``seed``) and of one try. Its budget is
            solved for.
        tries: its hyperparameters; of equal scores the earlier one is chosen.
        guarantee: what it is calibrated to, or what ``stated`` looks for.
        role: what is done with it.
        data_of: the task whose data it gets in place of a cell's own, where it has features of
            its own; None for the cell's.
        quick_to_state: whether its statement takes milliseconds. If not, its budget is solved for
            to a thousandth only, and never above what meets the epsilon.
        code: a digest of the user's own code that it runs, so that its runs are made again where
            that is another; empty where there is none.

    Raises:
        ConfigError: it has no try, or the same one twice.
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
            raise ConfigError(f"contestant {self.name}: it has no try; give at least one")
        for number, attempt in enumerate(self.tries):
            if attempt in self.tries[:number]:
                raise ConfigError(
                    f"contestant {self.name}: {dict(attempt)} is tried twice; leave one out"
                )

    @property
    def is_calibrated(self) -> bool:
        """Whether its budget is solved for, and something is proven of its runs."""
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
        """Return a contestant whose tries are settings that change ``config``.

        Raises:
            ConfigError: it has no try, or the same one twice.
        """
        return cls(
            name=name,
            configure=lambda shared, attempt: config.changed(**{**shared, **attempt}),
            tries=tries,
            guarantee=guarantee,
            role=role,
        )


@dataclass(frozen=True)
class Task:
    """What is learned.

    Attributes:
        name: of the task.
        load: the data as they are trained on, standardised or not; their test set is for measuring
            alone. Called for every run, so keep what takes long to load.
        settings: those of all contestants there: ``dataset``, ``model``, ``partition`` and whatever
            else must be equal.
        divided: how a run divides the training set (a scheme of ``fedldp.data.partition``), so that
            whole clients are held out for trying; None: examples are, which no client has. It says
            nothing of data that name their clients or people: those are held out whole.
        num_examples: training examples that are divided; None for all.
    """

    name: str
    load: Callable[[], Dataset]
    settings: Settings
    divided: str | None = field(default=None, kw_only=True)
    num_examples: int | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Cell:
    """One contestant, on one task, at one epsilon: what has a place in a table.

    Attributes:
        task: its name.
        clients: how many.
        contestant: its name.
        epsilon: for the unit, adversary and delta of the contestant; 0 where nothing is proven.
    """

    task: str
    clients: int
    contestant: str
    epsilon: float
