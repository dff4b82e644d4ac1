"""A secure sum as a channel: the server receives the total of a round's reports, but no report.

    ClientRole   ---- summed_client ---->  four phases in one round (``secure_sum``):
      trains in MASKED_INPUT only            ADVERTISE     two public keys, signed if certified
      encoder      its report, as words      SHARE_KEYS    sealed shares of the secrets behind masks
                   and masked                MASKED_INPUT  the words + masks, modulo 2^bits
                                             UNMASK        shares that take the masks off the total
    ServerRole   ---- summed_server ---->  a dialogue, which gives the server step one total

``Summing`` says how a system's reports are summed; the client and server roles of the system do not
change. A client releases what its encoder states, in the phase MASKED_INPUT, whatever a server
does. ``secure_sum`` says what a server sees of a client besides the total.

A round with too few clients, or with wrong shares, has no sum: the weights stay as they are, and
the next round begins. The round is never repeated: a second sum in it, over other clients, would
use the same secrets, and clients refuse it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.events import Event, InClear, NoRelease, to_record
from fedldp.core.errors import ConfigError, PrivacyError
from fedldp.core.randomness import KEY_BYTES, Stream
from fedldp.mechanisms.summing import Summing, Words
from fedldp.protocol.roles import Arrays, ClientRole, Encoder, Sender, Senders, Update
from fedldp.protocol.updates import alone, each_alone
from fedldp.protocol.wire import Broadcast, Report, Reports, Sensitive, broadcast_digest
from fedldp.secure_sum.client import SecureSumClient
from fedldp.secure_sum.identities import Identity
from fedldp.secure_sum.messages import SecureSum

TOLD, KEYS, SHARES, SURVIVORS = "sum_told", "sum_keys", "sum_shares", "sum_survivors"
"""The names, in a broadcast, of the digest of what the system sends and of the server's messages.

