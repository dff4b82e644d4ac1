"""The inputs of a simulated run: a device, data, and which client has which examples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.core.errors import ConfigError
from fedldp.core.facts import Doubt
from fedldp.data import Dataset, Shares, is_own_file, partition
from fedldp.data.sources import SOURCES, find_source
from fedldp.protocol.keys import draws_of_seed
from fedldp.reporting.record import Schema
from fedldp.reporting.scores import FEW, counts_of, doubts
from fedldp.simulation.plan import check_examples, dataset_of, problem_with, with_few_rows


@dataclass(frozen=True, eq=False)
class Inputs:
    """A run's data.

    Attributes:
        dataset: the data, with as many training examples as the run uses.
        problem: the public facts about the data.
        members: for each client, the rows of its training examples.
        own_data: a description of the user's own data, with rounded counts; None for a published
            data set.
        exact_data: the same description with exact counts, which never leave the machine of the
            run.
    """

    dataset: Dataset
    problem: Problem
    members: Shares
    own_data: str | None
    exact_data: str | None

    @classmethod
    def of(
        cls,
        config: RunConfig,
        dataset: Dataset | None,
        data_dir: Path | None,
        started_in: Path | None = None,
    ) -> Inputs:
        """Return the data of a configuration, loaded if not given, and partitioned.

        The arguments are those of ``load``.

        Raises:
            FedldpError: the data cannot be loaded, or are incompatible with the configuration.
        """
        return cls.divided(config, load(config, dataset, data_dir, started_in), data_dir)

    @classmethod
    def divided(cls, config: RunConfig, whole: Dataset, data_dir: Path | None) -> Inputs:
        """Return the data that ``load`` returned, partitioned.

        Raises:
            FedldpError: the data are incompatible with the configuration.
        """
        if whole.clients is not None:
            _check_divides_nothing(config, whole)
            dataset, members = whole, whole.clients
        else:
            dataset = _sampled(whole, config)
            stream = draws_of_seed(config.seed)(0)("partition")
            members = partition(
                dataset.train.labels,
                config.num_clients,
                config.partition,
                stream.generator(),
                dataset.train.people,
            )
        config.composition.calibration.check_shares(members.sizes.tolist())
        problem = problem_with(config, whole, data_dir)
        return cls(dataset, problem, members, whole.own_data, whole.exact_data)

    @property
    def schema(self) -> Schema:
        """Return the schema to keep with the model."""
        public = self.dataset.is_public
        return Schema(
            input_shape=self.dataset.input_shape,
            num_classes=self.dataset.num_classes,
            num_examples=self.problem.num_examples if public else None,
            classes=self.dataset.classes,
            features=self.dataset.features,
            rounded=not public,
        )

    def doubts(
        self, tested: Mapping[str, float | None] | None, confusion: NDArray[np.int64] | None
    ) -> tuple[Doubt, ...]:
        """Return the reasons why a model's metrics on the test set are doubtful; see ``doubts``.

        They are kept with the run, so they say which clients have few examples only if the examples
        are public.
        """
        counts = counts_of(self.dataset.test.labels, self.dataset.num_classes)
        few = int(np.count_nonzero(self.members.sizes < FEW)) if self.dataset.is_public else 0
        return tuple(doubts(tested, confusion, counts, self.schema, few))


def _check_divides_nothing(config: RunConfig, dataset: Dataset) -> None:
    """Refuse to draw or divide data that name each example's client."""
    fields = type(config).model_fields
    for name in ("partition", "num_examples"):
        if getattr(config, name) != fields[name].default:
            raise ConfigError(
                f"{name} = {getattr(config, name)}: the data set {dataset.name} names "
                "each example's client; leave it out"
            )


def choose_device(name: str) -> torch.device:
    """Return the device for "auto", "cpu" or "cuda".

    Raises:
        ConfigError: the name is unknown, or there is no GPU.
    """
    if name not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"device = {name}: choose auto, cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device = cuda: torch finds no GPU here; use auto or cpu")
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)


def load(
    config: RunConfig,
    dataset: Dataset | None,
    data_dir: Path | None,
    started_in: Path | None = None,
) -> Dataset:
    """Return all data of a configuration, loaded unless they are given.

    A person with more rows than the configuration allows keeps only the allowed number.

    Args:
        config: the configuration.
        dataset: the data, if given.
        data_dir: the data folder.
        started_in: see ``dataset_of``.

    Raises:
        FedldpError: the data cannot be loaded, or are not the data set that the configuration
            names.
    """
    if dataset is None:
        return with_few_rows(config, dataset_of(config, data_dir, started_in))
    if config.standardise:
        raise ConfigError(
            "standardise = true: only data sets loaded by name have published means and "
            "deviations; set standardise = false"
        )
    if dataset.name in SOURCES and not _is_named(dataset, config.dataset):
        raise ConfigError(
            f"dataset = {config.dataset}: the run was given the data set {dataset.name}; set "
            "dataset to that name, because it determines what is public and what a resumed run "
            "loads"
        )
    return with_few_rows(config, dataset)


def _is_named(dataset: Dataset, name: str) -> bool:
    return not is_own_file(name) and find_source(name).name == dataset.name


def _sampled(dataset: Dataset, config: RunConfig) -> Dataset:
    """Return ``dataset`` with as many training examples as the run uses."""
    total = len(dataset.train)
    taken = check_examples(config, total)
    if taken == total:
        return dataset
    stream = draws_of_seed(config.seed)(0)("examples")
    indices = np.sort(stream.generator().choice(total, taken, replace=False))
    train = dataset.train.taken(indices)
    return replace(dataset, train=train)
