"""What a model's inputs and outputs are called: kept beside it, so that a prediction has a name."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedldp.core.errors import RunError

FILE = "schema.json"
FEW = 10
"""Examples below which a client's own training says little."""


@dataclass(frozen=True, kw_only=True)
class Schema:
    """The public facts on a model's inputs and outputs.

    It has no name of a client, and no digest of an example.

    Attributes:
        input_shape: of one example.
        num_classes: labels are 0 to num_classes - 1.
        num_examples: training examples of all clients together.
        classes: their names, where they have some.
        features: their names, where they have some.
        few: simulated clients with fewer than ``FEW`` examples; None where that is not known.
        rounded: whether all counts are rounded up, as those of a user's own rows are.
        people: whose the training examples are, where the data say it, and a person may have
            several; else None.
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
        """Return it for a JSON file."""
        found = asdict(self)
        if self.people is None:  # as before there were any
            del found["people"]
        return found

    def class_name(self, label: int) -> str:
        """Return what a class is called: its number, where it has no name."""
        return str(label) if self.classes is None else self.classes[label]


def read_schema(folder: Path) -> Schema:
    """Return the schema in a run folder.

    Raises:
        RunError: there is none, or it is damaged.
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
            rounded=bool(found.get("rounded", False)),  # earlier ones are exact
            people=None if people is None else int(people),
            **names,
        )
    except OSError as error:
        raise RunError(
            f"{folder}: it has no {FILE}; give the folder of a run that came to its end"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path} is damaged: run it again") from error
