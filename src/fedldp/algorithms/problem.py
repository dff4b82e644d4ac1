"""What an algorithm must know of the data, and what its setting ``epsilon`` is about."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fedldp.accounting.guarantees import Adversary, Unit


@dataclass(frozen=True)
class Problem:
    """What a system must know of the data: public facts, no example.

    Attributes:
        input_shape: of one example.
        num_classes: labels are 0 to num_classes - 1.
        num_examples: training examples of all clients together.
        data_dir: the data folder, for systems that read a public data set.
        num_clients: where the data say whose they are, of how many clients; else None.
        features: the names of a table's features, in their order; else None.
        people: where the data say whose rows are, of how many people; None: every row is a person
            of its own, as far as is known.
        counted_in_private: whether numbers of examples and people are those of a table of the
            user's own, and nobody has stated them.
        private_scores: whether a run's model is measured on rows held out of the clients' own.
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


@dataclass(frozen=True)
class EpsilonMeaning:
    """What a system's setting ``epsilon`` is about: which unit's budget it is, against whom.

    ``standing`` says whether that is proven here, or only claimed by the source.
    """

    unit: Unit
    standing: Literal["proven", "claimed"]
    adversary: Adversary = "server"

    def __str__(self) -> str:
        against = "" if self.adversary == "server" else f" against a {self.adversary}"
        return f"per {self.unit}{against} ({self.standing})"
