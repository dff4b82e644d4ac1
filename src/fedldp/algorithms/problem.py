"""What an algorithm must know about the data, and what its setting ``epsilon`` covers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from fedldp.accounting.guarantees import Adversary, Unit
from fedldp.core.errors import ConfigError
from fedldp.data.label_range import STEPS


@dataclass(frozen=True)
class Problem:
    """What a system must know about the data: only public facts, and no examples.

    Attributes:
        input_shape: the shape of an example.
        num_classes: labels are 0 to num_classes - 1; 1 if they are numbers in steps of their range.
        num_examples: the total number of training examples across all clients.
        data_dir: the data folder, for systems that read a public data set.
        num_clients: the number of clients, if the data name the client of each row; else None.
        features: the names of a table's features, in order; else None.
        people: the number of people, if the data name the person of each row; None counts every row
            as a different person.
        counted_in_private: whether the numbers of examples and people were counted in a user's own
            table, rather than stated by somebody.
        private_scores: whether a run's model is tested on held-out rows that belong to clients.
    """

    input_shape: tuple[int, ...]
    num_classes: int
    num_examples: int
    data_dir: Path | None = None
    num_clients: int | None = None
    features: tuple[str, ...] | None = None
    people: int | None = None
    counted_in_private: bool = False
    private_scores: bool = False

    @property
    def end_of_labels(self) -> int:
        """One more than the largest label."""
        return STEPS + 1 if self.num_classes == 1 else self.num_classes


@dataclass(frozen=True)
class EpsilonMeaning:
    """What a system's setting ``epsilon`` covers: whose budget it is, and against which adversary.

    ``standing`` says whether the guarantee is proven here, or only claimed by the source.

    Raises:
        ConfigError: there is no such unit or adversary.
    """

    unit: Unit
    standing: Literal["proven", "claimed"]
    adversary: Adversary = "server"

    def __post_init__(self) -> None:
        for name, type in (("unit", Unit), ("adversary", Adversary)):
            if (given := getattr(self, name)) not in (known := get_args(type)):
                raise ConfigError(
                    f"meaning of epsilon: {name} = {given!r}: choose {', '.join(known)}"
                )

    def __str__(self) -> str:
        return f"per {self.unit} against a {self.adversary} ({self.standing})"
