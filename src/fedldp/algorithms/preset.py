"""Presets: functions from checked, flat settings to a composition of parts.

``@preset`` makes a configuration class of such a function: its settings are those of every run and
those that the preset offers, each declared once, beside the part that it is for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import create_model

from fedldp.accounting.statement import Claim
from fedldp.algorithms.composition import Algorithm, Composition
from fedldp.algorithms.config import EpsilonMeaning, MeanServerConfig, Problem
from fedldp.algorithms.participation import Participation
from fedldp.algorithms.release import Encoder
from fedldp.algorithms.settings import Offer
from fedldp.parts.sides import LocalUpdate, ServerSide

if TYPE_CHECKING:
    import torch

_PRESETS = "fedldp.algorithms.presets."


class Settings(MeanServerConfig):
    """The settings of a preset, checked; all that a run asks of them is in the composition."""

    compose: ClassVar[Callable[[Any], Composition]]
    """From the settings to the parts."""

    inverse: ClassVar[bool] = False
    """Whether what a target is solved for is a noise, which is lower for a higher budget."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    @property
    def composition(self) -> Composition:
        """The parts that the settings make.

        Raises:
            ConfigError: a mechanism or another part refuses a setting.
        """
        return type(self).compose(self)

    def algorithm(self, problem: Problem) -> Algorithm:
        """Return the composition, bound to the public facts of ``problem``."""
        return Algorithm(self, self.composition, problem)

    def idle_settings(self) -> Mapping[str, str]:
        """Name also the settings that the parts do not use."""
        parts = self.composition
        idle = {**super().idle_settings(), **parts.unused}
        return {name: reason for name, reason in idle.items() if name not in parts.uses}

    def client_encoder(self, problem: Problem, client: int) -> Encoder:
        """Return what encodes the reports of one client."""
        return self.algorithm(problem).encoder(client)

    def client_step(self, problem: Problem, device: torch.device) -> LocalUpdate:
        """Return what trains on a client's examples."""
        return self.algorithm(problem).local_update(device)

    def server(self, problem: Problem) -> ServerSide:
        """Return the server's half."""
        return self.algorithm(problem).server()

    @property
    def participation(self) -> Participation:
        """Who answers when."""
        return self.composition.participation or super().participation

    @property
    def always_summed(self) -> bool:
        """Whether a deployed run must go through a secure sum."""
        return self.composition.only_summed

    @property
    def longer_begins_with_shorter(self) -> bool:
        """Whether it does: no part may use the number of rounds."""
        uses = self.composition.calibration.uses_rounds
        return not uses and self.target is None and self.average == 0

    @property
    def has_downlink(self) -> bool:
        """Whether the server adds noise for those who see nothing but its broadcasts."""
        return self.composition.downlink is not None

    @property
    def data_may_refuse(self) -> bool:
        """Whether the data may refuse a run of which the plan could be made."""
        return self.composition.calibration.data_may_refuse

    def check_shares(self, sizes: Sequence[int]) -> None:
        """Refuse shares of clients that a setting has promised not to happen."""
        self.composition.calibration.check_shares(sizes)

    @property
    def epsilon_meaning(self) -> EpsilonMeaning | None:
        """What the setting ``epsilon`` is about."""
        return self.composition.calibration.meaning

    def with_budget(self, budget: float) -> Self:
        """Return a copy that spends ``budget``; of a noise, that has 1/``budget`` of it."""
        if self.inverse:
            return self.changed(**{self.solved: 1 / budget})
        return super().with_budget(budget)

    def claim(self) -> Claim | None:
        """Return what the source claims of this configuration."""
        return self.composition.claim


def preset(
    *offers: Offer,
    semantics: int = 1,
    solved: str = "epsilon",
    inverse: bool = False,
    needs_extra: str | None = None,
) -> Callable[[Callable[[Any], Composition]], type[Settings]]:
    """Turn a function from settings to parts into the configuration class of a preset.

    The setting ``system`` has the function's name as its value; outside of fedldp, its address.

    Args:
        offers: the settings of its own, in their order.
        semantics: rises whenever the same settings give another result.
        solved: the setting that a target is solved for.
        inverse: whether that one is a noise.
        needs_extra: the extra of fedldp without which its clients cannot train.
    """

    def make(compose: Callable[[Any], Composition]) -> type[Settings]:
        function, module = compose.__name__, compose.__module__
        name = function if module.startswith(_PRESETS) else f"{module}:{function}"
        fields: dict[str, Any] = {"system": (Literal[name], name)}
        fields |= {offer.name: offer.field for offer in offers}
        found = create_model(
            function,
            __base__=Settings,
            __module__=module,
            __doc__=compose.__doc__,
            **fields,
        )
        found.compose = staticmethod(compose)
        found.semantics, found.solved, found.inverse = semantics, solved, inverse
        found.needs_extra = needs_extra
        return found

    return make
