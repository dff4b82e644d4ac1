"""Channels: how reports travel from clients to the server, and what the server sees of them.

The statement has a line for each adversary that a channel defines. With every channel there is the
``server``, which receives each report. A shuffler hides the senders from a ``shuffled-server``. A
secure sum hides everything but the total from a ``summing-server``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from fedldp.algorithms.release import Encoder
from fedldp.algorithms.settings import Count, Delays, Mark, Offers
from fedldp.core.errors import ConfigError
from fedldp.mechanisms.summing import Summing
from fedldp.protocol.roles import Encoder as EncoderRole
from fedldp.protocol.roles import ServerRole
from fedldp.secure_sum.client import Phase, SummedEncoder
from fedldp.secure_sum.messages import Committees, SecureSum
from fedldp.secure_sum.server import summed_server

Sigma = Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)]

Kind = Literal["named", "shuffle", "sum", "central"]

SEEN: Mapping[Kind, str] = {
    "named": "each report with its sender",
    "shuffle": "pieces of reports, or whole reports, without names",
    "sum": "only the sum of the reports",
    "central": "every report in the clear, because clients trust the server",
}
"""What the server sees of the reports."""


class ChannelSettings(Offers):
    """The channel, the size of a shuffler's messages, and its time model."""

    channel: Kind | None = Field(
        None,
        description="what the server sees of the reports: "
        f"{'; '.join(f'{SEEN[kind]} ({kind})' for kind in SEEN)}; if not set, the system decides",
    )
    chunk: Count = 1
    """number of weights in one shuffled message, from 1 to the model's size"""
    prediction_error: Annotated[Sigma, Mark.SIMULATED] = 0.0
    """error in a simulated client's prediction of its own times: the sigma of a log-normal factor
    """


_UNSHUFFLED = dict.fromkeys(("chunk", "prediction_error"), "no pieces of reports are shuffled")
_UNMASKED = {"dropout": "the simulation runs no dialogue for a secure sum"}


@dataclass(frozen=True, kw_only=True)
class Channel:
    """How reports reach the server.

    Attributes:
        kind: what the server sees, as in the setting ``channel``:

            - "named": every report with its sender's name;
            - "shuffle": pieces of reports, in order of arrival, without names; or, without
              ``delays``, whole reports of one category each, together and without order. Such a
              report holds a seed, a category and nothing else, and all have the same size. A
              client's second report in a round is dropped. The shuffler must be someone other than
              the server. No deployment has such a relay yet, so sites refuse this channel;
            - "sum": the total of a round's reports, and nothing else. A simulation computes it in
              the server's step, which reads nothing else. The result equals the sum of masked
              reports bit for bit, at a thousandth of the cost. A deployment masks the same reports;
            - "central": reports in the clear, because clients trust the server, which draws the
              noise.
        delays: the size of a shuffler's messages, and its time model in a simulation.
        phases: how many requests a client receives in one round.
        trains_in: the phase in which clients train.
    """

    phases: ClassVar[int] = 1
    trains_in: ClassVar[int] = 0

    kind: Kind = "named"
    delays: Delays | None = None

    @classmethod
    def of(cls, settings: Any, kind: Kind, *, category: bool = False) -> Channel:
        """Return the channel of a kind.

        Args:
            settings: ``chunk`` and ``prediction_error`` describe a shuffler.
            kind: the kind.
            category: whether a report has one category for all weights, and is shuffled as a whole.
        """
        if kind != "shuffle" or category:
            return cls(kind=kind)
        delays = Delays(chunk=settings.chunk, prediction_error=settings.prediction_error)
        return cls(kind=kind, delays=delays)

    @property
    def shuffles_reports(self) -> bool:
        """Whether a shuffler carries whole reports rather than pieces of them."""
        return self.kind == "shuffle" and self.delays is None

    @property
    def hides_senders(self) -> bool:
        """Whether the statement has lines for a shuffler: arrival times reveal nothing."""
        return self.kind == "shuffle" and (self.delays is None or not self.delays.prediction_error)

    @property
    def unused(self) -> Mapping[str, str]:
        """Settings of other channels, each with the reason why it is refused with this one."""
        return _UNMASKED if self.delays is not None else _UNSHUFFLED | _UNMASKED

    def chunk(self, size: int) -> int | None:
        """Return how many of a model's ``size`` coordinates one message carries; None means all.

        Raises:
            ConfigError: a message cannot have that many coordinates.
        """
        if self.delays is None:
            return None
        if self.delays.chunk > size:
            raise ConfigError(
                f"chunk = {self.delays.chunk}: the model has {size} weights; give at most that many"
            )
        return self.delays.chunk

    def encoder(self, encoder: Encoder) -> EncoderRole:
        """Return the encoder for a client's answers, given the ``encoder`` for its report.

        If whole reports are shuffled, it states how its category is drawn.
        """
        return replace(encoder, one_category=True) if self.shuffles_reports else encoder

    def server(self, server: ServerRole, encoder: Callable[[], Encoder]) -> ServerRole:
        """Return the server's role; ``encoder`` returns the encoder for reports."""
        return server


@dataclass(frozen=True, kw_only=True)
class MaskedSum(Channel):
    """A secure sum whose four phases also run in a simulation.

    Attributes:
        dropout: probability that a client leaves in the middle of a round.
        committees: which client is in which sum.
    """

    phases: ClassVar[int] = len(Phase)
    trains_in: ClassVar[int] = Phase.MASKED_INPUT

    kind: Kind = "sum"
    dropout: float
    committees: Committees

    @property
    def unused(self) -> Mapping[str, str]:
        """The settings of a shuffler; see ``Channel``."""
        return _UNSHUFFLED

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
        if fewest < setup.threshold:
            name, remedy = "participation = once", "set participation = all"
            if self.committees.number > 1:
                name, remedy = f"committee = {self.committees.fewest}", "give a larger number"
            raise ConfigError(
                f"{name}: {setup.threshold} clients must stay until the end of a sum, but the "
                f"smallest has {fewest}; {remedy}"
            )
        staying = fewest * (1 - self.dropout)
        if staying < setup.threshold:
            most = math.floor(1000 * (1 - setup.threshold / fewest)) / 1000
            raise ConfigError(
                f"dropout = {self.dropout:g}: of {fewest} clients in a round, {staying:g} are "
                f"expected to stay, fewer than the {setup.threshold} that a sum needs; give a "
                f"dropout of at most {most:g}"
            )


def _summing(encoder: Encoder, clients: int) -> Summing:
    """Return how the reports from an encoder add up.

    Raises:
        ConfigError: the reports do not add up.
    """
    found = encoder.summing(clients)
    if found is None:
        raise ConfigError("channel = sum: these reports cannot be summed; set channel = named")
    return found
