"""Settings that several algorithms share, and those with a value for each client.

A client receives only its own value, which is marked because other clients may have different
values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from fedldp.accounting.accountants import BudgetKind, Part
from fedldp.accounting.guarantees import Adversary, Unit
from fedldp.core.errors import ConfigError
from fedldp.core.frozen_config import FrozenConfig
from fedldp.core.numbers import SMALLEST_DELTA
from fedldp.data.image_features import Augmentation
from fedldp.ledgers.budget import Budget
from fedldp.models import name_of

Positive = Annotated[float, Field(ge=1e-38, le=1e38, allow_inf_nan=False)]
LearningRate = Annotated[float, Field(ge=1e-38, le=1e30, allow_inf_nan=False)]
"""The limit leaves room in float32 for optimisers: Adam's first step is up to 10 times the rate."""

Delta = Annotated[float, Field(ge=SMALLEST_DELTA, lt=1)]
NormBound = Annotated[float, Field(ge=1e-9, le=1e9, allow_inf_nan=False)]
NoiseMultiplier = Annotated[float, Field(ge=1e-3, le=1e3, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
ServerRate = Annotated[float, Field(ge=1e-6, le=1e3, allow_inf_nan=False)]
RunBudget = Annotated[float, Field(ge=1e-4, le=1e4, allow_inf_nan=False)]
Momentum = Annotated[float, Field(ge=0, lt=1)]


def _named(model: Any) -> Any:
    """Return the name of a model that a Python program passes; return other values unchanged."""
    return name_of(model) if callable(model) else model


ModelName = Annotated[str, BeforeValidator(_named)]

Trainable = Annotated[str, Field(pattern=r"^[^,\s]+( *, *[^,\s]+)*$")]
WEIGHTS = ".safetensors"
"""The file extension of weight files."""
WeightsFile = Annotated[str, Field(pattern=rf"\{WEIGHTS}$")]

LARGEST_BATCH = 1_000_000_000


class PrivacyTarget(FrozenConfig):
    """A guarantee to meet: the run's budget is chosen so that the statement meets it."""

    unit: Unit
    epsilon: Positive
    delta: float = Field(1e-5, ge=0, lt=1)
    adversary: Adversary = "server"


class ClientBudget(FrozenConfig):
    """The limit in every simulated client's ledger."""

    limit: float = Field(ge=0, allow_inf_nan=False)
    """The limit on the total cost of a client's releases."""
    kind: BudgetKind = "pure"
    """What is limited: epsilon (pure), rho (zcdp) or mu squared (gdp)."""

    def budget(self) -> Budget:
        """Return the ledger's budget."""
        return Budget(**dict(self))

    def __str__(self) -> str:
        return str(dict(self))


class PersonBudget(ClientBudget):
    """The limit in every simulated client's ledger for each person, or each record."""

    unit: Part = "person"
    """What the limit protects; "record" if a system only distinguishes single records."""


@dataclass(frozen=True, kw_only=True)
class Delays:
    """The messages of a simulated shuffler and its time model; see ``simulation.shuffler``.

    Attributes:
        chunk: the number of coordinates in one message.
        prediction_error: the sigma of a log-normal factor between a client's prediction of its own
            times and the times that it takes.
        compute_seconds: the typical time that a client needs to train.
        communication_seconds: the typical time that a message takes to arrive.
        spread: how much clients' times differ: the sigma of a log-normal factor.
        delay_seconds: the typical value that a client proposes for T, the longest random delay.
    """

    chunk: int
    prediction_error: float
    compute_seconds: float = 60.0
    communication_seconds: float = 1.0
    spread: float = 0.5
    delay_seconds: float = 10.0


class Mark(Enum):
    """What else there is to say about a setting: ``Annotated[float, Mark.PER_CLIENT]``."""

    PER_CLIENT = "may be a list with one value per client; a client receives only its own"
    SIMULATED = "only simulations use it, so that it is not sent to clients"


class Offers(BaseModel):
    """Settings that a preset offers, each with its type, and its default if it has one.

    The text below a setting is its meaning. A setting without a default must be given. A preset
    takes the class itself; nothing is made of it.
    """

    model_config = ConfigDict(
        protected_namespaces=(), use_attribute_docstrings=True, defer_build=True
    )


class MomentumSettings(Offers):
    """The momentum of ``Sgd``."""

    momentum: Momentum = 0.0
    """momentum of the clients' SGD; it starts at zero in every round"""


class AugmentationSettings(Offers):
    """The augmentation of ``Sgd``."""

    augmentation: Augmentation = "none"
    """how clients change each image at random whenever they train on it: none; shift (by up to a
    tenth of its side); shift-flip (also mirrored, half of the time); rotate-shift (rotated by up to
    15 degrees, and shifted); rotate-shift-flip (all three)"""


class WeightingSettings(Offers):
    """Whether the mean is an ``OwnMean`` or weighted by examples."""

    weighting: Literal["uniform", "examples"] = "uniform"
    """weight of each client in the average: uniform (1 for all), or examples (the client's number
    of examples, which is then revealed)"""


class ClientValue(FrozenConfig):
    """The value of one client, which does not know other clients' values."""

    model_config = ConfigDict(strict=True)

    own: float | int


def is_own(values: Any) -> bool:
    """Return whether a setting differs, or may differ, from client to client."""
    return isinstance(values, Sequence | ClientValue) and not isinstance(values, str)


def check_one_each(name: str, values: Any, num_clients: int) -> None:
    """Refuse a list that does not have one value for each client.

    Raises:
        ConfigError: the list has the wrong length.
    """
    if isinstance(values, Sequence) and len(values) != num_clients:
        raise ConfigError(
            f"{name} has {len(values)} values for num_clients = {num_clients}: give one value for "
            "all clients, or one per client"
        )


def of_client(values: float | Sequence[float] | ClientValue, client: int) -> float:
    """Return the value that a client chose."""
    if isinstance(values, ClientValue):
        return values.own
    return values[client] if isinstance(values, Sequence) else values
