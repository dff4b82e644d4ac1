"""Data sets by name: the built-in benchmarks, and a user's own files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import ConfigError, DataError
from fedldp.data.columns import Columns
from fedldp.data.custom import SUFFIXES, load_file
from fedldp.data.examples import Dataset, Examples, split
from fedldp.data.folder import in_use, is_present, locate, resolve_data_dir
from fedldp.data.formats import read_cifar_batch, read_covertype, read_idx, read_svhn
from fedldp.data.sources import SOURCES, PublishedDataset, find_source

# If no split is published, the split made here is part of the benchmark's definition, so it is the
# same in all runs.
_FIXED_SPLIT_SEED = 0
_TEST_SHARE = 0.2


@dataclass(frozen=True)
class DatasetInfo:
    """The facts about a built-in data set that are known without loading it.

    Attributes:
        name: the name that load_dataset takes.
        examples: the number of training and test examples together, in the files that would be
            loaded now.
        input_shape: the shape of an example.
        classes: the number of classes; labels are 0 to classes - 1.
        source: the address of its home page.
        license: the licence, as the publisher states it.
        present: whether it can be loaded without a download.
        folder: where its files belong; None if the data set comes with a library.
    """

    name: str
    examples: int
    input_shape: tuple[int, ...]
    classes: int
    source: str
    license: str
    present: bool
    folder: Path | None


def list_datasets(data_dir: Path | None = None) -> list[DatasetInfo]:
    """Describe every built-in data set; files are checked by their size."""
    root = resolve_data_dir(data_dir)
    infos = []
    for name, source in SOURCES.items():
        used = in_use(source, root)
        infos.append(
            DatasetInfo(
                name=name,
                examples=used.num_examples,
                input_shape=used.input_shape,
                classes=used.num_classes,
                source=used.home,
                license=used.licence,
                present=is_present(used, root),
                folder=root / used.folder if used.files else None,
            )
        )
    return infos


def load_dataset(
    name: str,
    *,
    data_dir: Path | None = None,
    columns: Columns = Columns(),  # noqa: B008 (it is frozen)
    test_file: str | None = None,
    seed: int = 0,
    standardise: bool = False,
) -> Dataset:
    """Load a data set from memory or disk, without the network.

    Images are float32 in [0, 1] of shape (C, H, W). Splits are the published ones. The digits and
    covertype have none; they are split 80 to 20, stratified by label, in the same way in every run.
    If the full Covertype is missing and its 16 % subset is present, the subset is loaded under its
    own name, because results on the two are not comparable.

    Args:
        name: digits, mnist, fmnist (or fashion-mnist), cifar10, svhn, svhn-extra (its training
            and extra sets together) or covertype; or the path of the user's own .npz, .csv or
            .parquet file.
        data_dir: the data folder; see resolve_data_dir.
        columns: the columns of a .csv or .parquet file.
        test_file: a second file with the same columns, to test on.
        seed: the seed for splitting a user's own file that has no test set; it affects nothing
            else.
        standardise: shift and scale images by the published means and deviations of the data set.
            These are public constants; constants measured on clients' data would be a release.

    Raises:
        ConfigError: there is no data set of that name, or a setting is out of range.
        DataMissing: a file is missing; the message says which, and how to get it.
        DataError: a file is damaged or malformed; the message says which.

    >>> data = load_dataset("digits")
    >>> len(data.train), len(data.test), data.input_shape
    (1437, 360, (1, 8, 8))
    """
    if name.lower().endswith(SUFFIXES):
        test = None if test_file is None else Path(test_file).expanduser()
        own = load_file(Path(name).expanduser(), columns=columns, seed=seed, test_file=test)
        if standardise:
            raise _no_constants(name)
        return own
    source, paths = locate(find_source(name), resolve_data_dir(data_dir))
    if standardise:
        check_standardise(source)
    dataset = _LOADERS[source.name](source, paths)
    if standardise:
        for examples in (dataset.train, dataset.test):
            _standardise(examples.features, source)
    return dataset


def standardised(examples: Examples, name: str) -> Examples:
    """Return a copy of a party's own images, shifted and scaled as in ``load_dataset``.

    Args:
        examples: images in [0, 1], with as many channels as the images of that data set.
        name: the data set whose published means and deviations are used.

    Raises:
        ConfigError: no constants are published, or none for this number of channels.
    """
    source = find_source(name)
    check_standardise(source)
    if examples.features.shape[1:2] != (len(source.means),):
        raise ConfigError(
            f"standardise = true: the constants of {name} are for {len(source.means)} channels, "
            f"but an example has the shape {examples.features.shape[1:]}; set standardise = false"
        )
    images = examples.features.copy()
    _standardise(images, source)
    return replace(examples, features=images)


def check_standardise(source: PublishedDataset) -> None:
    """Refuse to standardise a data set without published constants.

    Raises:
        ConfigError: there are no constants.
    """
    if not source.means:
        raise _no_constants(source.name)


def _no_constants(name: str) -> ConfigError:
    return ConfigError(
        f"standardise = true: no means are published for {name}; scale the data yourself with "
        "public constants, and set standardise = false"
    )


def _standardise(images: NDArray[np.float32], source: PublishedDataset) -> None:
    # Work in place, because the largest data set takes 7 GB, which leaves no room for copies.
    for channel, (mean, deviation) in enumerate(zip(source.means, source.deviations, strict=True)):
        images[:, channel] -= np.float32(mean)
        images[:, channel] /= np.float32(deviation)


def _load_digits(source: PublishedDataset, paths: list[Path]) -> Dataset:
    pixels, labels = _digits()
    return _split_once(source, _scale(pixels, 16), labels)


@cache
def _digits() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return pixels, 0 to 16, and labels, cached because parsing takes longer than a round."""
    from sklearn.datasets import load_digits  # slow to import, and needed only for this data set

    digits = load_digits()
    return digits.images.astype(np.uint8)[:, None], digits.target.astype(np.int64)


