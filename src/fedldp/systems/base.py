"""What every system is: a frozen, public configuration that builds a client's and a server's half.

What leaves a client, and what that costs, follows from ``client_encoder`` and ``server`` alone.
Neither imports torch, reads data, or knows an example: so a statement is made before any training.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import (
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)

from fedldp.accounting.guarantees import Adversary, Unit
from fedldp.accounting.releases import Clients
from fedldp.accounting.shown import number
from fedldp.accounting.statement import Claim
from fedldp.algorithms.participation import All, Drawn, Participation
from fedldp.data.partition import parse_scheme
from fedldp.errors import ConfigError
from fedldp.models import layout_of
from fedldp.parts.per_client import Own, is_own, of_client, of_equal_values
from fedldp.parts.sides import (
    ClientSide,
    Draw,
    Draws,
    Encoder,
    LocalUpdate,
    ServerSide,
    State,
    Tester,
)
from fedldp.randomness import Stream
from fedldp.registry import is_address
from fedldp.systems._data import DataSettings
from fedldp.systems._refusals import describe
from fedldp.systems._repeating import Repeating
from fedldp.systems._sums import MaySum
from fedldp.systems.settings import (
    LARGEST_BATCH,
    ClientBudget,
    Count,
    Delays,
    Delta,
    LearningRate,
    ModelName,
    Target,
    with_solved,
)
from fedldp.wire import Layout, Vector

if TYPE_CHECKING:
    import torch
    from torch import nn

    from fedldp.parts.local_sgd import LocalSgd


@dataclass(frozen=True)
class Problem:
    """What a system must know of the data: public facts, no example.

    Attributes:
        input_shape: of one example.
        num_classes: labels are 0 to num_classes - 1.
        num_examples: training examples of all clients together.
        data_dir: the data folder, for systems that read a public data set.
        num_clients: where the data say whose they are, of how many clients; else None.
        features: the names of a table's features, in their order; else None.
        private_scores: whether a run's model is measured on rows held out of the clients' own.
    """

    input_shape: tuple[int, ...]
    num_classes: int
    num_examples: int
    data_dir: Path | None = None
    num_clients: int | None = None
    features: tuple[str, ...] | None = None
    private_scores: bool = False


@dataclass(frozen=True)
class EpsilonMeaning:
    """What a system's setting ``epsilon`` is about: which unit's budget it is, against whom.

    ``standing`` says whether that is proven here, or only claimed by the source.
    """

    unit: Unit
    standing: Literal["proven", "claimed"]
    adversary: Adversary = "server"

    def __str__(self) -> str:
        against = "" if self.adversary == "server" else f" against a {self.adversary}"
        return f"per {self.unit}{against} ({self.standing})"


class SystemConfig(MaySum, Repeating, DataSettings, ABC):
    """A run's full configuration: frozen, public, checked when it is made.

    Subclasses set ``system`` to a Literal of their name and add their own settings.
    """

    model_config = ConfigDict(protected_namespaces=(), strict=True)

    needs_extra: ClassVar[str | None] = None
    """The extra of fedldp without which its clients cannot train; see ``registry.EXTRAS``."""

    simulation_only: ClassVar[frozenset[str]] = frozenset(
        {"seed", "client_budget", "target", "client_column", "test_file"}
    )
    """Settings that no client is told."""

    solved: ClassVar[str] = "epsilon"
    """The setting that a target is solved for, which may then be left out."""

    per_client: ClassVar[tuple[str, ...]] = ()
    """Settings that may be a list with one value for each client; a client is told its own."""

    num_clients: Count = Field(
        le=1_000_000,
        description="clients that the training set is divided among; of data that say whose they "
        "are, their clients",
    )
    clients_per_round: Count | None = Field(
        None, description="clients drawn for each round; all of them where it is not set"
    )
    rounds: Count = Field(le=100_000, description="communication rounds")
    model: ModelName = Field(description='a name from `fedldp list models`, or "module:name"')
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
    client_budget: ClientBudget | None = Field(
        None,
        description="limit of every client's ledger, which refuses beyond it: client_budget.limit, "
        ".kind (pure, zcdp or gdp); ledgers only count where it is not set",
    )
    seed: int = Field(0, ge=0, lt=2**64, description="the simulation's seed")

    @model_validator(mode="wrap")
    @classmethod
    def _refuse_in_one_line(cls, settings: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return validate(with_solved(settings, cls.solved, cls.model_fields))
        except ValidationError as error:
            nested = {"target": Target.model_fields, "client_budget": ClientBudget.model_fields}
            raise ConfigError(describe(error, cls.name(), cls.model_fields, nested)) from None

    @model_validator(mode="after")
    def _check_own(self) -> Self:
        """Refuse as one client's own value what would be refused for all of them."""
        own = {n: v.own for n in self.per_client if isinstance(v := getattr(self, n), Own)}
        if own:
            self.changed(**own)
        return self

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
        for name, reason in self.idle_settings().items():
            value, default = getattr(self, name), type(self).model_fields[name].default
            if value != default:
                raise ConfigError(
                    f"{name} = {value}: {reason}; leave it out, or set it to {default}"
                )
        return self

    @property
    def round_size(self) -> int:
        """The clients drawn for a round."""
        return self.clients_per_round or self.num_clients

    def idle_settings(self) -> Mapping[str, str]:
        """Return the settings that change nothing beside the others, and why: they are refused."""
        delays = self.delays()
        shuffled = delays is not None and delays.prediction_error == 0
        if not shuffled and not self.has_downlink:
            return {"untrusted_clients": f"no line of {self.name()}'s statement rests on it here"}
        return {}

    # The two halves

    def model_input(self, problem: Problem) -> tuple[int, ...]:
        """Return the shape of what the model is given of one example."""
        return problem.input_shape

    def layout(self, problem: Problem) -> Layout:
        """Return how the model's parameters lie in a broadcast's weights.

        Raises:
            ConfigError: the model does not fit the problem.
        """
        return layout_of(self.model, self.model_input(problem), problem.num_classes)

    @abstractmethod
    def client_encoder(self, problem: Problem, client: int) -> Encoder:
        """Return what encodes the reports of one client; it states what they release.

        Raises:
            ConfigError: the model or a setting does not fit the problem.
        """

    @abstractmethod
    def client_step(self, problem: Problem, device: torch.device) -> LocalUpdate:
        """Return what trains on a client's examples; all clients share it."""

    @abstractmethod
    def server(self, problem: Problem) -> ServerSide:
        """Return the server's half.

        Raises:
            ConfigError: the model or a setting does not fit the problem.
        """

    @property
    def exchanges(self) -> int:
        """The questions that a client is asked in one round."""
        return 1

    @property
    def trains_in(self) -> int:
        """The exchange of a round in which clients train."""
        return 0

    def client(self, problem: Problem, client: int, device: torch.device) -> ClientSide:
        """Return the half of one client."""
        return ClientSide(
            step=self.client_step(problem, device),
            encoder=self.client_encoder(problem, client),
            exchanges=self.exchanges,
            trains_in=self.trains_in,
            turns=self.participation.max_rounds(client),
            most_examples=self.most_examples(problem),
            num_classes=problem.num_classes,
        )

    def most_examples(self, problem: Problem) -> int | None:
        """Return how many examples of a client its event counts, where it counts them."""
        return None

    def tester(self, problem: Problem, device: torch.device) -> Tester | None:
        """Return how a simulation tests the model on its clients' side; None: on the test set."""
        return None

    # Who is told what

    def for_client(self, client: int) -> Self:
        """Return the configuration as one client is told it.

        It lacks what only a simulation needs, and what other clients choose for themselves.
        """
        fields = type(self).model_fields
        settings: dict[str, Any] = {name: fields[name].default for name in self.simulation_only}
        for name in self.per_client:
            value = getattr(self, name)
            if is_own(value):
                settings[name] = Own(own=of_client(value, client))
        return self.changed(**settings)

    def alike(self) -> list[Clients]:
        """Return the clients in groups, of which each has encoders that are alike.

        Clients of a group ascend, and groups by their first client.
        """
        return of_equal_values([getattr(self, name) for name in self.per_client], self.num_clients)

    @property
    def participation(self) -> Participation:
        """Who answers when: all clients, or a sample in each round."""
        if self.clients_per_round is None:
            return All()
        return Drawn(self.num_clients, self.clients_per_round)

    def settled(self, draws: Draws) -> Self:
        """Return a copy with whatever the server draws, and tells everyone, before the run."""
        return self

    # What is claimed, and what is stated

    @abstractmethod
    def claim(self) -> Claim | None:
        """Return what the source claims of this configuration, if it claims anything."""

    @property
    def epsilon_meaning(self) -> EpsilonMeaning | None:
        """What the setting ``epsilon`` is about, where the system has one."""
        return None

    def epsilon_in_words(self) -> str | None:
        """Return the setting ``epsilon`` with what it is about, for the reader."""
        meaning, value = self.epsilon_meaning, getattr(self, "epsilon", None)
        if meaning is None or value is None:
            return None
        if is_address(self.name()):  # whose word it is that anything is proven
            meaning = replace(meaning, standing="claimed")
        values = value if isinstance(value, list) else [of_client(value, 0)]
        shown = " to ".join(map(number, sorted({min(values), max(values)})))
        return f"epsilon {shown} {meaning}"

    @property
    def has_downlink(self) -> bool:
        """Whether the server adds noise for those who see nothing but its broadcasts."""
        return False

    def check_shares(self, sizes: Sequence[int]) -> None:
        """Refuse shares of simulated clients that a setting has promised not to happen.

        Args:
            sizes: how many examples each client got.

        Raises:
            ConfigError: it did happen.
        """

    @property
    def data_may_refuse(self) -> bool:
        """Whether the data may refuse a run of which the plan could be made."""
        return False

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

    def with_budget(self, budget: float) -> Self:
        """Return a copy that spends ``budget``, for a target: the more, the less it protects.

        Raises:
            ConfigError: the system has nothing to solve for, or not such a budget.
        """
        if self.solved not in type(self).model_fields:
            raise ConfigError(
                f"target: {self.name()} has no epsilon to solve for; choose another system"
            )
        if isinstance(own := getattr(self, self.solved), list):
            raise ConfigError(
                f"target: epsilon = {own} has a budget for each client; give one for all of them"
            )
        return self.changed(**{self.solved: budget})

    # Training, as most systems do it

    def sgd(self, problem: Problem, device: torch.device, momentum: float = 0.0) -> LocalSgd:
        """Return SGD as a client step."""
        from fedldp.parts.local_sgd import LocalSgd

        # Whatever weights it has: those of a broadcast replace them.
        model = self.module(problem, Stream(bytes(32), simulated=True))
        epochs, rate = self.local_epochs, self.learning_rate
        return LocalSgd(model, epochs, self.batch_size, rate, device, momentum)

    def module(self, problem: Problem, stream: Stream) -> nn.Module:
        """Return the model as a torch module, with initial weights from ``stream``."""
        from fedldp.models import build_model
        from fedldp.randomness import torch_seeded

        with torch_seeded(stream):
            return build_model(self.model, self.model_input(problem), problem.num_classes)

    def first_weights(self, problem: Problem, draw: Draw) -> Vector:
        """Return the model's weights before training, float32, shape (d,)."""
        from fedldp.parts.tensors import read_weights

        return read_weights(self.module(problem, draw("weights")))

    def first_state(self, problem: Problem, draw: Draw) -> State:
        """Return a server's state that holds nothing but the first weights."""
        return State(weights=self.first_weights(problem, draw))
