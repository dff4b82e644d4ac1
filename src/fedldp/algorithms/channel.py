"""Channels: how reports travel from clients to the server, and what the server sees of them.

The statement has a line for each adversary that a channel defines. With every channel there is the
``server``, which receives each report. A shuffler hides the senders from a ``shuffled-server``. A
secure sum hides everything but the total from a ``summing-server``.
"""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from fedldp.algorithms.release import Encoder
from fedldp.algorithms.settings import Count, Delays, Offer
from fedldp.core.errors import ConfigError
from fedldp.mechanisms import Mechanism, sends_category
from fedldp.mechanisms.summing import Summing
from fedldp.protocol.roles import Encoder as EncoderRole
from fedldp.protocol.roles import ServerRole
from fedldp.secure_sum.client_role import Phase, SummedEncoder
from fedldp.secure_sum.messages import Committees, SecureSum
from fedldp.secure_sum.server_role import summed_server

Sigma = Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]

SHUFFLER = (
    Offer(
        "chunk",
        Count,
        "number of weights in one shuffled message, from 1 to the model's size",
        1,
    ),
    Offer(
        "prediction_error",
        Sigma,
        "error in a simulated client's prediction of its own times: the sigma of a log-normal "
        "factor",
        0.0,
        simulated=True,
    ),
)
"""The settings of ``Shuffle``: the size of its messages, and its time model."""

MASKED = (
    Offer(
        "dropout",
        Share,
        "probability that a simulated client leaves in the middle of a round",
        0.0,
        simulated=True,
    ),
)
"""The settings of ``MaskedSum``."""

CHANNEL = Offer(
    "channel",
    Literal["named", "shuffle", "sum", "central"] | None,
    "what the server sees of the reports: each report with its sender (named); pieces of reports, "
    "or whole reports, without names (shuffle); only the sum of the reports (sum); or every "
    "report in the clear, because clients trust the server (central); if not set, the system "
    "decides",
    None,
)

_UNSHUFFLED = {offer.name: "reports go through no shuffler" for offer in SHUFFLER}
_UNMASKED = {offer.name: "the simulation runs no dialogue for a secure sum" for offer in MASKED}


@dataclass(frozen=True, kw_only=True)
class Channel(ABC):
    """How reports reach the server.

    Attributes:
        kind: its name in the setting ``channel``.
        phases: how many requests a client receives in one round.
        trains_in: the phase in which clients train.
        delays: the size of a shuffler's messages, and its time model in a simulation.
        shuffles_reports: whether a shuffler carries whole reports rather than pieces of them.
        unused: settings of other channels, each with the reason why it is refused with this one.
    """

    delays: Delays | None = None

    kind: ClassVar[str]
    phases: ClassVar[int] = 1
    trains_in: ClassVar[int] = 0
    shuffles_reports: ClassVar[bool] = False
    unused: ClassVar[Mapping[str, str]] = {**_UNSHUFFLED, **_UNMASKED}

    @property
    def hides_senders(self) -> bool:
        """Whether the statement has lines for a shuffler."""
        return False

    def chunk(self, size: int) -> int | None:
        """Return how many of a model's ``size`` coordinates one message carries; None means all.

        Raises:
            ConfigError: a message cannot have that many coordinates.
        """
        return None

    def encoder(self, encoder: Encoder) -> EncoderRole:
        """Return the encoder for a client's answers, given the ``encoder`` for its report."""
        return encoder

    def server(self, server: ServerRole, encoder: Callable[[], Encoder]) -> ServerRole:
        """Return the server's role; ``encoder`` returns the encoder for reports."""
        return server


@dataclass(frozen=True, kw_only=True)
class Named(Channel):
    """Every report reaches the server with its sender's name."""

    kind: ClassVar[str] = "named"


@dataclass(frozen=True, kw_only=True)
class Shuffle(Channel):
    """Reports reach the server in pieces, in order of arrival, without names."""

    kind: ClassVar[str] = "shuffle"
    unused: ClassVar[Mapping[str, str]] = _UNMASKED

    @classmethod
    def of(cls, settings: Any) -> Shuffle:
        """Return the shuffler that the settings in ``SHUFFLER`` describe."""
        return cls(
            delays=Delays(
                chunk=settings.chunk,
                prediction_error=settings.prediction_error,
            )
        )

    @property
    def hides_senders(self) -> bool:
        """Whether arrival times reveal nothing; see ``Channel``."""
        return self.delays is not None and self.delays.prediction_error == 0

    def chunk(self, size: int) -> int:
        """Return the number of coordinates in one message; see ``Channel``."""
        assert self.delays is not None
        if self.delays.chunk > size:
            raise ConfigError(
                f"chunk = {self.delays.chunk}: the model has {size} weights; give at most that many"
            )
        return self.delays.chunk


