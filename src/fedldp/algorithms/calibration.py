"""Calibrations: which mechanism each client gets for a budget, and what that budget covers."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from fedldp.accounting.guarantees import LEAST_FOR_MU, EpsilonMeaning
from fedldp.accounting.numerics.gaussian import gaussian_sigma
from fedldp.algorithms.bounds import Bound, InLabels, Rotated
from fedldp.algorithms.participation import All, Participation, most_rounds
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.release import Release
from fedldp.algorithms.settings import ClientValue, Offers, is_own, of_client
from fedldp.core.bounding import replace_one_sensitivity
from fedldp.core.errors import ConfigError
from fedldp.core.registry import is_address
from fedldp.mechanisms import BitMechanism, Mechanism, MechanismSettings, find_mechanism
from fedldp.mechanisms.gaussian import Gaussian, check_noise
from fedldp.mechanisms.gaussian_share import SharedGaussian, largest_mu, shared_gaussian

_MARGIN = 1 + 1e-7
"""A factor on sigma that keeps the statement's epsilon, rounded up by about 1e-8, within budget."""


class Calibration(ABC):
    """Decides which mechanism a client gets for a budget, and what that budget covers.

    Attributes:
        meaning: what ``epsilon`` covers, if there is such a setting.
        kind: the class of the mechanisms.
        uses_rounds: whether the noise depends on the number of rounds.
        largest: the largest epsilon that a client may choose if no other party need know which;
            None if another party must know it.
    """

    meaning: EpsilonMeaning | None
    kind: type[Mechanism] = Gaussian
    uses_rounds: ClassVar[bool] = False
    largest: float | None = None

    @abstractmethod
    def mechanism(self, problem: Problem, client: int) -> Mechanism:
        """Return the randomiser for one client.

        Raises:
            ConfigError: the mechanism cannot be built for the budget.
        """

    def label(self, client: int) -> float | None:
        """Return the budget that is sent with a client's report, if clients' budgets differ."""
        return None

    def check_shares(self, sizes: Sequence[int]) -> None:  # noqa: B027 (most allow any size)
        """Refuse simulated clients if a setting rules out their numbers of examples.

        Args:
            sizes: how many examples each client has.

        Raises:
            ConfigError: a client has a number of examples that a setting rules out.
        """


@dataclass(frozen=True, kw_only=True)
class Fixed(Calibration):
    """The same mechanism for all clients and all problems.

    Attributes:
        every: the mechanism.
        meaning: see ``Calibration``.
    """

    every: Mechanism
    meaning: EpsilonMeaning | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", type(self.every))

    def mechanism(self, problem: Problem, client: int) -> Mechanism:
        """Return the mechanism."""
        return self.every


