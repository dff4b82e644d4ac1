"""The messages of a session, in which a server asks a site about one run.

    server -> site   ASK        digest, receipt, request
                     END        digest, rounds, signature, chain: the run is over
    site -> server   ANSWER     receipt, answer
                     STRANGER   the agreement is not, or no longer, accepted here, or the message is
                                malformed

The digest identifies the agreement; a request and an answer are as ``wire`` packs them. A receipt
is 32 bytes that stand for a release in the site's ledger: the server shows the last receipt that
the site gave it in any run, so that a site notices if its disk was restored from an older copy.
Only the site can make a receipt, or tell which release it stands for: see ``Receipts``.

Every message is read as if an attacker had written it.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from fedldp.core.errors import RunError, WireError, os_errors
from fedldp.deployment.agreement import Site
from fedldp.deployment.key_changes import RECEIPTS, KnownKeys
from fedldp.deployment.site_ledger import Seen
from fedldp.ledgers.sqlite import Release
from fedldp.reporting.record import replace_file

DIGEST_BYTES = RECEIPT_BYTES = 32
NO_RECEIPT = bytes(RECEIPT_BYTES)

_MAGIC = b"fedldp-site\x02"


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
class End:
    """The server says that a run is over: it will ask for nothing more.

    Attributes:
        digest: the digest of the agreement.
        rounds: how many rounds were completed.
        signature: the signature of ``signed`` by the server's TLS key; see ``ServerTls.sign``.
        chain: the server's certificates (PEM), its own first.
    """

    digest: bytes
    rounds: int
    signature: bytes = field(default=b"", repr=False)
    chain: bytes = field(default=b"", repr=False)

    @property
    def signed(self) -> bytes:
        """What the server signs."""
        return b"fedldp run over\x01" + self.digest + self.rounds.to_bytes(8, "big")


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


_MOST_ROUNDS = 1 << 32
_START = len(_MAGIC) + 1
"""The offset of a message's content, in bytes; before it is the number of its kind."""
ENVELOPE = _START + DIGEST_BYTES + RECEIPT_BYTES
"""How many bytes a message adds to a request; it adds fewer to an answer."""
_END = struct.Struct(f"<{DIGEST_BYTES}sQH")
"""The beginning of an END: the digest, the rounds, and the length of the signature."""


def pack(message: Ask | End | Answered | Stranger) -> bytes:
    """Return a message as bytes."""
    match message:
        case Ask():
            parts = [b"\x01", message.digest, message.receipt, message.request]
        case Answered():
            parts = [b"\x02", message.receipt, message.answer]
        case Stranger():
            parts = [b"\x03"]
        case End():
            head = _END.pack(message.digest, message.rounds, len(message.signature))
            parts = [b"\x04", head, message.signature, message.chain]
    return b"".join([_MAGIC, *parts])


def read_message(body: bytes) -> Ask | End | Answered | Stranger:
    """Return the message that ``body`` holds.

    Raises:
        WireError: it is malformed.
    """
    kind, content = body[:_START], body[_START:]
    if kind == _MAGIC + b"\x01" and len(body) > ENVELOPE:
        return Ask(content[:DIGEST_BYTES], body[_START + DIGEST_BYTES : ENVELOPE], body[ENVELOPE:])
    if kind == _MAGIC + b"\x02" and len(content) > RECEIPT_BYTES:
        return Answered(content[:RECEIPT_BYTES], content[RECEIPT_BYTES:])
    if kind == _MAGIC + b"\x03" and not content:
        return Stranger()
    if kind == _MAGIC + b"\x04" and len(content) > _END.size:
        digest, rounds, size = _END.unpack_from(content)
        signature, chain = content[_END.size :][:size], content[_END.size :][size:]
        if rounds < _MOST_ROUNDS:
            return End(digest, rounds, signature, chain)
    raise WireError(
        "a malformed message: it is not from a fedldp site or server of this version; install "
        "the same version of fedldp on both sides"
    )


_CONTENT = struct.Struct("<HI10s")
_MOST_RESTORES = 0xFFFF


