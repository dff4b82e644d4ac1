"""Personalised LDP: every client chooses its own budget, and the server weighs it by its noise.

    Broadcast: weights W(r-1)
        |
        v
    client_step   a portion of the client's examples, each kept with probability q; SGD -> G_i
        |         Sensitive weights
        v
    encoder       every coordinate clipped to [-c_i, c_i]
        |         gaussian: + N(0, sigma_i^2)             32 bits a coordinate
        |         sign: ldpsign, +1 with probability Phi(p/sigma_i), else -1        1 bit
        |         Report with its sender
        v
    server_step   mean (A), weighted by rho_i = 1/sigma_i (B), or of a selection (C)
                  sign: the sign of that, so that weights are -1, 0 or 1 -> next Broadcast

(epsilon_i, delta_i, c_i) and so sigma_i are told to the server before training; they are public.
The paper sets delta_i = 1/|D_i|, which then tells the number of the client's examples.

What holds is less than what is claimed. The Gaussian's sigma_i assumes that reports differ by at
most 1 in L2 norm, while the clip proves 2 c_i sqrt(d). That of the sign comes from a formula for
epsilon up to 1, with Delta_2 = 2 c_i, the range of one coordinate. In (C) all clients have sent
their reports before the server selects some, so all pay in every round.

Source: X. Wu, L. Xu, L. Zhu, "Local Differential Privacy-Based Federated Learning under
Personalized Settings", Appl. Sci. 2023, 13(7), 4168. Not stated there: U, the number of local
steps; the concentration of the Dirichlet partition; what (C) does where it selects nobody.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fedldp.accounting.statement import Claim
from fedldp.algorithms.bounds import Bound, InBox, Unbounded
from fedldp.algorithms.participation import draw_selection
from fedldp.algorithms.problem import EpsilonMeaning, Problem
from fedldp.algorithms.release import Encoder, Release
from fedldp.algorithms.server_update import BySender, Values, read_plain, read_report
from fedldp.algorithms.settings import Delta, NormBound, Positive
from fedldp.core.bounding import Box
from fedldp.core.errors import ConfigError
from fedldp.mechanisms import Mechanism
from fedldp.mechanisms._grid import LARGEST_CLIP
from fedldp.mechanisms.gaussian import Gaussian, check_noise
from fedldp.mechanisms.none import Plain
from fedldp.mechanisms.sign import Sign, paper_sigma
from fedldp.parts.per_client import Own, of_client
from fedldp.parts.sides import Draw, ServerSide, State
from fedldp.systems._personalized import PersonalizedSettings
from fedldp.wire import Report

_TIE = 1e-12
"""Weighted means of signs are not exactly zero where the votes are even."""


class PersonalizedConfig(PersonalizedSettings):
    """Settings of personalised LDP."""

    system: Literal["personalized"] = "personalized"
    perturbation: Literal["gaussian", "sign", "none", "bare-sign"] = Field(
        "gaussian",
        description="gaussian: clip and add noise; sign: clip and send randomised signs; none: "
        "clip, without noise; bare-sign: signs, without clip and noise",
    )
    epsilon: Positive | list[Positive] | Own | None = Field(
        None, description="the paper's budget eps_i; a list gives each client its own"
    )
    client_delta: Delta | list[Delta] | Own | None = Field(
        None, description="the paper's delta_i, for all clients or a list; delta where not set"
    )
    clip: NormBound | list[NormBound] | Own = Field(
        description="bound c_i on every coordinate, for all clients or a list"
    )
    aggregation: Literal["mean", "weighted", "selection"] = Field(
        "mean", description="mean: (A); weighted by 1/sigma_i: (B); selection by 1/sigma_i: (C)"
    )
    empty_selection: Literal["redraw", "keep"] = Field(
        "redraw", description="where (C) selects nobody: draw again, or keep the last weights"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.has_noise and self.aggregation != "mean":
            raise ConfigError(
                f"aggregation = {self.aggregation}: it weighs clients by their noise, and "
                f"perturbation = {self.perturbation} has none; set aggregation = mean"
            )
        if self.has_noise and self.epsilon is None:
            raise ConfigError(
                f"epsilon is not set, and perturbation = {self.perturbation} needs it: give one "
                "number for all, or one for each client"
            )
        stepped = self.server_optimizer != "none" or self.server_rate != 1
        if self.sends_signs and stepped:
            setting = (
                f"server_rate = {self.server_rate:g}"
                if self.server_optimizer == "none"
                else f"server_optimizer = {self.server_optimizer}"
            )
            raise ConfigError(
                f"{setting} and perturbation = {self.perturbation}: the server takes the sign of "
                "the mean for the next weights, which no step leads to; set server_optimizer = "
                "none and server_rate = 1, or perturbation = gaussian"
            )
        if self.perturbation == "gaussian" and self.sampling_probability == 1:
            raise ConfigError(
                "sampling_probability = 1: the paper's sigma divides by 1 - q; give less than 1 "
                "where perturbation = gaussian"
            )
        if self.aggregation == "selection" and self.clients_per_round not in (
            None,
            self.num_clients,
        ):
            raise ConfigError(
                f"clients_per_round = {self.clients_per_round}: with aggregation = selection the "
                "server selects among the reports of all clients; leave it out"
            )
        return self

    def idle_settings(self) -> Mapping[str, str]:
        """Return the settings that change nothing beside the others, and why."""
        idle = dict(super().idle_settings())
        if not self.has_noise:
            reason = f"perturbation = {self.perturbation} has no noise"
            idle |= {"epsilon": reason, "client_delta": reason}
        if self.aggregation != "selection":
            idle["empty_selection"] = f"aggregation = {self.aggregation} selects nobody"
        return idle

    @property
    def has_noise(self) -> bool:
        """Whether clients randomise anything."""
        return self.perturbation in ("gaussian", "sign")

    @property
    def sends_signs(self) -> bool:
        """Whether clients and server reduce weights to their signs."""
        return self.perturbation in ("sign", "bare-sign")

    def sigma(self, client: int) -> float:
        """Return sigma_i, of a configuration with noise."""
        epsilon, delta = self.budget(client)
        if self.perturbation == "sign":
            return paper_sigma(epsilon, delta, sensitivity=2 * of_client(self.clip, client))
        return moments_sigma(epsilon, delta, self.sampling_probability, self.rounds)

    def mechanism(self, client: int, size: int) -> Mechanism | None:
        """Return the randomiser of a client for ``size`` weights, or None where there is none.

        Raises:
            ConfigError: it does not go so far.
        """
        if not self.has_noise:
            return None
        make = self._sign if self.sends_signs else self._gaussian
        return make(client, of_client(self.clip, client), self.sigma(client), size)

    def _gaussian(self, client: int, clip: float, sigma: float, size: int) -> Gaussian:
        norm = InBox(box=Box(clip)).limit(2, size)
        if norm > LARGEST_CLIP:
            raise ConfigError(
                f"clip = {clip:g} of client {client}: {size} weights then have norms up to "
                f"{norm:g}, above {LARGEST_CLIP:g}; give at most {LARGEST_CLIP / norm * clip:.6g}"
            )
        epsilon, delta = self.budget(client)
        given = (
            f"epsilon = {epsilon:g}, clip = {clip:g} and client_delta = {delta:g} (delta, where it "
            f"is not set) of client {client}, with sampling_probability = "
            f"{self.sampling_probability:g} and rounds = {self.rounds}"
        )
        check_noise(norm, sigma, given=given, knob="epsilon or clip")
        return _gaussian(norm, sigma)

    def _sign(self, client: int, clip: float, sigma: float, size: int) -> Sign:
        try:
            return _sign(clip, sigma)
        except ConfigError as error:
            epsilon, delta = self.budget(client)
            raise ConfigError(
                f"epsilon = {epsilon:g} and client_delta = {delta:g} (delta, where it is not set) "
                f"of client {client}: that makes noise of {sigma / clip:g} times clip, too "
                f"{'much' if sigma > clip else 'little'} to randomise signs; give a "
                f"{'larger' if sigma > clip else 'smaller'} epsilon"
            ) from error

    def client_encoder(self, problem: Problem, client: int) -> Encoder:
        """Return the encoder of one client, with its own noise and clip.

        The box of the clip has corners 2 c_i sqrt(d) apart, which is the Gaussian's sensitivity.
        Each sign is a bit of its own, as every coordinate may be at either end of its range.
        """
        size = self.size(problem)
        bound: Bound = InBox(box=Box(of_client(self.clip, client)))
        mechanism = self.mechanism(client, size)
        if mechanism is None and self.sends_signs:
            bound, mechanism = Unbounded(), Plain("signs of weights", signs=True)
        elif mechanism is None:
            mechanism = Plain("clipped weights")
        return Encoder(
            release=Release(bound=bound, mechanism=mechanism, size=size), names_sender=True
        )

    def server(self, problem: Problem) -> ServerSide:
        """Return the server that aggregates by the clients' noise."""
        self.check_whole()
        size = self.size(problem)
        for group in self.alike():
            self.mechanism(group[0], size)
        mean = BySender(shares=self.shares, read=self.read, gives="weights")
        finish = symbolised if self.sends_signs else None
        return self.server_update(mean, finish=finish).side(
            lambda draw: self.first_state(problem, draw)
        )

    def shares(self, draw: Draw) -> tuple[NDArray[np.float64], Mapping[str, float]]:
        """Return each client's weight in the average of a round, and figures on a selection.

        They are the rule f of Sections 3.2 and 4.
        """
        if self.aggregation == "mean":
            return np.ones(self.num_clients), {}
        rho = np.array([1 / self.sigma(client) for client in range(self.num_clients)])
        if self.aggregation == "weighted":
            return rho / rho.sum(), {}
        redraw = self.empty_selection == "redraw"
        chosen, redrawn = draw_selection(rho, draw("selection"), redraw=redraw)
        metrics = {"selected": float(chosen.sum()), "redrawn": float(redrawn)}
        return chosen.astype(np.float64), metrics

    def read(self, report: Report, client: int) -> Values:
        """Return what a report says: perturbed weights, or their signs as -1, 0 and 1."""
        mechanism = self.mechanism(client, report.size)
        if mechanism is None:
            return read_plain(report.payload, report.size)
        values = read_report(mechanism, report.payload, report.size)
        return np.sign(values) if self.sends_signs else values

    @property
    def epsilon_meaning(self) -> EpsilonMeaning:
        """One record's, as claimed."""
        return EpsilonMeaning("record", "claimed")

    def claim(self) -> Claim | None:
        """Return the paper's claim for the client that has the largest epsilon.

        The paper defines it for two records.
        """
        if not self.has_noise:
            return None
        epsilon, delta = max(self.budget(client) for client in range(self.num_clients))
        return Claim(
            epsilon=epsilon,
            delta=delta,
            unit="record",
            source="Wu, Xu, Zhu 2023, Definition 1 and Section 3.1, Model perturbation",
        )