@dataclass(frozen=True, kw_only=True)
class PerRun(Calibration):
    """The least Gaussian noise that keeps all that a client sends in a run within its budget.

    A client sends reports in at most T rounds. Its budget determines mu: distinguishing N(0, 1)
    from N(mu, 1) costs exactly that budget. Each report gets mu/sqrt(T), so sigma = 2 clip
    sqrt(T)/mu, for a change of the client's whole input.

    Attributes:
        epsilon: the budget for a run: one number for all clients, a list, or the client's own
            number.
        delta: the delta of that budget, in one of the same forms.
        clip: bound on the L2 norm of what is sent, in one of the same forms.
        rounds: the number of rounds in the run.
        participation: gives the largest number of rounds in which a client takes part.
        kind: the class of the mechanism: Gaussian, or a class whose reports are computed from
            Gaussian reports alone.
        meaning: see ``Calibration``.

    Source: the analytic Gaussian mechanism of Balle, Wang 2018; composition by Dong, Roth, Su 2022.
    """

    uses_rounds: ClassVar[bool] = True

    epsilon: float | Sequence[float] | ClientValue
    delta: float | Sequence[float] | ClientValue
    clip: float | Sequence[float] | ClientValue
    rounds: int
    participation: Participation = field(default_factory=All)
    kind: type[Mechanism] = Gaussian
    meaning: EpsilonMeaning = field(default=EpsilonMeaning("client-run", "proven"))

    def budget(self, client: int) -> tuple[float, float]:
        """Return epsilon and delta for everything that ``client`` sends."""
        return of_client(self.epsilon, client), of_client(self.delta, client)

    def rounds_of(self, client: int) -> int:
        """Return T. A client that may be drawn in every round must plan for all rounds.

        Raises:
            ConfigError: the participation has not been drawn yet.
        """
        return most_rounds(self.participation, client, self.rounds)

    def sigma(self, client: int) -> float:
        """Return the standard deviation of the noise on each coordinate of a client's report.

        A client that takes part in no round gets the noise for one report, which it never sends.
        """
        sensitivity = replace_one_sensitivity(of_client(self.clip, client))
        root = math.sqrt(max(1, self.rounds_of(client)))
        return sensitivity * _sigma_per_unit(*self.budget(client)) * root * _MARGIN

    def mechanism(self, problem: Problem, client: int) -> Gaussian:
        """Return the randomiser for one client; see ``Calibration``."""
        return self.gaussian(client)

    def gaussian(self, client: int) -> Gaussian:
        """Return the randomiser for one client, which does not depend on the problem.

        Raises:
            ConfigError: the mechanism cannot be built for the budget.
        """
        epsilon, delta = self.budget(client)
        given = f"epsilon = {epsilon:g}, delta = {delta:g} and rounds = {self.rounds}"
        if is_own(self.epsilon):
            given += f" for client {client}"
        clip, sigma = of_client(self.clip, client), self.sigma(client)
        check_noise(clip, sigma, given=given, knob="epsilon")
        assert issubclass(self.kind, Gaussian)
        return _gaussian(self.kind, clip, sigma)


_sigma_per_unit = lru_cache(maxsize=4096)(gaussian_sigma)


@lru_cache(maxsize=4096)
def _gaussian(kind: type[Gaussian], clip: float, sigma: float) -> Gaussian:
    return kind(clip, sigma)


class GrowthSettings(Offers):
    """The setting of ``by_round``."""

    epsilon_growth: Annotated[float, Field(ge=0.1, le=10)] | Literal["by-loss"] = 1.0
    """factor from the budget of a report in one round to that in the next round: above 1, budgets
    increase; each round is charged its own"""


def check_budget(settings: Any, *, own: bool = False, of_run: bool = False) -> None:
    """Refuse an epsilon that is not a budget for the mechanism.

    Args:
        settings: the settings, of which mechanism and epsilon are read.
        own: whether clients may have their own budgets.
        of_run: whether the budget is for a run.

    Raises:
        ConfigError: epsilon is missing, differs between clients, or is out of range.
    """
    name = settings.mechanism
    if settings.epsilon is None:
        raise ConfigError(
            f"epsilon is not set: mechanism = {name} needs a budget; give one, or set mechanism = "
            "none"
        )
    if not own and is_own(settings.epsilon):
        raise ConfigError(
            f"epsilon is a list, but {name} takes one budget for all clients; give one number"
        )
    if of_run and not 1e-4 <= settings.epsilon <= 1e4:
        raise ConfigError(
            f"epsilon = {settings.epsilon:g}: {name} takes a budget for a run from 0.0001 to 10000"
        )


