"""Systems: one paper or baseline per file, found by a scan of this package.

A system's file holds its configuration, frozen and public. Its ``build`` puts four parts together:

    initial     () -> the first Broadcast
    client_step (Broadcast, Client) -> Sensitive       private data stays behind this
    encoder     (Sensitive, Broadcast, Client) -> Report       bound, randomise, pack
    server_step (Broadcast, reports) -> the next Broadcast

There is no ``run``: the engine owns the one loop, here and in deployment.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol, Self

import torch
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from torch import nn

from fedldp.accounting.check import SMALLEST_DELTA
from fedldp.accounting.events import Event
from fedldp.accounting.guarantees import Adversary, Unit
from fedldp.accounting.statement import Claim
from fedldp.data import Examples, parse_scheme
from fedldp.errors import ConfigError
from fedldp.models import build_model
from fedldp.parts import Client, Score
from fedldp.parts.local_sgd import LocalSgd, layout_of, read_weights
from fedldp.randomness import SERVER, Stream, torch_seeded
from fedldp.registry import scan
from fedldp.wire import Broadcast, Incoming, Layout, Report, Sensitive, Vector

Positive = Annotated[float, Field(ge=1e-38, le=1e38, allow_inf_nan=False)]
LearningRate = Annotated[float, Field(ge=1e-38, le=1e30, allow_inf_nan=False)]
"""So that float32 has room for what optimisers make of it: Adam first takes ten times as much."""

Delta = Annotated[float, Field(ge=SMALLEST_DELTA, lt=1)]
NormBound = Annotated[float, Field(ge=1e-9, le=1e9, allow_inf_nan=False)]
NoiseMultiplier = Annotated[float, Field(ge=1e-3, le=1e3, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]

LARGEST_BATCH = 1_000_000_000


class ClientStep(Protocol):
    """Compute a client's sensitive update from the broadcast and its private examples."""

    def __call__(self, broadcast: Broadcast, client: Client) -> Sensitive[Vector]: ...


class Encoder(Protocol):
    """Turn a sensitive update into what may leave the client."""

    def __call__(
        self, update: Sensitive[Vector], broadcast: Broadcast, client: Client
    ) -> Report: ...


class Exchange(Protocol):
    """Carry a broadcast to clients and what they answer back: a transport's one method."""

    def __call__(self, broadcast: Broadcast, clients: Sequence[int]) -> Incoming: ...


class Gather(Protocol):
    """Hold one round's dialogue, where it takes several exchanges, and return its outcome.

    A client is charged one event for all that it answers in the round, and only ``clients`` are.
    """

    def __call__(
        self, exchange: Exchange, broadcast: Broadcast, clients: Sequence[int]
    ) -> Incoming: ...


class Tester(Protocol):
    """Measure the global model on one client's side; ``test`` is the public test set.

    A measurement of the simulator: its result is no message, and no server sees it.
    """

    def __call__(self, broadcast: Broadcast, client: Client, test: Examples) -> Score: ...


class ServerStep(Protocol):
    """Compute the next broadcast from this round's and a stream of reports, in O(d) memory."""

    def __call__(self, broadcast: Broadcast, reports: Incoming) -> Broadcast: ...


@dataclass(frozen=True, kw_only=True)
class System:
    """The four parts of a system, ready for the engine.

    Attributes:
        initial: gives the first broadcast.
        client_step: see ``ClientStep``.
        encoder: see ``Encoder``.
        server_step: see ``ServerStep``.
        model: a module of the system's architecture, for evaluation.
        layout: how the model's parameters lie in a broadcast's weights.
        gather: the dialogue of a round; one exchange where it is None.
        tester: how the model is tested, where clients' own encoders are needed for that; on the
            test set as it is where it is None.
    """

    initial: Callable[[], Broadcast]
    client_step: ClientStep
    encoder: Encoder
    server_step: ServerStep
    model: nn.Module
    layout: Layout
    gather: Gather | None = None
    tester: Tester | None = None

    def report(self, broadcast: Broadcast, client: Client) -> Report:
        """Let ``client`` take part in one round: train, then encode."""
        return self.encoder(self.client_step(broadcast, client), broadcast, client)


