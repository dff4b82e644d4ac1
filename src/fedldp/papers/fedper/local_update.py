"""FedPer: SGD whose last layer is each client's own, and never leaves it.

Source: M. G. Arivazhagan, V. Aggarwal, A. K. Singh, S. Choudhary, "Federated Learning with
Personalization Layers", 2019, Algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fedldp.algorithms.bounds import Chart, Send
from fedldp.algorithms.composition import SGD_SETTINGS, Algorithm, Sgd
from fedldp.algorithms.preset import Settings
from fedldp.algorithms.presets.composed import Choice
from fedldp.core.errors import ConfigError
from fedldp.core.facts import Caveat, Unprotected
from fedldp.core.kinds import OWN_HEADS, SCORES
from fedldp.models import HEAD, trained_of
from fedldp.protocol.roles import Tester

if TYPE_CHECKING:
    import torch

    from fedldp.papers.fedper.training import OwnHeadSgd


@dataclass(frozen=True, kw_only=True)
class OwnHead(Choice, Sgd):
    """SGD whose last layer is each client's own; see ``training.OwnHeadSgd``."""

    tested_on: str = "test examples with labels like each client's, by its own model"
    name: ClassVar[str] = "own_head"
    keeps: ClassVar[bool] = True
    uses: ClassVar[frozenset[str]] = frozenset({"class_weights", *SGD_SETTINGS})
    trains_statistics: ClassVar[bool] = False
    send: ClassVar[Send] = "update"
    notes: ClassVar[tuple[Caveat, ...]] = (OWN_HEADS,)

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the part with the settings' momentum."""
        return cls(momentum=settings.momentum)

    def chart(self, settings: Settings) -> Chart:
        """Return the weights of all other layers; see ``Choice``."""
        return InBody()

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
        from fedldp.papers.fedper.training import OwnHeadSgd

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