@dataclass(frozen=True, kw_only=True)
class PerReport(Calibration):
    """A mechanism chosen by name, with a budget for one report, or for one weight in it.

    Attributes:
        settings: the settings, of which mechanism, epsilon, delta and clip are read.
            Clients may have their own epsilon if a report has one bit for each weight.
        bound: the chart in which the mechanism works, if its coordinates are not the model's
            weights.

    Raises:
        ConfigError: there is no such mechanism, or it allows only one budget for all clients.
    """

    settings: Any
    bound: Bound | None = None
    meaning: EpsilonMeaning = field(init=False)
    kind: type[Mechanism] = field(init=False)

    def __post_init__(self) -> None:
        name = self.settings.mechanism
        kind = find_mechanism(name)
        check_budget(self.settings, own=issubclass(kind, BitMechanism))
        standing: Literal["claimed", "proven"] = "claimed" if is_address(name) else "proven"
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "meaning", EpsilonMeaning(kind.epsilon_unit, standing))

    def mechanism(self, problem: Problem, client: int) -> Mechanism:
        """Return the randomiser for one client; see ``Calibration``."""
        return self.in_round(problem, of_client(self.settings.epsilon, client))

    def in_round(self, problem: Problem, budget: float) -> Mechanism:
        """Return the randomiser for a round with this budget; see ``Calibration``."""
        layout = self.settings.layout(problem)
        bound = None if self.bound is None else self.bound.bound_to(layout)
        size = layout.size if bound is None else bound.size(layout.size)
        chart = None if bound is None else bound.chart
        return self.randomiser(budget, size, chart.labels if isinstance(chart, InLabels) else 1)

    def randomiser(self, epsilon: float, size: int, blocks: int = 1) -> Mechanism:
        """Return the mechanism for a budget and ``size`` coordinates in ``blocks`` blocks."""
        settings = self.settings
        return _randomiser(
            settings.mechanism,
            MechanismSettings(
                epsilon=epsilon,
                delta=settings.delta,
                clip=settings.clip,
                size=size,
                blocks=blocks,
            ),
        )

    def label(self, client: int) -> float | None:
        """Return the client's own budget, if budgets differ."""
        epsilon = self.settings.epsilon
        return of_client(epsilon, client) if is_own(epsilon) else None

    def scale(self, epsilon: float, size: int) -> float:
        """Return the scale for reading the bits of ``size`` weights, randomised with a budget."""
        mechanism = self.randomiser(epsilon, size)
        assert isinstance(mechanism, BitMechanism)
        return mechanism.scale


def by_round(calibration: PerReport) -> Callable[[Release, Problem], Release]:
    """Return what gives each round the mechanism for its own budget; see ``Composition.shaped``.

    Raises:
        ConfigError: budgets would depend on private examples, or differ between clients.
    """
    settings = calibration.settings
    growth = settings.epsilon_growth
    if growth == "by-loss":
        raise ConfigError(
            "epsilon_growth = by-loss: the loss on clients' examples is private, so budgets that "
            "follow it would reveal it; give a number, which is public"
        )
    if is_own(settings.epsilon):
        raise ConfigError(
            f"epsilon is a list and epsilon_growth = {growth:g}: give one epsilon, or leave "
            "epsilon_growth out"
        )

    def shaped(release: Release, problem: Problem) -> Release:
        budgets = (settings.epsilon * growth**round for round in range(settings.rounds))
        found = [calibration.in_round(problem, budget) for budget in budgets]
        each = tuple((range(at, at + 1), mechanism) for at, mechanism in enumerate(found, 1))
        return replace(release, mechanisms=each)

    return shaped


@lru_cache(maxsize=4096)
def _randomiser(name: str, settings: MechanismSettings) -> Mechanism:
    return find_mechanism(name).from_settings(settings)


@dataclass(frozen=True, kw_only=True)
class SharesPerRun(Calibration):
    """Shares of noise for a budget that covers all rounds in which a client may take part.

    Attributes:
        settings: the preset's settings.
        bound: the bound on what is sent.
        participation: who takes part in which round.

    Raises:
        ConfigError: delta is too small.
    """

    uses_rounds: ClassVar[bool] = True
    settings: Any
    bound: Rotated
    participation: Participation
    meaning: EpsilonMeaning = field(
        default=EpsilonMeaning("client-run", "proven", "summing-server")
    )
    kind: type[Mechanism] = SharedGaussian

    def __post_init__(self) -> None:
        if self.settings.delta < LEAST_FOR_MU:
            raise ConfigError(f"delta = {self.settings.delta:g}: give at least {LEAST_FOR_MU:g}")

    def mechanism(self, problem: Problem, client: int) -> SharedGaussian:
        """Return the mechanism that clips, rounds, and adds a share of the noise.

        Raises:
            ConfigError: no modulus is large enough for ``epsilon``, or the model is too large.
        """
        settings, layout = self.settings, self.settings.layout(problem)
        return shared_gaussian(
            self.bound.bound_to(layout).size(layout.size),
            largest_mu(settings.epsilon, settings.delta)
            / math.sqrt(most_rounds(self.participation, client, settings.rounds)),
            shares=settings.fewest_in_sum - settings.untrusted_clients,
            clients=settings.round_size,
            rounds=settings.rounds,
        )
