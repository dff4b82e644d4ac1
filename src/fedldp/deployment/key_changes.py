"""Changes a site's key: the earlier key signs the change, and is refused afterwards.

    site:   NAME.key is replaced; NAME.key.earlier has secrets that open earlier keys' receipts
    file:   NAME.changed has all changes of the key so far, each signed by its two keys
    server: KEY.changed, beside the receipts, has the change of one earlier key

The ledger, its mark, its witness and the spent budget do not change. The server still shows the
site its last receipt, which was sealed with the earlier key; the site keeps a secret that opens
this receipt and cannot sign anything. Runs whose roster has the earlier key are over for the site,
and their servers stop asking it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from pathlib import Path
from typing import Annotated, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import Field

from fedldp.core.errors import ConfigError, PrivacyError, os_errors
from fedldp.deployment.acceptance import Acceptances
from fedldp.deployment.documents import Document, Hex, Signature, SignedDocument
from fedldp.deployment.identity import (
    is_signed,
    make_private,
    public_of,
    public_text,
    read_private,
    replace_secret,
)
from fedldp.deployment.messages import Receipts, changed_file
from fedldp.deployment.policy import SitePolicy
from fedldp.deployment.site_ledger import SiteLedger
from fedldp.reporting.record import replace_file


class KeyChange(SignedDocument):
    """One change of a site's key, signed by the next key, whose owner states that they own it.

    Attributes:
        old: the public key before the change; ``key`` is the one after it.
        by_old: a signature by the earlier key, whose owner states which key is next.
    """

    kind = "key_change"
    what = "key change"

    old: Hex
    by_old: Signature

    @classmethod
    def between(cls, old: Ed25519PrivateKey, new: Ed25519PrivateKey) -> Self:
        """Return the change from one key to another, signed with both."""
        by_old = old.sign(_next_key(public_of(new))).hex()
        return cls.signed(new, old=public_of(old), by_old=by_old)

    @property
    def is_signed(self) -> bool:
        """Whether both keys signed the change."""
        consent = is_signed(self.old, bytes.fromhex(self.by_old), _next_key(self.key))
        return self.old != self.key and consent and super().is_signed


def _next_key(key: str) -> bytes:
    return b"fedldp next key\x01" + bytes.fromhex(key)


class ChangedKey(Document):
    """What a site sends its server about its changed key.

    Attributes:
        changes: all changes so far; each begins with the key that the previous one ended with.
    """

    kind = "key_changes"
    what = "key change"

    changes: Annotated[tuple[KeyChange, ...], Field(min_length=1)]

    def check_read(self, own: Container[str] | None) -> None:
        """Refuse changes that their keys did not sign, or that do not follow each other."""
        if not all(change.is_signed for change in self.changes):
            raise ConfigError("it was changed after the site signed it; ask for it again")
        keys = [change.old for change in self.changes[:1]] + [each.key for each in self.changes]
        if keys[:-1] != [each.old for each in self.changes] or len(set(keys)) < len(keys):
            raise ConfigError("its key changes do not form a chain; ask for it again")


# At the site


class EarlierKeys(ChangedKey):
    """What a site still keeps of its earlier keys.

    Attributes:
        changes: the changes of the site's key, oldest first.
        receipts: for each earlier key, the secret that opens the receipts sealed with it, in
            hexadecimal.
    """

    kind = "earlier_keys"
    what = "earlier keys"

    changes: tuple[KeyChange, ...] = ()
    receipts: dict[Hex, Hex] = Field(default_factory=dict)

    @classmethod
    def of(cls, policy: SitePolicy) -> Self:
        """Return a site's earlier keys.

        Raises:
            PrivacyError: their file is damaged.
        """
        path = _earlier(policy)
        if not path.exists():
            return cls()
        try:
            return cls.read(path)
        except ConfigError as error:
            raise PrivacyError(f"{path}: it is damaged; restore it from a copy") from error

    @property
    def opens(self) -> list[bytes]:
        """The secrets that open the receipts sealed with an earlier key."""
        return [bytes.fromhex(each) for each in self.receipts.values()]


def change_key(policy: SitePolicy) -> tuple[ChangedKey, Path]:
    """Give a site a new key; its ledger continues.

    If this is interrupted at any point, calling it again completes the change to the same new key.

    Args:
        policy: the policy of the site, whose agent must not be running.

    Returns:
        The change to send to the server's operator, and its file.

    Raises:
        FedldpError: the ledger was lost or set back, or a file cannot be read or written.
    """
    if (ledger := SiteLedger.existing(policy)) is not None:
        ledger.look()
    old, known = read_private(policy.key), EarlierKeys.of(policy)
    next_key = policy.key.with_name(f"{policy.key.name}.next")
    new = read_private(next_key) if next_key.exists() else make_private(next_key)
    changes = known.changes
    if not changes or changes[-1].key != public_of(new):
        changes = (*changes, KeyChange.between(old, new))
    opens = {**known.receipts, public_of(old): Receipts(old).opens.hex()}
    kept, changed = EarlierKeys(changes=changes, receipts=opens), ChangedKey(changes=changes)
    file = policy.key.with_suffix(".changed")
    for digest in runs_of(policy):
        Acceptances(policy).retire(bytes.fromhex(digest))
    replace_secret(_earlier(policy), kept.to_bytes())
    replace_file(file, changed.to_bytes())
    replace_file(policy.key.with_suffix(".pub"), public_text(new))
    next_key.replace(policy.key)  # the last step: until then, the site still uses its earlier key
    return changed, file


def runs_of(policy: SitePolicy) -> list[str]:
    """Return the digests of the agreements that the site accepted and has not retired."""
    return [each.digest.hex() for each in Acceptances(policy).current()]


def keys_of(policy: SitePolicy) -> set[str]:
    """Return the public keys that a site has and had."""
    own = public_of(read_private(policy.key))
    return {own, *(change.old for change in EarlierKeys.of(policy).changes)}


def _earlier(policy: SitePolicy) -> Path:
    return policy.key.with_name(f"{policy.key.name}.earlier")


# At the server


def take_over(folder: Path, changed: ChangedKey) -> None:
    """Record at a server that a site changed its key, for all runs, including those under way.

    Args:
        folder: the folder that holds the server's run folders and its receipts.
        changed: the document that the site sent.

    Raises:
        FedldpError: one of the keys was changed to a different key before, or a file cannot be read
            or written.
    """
    place = folder / "receipts"
    with os_errors(str(place), "check the folder"):
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        for change in changed.changes:
            path = changed_file(place, change.old)
            known = KeyChange.read(path) if path.exists() else change
            if known.key != change.key:
                raise ConfigError(
                    f"key {change.old[:16]}: the site changed it to {known.key[:16]} before, not "
                    f"to {change.key[:16]}; somebody else may have the earlier key: call the site"
                )
            replace_file(path, change.to_bytes())


def is_replaced(folder: Path, key: str) -> bool:
    """Return whether a site has replaced its ``key``, as the server knows.

    Args:
        folder: the folder of the server's runs.
        key: a public key.
    """
    return changed_file(folder / "receipts", key).exists()


def check_current(folder: Path, roster: Mapping[str, str]) -> None:
    """Refuse a roster with a key that its site has replaced.

    Args:
        folder: the folder of the server's runs.
        roster: the sites' public keys, by name.

    Raises:
        ConfigError: the roster has such a key.
    """
    for name, key in roster.items():
        if is_replaced(folder, key):
            raise ConfigError(
                f"site {name}: it changed the key {key[:16]}, which is no longer valid; let the "
                "site join with its present key"
            )
