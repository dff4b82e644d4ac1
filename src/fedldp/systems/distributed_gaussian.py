"""Distributed discrete Gaussian: the noise of central DP, drawn by clients, in a secure sum.

    Broadcast: weights W
        |
        v
    client_step   local SGD from W
        |         Sensitive weights w
        v
    encoder       x = (w - W)/clip, scaled down to norm 1; rotated at random, publicly; whole grid
        |         steps by conditional random rounding; plus a SHARE of discrete Gaussian noise
        |         Report: d words (d padded to a power of two), modulo 2^bits
        v
    secure sum    of the words modulo 2^bits: nothing else reaches a server that follows it
        |
        v
    server_step   signed, rotated back, clip/(radius n) times it -> W + mean change, next Broadcast

A report by itself has one share of noise, which protects little: that is the server's line. The sum
has all shares, and what it reveals is the line of the `summing-server`, for which `epsilon` is. In
a simulation the sum is taken in the server step; a deployment masks the very same words, and is
always summed.

Where a round has fewer than all clients, they take turns in an order that is drawn once: nobody
takes part in more than ceil(rounds clients_per_round/num_clients) rounds, which every client
counts. Nothing is claimed for who takes part being a secret.

Source: P. Kairouz, Z. Liu, T. Steinke, "The Distributed Discrete Gaussian Mechanism for Federated
Learning with Secure Aggregation", ICML 2021, Algorithms 1 and 2. The norm bound after rounding, the
law of sums of shares, and the modulus follow it. Ours: the noise is solved from the closed form of
the Gaussian (``accounting.gaussian.shares_mu``), and rounding that is too long is not repeated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from fedldp.accounting.guarantees import LEAST_FOR_MU
from fedldp.accounting.statement import Claim
from fedldp.algorithms.bounds import Rotated
from fedldp.algorithms.participation import Balanced
from fedldp.algorithms.release import Encoder, Release
from fedldp.algorithms.server_update import Aggregate
from fedldp.errors import ConfigError
from fedldp.mechanisms.gaussian_share import (
    LARGEST_WORD,
    SMALLEST_WORD,
    SharedGaussian,
    largest_mu,
    shared_gaussian,
)
from fedldp.parts.sides import ServerSide
from fedldp.systems._server import MeanServerConfig, ServerRate
from fedldp.systems.base import EpsilonMeaning, Problem
from fedldp.systems.settings import NormBound

if TYPE_CHECKING:
    import torch

    from fedldp.parts.local_sgd import LocalSgd


class DistributedGaussianConfig(MeanServerConfig):
    """Settings of the distributed discrete Gaussian."""

    system: Literal["distributed_gaussian"] = "distributed_gaussian"
    epsilon: Annotated[float, Field(ge=1e-4, le=1e4, allow_inf_nan=False)] = Field(
        description="budget, at delta, of all that a client sends in a run, against a server that "
        "sees sums only; untrusted_clients of a round give it no noise"
    )
    clip: NormBound = Field(1.0, description="L2 norm bound of one update")
    bits: Annotated[int, Field(ge=SMALLEST_WORD, le=LARGEST_WORD)] = Field(
        24, description="of the modulus of the sum; a weight travels in as many, in whole bytes"
    )
    server_rate: ServerRate = Field(1.0, description="factor on the mean change")

    @model_validator(mode="after")
    def _check(self) -> DistributedGaussianConfig:
        if self.delta < LEAST_FOR_MU:
            raise ConfigError(f"delta = {self.delta:g}: give at least {LEAST_FOR_MU:g}")
        return self

    def idle_settings(self) -> Mapping[str, str]:
        """Return them without ``untrusted_clients``, on which the line of sums rests."""
        idle = dict(super().idle_settings())
        idle.pop("untrusted_clients", None)
        return idle

    @property
    def participation(self) -> Balanced:
        """Turns: every client's noise is made for as many rounds as it takes part in at most."""
        return Balanced(self.num_clients, self.round_size, self.rounds)

    def mechanism(self, problem: Problem) -> SharedGaussian:
        """Return what clips, rounds, and adds a share of the noise.

        Raises:
            ConfigError: the modulus cannot hold what ``epsilon`` asks for; the model is too large.
        """
        return shared_gaussian(
            self.bound.size(self.layout(problem).size),
            largest_mu(self.epsilon, self.delta) / math.sqrt(self.participation.max_rounds(0)),
            shares=self.round_size - self.untrusted_clients,
            clients=self.round_size,
            rounds=self.rounds,
            bits=self.bits,
        )

    @property
    def bound(self) -> Rotated:
        """The norm bound of a change, rotated."""
        return Rotated(clip=self.clip)

    def client_encoder(self, problem: Problem, client: int) -> Encoder:
        """Return the encoder, which is the same for all clients."""
        return Encoder(
            release=Release(
                bound=self.bound,
                mechanism=self.mechanism(problem),
                size=self.layout(problem).size,
            )
        )

    def client_step(self, problem: Problem, device: torch.device) -> LocalSgd:
        """Return plain SGD."""
        return self.sgd(problem, device)

    def server(self, problem: Problem) -> ServerSide:
        """Return the server that adds up; see the module's diagram."""
        bound, mechanism = self.bound, self.mechanism(problem)
        mean = Aggregate(
            empty=lambda size: mechanism.aggregate(bound.size(size)),
            gives=bound.send,
            restore=bound.restore,
        )
        return self.server_update(mean).side(lambda draw: self.first_state(problem, draw))

    @property
    def always_summed(self) -> bool:
        """A report by itself has one share of the noise."""
        return True

    @property
    def epsilon_meaning(self) -> EpsilonMeaning:
        """All that a client sends in a run, as sums show it; proven."""
        return EpsilonMeaning("client-run", "proven", "summing-server")

    def claim(self) -> Claim | None:
        """Return None: the paper's bound, in zCDP, is below what is proven here."""
        return None
