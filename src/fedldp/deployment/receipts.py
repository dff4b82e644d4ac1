"""Receipts: what a site gives for its last release, and a server keeps and shows it again.

Only the site can make one, or tell what it is of: it is sealed with a key that follows from the
site's identity. So a server cannot invent a release that the site's ledger lacks, and shut the site
out by that: what it invents is told from a receipt, and only its own question is refused. What it
can do is show none, or an old one: then the site notices nothing, as if there were no receipts.
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
        key: the site's identity, which it keeps also where its state is lost.
        earlier: what opens the receipts that were given with identities which it had before.

    Attributes:
        opens: what opens its own: 32 bytes, with which nothing can be signed.
    """

    def __init__(self, key: Ed25519PrivateKey, earlier: Iterable[bytes] = ()) -> None:
        self.opens = hmac.digest(key.private_bytes_raw(), b"fedldp receipts", hashlib.sha256)
        self._seal = AESSIV(self.opens)
        self._seals = [self._seal, *map(AESSIV, earlier)]

    def of(self, entry: Release, restores: int) -> bytes:
        """Return the receipt of a release, given after so many restores."""
        start = bytes.fromhex(entry.hash)[:10]
        content = _CONTENT.pack(min(restores, _MOST_RESTORES), entry.number, start)
        return self._seal.encrypt(content, None)

    def read(self, receipt: bytes) -> Seen | None:
        """Return what a receipt is of; None where this site never gave it."""
        for seal in self._seals:
            with suppress(InvalidTag):
                restores, number, start = _CONTENT.unpack(seal.decrypt(receipt, None))
                return Seen(restores, number, start.hex())
        return None


def changed_file(folder: Path, key: str) -> Path:
    """Return where a server keeps, with its receipts, to which key a site changed ``key``."""
    return folder / f"{key}{_CHANGED}"


def _changed_to(path: Path) -> tuple[str, str]:
    """Return a site's next key and its earlier one, by what is kept of the change."""
    try:
        return str(json.loads(path.read_text())["new"]), path.stem
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path} is damaged: restore it from a copy") from error


class KeptReceipts:
    """What a server keeps of its sites, across all its runs: the last receipt of each.

    One file for each site's key, in a folder beside the run folders. They warn of a ledger that was
    set back, and protect nothing else. Of a site that changed its key, the last one is that of the
    earlier key until it gives another; see ``key_changes``.

    Args:
        folder: of the run; the receipts are in ``receipts`` beside it.
        run: its name.
        sites: of the run.

    Raises:
        RunError: a receipt is damaged.
    """

    def __init__(self, folder: Path, run: str, sites: Sequence[Site]) -> None:
        self._folder, self._run, self._sites = folder.parent / "receipts", run, sites
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise RunError(f"{self._folder}: {error.strerror}; see to the folder") from error
        self._earlier = dict(map(_changed_to, self._folder.glob(f"*{_CHANGED}")))
        self._take_over(folder / "receipts.json")
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
                raise ValueError("a receipt of another length")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(
                f"{path} is damaged: restore it from a copy, or remove it; without it nobody tells "
                f"site {self._sites[site].name} if its ledger is an older copy"
            ) from error
        return receipt

    def is_changed(self, site: int) -> bool:
        """Return whether a site, by its number, has another key now than this run's roster."""
        return changed_file(self._folder, self._sites[site].key).exists()

    def keep(self, site: int, receipt: bytes) -> None:
        """Keep a receipt that a site gave."""
        if receipt in (NO_RECEIPT, self.last(site)):
            return
        found = self._sites[site]
        document = {"site": found.name, "run": self._run, "receipt": receipt.hex()}
        # Other runs' servers may write the same site's meanwhile.
        own = self._folder / f"{found.key}.{self._run}"
        replace_file(own, json.dumps(document).encode())
        own.replace(self._folder / found.key)

    def _take_over(self, earlier: Path) -> None:
        """Take over what an earlier fedldp kept in the run folder, by the site's number."""
        if not earlier.exists():
            return
        try:
            found = json.loads(earlier.read_text())
            for site, text in found.items():
                if self.last(int(site)) == NO_RECEIPT:
                    self.keep(int(site), bytes.fromhex(text))
        except (OSError, ValueError, AttributeError, TypeError, IndexError) as error:
            raise RunError(f"{earlier} is damaged: restore it from a copy, or remove it") from error
        earlier.unlink()
