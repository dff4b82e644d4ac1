"""LDP-FL: one randomised bit for each weight, sent on its own through a shuffler.

    Broadcast: weights W, ranges (c, r) of every layer
        |
        v
    client_step   local SGD from W
        |         Sensitive weights
        v
    encoder       x = (w - c)/r, clipped to [-1, 1]; two-point randomiser (eq. 2)
        |         Report: d bits, as messages of `chunk` coordinates
        v
    shuffler      Algorithm 3, where `shuffle` is on: messages of all clients in order of arrival
        |
        v
    server_step   count of ones of each coordinate -> mean = c + r K (2 ones/n - 1) (line 10)
                  adaptive ranges from the mean (lines 11-13) -> next Broadcast

Source: L. Sun, J. Qian, X. Chen, "LDP-FL: Practical Private Aggregation in Federated Learning with
Local Differential Privacy", IJCAI 2021. Batch size, local epochs and the small VGG are not stated
there; clients' ranges are taken from the server's weights only, never from private ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from fedldp.accounting.statement import Claim
from fedldp.algorithms.bounds import InRange
from fedldp.algorithms.problem import EpsilonMeaning, Problem
from fedldp.algorithms.release import Encoder, Release
from fedldp.algorithms.server_update import Aggregate, Values
from fedldp.algorithms.settings import Count, Delays, Momentum, Positive
from fedldp.core.bounding import LARGEST, SMALLEST_RADIUS
from fedldp.core.errors import ConfigError, RunError
from fedldp.core.registry import is_address
from fedldp.mechanisms import BitMechanism, Mechanism, MechanismSettings, find_mechanism
from fedldp.parts.per_client import Own, check_one_each, is_own, of_client
from fedldp.parts.sides import ServerSide, State
from fedldp.systems._old import MeanServerConfig
from fedldp.wire import Broadcast

if TYPE_CHECKING:
    import torch

    from fedldp.parts.local_sgd import LocalSgd

Seconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Radius = Annotated[float, Field(ge=SMALLEST_RADIUS, le=LARGEST, allow_inf_nan=False)]
Center = Annotated[float, Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]
Sigma = Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)]

_TIMES = (
    "compute_seconds", "communication_seconds", "latency_spread", "delay_seconds",
    "prediction_error", "record_arrivals",
)  # fmt: skip
"""The settings of the shuffler's time model."""


