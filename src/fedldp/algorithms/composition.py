"""An algorithm as a composition of parts, and its behaviour for a given problem.

    Composition   frozen parts, made by a preset from checked settings
        | bound to the public facts of a Problem
        v
    Algorithm     the encoder of a client, its local update, and the server

What leaves a client, and what that costs, follows from the parts alone, so it is known before any
training.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.events import Event
from fedldp.accounting.statement import Claim
from fedldp.algorithms.bounds import Bound, InRange, Unbounded
from fedldp.algorithms.calibration import Calibration
from fedldp.algorithms.channel import Channel
from fedldp.algorithms.features import Features
from fedldp.algorithms.participation import All, Participation
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.release import Encoder, Release
from fedldp.algorithms.server_update import (
    Estimate,
    OwnMean,
    ServerUpdate,
    Shown,
    Step,
    Values,
    last_of,
)
from fedldp.core.errors import ConfigError
from fedldp.core.facts import Caveat, Unprotected
from fedldp.core.randomness import Stream, torch_seeded
from fedldp.data.folder import read_public
from fedldp.data.image_features import Augmentation, MapOnce, check_images
from fedldp.mechanisms.summing import Summing
from fedldp.models import (
    begin_again,
    build_model,
    copy_frozen,
    frozen_digest,
    frozen_of,
    is_statistic,
    layout_of,
    start_from,
)
from fedldp.protocol.roles import ClientRole, Draw, LocalUpdate, ServerRole, State, Tester
from fedldp.protocol.roles import Encoder as EncoderRole
from fedldp.protocol.wire import Broadcast, Layout

if TYPE_CHECKING:
    import torch
    from torch import nn

    from fedldp.training.local_sgd import LocalSgd


SGD_SETTINGS = ("weight_decay", "proximal", "gradient_clip", "loss")
"""Settings that change the steps of plain SGD: every round consists of SGD on batches alone."""

SUBSET = ("trainable", "initial", "start")
"""Settings for a local update that can train any subset of the parameters from any weights."""

OF_SOME: Mapping[str, str] = {
    "class_weights": "these clients do not compute a loss per example",
    "label_range": "this system trains models for classes; numbers are predicted by system = "
    "person_dp_sgd",
    **dict.fromkeys(SUBSET, "these clients need the whole model, with its random initial weights"),
    **dict.fromkeys(
        SGD_SETTINGS, "it changes the steps of plain SGD, but these clients compute something else"
    ),
}
"""The settings that only some local updates use, and why the others refuse them."""


def _public() -> Stream:
    """Return the stream for weights that need no secret key: they are frozen, or replaced later."""
    return Stream(bytes(32), simulated=True)


@dataclass(frozen=True, kw_only=True)
class Local(ABC):
    """What a client computes from the broadcast and its examples.

    Every method receives the algorithm that this part belongs to.

    Attributes:
        tested_on: the data on which a run's accuracy is measured, in words.
        uses: which of ``OF_SOME``, the settings that not every local update uses, this one does.
        trains_statistics: whether it can train a model with statistics of its examples, such as
            batch norm's running means. What sums over people, rows or gradients must not: an
            example would affect the gradients of others.
        uses_rounds: whether what a round computes depends on the number of rounds.
        sends: the name of the update's array that is sent instead of the weights; see ``Release``.
        drawn_once: whether the randomised values are drawn once, for all rounds together.
        keeps: whether a client keeps something from one round to the next.
        alone: what contributes to an update by itself, whatever else is there: a client, or each of
            its people or rows. Own code is tried for this unit; see ``own_code``.
    """

    tested_on: str = "the test set"
    uses: ClassVar[frozenset[str]] = frozenset()
    trains_statistics: ClassVar[bool] = False
    uses_rounds: ClassVar[bool] = False
    drawn_once: ClassVar[bool] = False
    keeps: ClassVar[bool] = False
    sends: ClassVar[str | None] = None
    alone: ClassVar[Literal["client", "person", "row"]] = "client"

    @abstractmethod
    def __call__(self, algorithm: Algorithm, device: torch.device) -> LocalUpdate:
        """Return the local update, which all clients share."""

    def check(self, algorithm: Algorithm) -> None:  # noqa: B027 (most parts suit every problem)
        """Refuse a setting that is incompatible with the problem.

        Raises:
            ConfigError: a setting is incompatible.
        """

    def event(self, algorithm: Algorithm, size: int) -> Event | None:
        """Return what an update of ``size`` weights releases, if training randomises it.

        Raises:
            ConfigError: a setting is incompatible with the problem.
        """
        return None

    def most_examples(self, algorithm: Algorithm) -> int | None:
        """Return how many examples per client the event assumes, if it assumes a number."""
        return None

    def tester(self, algorithm: Algorithm, device: torch.device) -> Tester | None:
        """Return the test that a simulation runs at its clients; None if it uses the test set."""
        return None

    @property
    def private_scores(self) -> Sequence[Unprotected]:
        """What the scores of a simulated run reveal about clients' own examples; usually nothing.

        The kind of test set does not matter here, because scores on clients' own rows are a release
        wherever they are computed.
        """
        return ()


@dataclass(frozen=True, kw_only=True)
class Sgd(Local):
    """Local SGD.

    Attributes:
        momentum: SGD's momentum, which starts at zero in every round.
        augmentation: how the images of each batch are changed at random.
    """

    uses: ClassVar[frozenset[str]] = frozenset({"class_weights", *SUBSET, *SGD_SETTINGS})
    trains_statistics: ClassVar[bool] = True

    momentum: float = 0.0
    augmentation: Augmentation = "none"

    def check(self, algorithm: Algorithm) -> None:
        """Refuse to augment examples that are not images."""
        if self.augmentation != "none":
            check_images(algorithm.input_shape)

    def __call__(self, algorithm: Algorithm, device: torch.device) -> LocalUpdate:
        """Return the local update."""
        return replace(algorithm.sgd(device, self.momentum), augmentation=self.augmentation)


@dataclass(frozen=True, kw_only=True)
class Composition:
    """The parts of an algorithm; all of them are frozen and public.

    Attributes:
        calibration: gives the mechanism.
        bound: the chart in which the mechanism works; a function of the client if clients choose
            their own bounds.
        shaped: turns the release made of bound and mechanism into the release used for a problem.
        features: the model's input for an example.
        local: what a client computes.
        channel: how reports reach the server.
        estimate: what the server computes from reports.
        participation: which clients answer in which round.
        server_noise: gives the noise that the server adds, for a problem and an estimate of a given
            size.
        downlink: gives, from the problem's facts, what the broadcast that follows a given round, of
            a given number of weights, releases about clients to someone who sees nothing else. It
            is set if the server's noise protects against such an observer.
        finish: the last operation on the next weights; None means ``Bound.accept``.
        claim: what the source claims, if anything; a function if the claim depends on all clients.
        unused: settings that have no effect with these parts, each with the reason.
        averaged: the fraction of the rounds, counted from the last one, whose weights are averaged;
            it applies if the setting ``average`` is left out.
        notes: additional caveats of a run's statement; those of a user's own system are sentences.
        notes_on: returns more of them for the facts of a problem.
        stages: the rounds of each stage of the run, in order. What a client's report releases is
            the same in all rounds of a stage. Empty if the whole run is one stage.
        trained: the rounds that train all weights, of which the last are averaged; the next stage
            starts from the average. None: all rounds.
        start: gives the weights of the first round from those of the new model; None if they stay.
    """

    calibration: Calibration
    bound: Bound | Callable[[int], Bound] = field(default_factory=Unbounded)
    shaped: Callable[[Release, Problem], Release] | None = None
    features: Features = field(default_factory=Features)
    local: Local = field(default_factory=Sgd)
    channel: Channel = field(default_factory=Channel)
    estimate: Estimate = field(default_factory=OwnMean)
    participation: Participation = field(default_factory=All)
    server_noise: Callable[[Problem], Callable[[int, Draw], Values] | None] | None = None
    downlink: Callable[[int, Problem, int], Event] | None = None
    finish: Callable[[Values, State], Values] | None = None
    claim: Claim | Callable[[], Claim] | None = None
    unused: Mapping[str, str] = field(default_factory=dict)
    averaged: float = 0.0
    notes: tuple[Caveat | str, ...] = ()
    notes_on: Callable[[Problem], tuple[Caveat, ...]] | None = None
    stages: tuple[range, ...] = ()
    trained: range | None = None
    start: Callable[[Values], Values] | None = None

    def stages_of(self, rounds: int) -> tuple[range, ...]:
        """Return the rounds of each stage of a run of ``rounds`` rounds; see ``stages``."""
        return self.stages or (range(1, rounds + 1),)

    def bound_of(self, client: int) -> Bound:
        """Return the chart in which the mechanism for ``client`` works."""
        return self.bound if isinstance(self.bound, Bound) else self.bound(client)

    def share_averaged(self, settings: Any) -> float:
        """Return the fraction of the rounds, counted from the last, whose weights are averaged."""
        chosen: float | None = settings.average  # None if the setting was left out
        return self.averaged if chosen is None else chosen

    @property
    def version(self) -> int:
        """1, plus one for each change of a part's results; see ``RunConfig.identity``.

        A part, or a mechanism's class, whose results change gets ``version: ClassVar[int] = 2``,
        and so on; a version never falls.
        """
        parts = (
            self.calibration, self.calibration.kind, self.bound, self.features, self.local,
            self.channel, self.estimate, self.participation,
        )  # fmt: skip
        versions = [getattr(part, "version", 1) for part in parts]
        # A user's own part may mean something else by this name.
        return 1 + sum(each - 1 for each in versions if type(each) is int)


@dataclass(frozen=True)
class Algorithm:
    """A composition, bound to the public facts of a problem.

    Attributes:
        config: the ``RunConfig``, whose settings that every run has are read here.
        parts: the composition.
        problem: the public facts.
    """

    config: Any
    parts: Composition
    problem: Problem

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of the model's input for one example."""
        return self.parts.features.shape(self.problem)

    @property
    def layout(self) -> Layout:
        """The layout of the model's trained parameters in a broadcast's weights.

        Raises:
            ConfigError: the model is incompatible with the problem.
        """
        config, classes = self.config, self.problem.num_classes
        return layout_of(config.model, self.input_shape, classes, config.trainable)

    def module(self, stream: Stream) -> nn.Module:
        """Return the model as a torch module, with initial weights from ``stream``.

        The frozen part does not depend on the stream, so it is the same here and at every client;
        see ``untrained``.

        Raises:
            ConfigError: the model is incompatible with the problem, or its file with the model.
        """
        model = self._built(stream)
        if self.config.trainable != "all":
            copy_frozen(self._built(_public()), model)
        return self._started(model)

    def untrained(self, *, begun: bool = True) -> nn.Module:
        """Return the model, with arbitrary weights that a broadcast's weights will replace.

        Its frozen part is the same as in any run. It comes from the setting ``initial``, or else it
        is created by the model's own code, whose random numbers have a publicly known key.

        Args:
            begun: whether ``initial`` is read; if not, the frozen part will be replaced too.

        Raises:
            ConfigError: as for ``module``.
        """
        model = self._built(_public())
        return self._started(model) if begun else model

    def _started(self, model: nn.Module) -> nn.Module:
        """Return a model after it got the weights that the setting ``initial`` names, if any."""
        if (name := self.config.initial) is not None:
            setting = f"initial = {name}"
            file = read_public(name, setting, self.problem.data_dir)
            start_from(model, file.content, setting)
        return model

    def _built(self, stream: Stream) -> nn.Module:
        config, classes = self.config, self.problem.num_classes
        with torch_seeded(stream):
            model = build_model(config.model, self.input_shape, classes, config.trainable)
            if config.start is not None:
                begin_again(model, config.start)
        self.parts.features.prepare(model)
        return model

    def frozen(self) -> Mapping[str, NDArray[Any]]:
        """Return the part of the model that is not trained, by name; this part is public."""
        return {} if self.config.trainable == "all" else frozen_of(self.untrained())

    def frozen_digest(self) -> str | None:
        """Return the digest of the part of the model that is not trained; None if all is trained.

        Raises:
            ConfigError: as for ``module``.
        """
        return None if self.config.trainable == "all" else frozen_digest(self.untrained())

    def sgd(self, device: torch.device, momentum: float = 0.0) -> LocalSgd:
        """Return SGD as a local update."""
        from fedldp.training.local_sgd import LocalSgd
        from fedldp.training.losses import losses_of
        from fedldp.training.tensors import weights_of_classes

        config = self.config
        weights = weights_of_classes(config.class_weights, device)
        return LocalSgd(
            self.untrained(),
            config.local_epochs,
            config.batch_size,
            config.learning_rate,
            device,
            momentum,
            weights,
            losses=losses_of(config.loss, self.problem.num_classes, weights),
            weight_decay=config.weight_decay,
            gradient_clip=config.gradient_clip,
            proximal=config.proximal,
        )

    def release(self, client: int) -> Release:
        """Return the randomiser for one client, with its claim.

        Raises:
            ConfigError: the model or a setting is incompatible with the problem.
        """
        self.parts.local.check(self)
        layout, bound = self.layout, self.parts.bound_of(client)
        statistics = [name for name in layout.names if is_statistic(name)]
        ranged = isinstance(bound, InRange | Unbounded)
        if statistics and not (ranged and self.parts.local.trains_statistics):
            raise ConfigError(
                f"model = {self.config.model}: {statistics[0]} is computed from private examples "
                "and needs a public range, which this system does not have; use a model "
                "without batch norm, or a system whose weights have ranges, or system = fedavg"
            )
        found = Release(
            bound=bound.bound_to(layout),
            mechanism=self.parts.calibration.mechanism(self.problem, client),
            size=layout.size,
            sends=self.parts.local.sends,
        )
        return found if self.parts.shaped is None else self.parts.shaped(found, self.problem)

    def report_encoder(self, client: int) -> Encoder:
        """Return the encoder for one client's report, for any channel; see ``release``."""
        parts, release = self.parts, self.release(client)
        return Encoder(
            release=release,
            inner=parts.local.event(self, release.size),
            chunk=parts.channel.chunk(release.size),
            needs=parts.estimate.needs,
            label=parts.calibration.label(client),
        )

    def encoder(self, client: int) -> EncoderRole:
        """Return the encoder for a client's answers, which states what they release."""
        return self.parts.channel.encoder(self.report_encoder(client))

    def summing(self) -> Summing | None:
        """Return how the reports in one sum add up, if the server needs only sums."""
        return self.report_encoder(0).summing(self.config.committees.most)

    def client(self, client: int, device: torch.device) -> ClientRole:
        """Return the role of one client."""
        parts = self.parts
        return ClientRole(
            local_update=self.local_update(device),
            encoder=self.encoder(client),
            phases=parts.channel.phases,
            trains_in=parts.channel.trains_in,
            max_participations=parts.participation.max_rounds(client),
            most_examples=self.most_examples(),
            num_classes=self.problem.end_of_labels,
            first_rounds=tuple(stage[0] for stage in parts.stages_of(self.config.rounds)),
        )

    def local_update(self, device: torch.device) -> LocalUpdate:
        """Return the training on a client's examples; all clients share it."""
        update = self.parts.local(self, device)
        mapping = self.parts.features.mapping(self.problem)
        if mapping is None:
            return update
        from fedldp.algorithms.features import OnFeatures

        return OnFeatures(update=update, once=MapOnce(mapping))

    def prepared(self) -> MapOnce:
        """Return the map that prepares examples wherever the model is tested or used."""
        return MapOnce(self.parts.features.mapping(self.problem))

    def most_examples(self) -> int | None:
        """Return how many examples per client the event assumes, if it assumes a number."""
        return self.parts.local.most_examples(self)

    def tester(self, device: torch.device) -> Tester | None:
        """Return the test that a simulation runs at its clients; None if it uses the test set."""
        return self.parts.local.tester(self, device)

    def server(self, shown: Shown | None = None) -> ServerRole:
        """Return the server's role; see ``release``, and ``ServerUpdate`` for ``shown``."""
        parts, release = self.parts, self.release(0)
        config, estimate = self.config, parts.estimate.reading(release)
        update = ServerUpdate(
            estimate=estimate,
            step=Step(optimizer=config.server_optimizer, rate=config.server_rate),
            noise=None if parts.server_noise is None else parts.server_noise(self.problem),
            finish=parts.finish or release.bound.accept,
            averaged=last_of(
                range(1, config.rounds + 1) if parts.trained is None else parts.trained,
                parts.share_averaged(config),
            ),
            restarts=parts.trained is not None,
            shown=shown,
        )

        def publish(state: State) -> Broadcast:
            return Broadcast(
                round=state.round,
                weights=state.weights,
                ranges=release.bound.announce(state.weights),
                public=estimate.told(state),
            )

        arrays = estimate.arrays(self.problem)

        def first(draw: Draw) -> State:
            # Imported here, because statements need no torch.
            from fedldp.training.tensors import read_weights

            weights = read_weights(self.module(draw("weights")))
            if parts.start is not None:
                weights = parts.start(weights).astype(np.float32)
            return State(weights=weights, arrays=arrays(draw))

        found = update.role(
            first,
            publish=publish,
            downlink=None
            if parts.downlink is None
            else partial(parts.downlink, release.size, self.problem),
        )
        return parts.channel.server(found, lambda: self.report_encoder(0))

    def inside(self) -> Algorithm:
        """Return the algorithm with channel ``named``, to run inside a secure sum of reports."""
        return replace(self, parts=replace(self.parts, channel=Channel()))
