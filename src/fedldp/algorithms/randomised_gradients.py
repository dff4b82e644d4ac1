"""Training on features, with gradients that are each randomised once in a run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

from fedldp.accounting.accountants import coordinate_of, is_pure
from fedldp.accounting.events import Event, InClear, Memoized, PerRecord, SelfComposed
from fedldp.algorithms.composition import Algorithm, Local
from fedldp.algorithms.features import OrientedFeatures
from fedldp.algorithms.preset import Settings
from fedldp.core.errors import ConfigError
from fedldp.core.registry import is_address
from fedldp.mechanisms import Mechanism, MechanismSettings, mechanisms
from fedldp.training.portions import check_portions

if TYPE_CHECKING:
    import torch

    from fedldp.training.randomised_sgd import RandomisedSgd, ScoreOnFeatures

SUITABLE = "k_closest, nearest_direction, privunit, privunit_scalar, piecewise or laplace"


@dataclass(frozen=True, kw_only=True)
class RandomisedGradients(Local):
    """SGD with randomised gradients, which uses each example in one round only.

    Attributes:
        settings: the preset's settings.
        features: the features of the examples.

    Raises:
        ConfigError: an example would be used twice, or there is no such mechanism.
    """

    weighs_classes: ClassVar[bool] = True
    trains_part: ClassVar[bool] = True
    drawn_once: ClassVar[bool] = True
    uses_rounds: ClassVar[bool] = True  # the number of rounds decides each example's round

    settings: Settings
    features: OrientedFeatures

    def __post_init__(self) -> None:
        epochs, name = self.settings.local_epochs, self.settings.mechanism
        if epochs != 1:
            raise ConfigError(
                f"local_epochs = {epochs}: an example is randomised once and used once; set it to 1"
            )
        if is_address(name):
            raise ConfigError(
                f"mechanism = {name}: only ldp_fl accepts your own mechanism; choose {SUITABLE}"
            )
        if name not in mechanisms():
            raise ConfigError(f"mechanism = {name}: choose {SUITABLE}")

    def mechanism(self, size: int) -> Mechanism:
        """Return the mechanism for ``size`` coordinates of a gradient, divided by ``clip``."""
        settings = self.settings
        return _mechanism(settings.mechanism, settings.epsilon, settings.delta, size)

    def __call__(self, algorithm: Algorithm, device: torch.device) -> RandomisedSgd:
        """Return the training, which uses each example once."""
        from fedldp.training.randomised_sgd import RandomisedSgd

        settings, sgd = self.settings, algorithm.sgd(device)
        return RandomisedSgd(
            features=self.features.encoder(algorithm.problem),
            mechanism=self.mechanism(algorithm.layout.size),
            clip=settings.clip,
            rounds=settings.rounds,
            batch_size=settings.batch_size,
            learning_rate=settings.learning_rate,
            model=sgd.model,
            device=device,
            class_weights=sgd.class_weights,
        )

    def event(self, algorithm: Algorithm, size: int) -> PerRecord:
        """Return what all gradients of a client release, one gradient for each example.

        Raises:
            ConfigError: there are more rounds than examples; or the mechanism has no pure epsilon
                for the gradient as a whole.
        """
        settings, most = self.settings, self.most_examples(algorithm)
        check_portions(algorithm.problem.num_examples, settings.num_clients, settings.rounds)
        record = self.mechanism(size).event(size)
        if not is_pure(record) or coordinate_of(record) is not None:
            raise ConfigError(
                f"mechanism = {settings.mechanism}: with this mechanism, epsilon is not a pure "
                f"budget for a whole vector; choose {SUITABLE}"
            )
        whole = (
            InClear(what="number of examples")
            if most is None
            else self._drawn(SelfComposed(each=record, count=most))
        )
        return PerRecord(record=self._drawn(record), client=whole)

    def _drawn(self, event: Event) -> Memoized:
        # The identity names the number of rounds, because it decides each example's round.
        return Memoized(drawn=event, identity=f"gradients, in {self.settings.rounds} rounds")

    def most_examples(self, algorithm: Algorithm) -> int | None:
        """Return the size of an equal share, if the number of a client's examples is public."""
        return self.settings.equal_share(algorithm.problem, self.settings.num_clients)

    def tester(self, algorithm: Algorithm, device: torch.device) -> ScoreOnFeatures:
        """Return the test on features."""
        from fedldp.training.randomised_sgd import ScoreOnFeatures

        return ScoreOnFeatures(
            features=self.features.encoder(algorithm.problem),
            num_clients=self.settings.num_clients,
            model=algorithm.sgd(device).model,
            device=device,
        )


@lru_cache(maxsize=256)
def _mechanism(name: str, epsilon: float, delta: float, size: int) -> Mechanism:
    settings = MechanismSettings(epsilon=epsilon, delta=delta, clip=1.0, size=size)
    return mechanisms()[name].from_settings(settings)
