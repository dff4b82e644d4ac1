"""The names of a model's inputs and outputs, kept with the model so that predictions have names."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedldp.algorithms.problem import Problem
from fedldp.core.errors import RunError

FILE = "schema.json"
FEW = 10
"""The number of examples below which a client has too few to train on."""


@dataclass(frozen=True, kw_only=True)
class Schema:
    """The public facts about a model's inputs and outputs.

    It contains no client's name, and no digest of an example.

    Attributes:
        input_shape: the shape of one example.
        num_classes: the number of classes; labels are 0 to num_classes - 1.
        num_examples: the total number of training examples across all clients.
        classes: the names of the classes, if they have any.
        features: the names of the features, if they have any.
        few: the number of simulated clients with fewer than ``FEW`` examples; None if unknown.
        rounded: whether all counts are rounded up, like all counts of a user's own rows.
        people: the number of people to whom the training examples belong, if the data identify them
            and a person may have several examples; else None.
    """

    input_shape: tuple[int, ...]
    num_classes: int
    num_examples: int
    classes: tuple[str, ...] | None = None
    features: tuple[str, ...] | None = None
    few: int | None = None
    rounded: bool = False
    people: int | None = None

    def to_document(self) -> dict[str, Any]:
        """Return the schema in the form of a JSON file."""
        found = asdict(self)
        if self.people is None:  # the form of the file from before this field existed
            del found["people"]
        return found

    @property
    def problem(self) -> Problem:
        """What the run's algorithm must know about the data to build its model again."""
        return Problem(self.input_shape, self.num_classes, self.num_examples)

    def class_name(self, label: int) -> str:
        """Return the name of a class, or its number if it has no name."""
        return str(label) if self.classes is None else self.classes[label]


def read_schema(folder: Path) -> Schema:
    """Return the schema in a run folder.

    Raises:
        RunError: the schema is missing or damaged.
    """
    path = folder / FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        names = {
            key: None if found[key] is None else tuple(map(str, found[key]))
            for key in ("classes", "features")
        }
        few, people = found["few"], found.get("people")
        return Schema(
            input_shape=tuple(map(int, found["input_shape"])),
            num_classes=int(found["num_classes"]),
            num_examples=int(found["num_examples"]),
            few=None if few is None else int(few),
            rounded=bool(found.get("rounded", False)),  # the counts of earlier versions are exact
            people=None if people is None else int(people),
            **names,
        )
    except OSError as error:
        raise RunError(f"{folder}: it has no {FILE}; give the folder of a finished run") from error
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path} is damaged: repeat the run") from error
