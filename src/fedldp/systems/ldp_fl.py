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

from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator

from fedldp.bounding import LARGEST, SMALLEST_RADIUS, Ranges, check_releasable
from fedldp.errors import ConfigError, RunError
from fedldp.mechanisms.two_point import TwoPoint
from fedldp.parts import Client
from fedldp.systems import Claim, Count, Delays, Positive, Problem, System, SystemConfig
from fedldp.wire import Broadcast, Incoming, Layout, Report, Sensitive, Shuffled, Vector

Seconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Sigma = Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)]


class LdpFlConfig(SystemConfig):
    """Settings of LDP-FL."""

    system: Literal["ldp_fl"] = "ldp_fl"
    epsilon: Positive | list[Positive] = Field(
        description="budget of one weight of one report; a list gives each client its own"
    )
    integer_bits: Literal[64, 32] = Field(64, description="bits of a random comparison")
    ranges: Literal["fixed", "adaptive"] = Field(
        "fixed", description="fixed: range_center and range_radius; adaptive: from the last weights"
    )
    range_center: float | list[float] = Field(
        0.0, description="c of the fixed range, for all layers or a list with one for each"
    )
    range_radius: Positive | list[Positive] = Field(
        0.1, description="r of the fixed range, for all layers or a list with one for each"
    )
    range_floor: Positive = Field(
        1e-3, ge=SMALLEST_RADIUS, le=LARGEST, description="smallest adaptive radius"
    )
    range_margin: Positive = Field(1.0, description="factor on the adaptive radius")
    shuffle: bool = Field(True, description="send through the shuffler")
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
        if isinstance(self.epsilon, list) and len(self.epsilon) != self.num_clients:
            raise ConfigError(
                f"epsilon has {len(self.epsilon)} values for num_clients = {self.num_clients}: "
                "give one for all, or one for each client"
            )
        for client in range(self.num_clients if isinstance(self.epsilon, list) else 1):
            self.mechanism(client)
        return self

    def mechanism(self, client: int) -> TwoPoint:
        """Return the randomiser of one client."""
        epsilon = self.epsilon[client] if isinstance(self.epsilon, list) else self.epsilon
        return TwoPoint(epsilon, self.integer_bits)

    def build(self, problem: Problem, *, device: torch.device) -> System:
        """Put LDP-FL together; see the module's diagram."""
        model, layout, weights, training = self.build_training(problem, device)
        if self.chunk > layout.size:
            raise ConfigError(
                f"chunk = {self.chunk}: the model has {layout.size} weights; give 1 to "
                f"{layout.size}"
            )
        agree = AgreeRanges(self, layout)
        return System(
            initial=lambda: Broadcast(round=1, weights=weights, ranges=agree(weights)),
            client_step=training,
            encoder=SendBits(self),
            server_step=EstimateMean(self, agree),
            model=model,
            layout=layout,
        )

    def claim(self) -> Claim:
        """Return the paper's claim: epsilon per weight is enough."""
        return Claim(
            epsilon=max(self.epsilon) if isinstance(self.epsilon, list) else self.epsilon,
            delta=0.0,
            unit="weight",
            source="Sun, Qian, Chen 2021, Theorem 1 and Section 4, Parameter Shuffling",
        )

    def delays(self) -> Delays | None:
        """Return the time model of Algorithm 3 where ``shuffle`` is on."""
        if not self.shuffle:
            return None
        return Delays(
            compute_seconds=self.compute_seconds,
            communication_seconds=self.communication_seconds,
            spread=self.latency_spread,
            delay_seconds=self.delay_seconds,
            prediction_error=self.prediction_error,
            record_arrivals=self.record_arrivals,
        )


@dataclass(frozen=True)
class AgreeRanges:
    """The server's choice of the next round's ranges (Algorithm 1, lines 3 and 11-13)."""

    config: LdpFlConfig
    layout: Layout

    def __call__(self, public_weights: Vector) -> Ranges:
        """Return the ranges for a round that starts from ``public_weights``, shape (d,)."""
        config = self.config
        if config.ranges == "adaptive":
            return Ranges.of_public(
                public_weights,
                self.layout.sizes,
                floor=config.range_floor,
                margin=config.range_margin,
            )
        return Ranges.fixed(config.range_center, config.range_radius, self.layout.sizes)


@dataclass(frozen=True)
class SendBits:
    """The client's encoder (Algorithm 2): the only place where LDP-FL opens a sensitive value."""

    config: LdpFlConfig

    def __call__(self, update: Sensitive[Vector], broadcast: Broadcast, client: Client) -> Report:
        """Return the report of one client."""
        if broadcast.ranges is None:
            raise RunError("LDP-FL needs ranges in the broadcast")
        weights = update.open()
        check_releasable(weights)
        mechanism = self.config.mechanism(client.index)
        normalised = broadcast.ranges.normalise(weights)
        return Report(
            round=broadcast.round,
            size=weights.size,
            payload=mechanism.encode(normalised, client.stream("mechanism")),
            chunk=self.config.chunk if self.config.shuffle else weights.size,
            epsilon=mechanism.epsilon_per_weight if isinstance(self.config.epsilon, list) else None,
        )


@dataclass(frozen=True)
class EstimateMean:
    """The server step: weights and ranges of the next round from counts of ones, O(d) memory."""

    config: LdpFlConfig
    agree: AgreeRanges

    def __call__(self, broadcast: Broadcast, reports: Incoming) -> Broadcast:
        """Return the next round's broadcast."""
        if broadcast.ranges is None:
            raise RunError("LDP-FL needs ranges in the broadcast")
        counts = self.config.mechanism(0).aggregate(broadcast.weights.size)
        for report in reports:
            if report.epsilon is not None:
                counts.use_scale(TwoPoint(report.epsilon, self.config.integer_bits).scale)
            if isinstance(report, Shuffled):
                coordinates = report.positions[:, None] * report.chunk + np.arange(report.chunk)
                inside = coordinates < report.size
                counts.add_bits(coordinates[inside], report.bits[inside])
            else:
                counts.add(report.payload)
        weights = broadcast.ranges.restore(counts.mean())
        try:
            ranges = self.agree(weights)
        except ConfigError as error:
            raise RunError(
                f"round {broadcast.round}: the adaptive ranges went astray, for the noise of so "
                "few reports at this epsilon feeds on itself; set ranges = fixed"
            ) from error
        return replace(broadcast, round=broadcast.round + 1, weights=weights, ranges=ranges)