@dataclass(frozen=True, kw_only=True)
class ShuffleReports(Channel):
    """Whole reports of one category each reach the server together, without names or order.

    A report holds a seed, a category and nothing else, and all reports have the same size. A
    client's second report in a round is dropped. The shuffler must be someone other than the
    server. No deployment has such a relay yet, so sites refuse this channel.
    """

    kind: ClassVar[str] = "shuffle"
    shuffles_reports: ClassVar[bool] = True
    unused: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            _UNSHUFFLED, "whole reports are shuffled once all reports of a round have arrived"
        ),
        **_UNMASKED,
    }

    @property
    def hides_senders(self) -> bool:
        """True; see ``Channel``."""
        return True

    def encoder(self, encoder: Encoder) -> EncoderRole:
        """Return the encoder, which then states how its category is drawn; see ``Channel``."""
        return replace(encoder, one_category=True)


@dataclass(frozen=True, kw_only=True)
class Sum(Channel):
    """A secure sum gives the server the total of a round's reports, and nothing else.

    A simulation computes the total in the server's step, which reads nothing else. The result
    equals the sum of masked reports bit for bit, at a thousandth of the cost. A deployment masks
    the same reports.
    """

    kind: ClassVar[str] = "sum"


@dataclass(frozen=True, kw_only=True)
class MaskedSum(Sum):
    """A secure sum whose four phases also run in a simulation.

    Attributes:
        dropout: probability that a client leaves in the middle of a round.
        committees: which client is in which sum.
    """

    phases: ClassVar[int] = len(Phase)
    trains_in: ClassVar[int] = Phase.MASKED_INPUT
    unused: ClassVar[Mapping[str, str]] = _UNSHUFFLED

    dropout: float
    committees: Committees

    def setup(self, summing: Summing) -> SecureSum:
        """Return the parameters for one of a round's sums, without certified keys.

        Raises:
            ConfigError: a setting is out of range, or the sum would not fit into 64 bits.
        """
        return SecureSum.of(summing, self.committees.most, None)

    def encoder(self, encoder: Encoder) -> EncoderRole:
        """Return the encoder that answers in each phase; see ``Channel``."""
        summing = _summing(encoder, self.committees.most)
        return SummedEncoder(encoder, summing, self.setup(summing))

    def server(self, server: ServerRole, encoder: Callable[[], Encoder]) -> ServerRole:
        """Return the role that runs the dialogue; see ``Channel``."""
        summing = _summing(encoder(), self.committees.most)
        return summed_server(
            server, summing, self.setup(summing), committees=self.committees, dropout=self.dropout
        )

    def check(self, summing: Summing, fewest: int) -> None:
        """Refuse rounds in which too few clients can be expected to stay.

        Args:
            summing: how reports add up, for a model of any size.
            fewest: the smallest number of clients in a sum.

        Raises:
            ConfigError: too few clients can be expected to stay; or see ``setup``.
        """
        setup = self.setup(summing)
        if self.committees.number > 1 and fewest < setup.threshold:
            raise ConfigError(
                f"committee = {self.committees.fewest}: {setup.threshold} clients must stay until "
                f"the end of a sum, but the smallest committee has {fewest}; give a larger number"
            )
        if fewest < setup.threshold:
            raise ConfigError(
                f"participation = once: {setup.threshold} clients must stay until the end of a "
                f"sum, but some rounds have {fewest}; set participation = all"
            )
        staying = fewest * (1 - self.dropout)
        if staying < setup.threshold:
            most = math.floor(1000 * (1 - setup.threshold / fewest)) / 1000
            raise ConfigError(
                f"dropout = {self.dropout:g}: of {fewest} clients in a round, {staying:g} are "
                f"expected to stay, fewer than the {setup.threshold} that a sum needs; give a "
                f"dropout of at most {most:g}"
            )


@dataclass(frozen=True, kw_only=True)
class Central(Channel):
    """Clients send reports in the clear to a server that they trust, which draws the noise."""

    kind: ClassVar[str] = "central"


def channel_of(settings: Any, kind: type[Mechanism]) -> Channel:
    """Return the channel that the setting names, for reports from this class of mechanisms."""
    match settings.channel:
        case "shuffle":
            return ShuffleReports() if sends_category(kind) else Shuffle.of(settings)
        case "sum":
            return Sum()
        case "central":
            return Central()
        case _:
            return Named()


def _summing(encoder: Encoder, clients: int) -> Summing:
    """Return how the reports from an encoder add up.

    Raises:
        ConfigError: the reports do not add up.
    """
    found = encoder.summing(clients)
    if found is None:
        raise ConfigError("channel = sum: these reports cannot be summed; set channel = named")
    return found
