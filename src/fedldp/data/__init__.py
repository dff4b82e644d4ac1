"""Data sets, their partition among clients, and public functions of examples.

``examples`` has the types of rows in memory. The functions below load a data set: a published one
(its files come from ``sources`` by ``download``, and lie in ``folder``) or a user's own (``custom``
from files, ``adapters`` from objects of other libraries). ``tables`` reads a table, whose columns
mean what ``columns`` says, and ``rules`` refuses what does not fit. ``label_range`` is that of
labels that are numbers. ``people`` says whose a row is, and ``partition`` to which client it goes.
``image_features`` and ``public_features`` are public functions of one example at a time, and
``own_features`` a user's own.

It may use core.
"""

from fedldp.data.columns import Columns
from fedldp.data.custom import is_own_file, is_table, load_examples
from fedldp.data.datasets import check_standardise, list_datasets, load_dataset, standardised
from fedldp.data.encoding import check_people, undeclared
from fedldp.data.examples import Dataset, Examples, as_dataset
from fedldp.data.folder import resolve_data_dir, verify
from fedldp.data.partition import DrawnShares, Shares, check_partition, partition
from fedldp.data.tables import read_table

__all__ = [
    "Columns",
    "Dataset",
    "DrawnShares",
    "Examples",
    "Shares",
    "adapters",
    "as_dataset",
    "check_partition",
    "check_people",
    "check_standardise",
    "columns",
    "custom",
    "download",
    "examples",
    "folder",
    "image_features",
    "is_own_file",
    "is_table",
    "label_range",
    "list_datasets",
    "load_dataset",
    "load_examples",
    "own_features",
    "partition",
    "people",
    "public_features",
    "read_table",
    "resolve_data_dir",
    "rules",
    "sources",
    "standardised",
    "tables",
    "undeclared",
    "verify",
]
