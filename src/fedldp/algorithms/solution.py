"""Local updates in closed form: a client's own ridge regression, or the statistics for one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from fedldp.algorithms.composition import Algorithm, Local
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.release import Release
from fedldp.algorithms.settings import Offer
from fedldp.core.errors import ConfigError
from fedldp.models import is_linear
from fedldp.protocol.roles import LocalUpdate
from fedldp.training.linear_models import STATISTICS, LinearModel, Statistics

if TYPE_CHECKING:
    import torch

LOCAL_UPDATE = Offer(
    "local_update",
    Literal["sgd", "scaffold", "own_head", "solution", "statistics", "person_gradients"],
    "what a client computes: sgd; scaffold (SGD whose steps are corrected by what other clients' "
    "steps were like); own_head (SGD whose last layer never leaves its client); solution (its own "
    "ridge regression, in closed form); statistics (from whose mean the server computes a ridge "
    "regression); or person_gradients (the sum of one clipped gradient per person); solution and "
    "statistics are only for linear models",
    "sgd",
)
RIDGE = Offer(
    "ridge",
    Annotated[float, Field(ge=1e-6, le=1e6)],
    "lambda of a ridge regression on examples of norm 1: the factor on the squared weights, which "
    "are added to the mean squared error",
    0.01,
)
"""The setting of ``OwnSolution`` and ``StatisticsOf``; ``LOCAL_UPDATE`` names the local update."""


def check_linear(algorithm: Algorithm, local_update: str) -> None:
    """Refuse a model that ridge regression cannot produce.

    Raises:
        ConfigError: the model is not linear, or there is only one class.
    """
    config, problem = algorithm.config, algorithm.problem
    if problem.num_classes < 2:
        raise ConfigError(
            f"local_update = {local_update} and dataset = {config.dataset}: the data set has only "
            "one class, so there is nothing to learn; choose data with two or more classes"
        )
    if not is_linear(config.model, algorithm.input_shape, problem.num_classes):
        raise ConfigError(
            f"local_update = {local_update} and model = {config.model}: a ridge regression gives a "
            "linear model; set model = linear, or local_update = sgd"
        )


@dataclass(frozen=True, kw_only=True)
class OwnSolution(Local):
    """The weights that best fit a client's examples, in closed form.

    Attributes:
        ridge: lambda, positive.
    """

    ridge: float

    def check(self, algorithm: Algorithm) -> None:
        """Refuse models that are not linear; see ``Local.check``."""
        check_linear(algorithm, "solution")

    def __call__(self, algorithm: Algorithm, device: torch.device) -> LocalUpdate:
        """Return the local update, which always computes on the CPU."""
        from fedldp.training.ridge import RidgeSolution

        return RidgeSolution(model=LinearModel.of(algorithm.layout), ridge=self.ridge)


@dataclass(frozen=True, kw_only=True)
class StatisticsOf(Local):
    """The mean products of features with each other and with labels, over a client's examples."""

    def check(self, algorithm: Algorithm) -> None:
        """Refuse models that are not linear; see ``Local.check``."""
        check_linear(algorithm, "statistics")

    def __call__(self, algorithm: Algorithm, device: torch.device) -> LocalUpdate:
        """Return the local update, which always computes on the CPU."""
        from fedldp.training.ridge import OwnStatistics

        return OwnStatistics(statistics=Statistics(LinearModel.of(algorithm.layout)))


def sends_statistics(release: Release, problem: Problem) -> Release:
    """Return a release of statistics instead of weights."""
    return replace(release, sends=STATISTICS)
