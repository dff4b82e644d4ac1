"""Personalised LDP that keeps its budgets: whole clients, whole runs, and what the clip proves.

    rounds' participants: all clients; or, with selects_first, those whom this round's omega, drawn
                          before the run, selects, and nobody else trains or sends
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
(epsilon_i, delta_i)-indistinguishable; sigma_i = 2 C_i sqrt(T_i)/mu_i. All of this is public. With
selects_first the server draws who is selected when, and tells T_i, before the run.

Weights 1/sigma_i^2 give the unbiased combination of the reports with the least variance. Deployment
draws discrete noise, of which the same mu holds but for 1e-100.

Source: ours, after X. Wu, L. Xu, L. Zhu, "Local Differential Privacy-Based Federated Learning under
Personalized Settings", Appl. Sci. 2023, 13(7), 4168, see ``systems.personalized``; the calibration
is that of Balle, Wang 2018, and the composition that of Dong, Roth, Su 2022.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fedldp.accounting.numerics.gaussian import gaussian_sigma
from fedldp.accounting.statement import Claim
from fedldp.algorithms.bounds import InNorm
from fedldp.algorithms.participation import Participation, Preselected
from fedldp.algorithms.problem import EpsilonMeaning, Problem
from fedldp.algorithms.release import Encoder, Release
from fedldp.algorithms.server_update import BySender, Values, read_report
from fedldp.algorithms.settings import Delta, NormBound, Positive
from fedldp.core.bounding import replace_one_sensitivity
from fedldp.core.errors import ConfigError
from fedldp.mechanisms import Counts
from fedldp.mechanisms.gaussian import Gaussian, check_noise
from fedldp.mechanisms.gaussian_sign import GaussianSign
from fedldp.parts.per_client import Own, of_client
from fedldp.parts.sides import Draws, ServerSide
from fedldp.systems._personalized import PersonalizedSettings
from fedldp.wire import Report

Turns = Annotated[int, Field(ge=0)]

_MARGIN = 1 + 1e-7
"""On sigma, so that the statement, which rounds epsilon up by 1e-8 or so, stays within budgets."""


class PersonalizedSoundConfig(PersonalizedSettings):
    """Settings of personalised LDP that keeps its budgets."""

    per_client: ClassVar[tuple[str, ...]] = (*PersonalizedSettings.per_client, "turns")

    system: Literal["personalized_sound"] = "personalized_sound"
    epsilon: Positive | list[Positive] | Own = Field(
        description="budget of all that a client sends in the run; a list gives each its own"
    )
    client_delta: Delta | list[Delta] | Own | None = Field(
        None, description="delta of that budget, for all clients or a list; delta where not set"
    )
    clip: NormBound | list[NormBound] | Own = Field(
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
    turns: Turns | list[Turns] | Own | None = Field(
        None,
        description="T_i, the rounds that select a client, for all clients or a list; with "
        "selects_first the server draws it before the run, and it is not set until then",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.selects_first and self.clients_per_round is not None:
            raise ConfigError(
                f"clients_per_round = {self.clients_per_round}: with selects_first the selection "
                "says who takes part; leave it out"
            )
        return self

    def idle_settings(self) -> Mapping[str, str]:
        """Return the settings that change nothing beside the others, and why."""
        idle = super().idle_settings()
        if self.selects_first:
            return idle
        return {**idle, "turns": "without selects_first nobody is selected"}

    def _rho(self) -> NDArray[np.float64]:
        """Return what clients are selected by: one over the noise that each needs for one round."""
        self.check_whole()
        return np.array([1 / self._sigma_of(client, 1) for client in range(self.num_clients)])

    @property
    def participation(self) -> Participation:
        """Selections that are drawn before the run, where the configuration asks for them."""
        if not self.selects_first:
            return super().participation
        return Preselected(self._rho, self.rounds, self.turns)

    def settled(self, draws: Draws) -> Self:
        """Return a copy with ``turns`` as the selections of all rounds have it."""
        scheduled = self.participation.scheduled(draws)
        if not isinstance(scheduled, Preselected):
            return self
        return self.changed(turns=scheduled.turns)

    def rounds_of(self, client: int) -> int:
        """Return T_i: the rounds that select the client; all rounds where there is no selection.

        With ``clients_per_round``, too, a client must be prepared to be drawn in every round.
        """
        most = self.participation.max_rounds(client)
        return self.rounds if most is None else most

    def with_budget(self, budget: float) -> Self:
        """Return a copy that spends ``budget``; who is selected is to be settled again."""
        return super().with_budget(budget).changed(turns=None)

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

    def client_encoder(self, problem: Problem, client: int) -> Encoder:
        """Return the encoder of one client, with its own budget and clip.

        The unselected send nothing, and release nothing.
        """
        mechanism = self.mechanism(client)
        if self.report == "sign":
            mechanism = GaussianSign(mechanism.clip, mechanism.sigma)
        bound = InNorm(clip=mechanism.clip, send="update")
        return Encoder(
            release=Release(bound=bound, mechanism=mechanism, size=self.size(problem)),
            names_sender=True,
        )

    def server(self, problem: Problem) -> ServerSide:
        """Return the server that weighs reports by their noise."""
        self.check_whole()
        size = self.size(problem)
        for group in self.alike():
            self.mechanism(group[0]).event(size)
        power = {"variance": 2, "deviation": 1, "uniform": 0}[self.weighting]
        shares = np.array([self.sigma(i) ** -power for i in range(self.num_clients)])
        mean = BySender(shares=lambda draw: (shares, {}), read=self.read, gives="update")
        return self.server_update(mean).side(lambda draw: self.first_state(problem, draw))

    def read(self, report: Report, client: int) -> Values:
        """Return the change that a report tells of, shape (d,).

        A sign b of x + N(0, sigma^2) has the mean 2 Phi(x/sigma) - 1, whose slope at 0 is
        sqrt(2/pi)/sigma. So sigma sqrt(pi/2) b is x to first order, closer to 0 beyond, and has
        pi/2 times the variance of the Gaussian report at most.
        """
        mechanism = self.mechanism(client)
        if self.report == "gaussian":
            return read_report(mechanism, report.payload, report.size)
        counts = Counts(report.size, mechanism.sigma * math.sqrt(math.pi / 2))
        counts.add(report.payload)
        return counts.mean()

    @property
    def epsilon_meaning(self) -> EpsilonMeaning:
        """All that a client sends in a run; proven."""
        return EpsilonMeaning("client-run", "proven")

    def claim(self) -> Claim | None:
        """Return None: no publication claims anything of this system."""
        return None


@lru_cache(maxsize=4096)
def _sigma_per_unit(epsilon: float, delta: float) -> float:
    return gaussian_sigma(epsilon, delta)


@lru_cache(maxsize=4096)
def _gaussian(clip: float, sigma: float) -> Gaussian:
    return Gaussian(clip, sigma)
