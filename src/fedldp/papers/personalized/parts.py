"""Settings that clients choose for themselves: epsilon and delta of their budgets, and their clips.

A server knows the choices of all clients; a client knows only its own choices.

The mean of reports, weighted by shares that are computed from their senders' noise.

Source: X. Wu, L. Xu, L. Zhu, "Local Differential Privacy-Based Federated Learning under
Personalized Settings", Appl. Sci. 2023, 13(7), 4168, Sections 3.2 and 4; weights by the inverse
variance are ours.

A local update that uses each of a client's examples in one round only, and its settings.

The published noise of personalised LDP, which claims more than the clip proves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, ClassVar, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedldp.accounting.guarantees import EpsilonMeaning
from fedldp.accounting.releases import ClientIndices
from fedldp.algorithms.calibration import Calibration
from fedldp.algorithms.composition import Algorithm, Local, Sgd
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.participation import Participation
from fedldp.algorithms.preset import Settings
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.release import Needs, Release
from fedldp.algorithms.server_update import Estimate, Estimated, Values, read_report
from fedldp.algorithms.settings import (
    ClientValue,
    Delta,
    LearningRate,
    Mark,
    NormBound,
    Offers,
    Positive,
    check_one_each,
    of_client,
)
from fedldp.core.errors import ConfigError, RunError
from fedldp.core.randomness import Source, Stream, declare
from fedldp.data.examples import Examples
from fedldp.mechanisms import Mechanism
from fedldp.mechanisms.gaussian import Gaussian, check_noise
from fedldp.mechanisms.grids import LARGEST_CLIP
from fedldp.mechanisms.none import Plain
from fedldp.papers.personalized.mechanism_sign import Sign, paper_sigma
from fedldp.protocol.roles import Batch, Client, Draw, Draws, State, Update
from fedldp.protocol.updates import arrived
from fedldp.protocol.wire import Broadcast, Incoming, Report, Sensitive, Vector
from fedldp.training.portions import check_portions, drawn_order, indices_of_round

if TYPE_CHECKING:
    import torch

    from fedldp.training.local_sgd import LocalSgd

Epsilon: TypeAlias = Positive | list[Positive] | ClientValue
ClientDelta: TypeAlias = Annotated[Delta | list[Delta] | ClientValue | None, Mark.PER_CLIENT]
Clip: TypeAlias = Annotated[NormBound | list[NormBound] | ClientValue, Mark.PER_CLIENT]


class PersonalSettings(Offers):
    """The settings that both systems have, besides those that clients choose."""

    model: str = "logistic"
    """the model: a name from `fedldp list models`, or "module:callable" for your own"""
    learning_rate: LearningRate = 1.0
    """factor on scikit-learn's "optimal" learning rate, 1/(alpha (t0 + t)) in step t"""
    sampling_probability: Annotated[float, Field(gt=0, le=1)] = 1.0
    """q, the probability that an example in the round's portion is used for training"""
    alpha: Positive = 1e-4
    """alpha in the learning rate's schedule; see learning_rate"""
    feature_scale: Positive = 1.0
    """the factor by which features are multiplied, such as 255 for images stored as bytes"""


def check_each(settings: RunConfig) -> None:
    """Refuse lists that do not have one value for each client.

    Raises:
        ConfigError: a list has the wrong length.
    """
    for name in settings.per_client:
        check_one_each(name, getattr(settings, name), settings.num_clients)


def check_whole(settings: RunConfig) -> None:
    """Refuse one client's own settings where the choices of all clients are needed.

    Raises:
        ConfigError: a setting has only one client's own value.
    """
    for name in settings.per_client:
        value = getattr(settings, name)
        if isinstance(value, ClientValue):
            raise ConfigError(
                f"{name} = {value.own} is the value of one client, but a server needs the values "
                "of all clients; give one value for all, or a list with one value per client"
            )


_TIE = 1e-12
"""Tolerance for ties, where rounding can leave the weighted mean of signs slightly off zero."""

Shares = Callable[[Sequence[float], Draw], tuple[NDArray[np.float64], Mapping[str, float]]]
"""Computes all clients' shares of a round's mean, shape (n,), and metrics from their sigmas."""


