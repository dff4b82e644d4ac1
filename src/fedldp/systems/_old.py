"""What systems that are not yet presets still take from their class."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from fedldp.algorithms import release
from fedldp.algorithms.composition import Composition, Fixed
from fedldp.algorithms.config import Problem, RunConfig
from fedldp.algorithms.server_update import ServerUpdate
from fedldp.mechanisms.none import Plain
from fedldp.parts.sides import ClientSide, ServerSide

if TYPE_CHECKING:
    import torch

    from fedldp.mechanisms.summing import Summing


class MeanServerConfig(RunConfig):
    rounds_only_add: ClassVar[bool] = False

    def client(self, problem: Problem, client: int, device: torch.device) -> ClientSide:
        return ClientSide(
            step=self.client_step(problem, device),
            encoder=self.client_encoder(problem, client),
            exchanges=self.exchanges,
            trains_in=self.trains_in,
            turns=self.participation.max_rounds(client),
            most_examples=self.most_examples(problem),
            num_classes=problem.num_classes,
        )

    def summing(self, problem: Problem) -> Summing | None:
        encoder = self.client_encoder(problem, 0)
        if not isinstance(encoder, release.Encoder):
            return None
        found = encoder.summing(self.round_size)
        if found is None:
            return None
        server = self.server(problem).aggregate
        needs = server.estimate.needs if isinstance(server, ServerUpdate) else "reports"
        return found if needs == "sum" else None

    def inner_client(self, problem: Problem, client: int, device: torch.device) -> ClientSide:
        return self.client(problem, client, device)

    def inner_server(self, problem: Problem) -> ServerSide:
        return self.server(problem)

    @property
    def longer_begins_with_shorter(self) -> bool:
        return self.rounds_only_add and self.target is None and self.average == 0


MeanServerConfig.compose = staticmethod(
    lambda settings: Composition(calibration=Fixed(every=Plain()))
)
