"""Personalised LDP that keeps its budgets: whole clients, whole runs, and what the clip proves.

    rounds' participants: all clients; or, with selects_first, those whom this round's public omega
                          selects, and nobody else trains or sends
    Broadcast: weights W
        |
        v
    client_step   a portion of the client's examples; SGD -> w
        |         Sensitive weights w
        v
    encoder       change w - W, clipped to L2 norm C_i; + N(0, sigma_i^2)     32 bits a coordinate
        |         or the sign of that, which is post-processing     1 bit a coordinate
        |         Report with its sender
        v
    server_step   W + mean change, weighted by 1/sigma_i^2 -> next Broadcast

Client i chooses (epsilon_i, delta_i) for all that it sends in the run. With T_i rounds of its own,
each round gets mu_i/sqrt(T_i), where mu_i is the largest at which N(0, 1) and N(mu_i, 1) are
(epsilon_i, delta_i)-indistinguishable; sigma_i = 2 C_i sqrt(T_i)/mu_i. All of this is public.

Weights 1/sigma_i^2 give the unbiased combination of the reports with the least variance. Deployment
draws discrete noise, of which the same mu holds but for 1e-100.

Source: ours, after X. Wu, L. Xu, L. Zhu, "Local Differential Privacy-Based Federated Learning under
Personalized Settings", Appl. Sci. 2023, 13(7), 4168, see ``systems.personalized``; the calibration
is that of Balle, Wang 2018, and the composition that of Dong, Roth, Su 2022.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fedldp.accounting.events import Event
from fedldp.accounting.gaussian import gaussian_sigma
from fedldp.accounting.statement import Claim
from fedldp.bounding import replace_one_sensitivity
from fedldp.errors import ConfigError
from fedldp.mechanisms import Counts
from fedldp.mechanisms.gaussian import Gaussian, check_noise
from fedldp.parts import Client
from fedldp.parts.averaging import mean_by_sender, read_report
from fedldp.parts.changes import SendChange
from fedldp.parts.per_client import check_one_each, of_client
from fedldp.parts.portions import PortionSgd, check_portions, check_rate, scale_features
from fedldp.parts.selection import draw_selection
from fedldp.randomness import SERVER, Stream
from fedldp.systems import (
    Delta,
    LearningRate,
    NormBound,
    Positive,
    Problem,
    System,
    SystemConfig,
)
from fedldp.wire import Broadcast, Incoming, Report, Sensitive, Vector

_MARGIN = 1 + 1e-7
"""On sigma, so that the statement, which rounds epsilon up by 1e-8 or so, stays within budgets."""


class PersonalizedSoundConfig(SystemConfig):
    """Settings of personalised LDP that keeps its budgets."""

    system: Literal["personalized_sound"] = "personalized_sound"
    model: str = Field(
        "logistic", description='a name from `fedldp list models`, or "module:callable"'
    )
    epsilon: Positive | list[Positive] = Field(
        description="budget of all that a client sends in the run; a list gives each its own"
    )
    client_delta: Delta | list[Delta] | None = Field(
        None, description="delta of that budget, for all clients or a list; delta where not set"
    )
    clip: NormBound | list[NormBound] = Field(
        description="bound C_i on the L2 norm of a change, for all clients or a list"
    )
    report: Literal["gaussian", "sign"] = Field(
        "gaussian", description="what is sent of the noisy change: all of it, or signs alone"
    )
    weighting: Literal["variance", "deviation", "uniform"] = Field(
        "variance", description="a report's weight: 1/sigma_i^2, 1/sigma_i (the paper's), or one"
    )
    selects_first: bool = Field(
        False, description="select clients by 1/sigma_i in every round, before anyone trains"
    )
    sampling_probability: float = Field(
        1.0, gt=0, le=1, description="q, of an example of the round's portion to be trained on"
    )
    learning_rate: LearningRate = Field(
        1.0, description='factor on scikit-learn\'s "optimal" rate 1/(alpha (t0 + t))'
    )
    alpha: Positive = Field(1e-4, description="alpha of that rate")
    feature_scale: Positive = Field(
        1.0, description="factor on features, such as 255 for images in bytes"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name in ("epsilon", "client_delta", "clip"):
            check_one_each(name, getattr(self, name), self.num_clients)
        check_rate(self.learning_rate, self.alpha)
        if self.selects_first and self.clients_per_round is not None:
            raise ConfigError(
                f"clients_per_round = {self.clients_per_round}: with selects_first the selection "
                "says who takes part; leave it out"
            )
        return self

    @cached_property
    def selected(self) -> list[list[int]]:
        """Who is selected in every round, by the noise that all would need for one round."""
        rho = np.array([1 / self._sigma_of(client, 1) for client in range(self.num_clients)])
        return [
            np.flatnonzero(draw_selection(rho, self._selection_stream(round))[0]).tolist()
            for round in range(1, self.rounds + 1)
        ]

    @cached_property
    def _times_selected(self) -> Counter[int]:
        return Counter(client for chosen in self.selected for client in chosen)

    def _selection_stream(self, round: int) -> Stream:
        return Stream.simulation(seed=self.seed, round=round, client=SERVER, purpose="selection")

    def participants(self, round: int) -> list[int] | None:
        """Return the clients that the round's omega selects, where there is a selection."""
        return self.selected[round - 1] if self.selects_first else None

    def rounds_of(self, client: int) -> int:
        """Return T_i: the rounds that select the client; all rounds where there is no selection.

        With ``clients_per_round``, too, a client must be prepared to be drawn in every round.
        """
        return self._times_selected[client] if self.selects_first else self.rounds

    def budget(self, client: int) -> tuple[float, float]:
        """Return (epsilon_i, delta_i) of all that a client sends in the run."""
        delta = self.delta if self.client_delta is None else self.client_delta
        return of_client(self.epsilon, client), of_client(delta, client)

    def _sigma_of(self, client: int, rounds: int) -> float:
        sensitivity = replace_one_sensitivity(of_client(self.clip, client))
        return sensitivity * _sigma_per_unit(*self.budget(client)) * math.sqrt(rounds) * _MARGIN

    def sigma(self, client: int) -> float:
        """Return sigma_i: with it, the client's reports of the run cost its budget."""
        return self._sigma_of(client, max(1, self.rounds_of(client)))

    def mechanism(self, client: int) -> Gaussian:
        """Return the randomiser of a client.

        Raises:
            ConfigError: it does not go so far.
        """
        epsilon, delta = self.budget(client)
        given = (
            f"epsilon = {epsilon:g} and client_delta = {delta:g} (delta, where it is not set) of "
            f"client {client}, with rounds = {self.rounds}"
        )
        clip, sigma = of_client(self.clip, client), self.sigma(client)
        check_noise(clip, sigma, given=given, knob="epsilon")
        return _gaussian(clip, sigma)

    def build(self, problem: Problem, *, device: torch.device) -> System:
        """Put the system together; see the module's diagram."""
        check_portions(problem.num_examples, self.num_clients, self.rounds)
        model, layout, weights, training = self.build_training(problem, device)
        scale_features(model, self.feature_scale)
        for client in range(self.num_clients):
            self.release(client, layout.size, problem)
        return System(
            initial=lambda: Broadcast(round=1, weights=weights),
            client_step=PortionSgd(training, self.rounds, self.sampling_probability, self.alpha),
            encoder=SendNoisyChange(self),
            server_step=AddWeightedChange(self),
            model=model,
            layout=layout,
        )

    def release(self, client: int, size: int, problem: Problem) -> Event:
        """Return what one report of ``client`` releases: Gaussian noise, or what follows from it.

        The unselected send nothing, and release nothing.
        """
        return self.mechanism(client).event(size)

    def claim(self) -> Claim | None:
        """Return None: no publication claims anything of this system."""
        return None


