"""What systems that are not yet presets still take from their class."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from fedldp.algorithms import release
from fedldp.algorithms.calibration import Fixed
from fedldp.algorithms.composition import Composition
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.participation import All, Drawn, Participation
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.server_update import Estimate, ServerUpdate, Step, Values, first_averaged
from fedldp.core.randomness import Stream
from fedldp.mechanisms.none import Plain
from fedldp.models import layout_of
from fedldp.protocol.roles import ClientSide, Draw, ServerSide, State
from fedldp.protocol.wire import Layout, Vector

if TYPE_CHECKING:
    import torch
    from torch import nn

    from fedldp.mechanisms.summing import Summing
    from fedldp.training.local_sgd import LocalSgd


class MeanServerConfig(RunConfig):
    rounds_only_add: ClassVar[bool] = False

    @property
    def participants(self) -> Participation:
        if self.clients_per_round is None:
            return All()
        return Drawn(self.num_clients, self.clients_per_round)

    def model_input(self, problem: Problem) -> tuple[int, ...]:
        return problem.input_shape

    def layout(self, problem: Problem) -> Layout:
        return layout_of(self.model, self.model_input(problem), problem.num_classes)

    def client(self, problem: Problem, client: int, device: torch.device) -> ClientSide:
        return ClientSide(
            step=self.client_step(problem, device),
            encoder=self.client_encoder(problem, client),
            exchanges=self.exchanges,
            trains_in=self.trains_in,
            turns=self.participants.max_rounds(client),
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

    def sgd(self, problem: Problem, device: torch.device, momentum: float = 0.0) -> LocalSgd:
        from fedldp.training.local_sgd import LocalSgd

        model = self.module(problem, Stream(bytes(32), simulated=True))
        epochs, rate = self.local_epochs, self.learning_rate
        return LocalSgd(model, epochs, self.batch_size, rate, device, momentum)

    def module(self, problem: Problem, stream: Stream) -> nn.Module:
        from fedldp.core.randomness import torch_seeded
        from fedldp.models import build_model

        with torch_seeded(stream):
            return build_model(self.model, self.model_input(problem), problem.num_classes)

    def first_weights(self, problem: Problem, draw: Draw) -> Vector:
        from fedldp.training.tensors import read_weights

        return read_weights(self.module(problem, draw("weights")))

    def first_state(self, problem: Problem, draw: Draw) -> State:
        return State(weights=self.first_weights(problem, draw))

    def server_update(
        self,
        estimate: Estimate,
        *,
        finish: Callable[[Values, State], Values] | None = None,
    ) -> ServerUpdate:
        return ServerUpdate(
            estimate=estimate,
            step=Step(
                optimizer=self.server_optimizer,
                rate=self.server_rate,
                momentum=self.server_momentum,
            ),
            finish=finish,
            average_from=first_averaged(self.average, self.rounds),
        )


MeanServerConfig.compose = staticmethod(
    lambda settings: Composition(calibration=Fixed(every=Plain()))
)
