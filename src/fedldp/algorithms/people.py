"""Parts that protect people: a site's sum of their clipped gradients, with the noise it needs.

    local_update  for each person one gradient, clipped, as integers; all added up (``SUMS``)
    encoder       the sum on a coarser grid, plus discrete Gaussian noise
    server_step   noisy sums -> mean gradient -> W minus ``learning_rate`` times it

What is protected is one person of a client, whoever the others are: neighbours replace a person, or
one row where nothing says which rows are one person's. A client as a whole is not protected.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedldp.accounting.events import Event, InClear, PerPerson, PerRecord
from fedldp.accounting.guarantees import LEAST_FOR_MU
from fedldp.algorithms.bounds import Bound, Send
from fedldp.algorithms.calibration import Calibration
from fedldp.algorithms.composition import Algorithm, Local
from fedldp.algorithms.participation import Participation, most_rounds
from fedldp.algorithms.preset import Settings
from fedldp.algorithms.problem import EpsilonMeaning, Problem
from fedldp.algorithms.release import Release
from fedldp.algorithms.settings import Count, Offer
from fedldp.core.errors import ConfigError
from fedldp.core.formatting import rounded_count
from fedldp.core.frozen_config import LEFT_OUT
from fedldp.data import SUFFIXES
from fedldp.mechanisms import Mechanism
from fedldp.mechanisms.gaussian_share import largest_mu
from fedldp.mechanisms.integer_gaussian import IntegerGaussian, integer_gaussian
from fedldp.models import layers_of
from fedldp.protocol.roles import State
from fedldp.protocol.wire import Broadcast
from fedldp.training.person_gradients import (
    LARGEST_CLIP,
    MOST_PEOPLE,
    NORM,
    SMALLEST_CLIP,
    SUMS,
    DenseGradients,
    ModelGradients,
    PersonGradients,
    dense_layers,
)

if TYPE_CHECKING:
    import torch

PEOPLE = Offer(
    "people",
    Annotated[Count | None, LEFT_OUT],
    "public number of people of all clients together, by which the sum of their gradients is "
    "divided: stated, and rounded down. Where it is not set, as many as there are; of data of your "
    "own, rounded",
    None,
)

PersonClip = Annotated[float, Field(ge=SMALLEST_CLIP, le=LARGEST_CLIP, allow_inf_nan=False)]


@dataclass(frozen=True, kw_only=True)
class PersonSteps(Local):
    """One gradient for each person, clipped and summed.

    Attributes:
        clip: the largest L2 norm of a person's gradient.
        class_weights: public factors on the loss of a row, by its label; none where it is empty.
    """

    clip: float
    class_weights: tuple[float, ...] = ()

    def __call__(self, algorithm: Algorithm, device: torch.device) -> PersonGradients:
        """Return the local update; it computes on the processor, whatever ``device``."""
        config, layout = algorithm.config, algorithm.layout
        # A common factor acts on the clip alone.
        most = max(self.class_weights, default=1.0)
        weights, clip = tuple(each / most for each in self.class_weights), self.clip / most
        layers = layers_of(config.model, algorithm.input_shape, algorithm.problem.num_classes)
        dense = None if layers is None else dense_layers(layers)
        if dense is not None:
            summed = DenseGradients(layers=dense, layout=layout, clip=clip, class_weights=weights)
            return PersonGradients(summed=summed)
        model = algorithm.untrained()
        return PersonGradients(
            summed=ModelGradients(model=model, layout=layout, clip=clip, class_weights=weights)
        )


@dataclass(frozen=True, kw_only=True)
class OfPeople(Bound):
    """Sums of people's gradients in grid steps: how long each is, their local update sees to.

    Attributes:
        rate: what the server multiplies the mean gradient by.
        clip: that ``NORM`` steps are.
        per_client: people by client, on average; public.
    """

    send: Send = "update"
    rate: float
    clip: float
    per_client: float = 1.0

    def apply(self, rows: NDArray[np.floating], broadcast: Broadcast) -> NDArray[np.floating]:
        """Return sums as they are; see ``Bound.apply``."""
        return rows

    def restore(
        self, mean: NDArray[np.float64], state: State, factor: float = 1.0
    ) -> NDArray[np.floating]:
        """Return the step against the mean gradient; see ``Bound.restore``."""
        return (-factor * self.rate * self.clip / NORM / self.per_client) * mean

    def limit(self, order: Literal[1, 2], size: int) -> float:
        """Return infinity: of one person it is ``NORM``, whatever the sum is."""
        return math.inf


@dataclass(frozen=True, kw_only=True)
class PersonRelease(Release):
    """A noisy sum over people, that is stated of one of them.

    Attributes:
        of_rows: whether nothing says which rows are one person's, so that one row is protected.
    """

    of_rows: bool

    def event(self) -> Event:
        """Return what the report releases: of one person, or one row; and that a client's is not.

        The mechanism states the first, for sums that one person moves by 2 ``NORM`` at most.
        """
        of_one = super().event()
        unit = "rows" if self.of_rows else "people"
        client = InClear(what=f"a sum that hides single {unit} only")
        if self.of_rows:
            return PerRecord(record=of_one, client=client)
        return PerPerson(person=of_one, client=client)


def sums_of_people(release: Release, settings: Settings, problem: Problem) -> PersonRelease:
    """Return a release of sums in place of weights, for the public number of people."""
    assert isinstance(release.bound, OfPeople)
    total = people_of(settings, problem)
    return PersonRelease(
        bound=replace(release.bound, per_client=total / settings.num_clients),
        mechanism=release.mechanism,
        size=release.size,
        sends=SUMS,
        of_rows=problem.people is None,
    )


def people_of(settings: Settings, problem: Problem) -> int:
    """Return the public number of people of all clients.

    Raises:
        ConfigError: they are too many for exact sums.
    """
    found: int | None = settings.people
    if found is None:
        found = problem.num_examples if problem.people is None else problem.people
        if settings.dataset.lower().endswith(SUFFIXES):
            found = rounded_count(found)
    if found > MOST_PEOPLE * settings.num_clients:
        raise ConfigError(
            f"people = {found}: sums are exact for up to {MOST_PEOPLE:,} people of a client; "
            "divide them among more clients"
        )
    return max(1, found)


@dataclass(frozen=True, kw_only=True)
class PerPersonRun(Calibration):
    """The least noise with which all that is sent in a run costs a person its budget.

    With all people in every one of T releases, each gets mu/sqrt(T). A person at k sites is in k
    reports: named ones are k releases; in one sum the change is k times as large.

    Attributes:
        settings: of the preset.
        participation: who answers when.
        summed: whether the server sees sums of reports only, so that each needs but a share.
        releases: of a client in one round.

    Raises:
        ConfigError: delta is too small.
    """

    uses_rounds: ClassVar[bool] = True
    kind: type[Mechanism] = field(default=IntegerGaussian)
    settings: Settings
    participation: Participation
    summed: bool
    releases: int = 1

    def __post_init__(self) -> None:
        if self.settings.delta < LEAST_FOR_MU:
            raise ConfigError(f"delta = {self.settings.delta:g}: give at least {LEAST_FOR_MU:g}")

    @property
    def meaning(self) -> EpsilonMeaning:  # type: ignore[override]
        """What ``epsilon`` is about."""
        return EpsilonMeaning(
            "record" if self.settings.person_column is None else "person",
            "proven",
            "summing-server" if self.summed else "server",
        )

    def mechanism(self, problem: Problem, client: int) -> IntegerGaussian:
        """Return what adds the noise, or a share of it.

        Raises:
            ConfigError: no grid is fine enough for ``epsilon``.
        """
        settings = self.settings
        rounds = most_rounds(self.participation, client, settings.rounds)
        sites = settings.persons_at_sites
        return integer_gaussian(
            settings.layout(problem).size,
            largest_mu(settings.epsilon, settings.delta)
            / math.sqrt(rounds * self.releases)
            / (sites if self.summed else math.sqrt(sites)),
            distance=2 * NORM,
            shares=settings.fewest_in_round - settings.untrusted_clients if self.summed else 1,
            vectors=people_of(settings, problem),
        )
