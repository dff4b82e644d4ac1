"""What is learned: data that nobody's examples were needed to transform, and a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedldp.comparing import Task
from fedldp.data import Dataset, load_dataset
from fedldp.data.oriented_gradients import OrientedGradients
from fedldp.data.random_convolutions import RandomConvolutions

NORM = 10.0
"""Of every example but MNIST's pixels, about: theirs are about as long. So one grid fits all."""

Features = NDArray[np.float32]


def oriented_gradients(images: Features) -> Features:
    """Return histograms of oriented gradients of MNIST's images, shape (n, 128), of norm 10."""
    return _scaled(OrientedGradients((1, 28, 28), cells=4, orientations=8)(images))


def _scaled(features: Features) -> Features:
    """Return features of norm 10, in place; zeros stay zeros."""
    norms = np.linalg.norm(features, axis=1, keepdims=True)
    features *= np.divide(np.float32(NORM), norms, out=np.zeros_like(norms), where=norms > 0)
    return features


def random_convolutions(images: Features) -> Features:
    """Return what 16 public random filters find where, shape (n, 288), of norm 10."""
    return _scaled(RandomConvolutions((1, 28, 28), filters=16).responses(images))


def centred(columns: Features) -> Features:
    """Return Covertype's columns, which are in [0, 1], from -2.5 to 2.5; its bits stay 0 or 5."""
    scaled = 5 * columns
    scaled[:, :10] -= 2.5
    return scaled


def as_they_are(images: Features) -> Features:
    """Return the examples."""
    return images


@dataclass(frozen=True)
class StudyTask(Task):
    """One task of the study, with its title for people."""

    title: str


def _task(
    name: str,
    title: str,
    dataset: str,
    *,
    model: str = "logistic",
    features: Callable[[Features], Features] = as_they_are,
    standardise: bool = False,
) -> StudyTask:
    """Return one task.

    Args:
        name: of the task.
        title: for people.
        dataset: of which the examples are.
        model: from `fedldp list models`.
        features: the public transformation of an example, which looks at that example alone.
        standardise: whether pixels are shifted and scaled by published constants.
    """

    def load() -> Dataset:
        return _transformed(name, dataset, features, standardise)

    return StudyTask(name, load, {"dataset": dataset, "model": model}, title)


@lru_cache(maxsize=1)
def _transformed(
    name: str, dataset: str, features: Callable[[Features], Features], standardise: bool
) -> Dataset:
    """Return the data of a task, transformed."""
    loaded = load_dataset(dataset, standardise=standardise)
    return Dataset(
        f"{name} of {loaded.name}",
        train=replace(loaded.train, features=features(loaded.train.features)),
        test=replace(loaded.test, features=features(loaded.test.features)),
        num_classes=loaded.num_classes,
    )


TASKS = {
    task.name: task
    for task in (
        _task("mnist", "MNIST, logistic regression on pixels", "mnist"),
        _task(
            "mnist-gradients",
            "MNIST, logistic regression on oriented gradients",
            "mnist",
            features=oriented_gradients,
        ),
        _task(
            "mnist-convolutions",
            "MNIST, logistic regression on random convolutions",
            "mnist",
            features=random_convolutions,
        ),
        _task("covertype", "Covertype, logistic regression", "covertype", features=centred),
        _task("mnist-cnn", "MNIST, the CNN of LDP-FL", "mnist", model="cnn", standardise=True),
    )
}
