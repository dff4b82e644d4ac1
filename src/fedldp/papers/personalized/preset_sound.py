"""Personalised LDP whose budgets hold for whole clients and runs, with noise sized for the clip.

    rounds' participants: all clients; or, preselected, the clients that this round's omega selects:
                          omega is drawn before the run, and nobody else trains or sends
    Broadcast: weights W
        |
        v
    local_update  a portion of the client's examples; SGD -> w
        |         Sensitive weights w
        v
    encoder       change w - W, clipped to L2 norm C_i; + N(0, sigma_i^2)     32 bits per coordinate
        |         or the sign of that, which is post-processing     1 bit per coordinate
        |         Report with its sender
        v
    server_step   W + mean change, weighted by 1/sigma_i^2 -> next Broadcast

Client i chooses (epsilon_i, delta_i) for everything that it sends in the run. It takes part in T_i
rounds, and each gets mu_i/sqrt(T_i), where mu_i is the largest at which N(0, 1) and N(mu_i, 1) are
(epsilon_i, delta_i)-indistinguishable; sigma_i = 2 C_i sqrt(T_i)/mu_i. All of this is public. With
participation = preselected the server draws, before the run, which clients each round selects, and
announces T_i.

With ``channel = "sum"`` all reports are whole steps of one public grid, which follows from
``largest_epsilon``, and the server computes the plain mean from their sum. The server need not know
any client's epsilon, and the noise on each report keeps the client within its budget. The sum
reveals the total noise.

Weights 1/sigma_i^2 give the unbiased combination of the reports with the least variance. A
deployment draws discrete noise, for which the same mu holds up to 1e-100.

Source: ours, after X. Wu, L. Xu, L. Zhu, "Local Differential Privacy-Based Federated Learning under
Personalized Settings", Appl. Sci. 2023, 13(7), 4168, see ``personalized``. The calibration
follows Balle, Wang 2018, and the composition Dong, Roth, Su 2022.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedldp.algorithms.bounds import InNorm
from fedldp.algorithms.calibration import PerRun
from fedldp.algorithms.composition import Composition
from fedldp.algorithms.features import Features
from fedldp.algorithms.participation import Participation, participation_of
from fedldp.algorithms.preset import Settings, preset
from fedldp.algorithms.settings import ClientValue, Mark, Offers, Positive, is_own, of_client
from fedldp.algorithms.validation import shown
from fedldp.core.errors import ConfigError
from fedldp.core.facts import Caveat, Kind
from fedldp.mechanisms.gaussian import Gaussian, check_noise
from fedldp.mechanisms.gaussian_summand import GaussianSummand, common_unit, summand
from fedldp.papers.personalized.mechanism_gaussian_sign import GaussianSign
from fedldp.papers.personalized.parts import (
    ClientDelta,
    Clip,
    Epsilon,
    MeanByNoise,
    PersonalSettings,
    Portions,
    Preselected,
    by_power,
    check_each,
    check_whole,
    inverse,
)

Turns = Annotated[int, Field(ge=0)]

POWERS = {"variance": 2, "deviation": 1, "uniform": 0}
_NOBODY = "only with participation = preselected somebody is selected"
_NO_SUM = {"largest_epsilon": "only sums have a grid that follows from it"}


SUMMED_NOISE = Kind("noise-of-sums-tells-budgets", Caveat, {"untrusted": int})
"""What the noise of sums reveals about budgets, which no line of the statement covers."""


class PersonalizedSound(Offers):
    """The settings of the sound system alone."""

    epsilon: Annotated[Epsilon, Mark.PER_CLIENT]
    """epsilon_i, the budget for everything that a client sends in the run; a list gives each client
    its own budget"""
    client_delta: ClientDelta = None
    """delta_i for this budget: one number for all clients, or a list; if not set, delta is used"""
    clip: Clip
    """C_i, the largest L2 norm of a change: one number for all clients, or a list"""
    perturbation: Literal["gaussian", "sign"] = "gaussian"
    """what is sent of the noisy change: its values (gaussian) or only their signs (sign)"""
    weighting: Literal["variance", "deviation", "uniform"] = "variance"
    """weight of each report in the mean: 1/sigma_i^2 (variance), 1/sigma_i (deviation, as in the
    paper) or 1 (uniform)"""
    participation: Literal["all", "drawn", "once", "balanced", "auto", "preselected"] | None = None
    """as for every system, or preselected: the server selects the clients of each round by
    1/sigma_i, before anyone trains"""
    turns: Annotated[Turns | list[Turns] | ClientValue | None, Mark.PER_CLIENT] = None
    """T_i, the number of rounds that select a client: one number for all clients, or a list; leave
    it out, because the server draws it before the run"""
    largest_epsilon: Positive | None = None
    """the largest epsilon that a client may choose, required with channel = sum; it is public,
    because the grid of the sums follows from it"""


@preset(PersonalizedSound, PersonalSettings)
def personalized_sound(settings: Settings) -> Composition:
    """Personalised LDP whose budgets hold; no publication claims anything about it."""
    check_each(settings)
    if settings.channel == "sum":
        return in_sums(settings)
    once = PerRun(
        epsilon=settings.epsilon,
        delta=settings.delta if settings.client_delta is None else settings.client_delta,
        clip=settings.clip,
        rounds=1,
        kind=GaussianSign if settings.perturbation == "sign" else Gaussian,
    )
    selects = settings.participation == "preselected"
    turns = preselected(settings, once) if selects else participation_of(settings)
    calibration = replace(once, rounds=settings.rounds, participation=turns)
    return Composition(
        local=Portions.of(settings),
        features=Features(scale=settings.feature_scale),
        bound=lambda client: InNorm(clip=of_client(settings.clip, client), send="update"),
        calibration=calibration,
        estimate=MeanByNoise(
            settings=settings,
            mechanism=lambda client, size: calibration.gaussian(client),
            sigma=calibration.sigma,
            shares=by_power(POWERS[settings.weighting]),
            setting=f"weighting = {settings.weighting}",
        ),
        participation=turns,
        unused={**_NO_SUM, **({} if selects else {"turns": _NOBODY})},
    )


def in_sums(settings: Settings) -> Composition:
    """Return the composition for a secure sum, whose server knows nobody's epsilon.

    Raises:
        ConfigError: the server would need an epsilon, or the grid is not public.
    """
    needed = {"perturbation": "gaussian", "weighting": "uniform"}
    if settings.participation == "preselected":
        needed["participation"] = "all"
    other = {name: v for name, v in needed.items() if getattr(settings, name) != v}
    if other:
        name, set_to = next(iter(other)), {n: shown(value) for n, value in other.items()}
        if settings.largest_epsilon is None:
            epsilon = settings.epsilon
            most = max(epsilon) if isinstance(epsilon, list) else of_client(epsilon, 0)
            set_to["largest_epsilon"] = f"{most:g}"
        remedy = " and ".join(f"{n} = {value}" for n, value in set_to.items())
        raise ConfigError(
            f"{name} = {shown(getattr(settings, name))} and channel = sum: a sum gives the server "
            f"only the plain mean, whatever each client's epsilon is; set {remedy}, or channel = "
            "named"
        )
    for name in ("clip", "client_delta"):
        if is_own(getattr(settings, name)):
            raise ConfigError(
                f"{name} has a value for each client and channel = sum: the grid for the sums "
                "needs one value that everyone knows; give one value for all"
            )
    if settings.largest_epsilon is None:
        raise ConfigError(
            "largest_epsilon is not set, but channel = sum needs it; give the largest epsilon "
            "that any client may choose, which is public"
        )
    turns = participation_of(settings)
    return Composition(
        local=Portions.of(settings),
        features=Features(scale=settings.feature_scale),
        bound=InNorm(clip=of_client(settings.clip, 0), send="update"),
        calibration=PerRunInSums(
            epsilon=settings.epsilon,
            delta=settings.delta if settings.client_delta is None else settings.client_delta,
            clip=settings.clip,
            rounds=settings.rounds,
            participation=turns,
            largest=settings.largest_epsilon,
            clients=settings.round_size,
        ),
        participation=turns,
        unused={"turns": _NOBODY},
        notes=(SUMMED_NOISE(untrusted=settings.untrusted_clients),),
    )


def preselected(settings: Settings, once: PerRun) -> Participation:
    """Return the clients of each round, selected by the inverse of the noise that each needs.

    Args:
        settings: the preset's settings, with the choices of all clients, which the selection
            needs.
        once: the noise for one round.

    Raises:
        ConfigError: ``clients_per_round`` also decides who takes part.
    """
    if settings.clients_per_round is not None:
        raise ConfigError(
            f"clients_per_round = {settings.clients_per_round}: with participation = preselected "
            "the selection decides who takes part; leave it out"
        )

    def rho() -> NDArray[np.float64]:
        check_whole(settings)
        return inverse([once.sigma(client) for client in range(settings.num_clients)])

    return Preselected(rho, settings.rounds, settings.turns)


@dataclass(frozen=True, kw_only=True)
class PerRunInSums(PerRun):
    """The noise of ``PerRun``, on a grid that all clients share, so that their reports add up.

    The grid follows from the largest budget that any client may choose, which is public, rather
    than from the clients' choices. Parties that add up reports or read sums therefore need not know
    the choices.

    Attributes:
        largest: the largest epsilon.
        clients: the largest number of clients in a sum.
    """

    largest: float = field()  # required, unlike in the calibration that it extends
    clients: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", GaussianSummand)

    def gaussian(self, client: int) -> GaussianSummand:
        """Return the randomiser for one client; see ``PerRun.gaussian``."""
        epsilon, delta = self.budget(client)
        if epsilon > self.largest:
            raise ConfigError(
                f"epsilon = {epsilon:g} for client {client}: this is above largest_epsilon = "
                f"{self.largest:g}; give at most that"
            )
        clip, sigma = of_client(self.clip, client), self.sigma(client)
        least = replace(self, epsilon=self.largest).sigma(client)
        for each, name in ((self.largest, "largest_epsilon"), (epsilon, "epsilon")):
            given = f"{name} = {each:g}, delta = {delta:g} and rounds = {self.rounds}"
            check_noise(clip, least if each == self.largest else sigma, given=given, knob=name)
        found = summand(clip, sigma, common_unit(least))
        if not found.fits(self.clients):
            raise ConfigError(
                f"epsilon = {epsilon:g} for client {client}: with largest_epsilon = "
                f"{self.largest:g}, this client's noise leaves no room for the sum of "
                f"{self.clients} reports in 64-bit words; give a larger epsilon, or a smaller "
                "largest_epsilon"
            )
        return found
