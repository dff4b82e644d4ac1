"""What every system is: a frozen, public configuration that builds a client's and a server's half.

What leaves a client, and what that costs, follows from ``client_encoder`` and ``server`` alone.
Neither imports torch, reads data, or knows an example: so a statement is made before any training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
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
from fedldp.algorithms._refusals import describe
from fedldp.algorithms.participation import All, Drawn, Participation
from fedldp.algorithms.server_update import (
    Estimate,
    Optimizer,
    ServerUpdate,
    Step,
    Values,
    first_averaged,
)
from fedldp.algorithms.settings import (
    LARGEST_BATCH,
    ClientBudget,
    Count,
    Delays,
    Delta,
    LearningRate,
    ModelName,
    Momentum,
    Target,
    with_solved,
)
from fedldp.checked import LEFT_OUT, Checked
from fedldp.data import Columns, is_table
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
from fedldp.wire import Broadcast, Layout, Vector

if TYPE_CHECKING:
    import torch
    from torch import nn

    from fedldp.algorithms.composition import Algorithm, Composition
    from fedldp.mechanisms.summing import Summing
    from fedldp.parts.local_sgd import LocalSgd

Range = Annotated[list[float], Field(min_length=2, max_length=2)]

_OF_TABLES = (
    "client_column",
    "test_file",
    "ignore_columns",
    "scale_columns",
    "categories",
    "classes",
)
_OF_PARTITIONS = ("partition", "num_examples")
_EQUAL = ("iid", "drawn")
"""Partitions in which every client has as many examples as the others, up to one."""
ServerRate = Annotated[float, Field(ge=1e-6, le=1e3, allow_inf_nan=False)]


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


class RunConfig(Checked):
    """A run's full configuration: frozen, public, checked when it is made.

    ``preset`` makes a subclass of it for each system, with the settings that are its own. All that
    a run asks of them is in the composition.
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

    semantics: ClassVar[int] = 1
    """Rises whenever the same settings give another result: what was measured before is void."""

    inverse: ClassVar[bool] = False
    """Whether what a target is solved for is a noise, which is lower for a higher budget."""

    compose: ClassVar[Callable[[Any], Composition]]
    """From the settings to the parts; see ``preset``."""

    system: str = Field(description="the system's name")
    dataset: str = Field(
        description="a name from `fedldp list datasets`, or a .npz, .csv or .parquet file"
    )
    label_column: str = Field("label", description="the label's column in a .csv or .parquet file")
    client_column: str | None = Field(
        None,
        description="the column that says whose a row is: each value in it is a client, and "
        "num_clients follows from it",
    )
    test_file: str | None = Field(
        None,
        description="a second .csv or .parquet file, to test on; else a fifth of the rows is",
    )
    ignore_columns: list[str] = Field([], description="columns that are left out")
    scale_columns: dict[str, Range] = Field(
        {},
        description="public range [low, high] of a column, which becomes 0 to 1: never measured on "
        "the data",
    )
    categories: dict[str, list[str]] = Field(
        {}, description="public list of a column's texts; each becomes a feature that is 0 or 1"
    )
    classes: list[str] | None = Field(
        None,
        description="public list of the labels' texts; where it is not set they are integers from "
        "0, or numbered in sorted order",
    )
    standardise: bool = Field(
        False, description="shift and scale images by the data set's published constants"
    )
    partition: str = Field(
        "iid", description="iid, dirichlet:ALPHA, shards:N, power-law:EXPONENT or drawn:N of all"
    )
    num_examples: Count | None = Field(
        None, description="training examples to use, drawn at random; all where it is not set"
    )

    target: Target | None = Field(
        None,
        description="solve for epsilon, or the noise: target.unit, .epsilon, .delta, .adversary",
    )
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
    client_budget: ClientBudget | None = Field(
        None,
        description="limit of every client's ledger, which refuses beyond it: client_budget.limit, "
        ".kind (pure, zcdp or gdp); ledgers only count where it is not set",
    )
    seed: int = Field(0, ge=0, lt=2**64, description="the simulation's seed")
    server_optimizer: Annotated[Optimizer, LEFT_OUT] = Field(
        "none", description="what the server does with the mean: takes it, momentum, or Adam"
    )
    server_rate: Annotated[ServerRate, LEFT_OUT] = Field(
        1.0, description="the server's learning rate: factor on the step from the last weights"
    )
    server_momentum: Annotated[Momentum, LEFT_OUT] = Field(
        0.9, description="what is left of the server's momentum after a round; of Adam its beta_1"
    )
    average: Annotated[float, Field(ge=0, le=1), LEFT_OUT] = Field(
        0.0,
        description="share of the last rounds whose weights are averaged for the test and the "
        "model; 0: the last weights alone",
    )

    @model_validator(mode="wrap")
    @classmethod
    def _refuse_in_one_line(cls, settings: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return validate(with_solved(settings, cls.solved, cls.model_fields))
        except ValidationError as error:
            nested = {"target": Target.model_fields, "client_budget": ClientBudget.model_fields}
            raise ConfigError(describe(error, cls.name(), cls.model_fields, nested)) from None

    @model_validator(mode="after")
    def _check_data(self) -> Self:
        fields = type(self).model_fields

        def given(names: tuple[str, ...]) -> list[str]:
            return [
                name
                for name in names
                if getattr(self, name) != fields[name].get_default(call_default_factory=True)
            ]

        own = given(_OF_TABLES)
        if own and not is_table(self.dataset):
            raise ConfigError(
                f"{own[0]}: it is for a .csv or .parquet file, and dataset = {self.dataset}; "
                "leave it out, or set dataset to such a file"
            )
        if self.test_file is not None and not is_table(self.test_file):
            raise ConfigError(f"test_file = {self.test_file}: give a .csv or .parquet file")
        divided = given(_OF_PARTITIONS)
        if self.client_column is not None and divided:
            raise ConfigError(
                f"{divided[0]} = {getattr(self, divided[0])}: client_column = "
                f"{self.client_column} says whose each row is; leave it out"
            )
        self.columns  # noqa: B018 (it refuses what contradicts itself)
        return self

    @model_validator(mode="after")
    def _check_server(self) -> Self:
        if self.server_optimizer == "adam" and self.server_rate >= 1:
            raise ConfigError(
                f"server_rate = {self.server_rate:g}: with server_optimizer = adam every weight "
                "moves by about that much a round; give less than 1, such as 0.01"
            )
        return self

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

    def equal_share(self, problem: Problem, num_clients: int) -> int | None:
        """Return how many examples every client has at most, where all have as many; else None.

        Args:
            problem: public facts. Data that say whose they are need not be divided equally.
            num_clients: among whom they are divided.
        """
        if problem.num_clients is not None or parse_scheme(self.partition)[0] not in _EQUAL:
            return None
        return -(-problem.num_examples // num_clients)

    @property
    def columns(self) -> Columns:
        """What the columns of a table are."""
        return Columns(
            label=self.label_column,
            client=self.client_column,
            ignored=tuple(self.ignore_columns),
            scaled={name: (low, high) for name, (low, high) in self.scale_columns.items()},
            categories={name: tuple(values) for name, values in self.categories.items()},
            classes=None if self.classes is None else tuple(self.classes),
        )

    @property
    def round_size(self) -> int:
        """The clients drawn for a round."""
        return self.clients_per_round or self.num_clients

    def idle_settings(self) -> Mapping[str, str]:
        """Return the settings that change nothing beside the others, and why: they are refused."""
        idle = {}
        delays = self.delays()
        shuffled = delays is not None and delays.prediction_error == 0
        if not shuffled and not self.has_downlink:
            idle["untrusted_clients"] = f"no line of {self.name()}'s statement rests on it here"
        if self.server_optimizer == "none":
            idle["server_momentum"] = "server_optimizer = none has no momentum"
        parts = self.composition
        idle |= parts.unused
        return {name: reason for name, reason in idle.items() if name not in parts.uses}

    @property
    def composition(self) -> Composition:
        """The parts that the settings make.

        Raises:
            ConfigError: a mechanism or another part refuses a setting.
        """
        return type(self).compose(self)

    def algorithm(self, problem: Problem) -> Algorithm:
        """Return the composition, bound to the public facts of ``problem``."""
        from fedldp.algorithms.composition import Algorithm

        return Algorithm(self, self.composition, problem)

    # The two halves

    def model_input(self, problem: Problem) -> tuple[int, ...]:
        """Return the shape of what the model is given of one example."""
        return self.composition.features.shape(problem)

    def layout(self, problem: Problem) -> Layout:
        """Return how the model's parameters lie in a broadcast's weights.

        Raises:
            ConfigError: the model does not fit the problem.
        """
        return layout_of(self.model, self.model_input(problem), problem.num_classes)

    def client_encoder(self, problem: Problem, client: int) -> Encoder:
        """Return what encodes the reports of one client; it states what they release.

        Raises:
            ConfigError: the model or a setting does not fit the problem.
        """
        return self.algorithm(problem).encoder(client)

    def client_step(self, problem: Problem, device: torch.device) -> LocalUpdate:
        """Return what trains on a client's examples; all clients share it."""
        return self.algorithm(problem).local_update(device)

    def server(self, problem: Problem) -> ServerSide:
        """Return the server's half.

        Raises:
            ConfigError: the model or a setting does not fit the problem.
        """
        return self.algorithm(problem).server()

    @property
    def exchanges(self) -> int:
        """The questions that a client is asked in one round."""
        return self.composition.channel.phases

    @property
    def trains_in(self) -> int:
        """The exchange of a round in which clients train."""
        return self.composition.channel.trains_in

    def client(self, problem: Problem, client: int, device: torch.device) -> ClientSide:
        """Return the half of one client."""
        return self.algorithm(problem).client(client, device)

    def most_examples(self, problem: Problem) -> int | None:
        """Return how many examples of a client its event counts, where it counts them."""
        return self.composition.local.most_examples(self, problem)

    def tester(self, problem: Problem, device: torch.device) -> Tester | None:
        """Return how a simulation tests the model on its clients' side; None: on the test set."""
        return self.composition.local.tester(self, problem, device)

    def public_inputs(
        self, problem: Problem, broadcast: Broadcast, examples: NDArray[np.float32]
    ) -> NDArray[np.float32] | None:
        """Return what the model is given of examples, where that is public; see ``Features``."""
        return self.composition.features(problem, broadcast, examples)

    # Sums

    def summing(self, problem: Problem) -> Summing | None:
        """Return how reports are summed, where the server step needs no more than their sum."""
        return self.algorithm(problem).summing()

    @property
    def always_summed(self) -> bool:
        """Whether a deployed run must go through a secure sum, for nothing else is meant by it."""
        return self.composition.channel.kind == "sum"

    def inner_client(self, problem: Problem, client: int, device: torch.device) -> ClientSide:
        """Return the half of one client whose report a secure sum carries, in one exchange."""
        return self.algorithm(problem).inside().client(client, device)

    def inner_server(self, problem: Problem) -> ServerSide:
        """Return the server's half that reads what ``Summing.total`` gives."""
        return self.algorithm(problem).inside().server()

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
        """Who answers when: all clients, a sample in each round, or as the preset says."""
        found = self.composition.participation
        if found is not None:
            return found
        if self.clients_per_round is None:
            return All()
        return Drawn(self.num_clients, self.clients_per_round)

    def settled(self, draws: Draws) -> Self:
        """Return a copy with whatever the server draws, and tells everyone, before the run."""
        participation = self.participation
        if not participation.told:
            return self
        scheduled = participation.scheduled(draws)
        return self.changed(**{name: getattr(scheduled, name) for name in participation.told})

    # What is claimed, and what is stated

    def claim(self) -> Claim | None:
        """Return what the source claims of this configuration, if it claims anything."""
        return self.composition.claim

    @property
    def epsilon_meaning(self) -> EpsilonMeaning | None:
        """What the setting ``epsilon`` is about, where the system has one."""
        return self.composition.calibration.meaning

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
        return self.composition.downlink is not None

    def check_shares(self, sizes: Sequence[int]) -> None:
        """Refuse shares of simulated clients that a setting has promised not to happen.

        Args:
            sizes: how many examples each client got.

        Raises:
            ConfigError: it did happen.
        """
        self.composition.calibration.check_shares(sizes)

    @property
    def data_may_refuse(self) -> bool:
        """Whether the data may refuse a run of which the plan could be made."""
        parts = self.composition
        return parts.calibration.data_may_refuse or parts.local.data_may_refuse

    def tested_on(self) -> str:
        """Return, for the reader, what a run's accuracy is measured on."""
        return self.composition.local.tested_on

    def delays(self) -> Delays | None:
        """Return the shuffler's time model where reports are shuffled, else None."""
        return self.composition.channel.delays

    @property
    def longer_begins_with_shorter(self) -> bool:
        """Whether a run of more rounds has the same results in those of a shorter one.

        A target is solved for all rounds, and the rounds that are averaged are counted from the
        last one.
        """
        parts = self.composition
        uses = parts.calibration.uses_rounds or parts.local.uses_rounds
        return not uses and self.target is None and self.average == 0

    def work_before_training(self, problem: Problem) -> int:
        """Return how often clients multiply by a weight, forwards, before they train the model."""
        return self.composition.local.work_before_training(self, problem)

    @classmethod
    def name(cls) -> str:
        """Return the system's name."""
        return str(cls.model_fields["system"].default)

    def with_budget(self, budget: float) -> Self:
        """Return a copy that spends ``budget``, for a target: the more, the less it protects.

        Raises:
            ConfigError: the system has nothing to solve for, or not such a budget.
        """
        if self.inverse:
            return self.changed(**{self.solved: 1 / budget})
        if self.solved not in type(self).model_fields:
            raise ConfigError(
                f"target: {self.name()} has no epsilon to solve for; choose another system"
            )
        if isinstance(own := getattr(self, self.solved), list):
            raise ConfigError(
                f"target: epsilon = {own} has a budget for each client; give one for all of them"
            )
        drawn = dict.fromkeys(self.participation.told)  # it is to be drawn again
        return self.changed(**{self.solved: budget, **drawn})

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
            model = build_model(self.model, self.model_input(problem), problem.num_classes)
        self.composition.features.prepare(model)
        return model

    def first_weights(self, problem: Problem, draw: Draw) -> Vector:
        """Return the model's weights before training, float32, shape (d,)."""
        from fedldp.parts.tensors import read_weights

        return read_weights(self.module(problem, draw("weights")))

    def first_state(self, problem: Problem, draw: Draw) -> State:
        """Return a server's state that holds nothing but the first weights."""
        return State(weights=self.first_weights(problem, draw))

    def server_update(
        self,
        estimate: Estimate,
        *,
        noise: Callable[[int, Draw], Values] | None = None,
        finish: Callable[[Values, State], Values] | None = None,
    ) -> ServerUpdate:
        """Return the server's rule; see ``ServerUpdate`` for the arguments."""
        return ServerUpdate(
            estimate=estimate,
            step=Step(
                optimizer=self.server_optimizer,
                rate=self.server_rate,
                momentum=self.server_momentum,
            ),
            noise=noise,
            finish=finish,
            average_from=first_averaged(self.average, self.rounds),
        )
