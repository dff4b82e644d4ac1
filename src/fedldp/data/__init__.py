"""Data sets and their partition among clients."""

from fedldp.data.datasets import DatasetInfo, list_datasets, load_dataset
from fedldp.data.examples import Dataset, Examples
from fedldp.data.folder import FileStatus, resolve_data_dir, verify
from fedldp.data.partition import parse_scheme, partition

__all__ = [
    "Dataset",
    "DatasetInfo",
    "Examples",
    "FileStatus",
    "list_datasets",
    "load_dataset",
    "parse_scheme",
    "partition",
    "resolve_data_dir",
    "verify",
]