class Receipts:
    """Makes and reads a site's receipts; the server shows the last one that it was given.

    Only the site can make a receipt or tell which release it stands for, because each receipt is
    sealed with a key derived from the site's identity. So a server cannot shut a site out by
    inventing a release that the ledger lacks: the site recognises an invented receipt, and refuses
    only that server's request. If a server shows no receipt or an old one, the site notices
    nothing, as if there were no receipts.

    Args:
        keys: the site's present key, then the earlier ones, whose receipts it still reads; they
            survive a loss of the site's state.
    """

    def __init__(self, *keys: Ed25519PrivateKey) -> None:
        raw = [key.private_bytes_raw() for key in keys]
        secrets = [hmac.digest(each, b"fedldp receipts", hashlib.sha256) for each in raw]
        self._seals = [*map(AESSIV, secrets)]

    def of(self, entry: Release, restores: int) -> bytes:
        """Return the receipt of a release made after this many restores."""
        start = bytes.fromhex(entry.hash)[:10]
        content = _CONTENT.pack(min(restores, _MOST_RESTORES), entry.number, start)
        return self._seals[0].encrypt(content, None)

    def read(self, receipt: bytes) -> Seen | None:
        """Return what a receipt stands for; None if this site never gave it."""
        for seal in self._seals:
            with suppress(InvalidTag):
                restores, number, start = _CONTENT.unpack(seal.decrypt(receipt, None))
                return Seen(restores=restores, number=number, hash=start.hex())
        return None


class KeptReceipts:
    """The last receipt that a server has from each of its sites, across all its runs.

    There is one file for each site, named by its first key, in a folder beside the run folders.
    Receipts serve only to reveal that a ledger was set back.

    Args:
        folder: the folder of the run; the receipts are in ``receipts`` beside it.
        run: the name of the run.
        sites: the sites of the run.

    Raises:
        RunError: a receipt is damaged.
    """

    def __init__(self, folder: Path, run: str, sites: Sequence[Site]) -> None:
        self._folder, self._run = folder.parent / RECEIPTS, run
        with os_errors(str(self._folder), "check its permissions and free space", RunError):
            self._folder.mkdir(mode=0o700, exist_ok=True)
        known = KnownKeys.of(folder.parent)
        self._sites = [(site.name, known.first(site.key)) for site in sites]
        self.all()

    def all(self) -> dict[int, bytes]:
        """Return the last receipt of each site that gave one, by its number."""
        found = {site: self.last(site) for site in range(len(self._sites))}
        return {site: receipt for site, receipt in found.items() if receipt != NO_RECEIPT}

    def restore(self, noted: Mapping[int, bytes]) -> None:
        """Store receipts from a journal for sites whose receipts a power cut removed."""
        for site, receipt in noted.items():
            if self.last(site) == NO_RECEIPT:
                self.keep(site, receipt)

    def last(self, site: int) -> bytes:
        """Return the last receipt of a site, by its number; ``NO_RECEIPT`` if it gave none."""
        name, key = self._sites[site]
        path = self._folder / key
        if not path.exists() or not path.stat().st_size:  # a power cut may leave it empty
            return NO_RECEIPT
        try:
            receipt = bytes.fromhex(path.read_text())
            if len(receipt) != RECEIPT_BYTES:
                raise ValueError("a receipt of the wrong length")
        except (OSError, ValueError) as error:
            raise RunError(
                f"{path} is damaged: restore it from a copy, or remove it; without it, site {name} "
                "may not notice that its ledger is an older copy"
            ) from error
        return receipt

    def keep(self, site: int, receipt: bytes) -> None:
        """Store a receipt that a site gave; it is not synced, see ``restore``."""
        if receipt in (NO_RECEIPT, self.last(site)):
            return
        _, key = self._sites[site]
        # Servers of other runs may write a receipt of the same site at the same time.
        own = self._folder / f"{key}.{self._run}"
        replace_file(own, receipt.hex().encode(), synced=False)
        place = self._folder / key
        with os_errors(f"cannot write the receipt {place}", "check the folder", RunError):
            own.replace(place)
