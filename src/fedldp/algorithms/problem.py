"""What an algorithm must know about the data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

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