@dataclass(frozen=True, kw_only=True)
class MeanByNoise(Estimate):
    """A weighted mean: each report is read with its sender's mechanism, and weighted by its noise.

    Attributes:
        settings: the run's settings, with the choices of all clients.
        mechanism: returns a client's mechanism for reports of a given size.
        sigma: returns the standard deviation of a client's noise; None if no client adds noise.
        shares: computes the shares from the noise of all clients.
        setting: the user's setting that selects this estimate.
        signs: whether only the signs of a report's values are used.
        sigmas: what ``sigma`` returns for each client.
    """

    needs: ClassVar[Needs] = "sender"

    settings: RunConfig
    mechanism: Callable[[int, int], Mechanism]
    sigma: Callable[[int], float] | None
    shares: Shares
    setting: str
    signs: bool = False
    sigmas: Sequence[float] = ()

    def reading(self, release: Release) -> Self:
        """Return the estimate from reports of ``release``; see ``Estimate``.

        Raises:
            ConfigError: the settings contain only one client's own values; or a client's mechanism
                cannot be built for its budget.
        """
        check_whole(self.settings)
        for group in self.settings.encoder_groups():
            self.mechanism(int(group[0]), release.size).event(release.size)
        clients = range(self.settings.num_clients)
        sigmas = [1.0 if self.sigma is None else self.sigma(client) for client in clients]
        return replace(super().reading(release), sigmas=sigmas)

    def __call__(self, state: State, reports: Incoming, draw: Draw) -> Estimated:
        """Return the estimate, without values if every share of a client that reported is 0."""
        shares, metrics = self.shares(self.sigmas, draw)
        total = np.zeros(state.weights.size)
        weight = 0.0
        for report in arrived(reports):
            sender = report.client
            if sender is None or not 0 <= sender < shares.size:
                raise RunError("this server must know whose report it reads")
            share = float(shares[sender])
            if share > 0:
                values = self.read(report, sender)
                if values.shape != total.shape:
                    raise RunError(
                        f"a report with {values.size} values for {total.size} coordinates: client "
                        "and server run different models"
                    )
                total += share * values
                weight += share
        if weight == 0:
            return Estimated(values=None, metrics=metrics)
        return Estimated(values=total / weight, weight=weight, metrics=metrics)

    def read(self, report: Report, client: int) -> Values:
        """Return the values in a client's report, shape (d,)."""
        mechanism = self.mechanism(client, report.size)
        values = read_report(mechanism, report.payload, report.size)
        return np.sign(values) if self.signs and not isinstance(mechanism, Plain) else values


def by_power(power: int) -> Shares:
    """Return shares proportional to 1/sigma^power; 2 gives the least variance, 0 the plain mean."""
    return lambda sigmas, _: (np.array([sigma**-power for sigma in sigmas]), {})


def weighted(
    sigmas: Sequence[float], draw: Draw
) -> tuple[NDArray[np.float64], Mapping[str, float]]:
    """Return the shares of method (B): rho_i = 1/sigma_i, divided by the sum over all clients."""
    rho = inverse(sigmas)
    return rho / rho.sum(), {}


def selection(*, redraw: bool) -> Shares:
    """Return the shares of method (C): 1 for clients that the round's draw selects, else 0.

    Args:
        redraw: whether to draw again if nobody is selected.
    """

    def shares(
        sigmas: Sequence[float], draw: Draw
    ) -> tuple[NDArray[np.float64], Mapping[str, float]]:
        chosen, redrawn = draw_selection(inverse(sigmas), draw("selection"), redraw=redraw)
        metrics = {"selected": float(chosen.sum()), "redrawn": float(redrawn)}
        return chosen.astype(np.float64), metrics

    return shares


def inverse(sigmas: Sequence[float]) -> NDArray[np.float64]:
    """Return rho, the inverse of each client's noise, shape (n,)."""
    return np.array([1 / sigma for sigma in sigmas])


def symbolised(weights: Values, state: State) -> Values:
    """Return the signs of the mean of signs (Section 3.2), shape (d,)."""
    return np.sign(np.where(np.abs(weights) < _TIE, 0.0, weights))


