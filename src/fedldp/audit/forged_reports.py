"""Reports that lying clients would write: no honest randomiser makes them, yet they are accepted.

A report is forged for a direction, which has a number for each weight. Among all reports that the
wire format allows, it is the one whose estimate goes furthest in that direction. If the format of
the reports is unknown here, we use the best of some honest reports of a vector in that direction,
so that any mechanism can be attacked.

In expectation, an honest report of a bounded vector moves an estimate by what the bound allows. A
forged report moves it by what the *encoding* allows, which grows with the noise. (Cheu, Smith,
Ullman, "Manipulation Attacks in Local Differential Privacy", S&P 2021.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.events import Event
from fedldp.core.bounding import LARGEST_WEIGHT
from fedldp.mechanisms import Mechanism
from fedldp.mechanisms.codes import ClippedCodes
from fedldp.mechanisms.gaussian_share import SharedGaussian
from fedldp.mechanisms.none import Plain
from fedldp.mechanisms.packing import packed_bytes
from fedldp.mechanisms.rotation import Rotation
from fedldp.protocol.roles import Encoder, Sender, Senders, Update
from fedldp.protocol.updates import alone, each_alone
from fedldp.protocol.wire import Broadcast, Report, Reports, Sensitive
from fedldp.secure_sum.client_role import SummedEncoder

Lie = Literal["report", "random", "update", "labels"]
"""``report``: a forged report, against the true update. ``random``: a forged report in a random
direction. ``update``: an honest report of an update that is reversed and ``FACTOR`` times as long.
``labels``: everything is honest except the labels, each of which is replaced by the next class."""

FACTOR = 100.0
_HONEST = 32
"""The number of honest reports from which the best is chosen."""
_WEIGHT = 1e9
"""The weight of a forged report, if it has one."""

Floats = NDArray[np.floating]


def made_of(encoder: object) -> Mechanism | None:
    """Return the mechanism that makes an encoder's reports; None if reports are plain floats."""
    if isinstance(encoder, Mechanism):
        return None if isinstance(encoder, Plain) else encoder
    if not is_dataclass(encoder):
        return None
    found = (made_of(getattr(encoder, field.name)) for field in fields(encoder))
    return next((one for one in found if one is not None), None)


@dataclass(frozen=True)
class Forger:
    """Writes forged reports.

    Attributes:
        encoder: the encoder of an honest client.
        share: the share of a modulus that one liar uses, where reports are added modulo a number.
        bits: the number of bits of the modulus, if the encoder does not state the modulus.
    """

    encoder: Encoder
    share: float
    bits: int

    def forge(self, honest: Report, direction: Floats, sender: Sender, round: int) -> Report:
        """Return the report that goes furthest; the arguments are those of ``payload``."""
        payload = self.payload(honest, direction, sender, round)
        weight = None if honest.weight is None else _WEIGHT
        return replace(honest, payload=payload, weight=weight)

    def payload(self, report: Report, direction: Floats, sender: Sender, round: int) -> bytes:
        """Return the payload that goes furthest.

        Args:
            report: an honest report of the same format.
            direction: shape (d,).
            sender: whose report it is.
            round: the report's round.
        """
        mechanism = made_of(self.encoder)
        if isinstance(mechanism, SharedGaussian):
            turned = Rotation(direction.size, round).forward(direction[None].astype(np.float64))[0]
            most = int(self.share * ((1 << (mechanism.bits - 1)) - 1))
            return mechanism.pack(most * _signs(turned))
        if isinstance(mechanism, ClippedCodes):
            most = int(self.share * ((1 << (self.bits - 1)) - 1))
            return (most * _signs(direction)).astype("<i8").tobytes()
        if len(report.payload) == packed_bytes(report.size):
            return np.packbits(direction > 0).tobytes()
        if mechanism is None:
            return (LARGEST_WEIGHT / 2 * _signs(direction)).astype("<f4").tobytes()
        furthest = mechanism.furthest(direction)
        return self._best(mechanism, direction, sender) if furthest is None else furthest

    def _best(self, mechanism: Mechanism, direction: Floats, sender: Sender) -> bytes:
        values = _signs(direction).astype(np.float64) * FACTOR
        stream = sender.fresh("mechanism")
        found = [mechanism.encode(values, stream) for _ in range(_HONEST)]

        def reached(payload: bytes) -> float:
            aggregate = mechanism.aggregate(direction.size)
            aggregate.add(payload)
            return float(aggregate.mean() @ direction)

        return max(found, key=reached)


def _signs(direction: Floats) -> NDArray[np.int64]:
    return np.where(direction > 0, 1, -1).astype(np.int64)


@dataclass(frozen=True)
class Forged:
    """An encoder that forges what an honest client's encoder would send.

    Attributes:
        forger: writes the report.
        towards: returns the direction for an update and a broadcast.
        accepts: returns whether the server accepts a report, given an honest one.
    """

    forger: Forger
    towards: Callable[[Any, Broadcast], Floats]
    accepts: Callable[[Report, Report], bool]

    def event(self, phase: int = 0, round: int = 1) -> Event:
        """Return the honest encoder's event, which is all that the ledger sees."""
        return self.forger.encoder.event(phase, round)

    def __call__(
        self, update: Sensitive[Update], broadcast: Broadcast, senders: Senders
    ) -> Reports:
        """Return the reports of clients that lie."""
        return each_alone(self._report, update, broadcast, senders)

    def _report(self, update: Sensitive[Update], broadcast: Broadcast, sender: Sender) -> Report:
        honest = alone(self.forger.encoder, Sensitive(None), broadcast, sender)
        direction = self.towards(update.open(), broadcast)
        report = self.forger.forge(honest, direction, sender, broadcast.round)
        assert self.accepts(report, honest), "the server refuses a forged report"
        return report


def forging(encoder: Encoder, make: Callable[[Encoder], Forged]) -> Encoder:
    """Return an encoder whose reports are forged, even inside a secure sum."""
    if isinstance(encoder, SummedEncoder):
        return replace(encoder, inner=make(encoder.inner))
    return make(encoder)


def against(update: Update, broadcast: Broadcast) -> Floats:
    """Return the direction opposite to one client's true update."""
    weights: NDArray[np.float32] = np.asarray(update.rows)[0]
    return broadcast.weights.astype(np.float64) - weights
