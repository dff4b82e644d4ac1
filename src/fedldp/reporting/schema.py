"""The names of a model's inputs and outputs, kept with the model so that predictions have names."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedldp.algorithms.problem import Problem
from fedldp.core.errors import RunError

FILE = "schema.json"


@dataclass(frozen=True, kw_only=True)
class Schema:
    """The public facts about a model's inputs and outputs.

    It contains no client's name, no digest of an example, and no number that was counted in a
    user's own rows, because no guarantee covers such a number.

    Attributes:
        input_shape: the shape of one example.
        num_classes: the number of classes; labels are 0 to num_classes - 1.
        num_examples: the total number of training examples across all clients, if it is public.
        classes: the names of the classes, if they have any.
        features: the names of the features, if they have any.
        rounded: whether counts that are shown beside the model's scores are rounded up, like all
            counts of a user's own rows.
    """

    input_shape: tuple[int, ...]
    num_classes: int
    num_examples: int | None
    classes: tuple[str, ...] | None = None
    features: tuple[str, ...] | None = None
    rounded: bool = False

    def to_document(self) -> dict[str, Any]:
        """Return the schema in the form of a JSON file."""
        return asdict(self)

    @property
    def problem(self) -> Problem:
        """What the run's algorithm must know about the data to build its model again.

        How a model is used does not depend on the number of examples that trained it.
        """
        return Problem(self.input_shape, self.num_classes, self.num_examples or 1)

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
        total = found["num_examples"]
        return Schema(
            input_shape=tuple(map(int, found["input_shape"])),
            num_classes=int(found["num_classes"]),
            num_examples=None if total is None else int(total),
            rounded=bool(found["rounded"]),
            **names,
        )
    except OSError as error:
        raise RunError(f"{folder}: it has no {FILE}; give the folder of a finished run") from error
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path} is damaged: repeat the run") from error