@dataclass(frozen=True, kw_only=True)
class Portions(Local):
    """SGD on a sample of the round's portion; see ``PortionSgd``.

    Attributes:
        sampling_probability: the probability that an example in the portion is used.
        alpha: alpha in the learning rate's schedule.
    """

    uses: ClassVar[frozenset[str]] = Sgd.uses
    uses_rounds: ClassVar[bool] = True

    sampling_probability: float
    alpha: float

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the update for ``PersonalSettings``.

        Raises:
            ConfigError: the first step is too large for a float32.
        """
        check_rate(settings.learning_rate, settings.alpha)
        return cls(sampling_probability=settings.sampling_probability, alpha=settings.alpha)

    def check(self, algorithm: Algorithm) -> None:
        """Refuse data with too few examples to give each client a portion in every round."""
        config = algorithm.config
        check_portions(algorithm.problem.num_examples, config.num_clients, config.rounds)

    def __call__(self, algorithm: Algorithm, device: torch.device) -> PortionSgd:
        """Return the local update."""
        training, rounds = algorithm.sgd(device), algorithm.config.rounds
        return PortionSgd(training, rounds, self.sampling_probability, self.alpha)


MEANING = EpsilonMeaning("record", "claimed")


@dataclass(frozen=True, kw_only=True)
class PublishedNoise(Calibration):
    """The paper's sigma_i for each client, for Gaussian noise or for randomised signs.

    Opposite corners of the clip's box are 2 c_i sqrt(d) apart, which is the sensitivity for the
    Gaussian. Each sign counts as a separate bit, because every coordinate may be at either end of
    its range.

    Attributes:
        settings: the preset's settings; they have an epsilon.
        meaning: see ``Calibration``.
    """

    uses_rounds: ClassVar[bool] = True

    settings: Settings
    meaning: EpsilonMeaning = field(default=MEANING)

    @property
    def signs(self) -> bool:
        """Whether clients send signs."""
        return bool(self.settings.perturbation == "sign")

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", Sign if self.signs else Gaussian)

    def budget(self, client: int) -> tuple[float, float]:
        """Return (epsilon_i, delta_i) for a client."""
        settings = self.settings
        delta = settings.delta if settings.client_delta is None else settings.client_delta
        return of_client(settings.epsilon, client), of_client(delta, client)

    def largest_budget(self) -> tuple[float, float]:
        """Return the budget of the client with the largest epsilon."""
        return max(self.budget(client) for client in range(self.settings.num_clients))

    def sigma(self, client: int) -> float:
        """Return sigma_i."""
        epsilon, delta = self.budget(client)
        settings = self.settings
        if self.signs:
            return paper_sigma(epsilon, delta, sensitivity=2 * of_client(settings.clip, client))
        return moments_sigma(epsilon, delta, settings.sampling_probability, settings.rounds)

    def mechanism(self, problem: Problem, client: int) -> Gaussian | Sign:
        """Return the randomiser for one client; see ``Calibration``."""
        return self.of_size(client, self.settings.layout(problem).size)

    def of_size(self, client: int, size: int) -> Gaussian | Sign:
        """Return one client's randomiser for ``size`` weights.

        Raises:
            ConfigError: the randomiser cannot be built for the client's budget.
        """
        make = self._sign if self.signs else self._gaussian
        return make(client, of_client(self.settings.clip, client), self.sigma(client), size)

    def _gaussian(self, client: int, clip: float, sigma: float, size: int) -> Gaussian:
        norm = clip * math.sqrt(size) * (1 + 2.0**-50)  # of a corner of the box, rounded up
        if norm > LARGEST_CLIP:
            raise ConfigError(
                f"clip = {clip:g} for client {client}: {size} weights then have norms up to "
                f"{norm:g}, above {LARGEST_CLIP:g}; give at most {LARGEST_CLIP / norm * clip:.6g}"
            )
        epsilon, delta = self.budget(client)
        given = (
            f"epsilon = {epsilon:g}, clip = {clip:g} and client_delta = {delta:g} (delta if not "
            f"set) for client {client}, with sampling_probability = "
            f"{self.settings.sampling_probability:g} and rounds = {self.settings.rounds}"
        )
        check_noise(norm, sigma, given=given, knob="epsilon or clip")
        return _gaussian(norm, sigma)

    def _sign(self, client: int, clip: float, sigma: float, size: int) -> Sign:
        try:
            return _sign(clip, sigma)
        except ConfigError as error:
            epsilon, delta = self.budget(client)
            raise ConfigError(
                f"epsilon = {epsilon:g} and client_delta = {delta:g} (delta if not set) for "
                f"client {client}: the noise is then {sigma / clip:g} times clip, too "
                f"{'much' if sigma > clip else 'little'} to randomise signs; give a "
                f"{'larger' if sigma > clip else 'smaller'} epsilon"
            ) from error


def moments_sigma(epsilon: float, delta: float, sampling_probability: float, rounds: int) -> float:
    """Return sigma_i of the Gaussian: sigma_i^2 = 4 q^2 R/(1-q) (2 ln(1/delta)/eps^2 + 1/eps).

    The sources show how the factors are grouped. The moments of R steps are at most R q^2 l
    (l+1)/((1-q) sigma^2) for a sensitivity of 1 (Abadi et al. 2016, Lemma 3). Their tail bound
    (Theorem 2) with l = 2 ln(1/delta)/eps requires a variance of 2 q^2 R/(1-q) (2 ln(1/delta)/eps^2
    + 1/eps). So the paper's expression is a variance, and its first two factors are one fraction.
    The paper has 4 in place of 2; we did not find the reason, and keep 4. The lemma holds only for
    q < 1/(16 sigma) and up to terms in q^3, and not for the paper's q of 0.8 and 0.9. Sigma does
    not depend on the clip.

    >>> round(moments_sigma(1.0, 1 / 500, 0.8, 10), 6)
    41.460097
    """
    q = sampling_probability
    tail = 2 * math.log(1 / delta) / epsilon**2 + 1 / epsilon
    return math.sqrt(4 * q**2 * rounds / (1 - q) * tail)


_gaussian = lru_cache(maxsize=4096)(Gaussian)
_sign = lru_cache(maxsize=4096)(Sign)


@dataclass(frozen=True, eq=False)
class Preselected(Participation):
    """Each round's clients, selected before the run; those with less noise are selected more often.

    The selections follow from the stream "selection" of each round. They are drawn before anyone
    trains, so clients that are not selected send nothing and release nothing.

    Attributes:
        rho: gives the inverse of each client's noise, positive, shape (n,); only someone who knows
            the settings of all clients can call it.
        rounds: the number of rounds in the run.
        turns: the number of rounds in which a client is selected: a list with one number for each
            client, or one client's own number; None until ``scheduled``.

    Source: the selection of Wu, Xu, Zhu 2023, Section 4.2; drawing it before the run is ours.
    """

    told: ClassVar[tuple[str, ...]] = ("turns",)

    rho: Callable[[], NDArray[np.float64]]
    rounds: int
    turns: int | Sequence[int] | ClientValue | None = None

    def clients(self, round: int, draws: Draws) -> ClientIndices:
        selected, _ = draw_selection(self.rho(), draws(round)("selection"))
        found: list[int] = np.flatnonzero(selected).tolist()
        return found

    def max_rounds(self, client: int) -> int:
        """Return in how many rounds ``client`` is selected; its noise is sized for this number.

        Raises:
            ConfigError: the selections have not been drawn yet.
        """
        if self.turns is None:
            raise ConfigError(
                "turns is not set: with participation = preselected the noise follows from "
                "selections, which the server draws before the run; use the configuration that "
                "with_schedule returns"
            )
        return int(of_client(self.turns, client))

    def scheduled(self, draws: Draws) -> Self:
        """Return a copy whose ``turns`` follow from the selections of all rounds.

        Raises:
            ConfigError: ``turns`` is already set, and differs from the selections.
        """
        turns = np.zeros(self.rho().size, np.int64)
        for round in range(1, self.rounds + 1):
            turns[self.clients(round, draws)] += 1
        if self.turns is not None:
            for client, found in enumerate(turns.tolist()):
                given = of_client(self.turns, client)
                if given != found:
                    raise ConfigError(
                        f"turns: client {client} has {given}, but the server's draws select it "
                        f"{found} times; leave turns out"
                    )
        return replace(self, turns=turns.tolist())


def draw_selection(
    rho: NDArray[np.float64], stream: Stream, *, redraw: bool = True
) -> tuple[NDArray[np.bool_], int]:
    """Draw one omega ~ U(0, 1), and select every client with P_i = rho_i/sum rho above it.

    The P_i sum to 1, so among N equal clients each P_i is 1/N and most draws select nobody.

    Args:
        rho: positive, shape (n,): the inverse of every client's noise.
        stream: the server's stream for this round.
        redraw: whether to draw again until somebody is selected, which is equivalent to omega ~
            U(0, max P_i).

    Returns:
        The selected clients, shape (n,), and how many draws selected nobody and were repeated.

    Source: Wu, Xu, Zhu 2023, Section 4.2, which does not say what to do if nobody is selected.
    """
    probabilities = rho / rho.sum()
    generator = stream.generator()
    redrawn, omega = 0, generator.random()
    while redraw and omega >= probabilities.max():
        redrawn, omega = redrawn + 1, generator.random()
    return probabilities > omega, redrawn


declare(Source.FRESH, "sampling")


def optimal_rate(step: int, alpha: float) -> float:
    """Return the size of SGD's step 0, 1, 2, ... by scikit-learn's schedule "optimal".

    The size is 1/(alpha (t0 + step)). By Bottou's heuristic the first rate, 1/(alpha t0), is a
    typical weight, alpha^(-1/4), divided by the slope of the loss at that weight, or by 1 if the
    slope is smaller. The slope of a logistic loss is below 1, so t0 = alpha^(-3/4). Here alpha only
    sets the schedule; a penalty is set by ``weight_decay``.

    Source: scikit-learn, ``SGDClassifier``, learning_rate="optimal"; their t counts from 1.

    >>> optimal_rate(0, 1e-4), optimal_rate(1000, 1e-4)
    (10.0, 5.0)
    """
    return 1.0 / (alpha * (math.pow(alpha, -0.75) + step))


def check_rate(learning_rate: float, alpha: float) -> None:
    """Refuse steps that are too large for a float32.

    Args:
        learning_rate: factor on ``optimal_rate``, which is largest in step 0.
        alpha: the alpha of that rate.

    Raises:
        ConfigError: the first step is too large.
    """
    largest = float(np.finfo(np.float32).max)
    first = learning_rate * optimal_rate(0, alpha)
    if not first <= largest:
        raise ConfigError(
            f"learning_rate = {learning_rate:g} and alpha = {alpha:g}: the first step has the rate "
            f"{first:g}, more than a float32 holds ({largest:.2g}); give a smaller learning_rate"
        )


@dataclass(frozen=True, eq=False)
class PortionSgd:
    """SGD on a sample of the round's portion of a client's examples.

    A client divides its examples into as many portions as there are rounds, in an order that it
    draws once from its stream "portions"; the portions' sizes differ by at most one. In round r it
    keeps each example of portion r with probability q, drawn from its stream "sampling", and trains
    on the examples that it kept. With fewer examples than rounds some portions are empty, and the
    client still reports, because a missing report would reveal how many examples the client has.

    Attributes:
        training: the steps; its learning rate is a factor on ``optimal_rate``, which restarts in
            every round.
        rounds: R.
        sampling_probability: q.
        alpha: the alpha of the rate.

    Source: Wu, Xu, Zhu 2023, Section 3.1 (sampling, eq. of G_i) and Algorithm 1, lines 11 to 13;
    |D_i| = R batch follows from delta_i = 1/|D_i| in the paper's experiments.
    """

    training: LocalSgd
    rounds: int
    sampling_probability: float
    alpha: float

    def group(self, most_examples: int) -> int:
        """Return how many clients train at once; see ``LocalSgd.group``."""
        return self.training.group(-(-most_examples // self.rounds))

    def __call__(self, broadcast: Broadcast, batch: Batch, group: int = 1) -> Sensitive[Update]:
        """Return the clients' weights after training, float32, shape (n, d)."""
        from fedldp.training.batched_sgd import train_alone

        if group > 1:
            sampled = self.sampled(batch, broadcast.round)
            return self.training.train_together(broadcast, batch, sampled, self._rate)

        def train(client: Client) -> Vector:
            sampled = replace(client, examples=self.sample(client, broadcast.round))
            return self.training.train(broadcast, sampled, self._rate)

        return train_alone(batch, train)

    def _rate(self, step: int) -> float:
        return self.training.learning_rate * optimal_rate(step, self.alpha)

    def sample(self, client: Client, round: int) -> Examples:
        """Return the examples that ``client`` trains on in ``round``; there may be none."""
        (kept,) = self.sampled(Batch.of_one(client), round)
        return client.examples.taken(kept)

    def sampled(self, batch: Batch, round: int) -> list[NDArray[np.int64]]:
        """Return for each client the rows of the examples that it trains on in ``round``."""
        found = []
        streams = zip(batch.kept("portions"), batch.fresh("sampling"), strict=True)
        for own, (kept, fresh) in zip(batch.rows, streams, strict=True):
            portion = indices_of_round(drawn_order(kept, len(own)), round, self.rounds)
            drawn = fresh.generator().random(portion.size)
            found.append(own[portion[drawn < self.sampling_probability]])
        return found
