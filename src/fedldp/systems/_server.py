"""Settings of systems whose server forms a mean: its step, and which weights become the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Self

from pydantic import Field, model_validator

from fedldp.algorithms.server_update import (
    Estimate,
    Optimizer,
    ServerUpdate,
    Step,
    Values,
    first_averaged,
)
from fedldp.checked import LEFT_OUT
from fedldp.errors import ConfigError
from fedldp.parts.sides import Draw, State
from fedldp.systems.base import SystemConfig
from fedldp.systems.settings import Momentum

ServerRate = Annotated[float, Field(ge=1e-6, le=1e3, allow_inf_nan=False)]


class MeanServerConfig(SystemConfig):
    """The part of such a system's configuration that is about its server's step."""

    server_optimizer: Annotated[Optimizer, LEFT_OUT] = Field(
        "none", description="what the server does with the mean: takes it, momentum, or Adam"
    )
    server_rate: Annotated[ServerRate, LEFT_OUT] = Field(
        1.0, description="the server's learning rate: factor on the step from the last weights"
    )
    server_momentum: Annotated[Momentum, LEFT_OUT] = Field(
        0.9, description="what is left of the server's momentum after a round; of Adam its beta_1"
    )
    average: Annotated[float, Field(ge=0, le=1), LEFT_OUT] = Field(
        0.0,
        description="share of the last rounds whose weights are averaged for the test and the "
        "model; 0: the last weights alone",
    )

    @model_validator(mode="after")
    def _check_server(self) -> Self:
        if self.server_optimizer == "adam" and self.server_rate >= 1:
            raise ConfigError(
                f"server_rate = {self.server_rate:g}: with server_optimizer = adam every weight "
                "moves by about that much a round; give less than 1, such as 0.01"
            )
        return self

    def idle_settings(self) -> Mapping[str, str]:
        """Name also the momentum that no optimiser uses."""
        idle = dict(super().idle_settings())
        if self.server_optimizer == "none":
            idle["server_momentum"] = "server_optimizer = none has no momentum"
        return idle

    @property
    def longer_begins_with_shorter(self) -> bool:
        """Whether it does; the rounds that are averaged are counted from the last one."""
        return super().longer_begins_with_shorter and self.average == 0

    def server_update(
        self,
        estimate: Estimate,
        *,
        noise: Callable[[int, Draw], Values] | None = None,
        finish: Callable[[Values, State], Values] | None = None,
    ) -> ServerUpdate:
        """Return the server's rule; see ``ServerUpdate`` for the arguments."""
        return ServerUpdate(
            estimate=estimate,
            step=Step(
                optimizer=self.server_optimizer,
                rate=self.server_rate,
                momentum=self.server_momentum,
            ),
            noise=noise,
            finish=finish,
            average_from=first_averaged(self.average, self.rounds),
        )