@lru_cache(maxsize=4096)
def _sigma_per_unit(epsilon: float, delta: float) -> float:
    return gaussian_sigma(epsilon, delta)


@lru_cache(maxsize=4096)
def _gaussian(clip: float, sigma: float) -> Gaussian:
    return Gaussian(clip, sigma)


@dataclass(frozen=True)
class SendNoisyChange:
    """The client's encoder: the change with the client's own noise, or its signs."""

    config: PersonalizedSoundConfig

    def __call__(self, update: Sensitive[Vector], broadcast: Broadcast, client: Client) -> Report:
        """Return the report of one client."""
        mechanism = self.config.mechanism(client.index)
        report = SendChange(mechanism)(update, broadcast, client)
        payload = report.payload
        if self.config.report == "sign":
            noisy = read_report(mechanism, payload, report.size)
            payload = np.packbits(noisy >= 0).tobytes()
        return replace(report, payload=payload, client=client.index)


@dataclass(frozen=True)
class AddWeightedChange:
    """The server step: add the weighted mean of the changes, in O(d) memory."""

    config: PersonalizedSoundConfig

    def __call__(self, broadcast: Broadcast, reports: Incoming) -> Broadcast:
        """Return the next round's broadcast."""
        change = mean_by_sender(reports, broadcast.weights.size, self.shares(), self._change)
        assert change is not None
        weights = (broadcast.weights + change).astype(np.float32)
        return replace(broadcast, round=broadcast.round + 1, weights=weights)

    def shares(self) -> NDArray[np.float64]:
        """Return each client's weight in the average, shape (n,)."""
        config = self.config
        power = {"variance": 2, "deviation": 1, "uniform": 0}[config.weighting]
        return np.array([config.sigma(i) ** -power for i in range(config.num_clients)])

    def _change(self, report: Report, client: int) -> NDArray[np.float64]:
        """Return the change that a report tells of.

        A sign b of x + N(0, sigma^2) has the mean 2 Phi(x/sigma) - 1, whose slope at 0 is
        sqrt(2/pi)/sigma. So sigma sqrt(pi/2) b is x to first order, closer to 0 beyond, and has
        pi/2 times the variance of the Gaussian report at most.
        """
        mechanism = self.config.mechanism(client)
        if self.config.report == "gaussian":
            return read_report(mechanism, report.payload, report.size)
        counts = Counts(report.size, mechanism.sigma * math.sqrt(math.pi / 2))
        counts.add(report.payload)
        return counts.mean()
