"""The messages between a server and a site, around the requests and answers of ``wire``.

    server -> site   CHALLENGE  digest, challenge                    who are you, in this agreement?
                     ASK        digest, receipt, request
    site -> server   HELLO      index, signature, receipt
                     ANSWER     receipt, answer
                     STRANGER   the agreement is not accepted here, or the message is malformed

The digest identifies the agreement. A receipt is 32 bytes that stand for a release in the site's
ledger: the server shows the last receipt that the site gave it in any run, so that a site notices
if its disk was restored from an older copy. Only the site can make a receipt, or tell which release
it stands for: see ``receipts``.

Every message is read as if an attacker had written it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import IntEnum

from fedldp.core.errors import WireError
from fedldp.deployment.identity import SIGNATURE_BYTES

DIGEST_BYTES = RECEIPT_BYTES = CHALLENGE_BYTES = 32
NO_RECEIPT = bytes(RECEIPT_BYTES)

_MAGIC = b"fedldp-site\x01"


class MessageKind(IntEnum):
    """The kinds of message."""

    CHALLENGE = 1
    ASK = 2
    HELLO = 3
    ANSWER = 4
    STRANGER = 5


@dataclass(frozen=True)
class Challenge:
    """The server asks a site who it is.

    Attributes:
        digest: the digest of the agreement.
        challenge: fresh random bytes to sign.
    """

    digest: bytes
    challenge: bytes


@dataclass(frozen=True)
class Ask:
    """The server sends a request.

    Attributes:
        digest: the digest of the agreement.
        receipt: the last receipt that the site gave in any run, or ``NO_RECEIPT``.
        request: the request as ``wire`` packs it.
    """

    digest: bytes
    receipt: bytes
    request: bytes = field(repr=False)


@dataclass(frozen=True)
class Hello:
    """A site says who it is.

    Attributes:
        index: the site's index in the roster.
        signature: see ``to_sign``.
        receipt: the receipt of the last release of this run that has left the site.
    """

    index: int
    signature: bytes
    receipt: bytes


@dataclass(frozen=True)
class Answered:
    """A site's answer.

    Attributes:
        receipt: the receipt of the last release of this run, or the receipt that the server showed,
            if that receipt's release is later.
        answer: the answer as ``wire`` packs it.
    """

    receipt: bytes
    answer: bytes = field(repr=False)


class Stranger:
    """The site does not know the agreement, or could not read the message."""


_CHALLENGE = struct.Struct(f"<{DIGEST_BYTES}s{CHALLENGE_BYTES}s")
_ASK = struct.Struct(f"<{DIGEST_BYTES}s{RECEIPT_BYTES}s")
_HELLO = struct.Struct(f"<I{SIGNATURE_BYTES}s{RECEIPT_BYTES}s")
_ANSWER = struct.Struct(f"<{RECEIPT_BYTES}s")
_START = len(_MAGIC) + 1
"""The offset of a message's content, in bytes."""
ENVELOPE = _START + _ASK.size
"""How many bytes a message adds to a request; it adds fewer to an answer."""


def to_sign(digest: bytes, challenge: bytes, index: int) -> bytes:
    """Return what a site signs to prove who it is."""
    return b"fedldp site present" + _CHALLENGE.pack(digest, challenge) + index.to_bytes(4, "little")


def pack(message: Challenge | Ask | Hello | Answered | Stranger) -> bytes:
    """Return a message as bytes."""
    match message:
        case Challenge():
            return _head(MessageKind.CHALLENGE) + _CHALLENGE.pack(message.digest, message.challenge)
        case Ask():
            return (
                _head(MessageKind.ASK)
                + _ASK.pack(message.digest, message.receipt)
                + message.request
            )
        case Hello():
            content = _HELLO.pack(message.index, message.signature, message.receipt)
            return _head(MessageKind.HELLO) + content
        case Answered():
            return _head(MessageKind.ANSWER) + _ANSWER.pack(message.receipt) + message.answer
        case Stranger():
            return _head(MessageKind.STRANGER)


def read_by_site(body: bytes) -> Challenge | Ask:
    """Return a server's message.

    Raises:
        WireError: it is not a server's message.
    """
    kind, size = _split(body)
    if kind == MessageKind.CHALLENGE and size == _CHALLENGE.size:
        return Challenge(*_CHALLENGE.unpack_from(body, _START))
    if kind == MessageKind.ASK and size > _ASK.size:
        digest, receipt = _ASK.unpack_from(body, _START)
        return Ask(digest, receipt, body[_START + _ASK.size :])
    raise _malformed()


def read_by_server(body: bytes) -> Hello | Answered | Stranger:
    """Return a site's message.

    Raises:
        WireError: it is not a site's message.
    """
    kind, size = _split(body)
    if kind == MessageKind.HELLO and size == _HELLO.size:
        return Hello(*_HELLO.unpack_from(body, _START))
    if kind == MessageKind.ANSWER and size > _ANSWER.size:
        (receipt,) = _ANSWER.unpack_from(body, _START)
        return Answered(receipt, body[_START + _ANSWER.size :])
    if kind == MessageKind.STRANGER and not size:
        return Stranger()
    raise _malformed()


def _head(kind: MessageKind) -> bytes:
    return _MAGIC + bytes([kind])


def _split(body: bytes) -> tuple[int, int]:
    """Return a message's kind, and the length of its content in bytes."""
    if not body.startswith(_MAGIC) or len(body) < _START:
        raise _malformed()
    return body[_START - 1], len(body) - _START


def _malformed() -> WireError:
    return WireError(
        "a malformed message: it is not from a fedldp site or server of this version; install "
        "the same version of fedldp on both sides"
    )
