"""An algorithm as a composition of parts, and what it is for a given problem.

    Composition   frozen parts, made by a preset from checked settings
        | bound to the public facts of a Problem
        v
    Algorithm     the encoder of a client, its local update, and the server

What leaves a client, and what that costs, follows from the parts alone, before any training.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from fedldp.accounting.events import Event
from fedldp.accounting.statement import Claim
from fedldp.algorithms.bounds import Bound, Unbounded
from fedldp.algorithms.config import EpsilonMeaning, MeanServerConfig, Problem
from fedldp.algorithms.participation import Participation
from fedldp.algorithms.release import Encoder, Release
from fedldp.algorithms.server_update import (
    Aggregate,
    Estimate,
    Values,
    Weighted,
    read_plain,
    read_report,
)
from fedldp.mechanisms import Mechanism
from fedldp.mechanisms.none import Plain
from fedldp.parts.sides import Arrays, Draw, LocalUpdate, ServerSide, State, publish_weights
from fedldp.wire import Broadcast

if TYPE_CHECKING:
    import torch

EstimateOf = Callable[[Release], Estimate]
"""Gives the server's estimate from the release whose reports it reads."""


class Calibration(ABC):
    """Says which mechanism a budget makes, and what that budget is about.

    Attributes:
        meaning: what ``epsilon`` is about, where there is such a setting.
        uses_rounds: whether the noise depends on the number of rounds.
        data_may_refuse: whether the data may refuse a run of which the plan could be made.
    """

    meaning: EpsilonMeaning | None
    uses_rounds: ClassVar[bool] = False
    data_may_refuse: ClassVar[bool] = False

    @abstractmethod
    def mechanism(self, problem: Problem, client: int) -> Mechanism:
        """Return the randomiser of one client.

        Raises:
            ConfigError: the mechanism does not go so far.
        """

    def check_shares(self, sizes: Sequence[int]) -> None:  # noqa: B027 (most promise nothing)
        """Refuse shares of simulated clients that a setting has promised not to happen.

        Args:
            sizes: how many examples each client got.

        Raises:
            ConfigError: it did happen.
        """


@dataclass(frozen=True, kw_only=True)
class Fixed(Calibration):
    """The same mechanism for all clients, whatever the problem.

    Attributes:
        every: the mechanism.
        meaning: see ``Calibration``.
    """

    every: Mechanism
    meaning: EpsilonMeaning | None = None

    def mechanism(self, problem: Problem, client: int) -> Mechanism:
        """Return it."""
        return self.every


LocalUpdateOf = Callable[[Any, Problem, "torch.device"], LocalUpdate]
"""Gives what a client computes, from the settings, the problem and a device."""


@dataclass(frozen=True, kw_only=True)
class Sgd:
    """Local SGD.

    Attributes:
        momentum: every round begins from rest.
    """

    momentum: float = 0.0

    def __call__(
        self, config: MeanServerConfig, problem: Problem, device: torch.device
    ) -> LocalUpdate:
        """Return it as a client step."""
        return config.sgd(problem, device, self.momentum)


def own_mean(release: Release) -> Aggregate:
    """Return the mean as the mechanism itself estimates it."""
    return Aggregate(
        empty=lambda size: release.mechanism.aggregate(release.bound.size(size)),
        gives=release.bound.send,
        restore=release.bound.restore,
    )


def weighted(by_examples: bool = False) -> EstimateOf:
    """Return what gives the mean of reports that are read one by one, by their weights.

    Args:
        by_examples: whether these are the example counts that clients tell.
    """

    def estimate(release: Release) -> Weighted:
        mechanism = release.mechanism
        read = read_plain if isinstance(mechanism, Plain) else partial(read_report, mechanism)
        return Weighted(read=read, gives=release.bound.send, by_examples=by_examples)

    return estimate


@dataclass(frozen=True, kw_only=True)
class Composition:
    """The parts of an algorithm; all of them are frozen and public.

    Attributes:
        calibration: gives the mechanism.
        bound: the chart in which the mechanism works.
        shaped: gives for a problem the release that is used, from that of bound and mechanism.
        local: what a client computes.
        estimate: what the server takes from reports.
        inner: gives for a problem what the update itself releases, where training randomises it.
        tells_examples: whether a client also sends its number of examples, in clear.
        only_summed: whether a deployed run must go through a secure sum.
        participation: who answers when; None: all, or a sample for each round, as settings say.
        server_noise: gives the server's own noise for a problem, on an estimate of some size.
        downlink: gives what a broadcast of so many weights releases of clients to those who see
            nothing else, where the server's noise is for them.
        arrays: gives what else the server keeps, before the first round.
        publish: gives the round's broadcast from the server's state.
        claim: what the source claims, if it claims anything.
        unused: settings that change nothing beside these parts, and why.
        uses: settings that these parts use, which others would not.
    """

    calibration: Calibration
    bound: Bound = field(default_factory=Unbounded)
    shaped: Callable[[Release, Problem], Release] | None = None
    local: LocalUpdateOf = field(default_factory=Sgd)
    estimate: EstimateOf = own_mean
    inner: Callable[[Problem], Event] | None = None
    tells_examples: bool = False
    only_summed: bool = False
    participation: Participation | None = None
    server_noise: Callable[[Problem], Callable[[int, Draw], Values] | None] | None = None
    downlink: Callable[[int], Event] | None = None
    arrays: Callable[[Release], Arrays] | None = None
    publish: Callable[[State], Broadcast] = publish_weights
    claim: Claim | None = None
    unused: Mapping[str, str] = field(default_factory=dict)
    uses: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Algorithm:
    """A composition, bound to the public facts of a problem.

    Attributes:
        config: the settings that every run has: model, optimiser, participants.
        parts: the composition.
        problem: the facts.
    """

    config: MeanServerConfig
    parts: Composition
    problem: Problem

    def release(self, client: int) -> Release:
        """Return the randomiser of one client, with its claim.

        Raises:
            ConfigError: the model or a setting does not fit the problem.
        """
        found = Release(
            bound=self.parts.bound,
            mechanism=self.parts.calibration.mechanism(self.problem, client),
            size=self.config.layout(self.problem).size,
        )
        return found if self.parts.shaped is None else self.parts.shaped(found, self.problem)

    def encoder(self, client: int) -> Encoder:
        """Return what encodes the reports of one client; see ``release``."""
        parts = self.parts
        return Encoder(
            release=self.release(client),
            inner=None if parts.inner is None else parts.inner(self.problem),
            tells_examples=parts.tells_examples,
        )

    def local_update(self, device: torch.device) -> LocalUpdate:
        """Return what trains on a client's examples; all clients share it."""
        return self.parts.local(self.config, self.problem, device)

    def server(self) -> ServerSide:
        """Return the server's half; see ``release``."""
        parts, release = self.parts, self.release(0)
        update = self.config.server_update(
            parts.estimate(release),
            noise=None if parts.server_noise is None else parts.server_noise(self.problem),
        )
        arrays = {} if parts.arrays is None else parts.arrays(release)
        return update.side(
            lambda draw: replace(self.config.first_state(self.problem, draw), arrays=arrays),
            publish=parts.publish,
            downlink=None if parts.downlink is None else parts.downlink(release.size),
        )