class LdpFlConfig(MeanServerConfig):
    """Settings of LDP-FL."""

    simulation_only: ClassVar[frozenset[str]] = MeanServerConfig.simulation_only | {*_TIMES}
    per_client: ClassVar[tuple[str, ...]] = ("epsilon",)
    rounds_only_add: ClassVar[bool] = True

    system: Literal["ldp_fl"] = "ldp_fl"
    mechanism: str = Field(
        "two_point",
        description='the local randomiser, from `fedldp list mechanisms`, or "module:Class"; the '
        "paper's is two_point",
    )
    epsilon: Positive | list[Positive] | Own = Field(
        description="budget of one weight (two_point, sign, k_rr, unary, cldp) or of a client's "
        "report in one round (the other mechanisms); a list gives each client its own"
    )
    clip: Positive = Field(
        1.0, description="norm bound on the normalised vector, for mechanisms of whole vectors"
    )
    send: Literal["weights", "update"] = Field(
        "weights", description="send weights (the paper), or their change from the broadcast"
    )
    momentum: Momentum = Field(0.0, description="of the clients' SGD; every round begins from rest")
    integer_bits: Literal[64, 32] = Field(64, description="bits of a random comparison")
    ranges: Literal["fixed", "adaptive"] = Field(
        "fixed", description="fixed: range_center and range_radius; adaptive: from the last weights"
    )
    range_center: Center | list[Center] = Field(
        0.0, description="c of the fixed range, for all layers or a list with one for each"
    )
    range_radius: Radius | list[Radius] = Field(
        0.1, description="r of the fixed range, for all layers or a list with one for each"
    )
    range_floor: Radius = Field(1e-3, description="smallest adaptive radius")
    range_margin: Positive = Field(1.0, description="factor on the adaptive radius")
    shuffle: bool | Literal["auto"] = Field(
        "auto", description="send through the shuffler; auto: where a report is one bit a weight"
    )
    chunk: Count = Field(1, description="coordinates in one shuffled message, 1 to d")
    compute_seconds: Seconds = Field(60.0, description="simulated training time of a client")
    communication_seconds: Seconds = Field(1.0, description="simulated time of a message")
    latency_spread: Sigma = Field(
        0.5, description="spread between clients: the sigma of a log-normal factor"
    )
    delay_seconds: Seconds = Field(10.0, gt=0, description="typical proposal of a client for T")
    prediction_error: Sigma = Field(
        0.0, description="error of a client's prediction of its times, as a log-normal sigma"
    )
    record_arrivals: bool = Field(
        False, description="keep the time of every message in the run folder"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_one_each("epsilon", self.epsilon, self.num_clients)
        find_mechanism(self.mechanism)
        if self.shuffle is True and not self.sends_bits:
            raise ConfigError(
                f"shuffle = true: a report of {self.mechanism} is not one bit a weight, and "
                "cannot travel as messages of single weights; set shuffle = false"
            )
        if is_own(self.epsilon) and not self.sends_bits:
            raise ConfigError(
                f"epsilon is a list, and {self.mechanism} takes one budget for all clients: "
                "give one number"
            )
        if self.send == "update" and self.ranges == "adaptive":
            raise ConfigError(
                "send = update: adaptive ranges follow the weights, not their change; "
                "set ranges = fixed"
            )
        return self

    def idle_settings(self) -> Mapping[str, str]:
        """Return also what only a shuffler, or adaptive ranges, would use.

        A fixed range beside adaptive ones is none of them: recipes have one to go back to.
        """
        idle = dict(super().idle_settings())
        if not self.shuffles:
            without = "reports go through no shuffler"
            idle |= dict.fromkeys(("chunk", *_TIMES), without)
        if self.ranges == "fixed":
            idle |= dict.fromkeys(("range_floor", "range_margin"), "ranges are fixed")
        return idle

    @property
    def sends_bits(self) -> bool:
        """Whether a report is one bit for each weight."""
        return issubclass(find_mechanism(self.mechanism), BitMechanism)

    @property
    def shuffles(self) -> bool:
        """Whether a shuffler is in the path."""
        return self.sends_bits if self.shuffle == "auto" else self.shuffle

    def budget(self, client: int) -> float:
        """Return the epsilon of one client."""
        return of_client(self.epsilon, client)

    def randomiser(self, epsilon: float, size: int) -> Mechanism:
        """Return the mechanism with a budget, for a model of ``size`` weights."""
        settings = MechanismSettings(
            epsilon=epsilon,
            delta=self.delta,
            clip=self.clip,
            size=size,
            integer_bits=self.integer_bits,
        )
        return _randomiser(self.mechanism, settings)

    def bound(self, problem: Problem) -> InRange:
        """Return the ranges that everyone knows (Algorithm 1, lines 3 and 11-13)."""
        center, radius = (
            tuple(value) if isinstance(value, list) else value
            for value in (self.range_center, self.range_radius)
        )
        return InRange(
            send=self.send,
            sizes=self.layout(problem).sizes,
            center=center,
            radius=radius,
            adaptive=self.ranges == "adaptive",
            floor=self.range_floor,
            margin=self.range_margin,
            clip=self.clip,
        )

    def client_encoder(self, problem: Problem, client: int) -> Encoder:
        """Return the encoder of one client, with its own budget (Algorithm 2)."""
        size, budget = self.layout(problem).size, self.budget(client)
        if self.chunk > size:
            raise ConfigError(
                f"chunk = {self.chunk}: the model has {size} weights; give at most that"
            )
        return Encoder(
            release=Release(
                bound=self.bound(problem), mechanism=self.randomiser(budget, size), size=size
            ),
            chunk=self.chunk if self.shuffles else size,
            label=budget if is_own(self.epsilon) else None,
        )

    def client_step(self, problem: Problem, device: torch.device) -> LocalSgd:
        """Return SGD."""
        return self.sgd(problem, device, self.momentum)

    def server(self, problem: Problem) -> ServerSide:
        """Return the server that estimates the mean; see the module's diagram."""
        bound = self.bound(problem)
        if not bound.adaptive:
            bound.fixed  # noqa: B018 (it refuses ranges that do not fit the model)

        def publish(state: State) -> Broadcast:
            ranges = bound.announce(state.weights)
            return Broadcast(round=state.round, weights=state.weights, ranges=ranges)

        mean = Aggregate(
            empty=lambda size: self.randomiser(self.budget(0), size).aggregate(size),
            gives=self.send,
            restore=bound.restore,
            scale=self._scale,
        )
        return self.server_update(mean, finish=partial(refuse_astray, bound)).side(
            lambda draw: self.first_state(problem, draw), publish=publish
        )

    def _scale(self, epsilon: float, size: int) -> float:
        mechanism = self.randomiser(epsilon, size)
        assert isinstance(mechanism, BitMechanism)
        return mechanism.scale

    @property
    def epsilon_meaning(self) -> EpsilonMeaning:
        """The mechanism's unit; proven, but for a mechanism of the user's own."""
        unit = find_mechanism(self.mechanism).epsilon_unit
        return EpsilonMeaning(unit, "claimed" if is_address(self.mechanism) else "proven")

    def claim(self) -> Claim | None:
        """Return the paper's claim, epsilon per weight; it has none on other mechanisms."""
        if self.mechanism != "two_point":
            return None
        return Claim(
            epsilon=max(self.epsilon) if isinstance(self.epsilon, list) else self.budget(0),
            delta=0.0,
            unit="weight",
            source="Sun, Qian, Chen 2021, Theorem 1 and Section 4, Parameter Shuffling",
        )

    def delays(self) -> Delays | None:
        """Return the time model of Algorithm 3 where reports are shuffled."""
        if not self.shuffles:
            return None
        return Delays(
            chunk=self.chunk,
            compute_seconds=self.compute_seconds,
            communication_seconds=self.communication_seconds,
            spread=self.latency_spread,
            delay_seconds=self.delay_seconds,
            prediction_error=self.prediction_error,
            record_arrivals=self.record_arrivals,
        )


@lru_cache(maxsize=4096)
def _randomiser(name: str, settings: MechanismSettings) -> Mechanism:
    return find_mechanism(name).from_settings(settings)


def refuse_astray(bound: InRange, weights: Values, state: State) -> Values:
    """Return the next weights as they are.

    Raises:
        RunError: no ranges can be taken from them.
    """
    try:
        bound.announce(weights)
    except ConfigError as error:
        raise RunError(
            f"round {state.round}: the adaptive ranges went astray, for the noise of so "
            "few reports at this epsilon feeds on itself; set ranges = fixed"
        ) from error
    return weights