def moments_sigma(epsilon: float, delta: float, sampling_probability: float, rounds: int) -> float:
    """Return sigma_i of the Gaussian: sigma_i^2 = 4 q^2 R/(1-q) (2 ln(1/delta)/eps^2 + 1/eps).

    The grouping follows from the sources. The moments of R steps are at most
    R q^2 l (l+1)/((1-q) sigma^2) for a sensitivity of 1 (Abadi et al. 2016, Lemma 3), and their
    tail bound (Theorem 2) with l = 2 ln(1/delta)/eps asks for a variance of
    2 q^2 R/(1-q) (2 ln(1/delta)/eps^2 + 1/eps). So the paper's expression is a variance, and its
    first two factors are one fraction. It has 4 for 2, whose reason we did not find; 4 is kept.
    The lemma holds only for q < 1/(16 sigma) and up to terms in q^3, and not for the paper's q of
    0.8 and 0.9. Sigma does not depend on the clip.

    >>> round(moments_sigma(1.0, 1 / 500, 0.8, 10), 6)
    41.460097
    """
    q = sampling_probability
    tail = 2 * math.log(1 / delta) / epsilon**2 + 1 / epsilon
    return math.sqrt(4 * q**2 * rounds / (1 - q) * tail)


@lru_cache(maxsize=4096)
def _gaussian(norm: float, sigma: float) -> Gaussian:
    return Gaussian(norm, sigma)


@lru_cache(maxsize=4096)
def _sign(clip: float, sigma: float) -> Sign:
    return Sign(clip, sigma)


def symbolised(weights: Values, state: State) -> Values:
    """Return the signs of the mean of signs (Section 3.2), shape (d,)."""
    return np.sign(np.where(np.abs(weights) < _TIE, 0.0, weights))