def _load_idx(source: PublishedDataset, paths: list[Path]) -> Dataset:
    train_images, train_labels, test_images, test_labels = (
        read_idx(path, num_axes) for path, num_axes in zip(paths, (3, 1, 3, 1), strict=True)
    )
    return Dataset(
        source.name,
        train=_image_examples(source, train_images[:, None], train_labels.astype(np.int64)),
        test=_image_examples(source, test_images[:, None], test_labels.astype(np.int64)),
        num_classes=source.num_classes,
    )


def _load_cifar10(source: PublishedDataset, paths: list[Path]) -> Dataset:
    *train, test = (read_cifar_batch(path) for path in paths)
    return _from_parts(source, train, test)


def _load_svhn(source: PublishedDataset, paths: list[Path]) -> Dataset:
    train, test, *extra = (read_svhn(path) for path in paths)
    return _from_parts(source, [train, *extra], test)


def _load_covertype(source: PublishedDataset, paths: list[Path]) -> Dataset:
    features, labels = read_covertype(paths[0])
    return _split_once(source, features, labels)


_LOADERS: dict[str, Callable[[PublishedDataset, list[Path]], Dataset]] = {
    "digits": _load_digits,
    "mnist": _load_idx,
    "fmnist": _load_idx,
    "cifar10": _load_cifar10,
    "svhn": _load_svhn,
    "svhn-extra": _load_svhn,
    "covertype": _load_covertype,
    "covertype-subset-92962": _load_covertype,
}

_Part = tuple[NDArray[np.uint8], NDArray[np.int64]]


def _from_parts(source: PublishedDataset, train: list[_Part], test: _Part) -> Dataset:
    images = np.concatenate([part[0] for part in train])
    labels = np.concatenate([part[1] for part in train])
    return Dataset(
        source.name,
        train=_image_examples(source, images, labels),
        test=_image_examples(source, *test),
        num_classes=source.num_classes,
    )


def _image_examples(
    source: PublishedDataset, pixels: NDArray[np.uint8], labels: NDArray[np.int64]
) -> Examples:
    """Scale bytes to [0, 1], after checking the shapes and labels of complete files."""
    shape = (len(labels), *source.input_shape)
    if pixels.shape != shape or labels.shape != shape[:1]:
        raise DataError(
            f"{source.name} is damaged: images {pixels.shape} with labels {labels.shape}; "
            "run: fedldp data verify"
        )
    if labels.size and not 0 <= labels.min() <= labels.max() < source.num_classes:
        raise DataError(
            f"{source.name} is damaged: labels from {labels.min()} to {labels.max()}; "
            "run: fedldp data verify"
        )
    return Examples(_scale(pixels, 255), labels)


def _scale(pixels: NDArray[np.uint8], largest: int) -> NDArray[np.float32]:
    # Convert in one pass, because the largest data set takes 7 GB, which leaves no room for copies.
    scaled: NDArray[np.float32] = np.divide(pixels, largest, dtype=np.float32, order="C")
    return scaled


def _split_once(
    source: PublishedDataset, features: NDArray[np.float32], labels: NDArray[np.int64]
) -> Dataset:
    train, test = split(labels, test_share=_TEST_SHARE, seed=_FIXED_SPLIT_SEED)
    whole = Examples(features, labels)
    return Dataset(
        source.name,
        train=whole.taken(train),
        test=whole.taken(test),
        num_classes=source.num_classes,
    )
