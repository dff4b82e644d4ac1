"""Receipts: a site gives the server a receipt for its last release; the server shows it later.

Only the site can make a receipt or tell which release it stands for, because each receipt is sealed
with a key derived from the site's identity. So a server cannot shut a site out by inventing a
release that the ledger lacks: the site recognises an invented receipt, and refuses only that
server's request. If a server shows no receipt or an old one, the site notices nothing, as if there
were no receipts.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import struct
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from fedldp.core.errors import RunError
from fedldp.deployment.agreement import Site
from fedldp.deployment.messages import NO_RECEIPT, RECEIPT_BYTES
from fedldp.deployment.site_ledger import Seen
from fedldp.ledgers.sqlite import Release
from fedldp.reporting.record import replace_file

_CONTENT = struct.Struct("<HI10s")
_MOST_RESTORES = 0xFFFF
_CHANGED = ".changed"


class Receipts:
    """Makes and reads a site's receipts.

    Args:
        key: the site's identity, which survives a loss of the site's state.
        earlier: the secrets that open receipts sealed with earlier identities of the site.

    Attributes:
        opens: the secret that opens the site's own receipts: 32 bytes, which cannot sign anything.
    """

    def __init__(self, key: Ed25519PrivateKey, earlier: Iterable[bytes] = ()) -> None:
        self.opens = hmac.digest(key.private_bytes_raw(), b"fedldp receipts", hashlib.sha256)
        self._seal = AESSIV(self.opens)
        self._seals = [self._seal, *map(AESSIV, earlier)]

    def of(self, entry: Release, restores: int) -> bytes:
        """Return the receipt of a release made after this many restores."""
        start = bytes.fromhex(entry.hash)[:10]
        content = _CONTENT.pack(min(restores, _MOST_RESTORES), entry.number, start)
        return self._seal.encrypt(content, None)

    def read(self, receipt: bytes) -> Seen | None:
        """Return what a receipt stands for; None if this site never gave it."""
        for seal in self._seals:
            with suppress(InvalidTag):
                restores, number, start = _CONTENT.unpack(seal.decrypt(receipt, None))
                return Seen(restores, number, start.hex())
        return None


def changed_file(folder: Path, key: str) -> Path:
    """Return the path of the server's file that records which key replaced ``key``."""
    return folder / f"{key}{_CHANGED}"


def _changed_to(path: Path) -> tuple[str, str]:
    """Return a site's next key and its earlier one, from the file that records the change."""
    try:
        return str(json.loads(path.read_text())["new"]), path.stem
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path} is damaged: restore it from a copy") from error


class KeptReceipts:
    """The last receipt that a server has from each of its sites, across all its runs.

    There is one file for each site's key, in a folder beside the run folders. Receipts serve only
    to reveal that a ledger was set back. For a site that changed its key, the last receipt is the
    one stored for the earlier key until the site gives another; see ``key_changes``.

    Args:
        folder: the folder of the run; the receipts are in ``receipts`` beside it.
        run: the name of the run.
        sites: the sites of the run.

    Raises:
        RunError: a receipt is damaged.
    """

    def __init__(self, folder: Path, run: str, sites: Sequence[Site]) -> None:
        self._folder, self._run, self._sites = folder.parent / "receipts", run, sites
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise RunError(
                f"{self._folder}: {error.strerror}; check its permissions and free space"
            ) from error
        self._earlier = dict(map(_changed_to, self._folder.glob(f"*{_CHANGED}")))
        for site in range(len(sites)):
            self.last(site)

    def last(self, site: int) -> bytes:
        """Return the last receipt of a site, by its number; ``NO_RECEIPT`` if it gave none."""
        path = self._folder / self._sites[site].key
        while not path.exists() and path.name in self._earlier:
            path = self._folder / self._earlier[path.name]
        if not path.exists():
            return NO_RECEIPT
        try:
            receipt = bytes.fromhex(json.loads(path.read_text())["receipt"])
            if len(receipt) != RECEIPT_BYTES:
                raise ValueError("a receipt of the wrong length")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(
                f"{path} is damaged: restore it from a copy, or remove it; without it, site "
                f"{self._sites[site].name} may not notice that its ledger is an older copy"
            ) from error
        return receipt

    def is_changed(self, site: int) -> bool:
        """Return whether a site, given by its number, has replaced the key in the run's roster."""
        return changed_file(self._folder, self._sites[site].key).exists()

    def keep(self, site: int, receipt: bytes) -> None:
        """Store a receipt that a site gave."""
        if receipt in (NO_RECEIPT, self.last(site)):
            return
        found = self._sites[site]
        document = {"site": found.name, "run": self._run, "receipt": receipt.hex()}
        # Servers of other runs may write a receipt of the same site at the same time.
        own = self._folder / f"{found.key}.{self._run}"
        replace_file(own, json.dumps(document).encode())
        try:
            own.replace(self._folder / found.key)
        except OSError as error:
            raise RunError(
                f"cannot write the receipt {self._folder / found.key}: {error.strerror}; check the "
                "folder"
            ) from error
