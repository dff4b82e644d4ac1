"""The settings of a run's data: which they are, what their columns mean, and whose they are."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from fedldp.checked import Checked
from fedldp.data import Columns, is_table
from fedldp.data.partition import parse_scheme
from fedldp.errors import ConfigError
from fedldp.systems.settings import Count

Range = Annotated[list[float], Field(min_length=2, max_length=2)]

_OF_TABLES = (
    "client_column",
    "test_file",
    "ignore_columns",
    "scale_columns",
    "categories",
    "classes",
)
_OF_PARTITIONS = ("partition", "num_examples")
_EQUAL = ("iid", "drawn")
"""Partitions in which every client has as many examples as the others, up to one."""


class DataSettings(Checked):
    """The part of a system's configuration that is about data."""

    system: str = Field(description="the system's name")
    dataset: str = Field(
        description="a name from `fedldp list datasets`, or a .npz, .csv or .parquet file"
    )
    label_column: str = Field("label", description="the label's column in a .csv or .parquet file")
    client_column: str | None = Field(
        None,
        description="the column that says whose a row is: each value in it is a client, and "
        "num_clients follows from it",
    )
    test_file: str | None = Field(
        None,
        description="a second .csv or .parquet file, to test on; else a fifth of the rows is",
    )
    ignore_columns: list[str] = Field([], description="columns that are left out")
    scale_columns: dict[str, Range] = Field(
        {},
        description="public range [low, high] of a column, which becomes 0 to 1: never measured on "
        "the data",
    )
    categories: dict[str, list[str]] = Field(
        {}, description="public list of a column's texts; each becomes a feature that is 0 or 1"
    )
    classes: list[str] | None = Field(
        None,
        description="public list of the labels' texts; where it is not set they are integers from "
        "0, or numbered in sorted order",
    )
    standardise: bool = Field(
        False, description="shift and scale images by the data set's published constants"
    )
    partition: str = Field(
        "iid", description="iid, dirichlet:ALPHA, shards:N, power-law:EXPONENT or drawn:N of all"
    )
    num_examples: Count | None = Field(
        None, description="training examples to use, drawn at random; all where it is not set"
    )

    def equal_share(self, problem: Any, num_clients: int) -> int | None:
        """Return how many examples every client has at most, where all have as many; else None.

        Args:
            problem: a ``Problem``. Data that say whose they are need not be divided equally.
            num_clients: among whom they are divided.
        """
        if problem.num_clients is not None or parse_scheme(self.partition)[0] not in _EQUAL:
            return None
        share: int = -(-problem.num_examples // num_clients)
        return share

    @property
    def columns(self) -> Columns:
        """What the columns of a table are."""
        return Columns(
            label=self.label_column,
            client=self.client_column,
            ignored=tuple(self.ignore_columns),
            scaled={name: (low, high) for name, (low, high) in self.scale_columns.items()},
            categories={name: tuple(values) for name, values in self.categories.items()},
            classes=None if self.classes is None else tuple(self.classes),
        )

    @model_validator(mode="after")
    def _check_data(self) -> Self:
        fields = type(self).model_fields

        def given(names: tuple[str, ...]) -> list[str]:
            return [
                name
                for name in names
                if getattr(self, name) != fields[name].get_default(call_default_factory=True)
            ]

        own = given(_OF_TABLES)
        if own and not is_table(self.dataset):
            raise ConfigError(
                f"{own[0]}: it is for a .csv or .parquet file, and dataset = {self.dataset}; "
                "leave it out, or set dataset to such a file"
            )
        if self.test_file is not None and not is_table(self.test_file):
            raise ConfigError(f"test_file = {self.test_file}: give a .csv or .parquet file")
        divided = given(_OF_PARTITIONS)
        if self.client_column is not None and divided:
            raise ConfigError(
                f"{divided[0]} = {getattr(self, divided[0])}: client_column = "
                f"{self.client_column} says whose each row is; leave it out"
            )
        self.columns  # noqa: B018 (it refuses what contradicts itself)
        return self
