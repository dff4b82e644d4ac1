"""Data sets and their partition among clients."""

from fedldp.data.custom import load_examples
from fedldp.data.datasets import (
    DatasetInfo,
    check_standardise,
    list_datasets,
    load_dataset,
    standardised,
)
from fedldp.data.examples import Dataset, Examples
from fedldp.data.folder import FileStatus, resolve_data_dir, verify
from fedldp.data.partition import (
    DrawnShares,
    Shares,
    check_partition,
    examples_of_all,
    parse_scheme,
    partition,
)

__all__ = [
    "Dataset",
    "DatasetInfo",
    "DrawnShares",
    "Examples",
    "FileStatus",
    "Shares",
    "check_partition",
    "check_standardise",
    "examples_of_all",
    "list_datasets",
    "load_dataset",
    "load_examples",
    "parse_scheme",
    "partition",
    "resolve_data_dir",
    "standardised",
    "verify",
]
