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
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from fedldp.accounting.events import Event, TwoValuedBits
from fedldp.accounting.statement import Claim
from fedldp.algorithms.server_update import Aggregate, Mean, Values
from fedldp.bounding import LARGEST, SMALLEST_RADIUS, Ranges
from fedldp.errors import ConfigError, RunError
from fedldp.mechanisms import (
    BitMechanism,
    Mechanism,
    MechanismSettings,
    find_mechanism,
    stated_event,
)
from fedldp.mechanisms.summing import Summing, counts_of_bits
from fedldp.mechanisms.two_point import TwoPoint
from fedldp.parts.changes import finite_on_device, open_many, open_weights
from fedldp.parts.per_client import Own, check_one_each, is_own, of_client
from fedldp.parts.sides import Sender, Senders, ServerSide, State, Update
from fedldp.registry import is_address
from fedldp.systems._server import MeanServerConfig
from fedldp.systems.base import EpsilonMeaning, Problem
from fedldp.systems.settings import Count, Delays, Momentum, Positive
from fedldp.wire import Broadcast, Layout, Report, Reports, Sensitive, Vector

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

    def client_encoder(self, problem: Problem, client: int) -> Randomise:
        """Return the encoder of one client, with its own budget."""
        size, budget = self.layout(problem).size, self.budget(client)
        if self.chunk > size:
            raise ConfigError(
                f"chunk = {self.chunk}: the model has {size} weights; give at most that"
            )
        return Randomise(
            mechanism=self.randomiser(budget, size),
            size=size,
            chunk=self.chunk if self.shuffles else size,
            send=self.send,
            label=budget if is_own(self.epsilon) else None,
        )

    def client_step(self, problem: Problem, device: torch.device) -> LocalSgd:
        """Return SGD."""
        return self.sgd(problem, device, self.momentum)

    def server(self, problem: Problem) -> ServerSide:
        """Return the server that estimates the mean; see the module's diagram."""
        agree = AgreeRanges(self, self.layout(problem))
        if self.ranges == "fixed":
            agree.fixed()  # refuses ranges that do not fit the model
        mean = Aggregate(
            empty=lambda size: self.randomiser(self.budget(0), size).aggregate(size),
            gives=self.send,
            restore=agree.restore,
            scale=self._scale,
        )
        return self.server_update(mean, finish=agree.refuse_astray).side(
            lambda draw: self.first_state(problem, draw), publish=agree.publish
        )

    def _scale(self, epsilon: float, size: int) -> float:
        mechanism = self.randomiser(epsilon, size)
        assert isinstance(mechanism, BitMechanism)
        return mechanism.scale

    def summing(self, problem: Problem) -> Summing | None:
        """Return how bits are counted; budgets of clients' own have counts that are kept apart."""
        if not self.sends_bits or is_own(self.epsilon):
            return None
        return counts_of_bits(self.layout(problem).size, self.round_size)

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


@dataclass(frozen=True)
class AgreeRanges:
    """The server's choice of the next round's ranges (Algorithm 1, lines 3 and 11-13)."""

    config: LdpFlConfig
    layout: Layout

    def __call__(self, public_weights: Values) -> Ranges:
        """Return the ranges for a round that starts from ``public_weights``, shape (d,)."""
        floor, margin = self.config.range_floor, self.config.range_margin
        if self.config.ranges == "adaptive":
            return Ranges.of_public(public_weights, self.layout.sizes, floor=floor, margin=margin)
        return self.fixed()

    def fixed(self) -> Ranges:
        """Return the configured ranges.

        Raises:
            ConfigError: they are not one for each parameter tensor, or not in range.
        """
        return Ranges.fixed(self.config.range_center, self.config.range_radius, self.layout.sizes)

    def publish(self, state: State) -> Broadcast:
        """Return the round's broadcast."""
        return Broadcast(round=state.round, weights=state.weights, ranges=self(state.weights))

    def restore(self, mean: Mean, state: State, factor: float = 1.0) -> Values:
        """Return the mean in the unit of the weights, by the ranges of the round, shape (d,)."""
        return factor * self(state.weights).restore(mean)

    def refuse_astray(self, weights: Values, state: State) -> Values:
        """Return the next weights as they are.

        Raises:
            RunError: no ranges can be taken from them.
        """
        try:
            self(weights)
        except ConfigError as error:
            raise RunError(
                f"round {state.round}: the adaptive ranges went astray, for the noise of so "
                "few reports at this epsilon feeds on itself; set ranges = fixed"
            ) from error
        return weights


@dataclass(frozen=True, kw_only=True)
class Randomise:
    """One client's encoder (Algorithm 2): the only place where LDP-FL opens a sensitive value.

    Attributes:
        mechanism: with the client's own budget.
        size: of the model, d.
        chunk: coordinates in one message.
        send: weights, or their change from the broadcast.
        label: the budget, which travels along where clients have budgets of their own.
    """

    mechanism: Mechanism
    size: int
    chunk: int
    send: Literal["weights", "update"]
    label: float | None

    def event(self, exchange: int = 0) -> Event:
        """Return what one report releases: the mechanism's event."""
        event = stated_event(self.mechanism, self.size)
        if self.label is not None and isinstance(event, TwoValuedBits):
            return replace(event, group=self.label)
        return event

    def __call__(self, update: Sensitive[Vector], broadcast: Broadcast, sender: Sender) -> Report:
        """Return the report of one client."""
        values, ranges = open_weights(update, broadcast), _ranges(broadcast)
        if self.send == "update":
            values = values - broadcast.weights
        return Report(
            round=broadcast.round,
            size=values.size,
            payload=self.mechanism.encode(ranges.normalise(values), sender.fresh("mechanism")),
            chunk=self.chunk,
            epsilon=self.label,
        )

    def many(self, update: Sensitive[Update], broadcast: Broadcast, senders: Senders) -> Reports:
        """Return the reports of several clients, each as it is on its own."""
        ranges, streams = _ranges(broadcast), senders.fresh("mechanism")
        there = finite_on_device(update)
        if there is not None and self.send == "weights" and type(self.mechanism) is TwoPoint:
            from fedldp.parts.device_bits import encode_on_device

            payloads = encode_on_device(self.mechanism, ranges, there, streams)
        else:
            values = open_many(update, broadcast)
            if self.send == "update":
                values = values - broadcast.weights
            payloads = self.mechanism.encode_many(ranges.normalise(values), streams)
        return Reports(
            round=broadcast.round,
            size=self.size,
            payloads=payloads,
            chunk=self.chunk,
            epsilon=self.label,
        )


def _ranges(broadcast: Broadcast) -> Ranges:
    if broadcast.ranges is None:
        raise RunError("LDP-FL needs ranges in the broadcast")
    return broadcast.ranges
