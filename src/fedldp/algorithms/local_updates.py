"""Local updates besides SGD: in closed form, and those that keep something from round to round.

    solution     a client's own ridge regression
    statistics   what the server needs for a ridge regression
    scaffold     SGD with SCAFFOLD's control variates
    own_head     SGD with a last layer of the client's own

What clients keep releases nothing more than the report of a round. A client's control variate is
made of its own steps, and the server's of the mean of the reports, so that is post-processing; a
head never leaves its client.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedldp.algorithms.bounds import Chart
from fedldp.algorithms.composition import Algorithm, Local, Sgd
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.server_update import Around, Estimated, FirstArrays, Sent
from fedldp.core.errors import ConfigError
from fedldp.core.facts import Unprotected
from fedldp.core.kinds import SCORES
from fedldp.models import HEAD, is_linear, trained_of
from fedldp.protocol.roles import Arrays, Draw, LocalUpdate, State, Tester
from fedldp.protocol.wire import Incoming
from fedldp.training.linear_models import STATISTICS, LinearModel, Statistics

if TYPE_CHECKING:
    import torch

    from fedldp.training.stateful_sgd import OwnHeadSgd


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

    sends: ClassVar[str] = STATISTICS

    def check(self, algorithm: Algorithm) -> None:
        """Refuse models that are not linear; see ``Local.check``."""
        check_linear(algorithm, "statistics")

    def __call__(self, algorithm: Algorithm, device: torch.device) -> LocalUpdate:
        """Return the local update, which always computes on the CPU."""
        from fedldp.training.ridge import OwnStatistics

        return OwnStatistics(statistics=Statistics(LinearModel.of(algorithm.layout)))


CONTROL = "control"
"""The name of the mean of the clients' control variates, which the server keeps and tells."""


@dataclass(frozen=True, kw_only=True)
class Scaffold(Sgd):
    """Steps that are corrected by control variates; see ``training.stateful_sgd.ControlledSgd``."""

    trains_statistics: ClassVar[bool] = False

    def __call__(self, algorithm: Algorithm, device: torch.device) -> LocalUpdate:
        """Return the local update."""
        from fedldp.training.stateful_sgd import ControlledSgd

        return ControlledSgd(algorithm.sgd(device))


@dataclass(frozen=True, kw_only=True)
class Controlled(Around):
    """An estimate that also moves the mean of the control variates.

    Of the share s of the clients that answer, each C_i changes by D_i - C, where D_i is how far its
    weights moved towards smaller loss. So the mean changes by s (D - C), and D is the estimate's.

    Attributes:
        share: s, above 0 and up to 1.
    """

    gives: ClassVar[Sent] = "update"

    share: float

    def arrays(self, problem: Problem) -> FirstArrays:
        """Return control variates of 0, which correct nothing; see ``Estimate``."""
        return lambda draw: {CONTROL: np.zeros(self.released.size, np.float32)}

    def told(self, state: State) -> Arrays:
        """Return the control variate that the server tells clients; see ``Estimate``."""
        return {CONTROL: state.arrays[CONTROL]}

    def __call__(
        self, state: State, reports: Incoming, draw: Draw, factor: float = 1.0
    ) -> Estimated:
        """Return the mean change, and the next mean of the control variates; see ``Estimate``."""
        found = self.inner(state, reports, draw)
        change = found.change(self.inner.gives, state.weights)
        control = state.arrays[CONTROL]
        moved = (control - self.share * (change + control)).astype(np.float32)
        return replace(found, values=factor * change, arrays={**found.arrays, CONTROL: moved})


@dataclass(frozen=True, kw_only=True)
class OwnHead(Sgd):
    """SGD whose last layer is each client's own; see ``training.stateful_sgd.OwnHeadSgd``."""

    tested_on: str = "test examples with labels like each client's, by its own model"
    trains_part: ClassVar[bool] = False
    trains_statistics: ClassVar[bool] = False

    @property
    def private_scores(self) -> list[Unprotected]:
        """Scores of models that were trained on the clients' examples and are never sent."""
        return [SCORES(on="common", encoder="last layer")]

    def check(self, algorithm: Algorithm) -> None:
        """Refuse a model that is nothing but a head; see ``Local.check``."""
        if not InBody(layout=algorithm.layout).size:
            raise ConfigError(
                f"local_update = own_head and model = {algorithm.config.model}: it is one layer, "
                "and nothing would be sent; set model = mlp, or local_update = sgd"
            )

    def __call__(self, algorithm: Algorithm, device: torch.device) -> OwnHeadSgd:
        """Return the local update."""
        from fedldp.training.stateful_sgd import OwnHeadSgd

        sgd = algorithm.sgd(device, self.momentum)
        return OwnHeadSgd(sgd, InBody(layout=algorithm.layout).size)

    def tester(self, algorithm: Algorithm, device: torch.device) -> Tester:
        """Return the test of each client's own model."""
        own, prepared = self(algorithm, device), algorithm.prepared()
        return lambda broadcast, client, test: own.score(broadcast, client, prepared(test))


@dataclass(frozen=True, kw_only=True)
class InBody(Chart):
    """The change of all weights but those of the last layer, which does not change."""

    @property
    def size(self) -> int:
        """The number of coordinates."""
        return self.whole.size - self._head

    def apply(self, rows: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return the change of the body's weights; see ``Chart``."""
        return rows[:, : self.size]

    def restore(self, mean: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the change of all weights; see ``Chart``."""
        return np.concatenate([mean, np.zeros(self._head)])

    @property
    def _head(self) -> int:
        names = trained_of(self.whole.names, HEAD)
        return sum(self.whole.sizes[-len(names) :])
