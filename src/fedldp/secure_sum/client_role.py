"""A secure sum as a channel: the server is given the total of a round's reports, and no report.

    ClientRole   ---- summed_client ---->  four phases in one round (``secure_sum``):
      trains in MASKED_INPUT only            ADVERTISE     two public keys, signed if certified
      encoder      its report, as words      SHARE_KEYS    sealed shares of the secrets behind masks
                   and masked                MASKED_INPUT  the words + masks, modulo 2^bits
                                             UNMASK        shares that take the masks off the total
    ServerRole   ---- summed_server ---->  a dialogue, which gives the server step one total

A system says by ``Summing`` how its reports are summed; its two halves stay as they are. What a
client releases is what its encoder states, in the phase MASKED_INPUT: that holds whatever a
server does. What a server sees of it besides the total is told in ``secure_sum``.

A round with too few clients, or with wrong shares, has no sum: the weights stay as they are, and
the next round begins. It is never repeated: another sum of other clients in it would draw on the
same secrets, and clients refuse it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.events import Event, NoRelease
from fedldp.core.errors import ConfigError, PrivacyError
from fedldp.core.randomness import KEY_BYTES, Stream
from fedldp.mechanisms.summing import Summing, Words
from fedldp.protocol.roles import ClientRole, Encoder, Sender, Senders, Update
from fedldp.protocol.updates import alone, each_alone
from fedldp.protocol.wire import Broadcast, Report, Reports, Sensitive
from fedldp.secure_sum.client import SecureSumClient
from fedldp.secure_sum.identities import Identity
from fedldp.secure_sum.messages import SecureSum

KEYS, SHARES, SURVIVORS = "sum_keys", "sum_shares", "sum_survivors"
"""Under what names a broadcast has the server's messages of a round's sum."""


class Phase(IntEnum):
    """The four phases of a round."""

    ADVERTISE = 0
    SHARE_KEYS = 1
    MASKED_INPUT = 2
    UNMASK = 3


def summed_client(
    side: ClientRole, summing: Summing, setup: SecureSum, identity: Identity | None = None
) -> ClientRole:
    """Return the half of a client whose reports go through the secure sum.

    Args:
        side: the client's half of the system, of one phase.
        summing: how its reports are summed.
        setup: the parameters that it agreed to.
        identity: its own, where keys are certified.

    Raises:
        ConfigError: the system has several phases of its own.
    """
    if side.phases != 1:
        raise ConfigError(
            f"exchanges = {side.phases}: only a system of one exchange a round can be summed"
        )
    return replace(
        side,
        encoder=Answer(side.encoder, summing, setup, identity),
        phases=len(Phase),
        reporting=Phase.MASKED_INPUT,
        trains_in=Phase.MASKED_INPUT,
    )


@dataclass(frozen=True)
class Answer:
    """The client's encoder: its answer in each phase.

    Which one it is says the runtime, which charges for it and answers each once in a round; nothing
    in the broadcast does. It is made anew for each, so the client's store has the round's secrets,
    what it was asked, and the words that it masks: a server that asks otherwise later, also after a
    restart of the client, is refused, and no second vector comes under the same masks. Both follow
    from the server's messages alone.

    The secrets are drawn afresh in each round, and not from what the client keeps for ever: a store
    that was restored from a copy of an earlier round has other ones.

    Attributes:
        inner: the system's encoder.
        summing: how its reports are summed.
        setup: the parameters of a round's sum.
        identity: the client's own, where keys are certified.
    """

    inner: Encoder
    summing: Summing
    setup: SecureSum
    identity: Identity | None = None

    def event(self, phase: int = 0) -> Event:
        """Return what the answer in a phase releases: one of them depends on examples."""
        match Phase(phase):
            case Phase.ADVERTISE:
                return NoRelease(what="public keys")
            case Phase.SHARE_KEYS:
                return NoRelease(what="sealed shares of the secrets behind masks")
            case Phase.MASKED_INPUT:
                return self.inner.event()
            case Phase.UNMASK:
                return NoRelease(what="shares of the secrets behind masks")

    def __call__(
        self, update: Sensitive[Update], broadcast: Broadcast, senders: Senders
    ) -> Reports:
        """Return the answer of each client to the server's message so far.

        Raises:
            PrivacyError: the server asked otherwise before, or its message is not to be answered.
            RunError: its message is malformed.
        """
        return each_alone(self._answer, update, broadcast, senders)

    def _answer(self, update: Sensitive[Update], broadcast: Broadcast, sender: Sender) -> Report:
        own = SecureSumClient(
            self.setup,
            broadcast.round,
            sender.index,
            _secret(broadcast.round, sender),
            _Remembered(broadcast.round, sender),
            self.identity,
        )
        keys, shares, survivors = (
            broadcast.public[name].tobytes() if name in broadcast.public else b""
            for name in (KEYS, SHARES, SURVIVORS)
        )
        match Phase(sender.phase):
            case Phase.ADVERTISE:
                message = own.advertise()
            case Phase.SHARE_KEYS:
                message = own.share_keys(keys)
            case Phase.MASKED_INPUT:
                message = own.masked_input(
                    keys, shares, lambda: self._kept_words(update, broadcast, sender)
                )
            case Phase.UNMASK:
                message = own.unmask(keys, shares, survivors)
        return Report(
            round=broadcast.round,
            size=self.setup.size,
            payload=message,
            chunk=self.setup.size,
            client=sender.index,
        )

    def _kept_words(self, update: Sensitive[Update], broadcast: Broadcast, sender: Sender) -> Words:
        """Return the vector that the client masks in this round, which is the first that it had.

        To be called for a question that will be answered: what is kept of earlier rounds goes.
        """

        def make() -> Mapping[str, Words]:
            told, inside = _without_sum(broadcast), replace(sender, phase=0)
            report = alone(self.inner, update, told, inside)
            return {"words": self.setup.words(self.summing.words(report))}

        return sender.store.arrays("sum-input", make, round=broadcast.round)["words"]


def _secret(round: int, sender: Sender) -> Stream:
    """Return the stream of a round's secrets, which its first phase draws."""

    def make() -> Mapping[str, NDArray[np.uint8]]:
        if sender.phase != Phase.ADVERTISE:
            raise PrivacyError(f"round {round}: its secrets are gone: nothing is sent")
        return {"key": sender.fresh("secure sum").bytes(KEY_BYTES)}

    kept = sender.store.arrays("sum-secret", make, round=round)
    return Stream(kept["key"].tobytes(), simulated=sender.fresh("secure sum").simulated)


@dataclass(frozen=True)
class _Remembered:
    """The first digests of what a client was asked in a round, in its store."""

    round: int
    sender: Sender

    def __call__(self, name: str, digest: bytes) -> bytes:
        kept = self.sender.store.arrays(
            f"sum-{name}",
            lambda: {"digest": np.frombuffer(digest, np.uint8)},
            round=self.round,
        )
        return kept["digest"].tobytes()


def _without_sum(broadcast: Broadcast) -> Broadcast:
    """Return what the system itself told."""
    names = broadcast.public.keys() - {KEYS, SHARES, SURVIVORS}
    return replace(broadcast, public={name: broadcast.public[name] for name in names})