@dataclass(frozen=True, kw_only=True)
class Delays:
    """The messages of a simulated shuffler and its time model, in seconds.

    See ``transport.shuffler``; ``chunk`` is the coordinates in one message.
    """

    chunk: int

    compute_seconds: float
    communication_seconds: float
    spread: float
    delay_seconds: float
    prediction_error: float
    record_arrivals: bool


@dataclass(frozen=True)
class Problem:
    """What a system must know of the data: public facts, no example.

    Attributes:
        input_shape: of one example.
        num_classes: labels are 0 to num_classes - 1.
        num_examples: training examples of all clients together.
        data_dir: the data folder, for systems that read a public data set.
    """

    input_shape: tuple[int, ...]
    num_classes: int
    num_examples: int
    data_dir: Path | None = None


class Target(BaseModel):
    """A guarantee to meet: the run's budget is solved so that the statement does."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    unit: Unit = Field(description="what to protect")
    epsilon: Positive = Field(description="the guarantee's epsilon, at most")
    delta: float = Field(1e-5, ge=0, lt=1, description="its delta")
    adversary: Adversary = Field("server", description="against whom")


class SystemConfig(BaseModel, ABC):
    """A run's full configuration: frozen, public, checked when it is made.

    Subclasses set ``system`` to a Literal of their name and add their own settings.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), strict=True)

    system: str
    dataset: str = Field(description="a name from `fedldp list datasets`, or a .npz or .csv file")
    label_column: str = Field("label", description="the label's column in a .csv file")
    standardise: bool = Field(
        False, description="shift and scale images by the data set's published constants"
    )
    partition: str = Field(
        "iid", description="iid, dirichlet:ALPHA, shards:PER_CLIENT or power-law:EXPONENT"
    )
    num_examples: Count | None = Field(
        None, description="training examples to use, drawn at random; all where it is not set"
    )
    num_clients: Count = Field(
        le=1_000_000, description="clients that the training set is divided among"
    )
    clients_per_round: Count | None = Field(
        None, description="clients drawn for each round; all of them where it is not set"
    )
    rounds: Count = Field(le=100_000, description="communication rounds")
    model: str = Field(description='a name from `fedldp list models`, or "module:callable"')
    local_epochs: Count = Field(
        1, le=100_000, description="passes over a client's examples in one round"
    )
    batch_size: Count = Field(10, le=LARGEST_BATCH, description="examples in one SGD step")
    learning_rate: LearningRate = Field(description="SGD step size")
    delta: Delta = Field(
        1e-5, description="delta of the approximate guarantees, and of the mechanism"
    )
    untrusted_clients: int = Field(
        0, ge=0, description="participants of a round that may collude with the server or drop out"
    )
    target: Target | None = Field(
        None,
        description="solve for epsilon, or the noise: target.unit, .epsilon, .delta, .adversary",
    )
    seed: int = Field(0, ge=0, description="the simulation's seed")

    @model_validator(mode="wrap")
    @classmethod
    def _refuse_in_one_line(cls, settings: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return validate(settings)
        except ValidationError as error:
            raise ConfigError(_describe(error, cls)) from None

    @model_validator(mode="after")
    def _check_clients(self) -> Self:
        parse_scheme(self.partition)
        if self.clients_per_round is not None and self.clients_per_round > self.num_clients:
            raise ConfigError(
                f"clients_per_round = {self.clients_per_round}: there are only num_clients = "
                f"{self.num_clients}; give at most that"
            )
        if self.untrusted_clients >= self.round_size:
            raise ConfigError(
                f"untrusted_clients = {self.untrusted_clients}: a round has {self.round_size} "
                f"participants; give at most {self.round_size - 1}, so that one can be trusted"
            )
        return self

    @property
    def round_size(self) -> int:
        """The clients drawn for a round."""
        return self.clients_per_round or self.num_clients

    @abstractmethod
    def build(self, problem: Problem, *, device: torch.device) -> System:
        """Put the system together for ``problem``.

        Raises:
            ConfigError: the model or a setting does not fit the problem.
        """

    @abstractmethod
    def claim(self) -> Claim | None:
        """Return what the source claims of this configuration, if it claims anything."""

    @abstractmethod
    def release(self, client: int, size: int, problem: Problem) -> Event:
        """Return what one report of ``client`` releases, for a model of ``size`` weights."""

    def participants(self, round: int) -> list[int] | None:
        """Return the clients of ``round``, ascending, where the system chooses them.

        The choice is public, and made without any client's data. None: ``clients_per_round`` are
        drawn at random.
        """
        return None

    def check_shares(self, sizes: Sequence[int]) -> None:
        """Refuse a partition among simulated clients that a setting has promised not to happen.

        Args:
            sizes: how many examples each client got.

        Raises:
            ConfigError: it did happen.
        """

    def downlink(self, size: int, problem: Problem) -> Event | None:
        """Return what one broadcast releases of the clients, where the server itself adds noise.

        It stands for those who see broadcasts only, and trust the server.
        """
        return None

    def tested_on(self) -> str:
        """Return, for the reader, what a run's accuracy is measured on."""
        return "the test set"

    def delays(self) -> Delays | None:
        """Return the shuffler's time model where reports are shuffled, else None."""
        return None

    @classmethod
    def name(cls) -> str:
        """Return the system's name."""
        return str(cls.model_fields["system"].default)

    def changed(self, **settings: Any) -> Self:
        """Return a copy with some settings changed, checked again."""
        return type(self).model_validate({**self.model_dump(), **settings})

    def with_budget(self, budget: float) -> Self:
        """Return a copy that spends ``budget``, for a target: the more, the less it protects.

        Raises:
            ConfigError: the system has nothing to solve for, or not such a budget.
        """
        if "epsilon" not in type(self).model_fields:
            raise ConfigError(
                f"target: {self.name()} has no epsilon to solve for; choose another system"
            )
        own = getattr(self, "epsilon", None)
        if isinstance(own, list):
            raise ConfigError(
                f"target: epsilon = {own} has a budget for each client; give one for all of them"
            )
        return self.changed(epsilon=budget)

    def build_training(
        self, problem: Problem, device: torch.device
    ) -> tuple[nn.Module, Layout, Vector, LocalSgd]:
        """Return the model, its layout, its weights from the seed, and SGD as its client step."""
        stream = Stream.simulation(seed=self.seed, round=0, client=SERVER, purpose="weights")
        with torch_seeded(stream):
            model = build_model(self.model, problem.input_shape, problem.num_classes)
        weights = read_weights(model)
        training = LocalSgd(model, self.local_epochs, self.batch_size, self.learning_rate, device)
        return model, layout_of(model), weights, training


_LIMITS = {
    "greater_than": ("gt", "above"),
    "greater_than_equal": ("ge", "of at least"),
    "less_than": ("lt", "below"),
    "less_than_equal": ("le", "of at most"),
}


def _describe(error: ValidationError, config: type[SystemConfig]) -> str:
    """Return one line on the first setting that is wrong."""
    errors = error.errors()
    setting = errors[0]["loc"][:1]
    # Where one number or a list may be given, what gets furthest is about a list's own element.
    first = max((e for e in errors if e["loc"][:1] == setting), key=lambda e: len(e["loc"]))
    loc, owner, fields = first["loc"], config.name(), config.model_fields
    name = str(loc[0]) if loc else "settings"
    if name == "target" and len(loc) > 1:
        name, owner, fields = f"target.{loc[1]}", "target", Target.model_fields
    name += "".join(f"[{place}]" for place in loc if isinstance(place, int))
    if first["type"] == "extra_forbidden":
        return f"{name} is no setting of {owner}; it has {', '.join(fields)}"
    if first["type"] == "missing":
        return f"{name} is not set, and {owner} needs it: add {name} = ..."
    message = first["msg"][0].lower() + first["msg"][1:]
    if first["type"] in _LIMITS:
        key, relation = _LIMITS[first["type"]]
        limit = first["ctx"][key]
        shown = f"{limit:g}" if isinstance(limit, float) else str(limit)
        message = f"give a number {relation} {shown}"
    return f"{name} = {first['input']}: {message}"


def systems() -> dict[str, type[SystemConfig]]:
    """Return the configuration class of every system by the system's name."""
    return {config.name(): config for config in scan(__name__, SystemConfig)}  # type: ignore[type-abstract]