The digest is sent in ADVERTISE, and each message in the next phase. Nothing is sent twice.
"""


_DIGEST_BYTES = 32
"""The length of a SHA-256 digest."""


class Phase(IntEnum):
    """The four phases of a round."""

    ADVERTISE = 0
    SHARE_KEYS = 1
    MASKED_INPUT = 2
    UNMASK = 3


def summed_client(
    role: ClientRole, summing: Summing, setup: SecureSum, identity: Identity | None = None
) -> ClientRole:
    """Return the role of a client whose reports are added up in the secure sum.

    Args:
        role: the client's role in the system, which has one phase.
        summing: how its reports are summed.
        setup: the parameters that the client agreed to.
        identity: the client's own identity, if keys are certified.

    Raises:
        ConfigError: the system itself has several phases.
    """
    if role.phases != 1:
        raise ConfigError(
            f"phases = {role.phases}: only a system with one phase a round can be summed"
        )
    return replace(
        role,
        encoder=SummedEncoder(role.encoder, summing, setup, identity),
        phases=len(Phase),
        reporting=Phase.MASKED_INPUT,
        trains_in=Phase.MASKED_INPUT,
    )


@dataclass(frozen=True)
class SummedEncoder:
    """The client's encoder in a secure sum; it gives the client's answer in each phase.

    The runtime, not the broadcast, says which phase it is. The runtime also charges for the phase,
    and answers each phase once in a round. A new ``SecureSumClient`` is made for each phase, so the
    client's store holds the round's secrets, what the client was told, and the words that it masks.
    No second vector is ever sent under the same masks, not even after a restart of the client. The
    server does not repeat what it sent in a phase: later phases use the store's copy, and a client
    that has lost the copy sends nothing more.

    What the system itself sends, above all the weights, is sent only in MASKED_INPUT. A digest of
    it is sent in an earlier phase, and all keys depend on the digest: clients that are told
    different weights cannot open each other's boxes.

    The secrets are drawn afresh in each round, not derived from what the client keeps forever: a
    store that was restored from a copy of an earlier round draws different ones.

    Attributes:
        inner: the system's encoder.
        summing: how its reports are summed.
        setup: the parameters of a round's sum.
        identity: the client's own identity, if keys are certified.
    """

    inner: Encoder
    summing: Summing
    setup: SecureSum
    identity: Identity | None = None

    def event(self, phase: int = 0, round: int = 1) -> Event:
        """Return what the answer in a phase releases; only one phase depends on examples."""
        match Phase(phase):
            case Phase.ADVERTISE:
                return NoRelease(what="public-keys")
            case Phase.SHARE_KEYS:
                return NoRelease(what="sealed-shares-of-masks")
            case Phase.MASKED_INPUT:
                return self.inner.event(0, round)
            case Phase.UNMASK:
                return NoRelease(what="shares-of-masks")

    def __call__(
        self, update: Sensitive[Update], broadcast: Broadcast, senders: Senders
    ) -> Reports:
        """Return the answer of each client to the server's messages so far.

        Raises:
            PrivacyError: the server asked something different before, or its message must not be
                answered.
            RunError: its message is malformed.
        """
        return each_alone(self._answer, update, broadcast, senders)

    def _answer(self, update: Sensitive[Update], broadcast: Broadcast, sender: Sender) -> Report:
        memory = _Memory(broadcast.round, sender)

        def told(name: str) -> bytes:
            return broadcast.public[name].tobytes() if name in broadcast.public else b""

        def client(told: bytes) -> SecureSumClient:
            return SecureSumClient(
                self.setup,
                broadcast.round,
                sender.index,
                _secret(broadcast.round, sender),
                memory.first,
                self.identity,
                told,
            )

        match Phase(sender.phase):
            case Phase.ADVERTISE:
                digest = told(TOLD)
                if len(digest) != _DIGEST_BYTES:
                    raise PrivacyError(
                        f"round {broadcast.round}: no digest of the weights: the server needs the "
                        "same version of fedldp"
                    )
                message = client(digest).advertise()
            case Phase.SHARE_KEYS:
                message = client(memory.kept("told")).share_keys(told(KEYS))
            case Phase.MASKED_INPUT:
                message = client(broadcast_digest(_without_sum(broadcast))).masked_input(
                    memory.kept("keys"),
                    told(SHARES),
                    lambda: self._kept_words(update, broadcast, sender),
                )
            case Phase.UNMASK:
                message = client(memory.kept("told")).unmask(
                    memory.kept("keys"), memory.kept("shares"), told(SURVIVORS)
                )
        return Report(
            round=broadcast.round,
            size=self.setup.size,
            payload=message,
            chunk=self.setup.size,
            client=sender.index,
        )

    def _kept_words(self, update: Sensitive[Update], broadcast: Broadcast, sender: Sender) -> Words:
        """Return the vector that the client masks in this round: the first one that it made.

        Call it only for a request that will be answered: it deletes what is kept of earlier
        rounds.

        Raises:
            PrivacyError: the vector was made when the encoder stated a different event from the one
                that is charged now. A vector is kept before it is charged, and the client may have
                chosen another epsilon in between.
        """
        event = self.inner.event(0, broadcast.round)
        # A report that is released in the clear has no epsilon that a client could choose.
        said = b"" if isinstance(event, InClear) else json.dumps(to_record(event)).encode()

        def make() -> Arrays:
            told, inside = _without_sum(broadcast), replace(sender, phase=0)
            report = alone(self.inner, update, told, inside)
            words = self.setup.words(self.summing.words(report))
            return {"words": words, "event": np.frombuffer(said, np.uint8)}

        kept = sender.store.arrays("sum-input", make, round=broadcast.round)
        if kept["event"].tobytes() != said:
            raise PrivacyError(
                f"round {broadcast.round}: the masked vector was made for another epsilon: nothing "
                "is sent; go on with the next round"
            )
        return kept["words"]


def _secret(round: int, sender: Sender) -> Stream:
    """Return the stream of a round's secrets, whose key is drawn in the round's first phase."""

    def make() -> Mapping[str, NDArray[np.uint8]]:
        if sender.phase != Phase.ADVERTISE:
            raise PrivacyError(f"round {round}: its secrets are lost: nothing is sent")
        return {"key": sender.fresh("secure sum").bytes(KEY_BYTES)}

    kept = sender.store.arrays("sum-secret", make, round=round)
    return Stream(kept["key"].tobytes(), simulated=sender.fresh("secure sum").simulated)


@dataclass(frozen=True)
class _Memory:
    """What the server first sent to a client in a round, kept in the client's store."""

    round: int
    sender: Sender

    def first(self, name: str, content: bytes) -> bytes:
        """Return the first content stored under a name; if there is none, store ``content``."""
        kept = self.sender.store.arrays(
            f"sum-{name}",
            lambda: {"content": np.frombuffer(content, np.uint8)},
            round=self.round,
        )
        return kept["content"].tobytes()

    def kept(self, name: str) -> bytes:
        """Return the content kept under a name.

        Raises:
            PrivacyError: there is none, because the client did not answer an earlier phase or has
                lost what it stored.
        """
        kept = self.sender.store.known(f"sum-{name}", self.round)
        if kept is None:
            raise PrivacyError(
                f"round {self.round}: what the client stored ({name}) is lost, so nothing is sent"
            )
        return kept["content"].tobytes()


def _without_sum(broadcast: Broadcast) -> Broadcast:
    """Return the broadcast with only what the system itself sends."""
    names = broadcast.public.keys() - {TOLD, KEYS, SHARES, SURVIVORS}
    return replace(broadcast, public={name: broadcast.public[name] for name in names})
