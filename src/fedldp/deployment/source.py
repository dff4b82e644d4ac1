"""A site's file of examples: as it is on disk, and as an agreement wants it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedldp.data import Columns, Examples, encode_examples, is_table, load_examples, read_table
from fedldp.data.tables import Table


@dataclass(frozen=True, eq=False)
class Source:
    """Examples, or a table of which an agreement's columns make examples."""

    found: Examples | Table
    label_column: str

    def __len__(self) -> int:
        return len(self.found)

    def __str__(self) -> str:
        if isinstance(self.found, Examples):
            return f"{len(self)} examples of shape {self.found.features.shape[1:]}"
        return f"{len(self)} rows of {len(self.found.names)} columns"

    def examples(
        self, agreed: Columns, features: Sequence[str] | None = None, *, leave_out: bool = True
    ) -> Examples:
        """Return the examples; of a table, by the agreed ranges, categories and classes.

        Args:
            agreed: the agreement's; the label's column is the site's own matter.
            features: the agreed names of a table's features, in their order; None where none are
                agreed: the order of the file, which then must be that of all sites.
            leave_out: what does not fit is left out: whether a site takes part must not tell what
                examples it has. Else it is refused.

        Raises:
            DataError, ConfigError: the table cannot be what was agreed.
        """
        if isinstance(self.found, Examples):
            return self.found
        columns = replace(agreed, label=self.label_column, client=None)
        return encode_examples(self.found, columns, leave_out=leave_out, names=features)


def open_source(path: Path, label_column: str) -> Source:
    """Read a site's file.

    Raises:
        FedldpError: it cannot be read, or a .npz file holds no examples.
    """
    if is_table(path.name):
        return Source(read_table(path), label_column)
    return Source(load_examples(path, columns=Columns(label=label_column)), label_column)
