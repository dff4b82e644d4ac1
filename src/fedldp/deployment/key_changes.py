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

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedldp.core.errors import ConfigError, FedldpError, PrivacyError, RunError
from fedldp.deployment.acceptance import Acceptances
from fedldp.deployment.documents import canonical, digest_of, for_people, parse, read_file
from fedldp.deployment.identity import (
    is_signed,
    make_private,
    public_text,
    read_private,
    replace_secret,
)
from fedldp.deployment.messages import Receipts, changed_file
from fedldp.deployment.policy import SitePolicy
from fedldp.deployment.site_ledger import SiteLedger
from fedldp.reporting.record import replace_file

_PURPOSE = b"fedldp key change\x01"

_Key = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_Signature = Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]


class KeyChange(BaseModel):
    """One change of a site's key.

    Attributes:
        old, new: the public keys before and after the change.
        by_old, by_new: a signature of both public keys, by the earlier and by the next key. The
            owner of the earlier key thereby states which key is next, and the owner of the next key
            states that they own it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    old: _Key
    new: _Key
    by_old: _Signature
    by_new: _Signature

    @classmethod
    def signed(cls, old: Ed25519PrivateKey, new: Ed25519PrivateKey) -> KeyChange:
        """Return the change from one key to another, signed with both."""
        names = {"old": _public(old), "new": _public(new)}
        content = _PURPOSE + canonical(names)
        return cls(**names, by_old=old.sign(content).hex(), by_new=new.sign(content).hex())

    @property
    def is_signed(self) -> bool:
        """Whether both keys signed the change."""
        content = _PURPOSE + canonical({"old": self.old, "new": self.new})
        return self.old != self.new and all(
            is_signed(key, bytes.fromhex(signature), content)
            for key, signature in ((self.old, self.by_old), (self.new, self.by_new))
        )


class _Document(BaseModel):
    """All changes of a site's key, oldest first."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    key_changes: Literal[1]
    changes: Annotated[list[KeyChange], Field(min_length=1)]


class _Earlier(BaseModel):
    """What a site keeps of its earlier keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    changes: list[KeyChange]
    receipts: dict[_Key, _Key]
    """The secrets that open the receipts sealed with each earlier key."""


@dataclass(frozen=True)
class ChangedKey:
    """What a site sends its server about its changed key.

    Attributes:
        changes: all changes so far; each begins with the key that the previous one ended with.
        digest: SHA-256 of the canonical bytes: 32 bytes.
    """

    changes: tuple[KeyChange, ...]
    digest: bytes


def read_changed_key(path: Path) -> ChangedKey | None:
    """Return the changes of a site's key in a file; None for another kind of document.

    Raises:
        ConfigError: the file cannot be read, is damaged, or is not signed by the keys that it
            names.
    """
    content = read_file(path, "file")
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or "key_changes" not in found:
        return None
    try:
        document = parse(content, _Document)
        _check(document.changes)
    except FedldpError as error:
        raise ConfigError(f"key change {path}: {error}") from error
    return ChangedKey(tuple(document.changes), digest_of(document.model_dump()))


def _check(changes: Sequence[KeyChange]) -> None:
    if not all(change.is_signed for change in changes):
        raise ConfigError("it was changed after the site signed it; ask for it again")
    keys = [changes[0].old, *(change.new for change in changes)] if changes else []
    if keys[:-1] != [change.old for change in changes] or len(set(keys)) < len(keys):
        raise ConfigError("its key changes do not form a chain; ask for it again")


# At the site


@dataclass(frozen=True)
class EarlierKeys:
    """What a site still keeps of its earlier keys.

    Attributes:
        changes: the changes of the site's key, oldest first.
        receipts: for each earlier key, the secret that opens the receipts sealed with it.
    """

    changes: tuple[KeyChange, ...]
    receipts: Mapping[str, bytes]

    @classmethod
    def of(cls, policy: SitePolicy) -> EarlierKeys:
        """Return a site's earlier keys.

        Raises:
            PrivacyError: their file is damaged.
        """
        path = _earlier(policy)
        if not path.exists():
            return cls((), {})
        try:
            found = _Earlier.model_validate_json(path.read_bytes())
            _check(found.changes)
        except (OSError, ValueError, ValidationError, ConfigError) as error:
            raise PrivacyError(f"{path}: it is damaged; restore it from a copy") from error
        opens = {key: bytes.fromhex(text) for key, text in found.receipts.items()}
        return cls(tuple(found.changes), opens)


def change_key(policy: SitePolicy) -> tuple[ChangedKey, Path, list[str]]:
    """Give a site a new key; its ledger continues.

    If this is interrupted at any point, calling it again completes the change to the same new key.

    Args:
        policy: the policy of the site, whose agent must not be running.

    Returns:
        The change to send to the server's operator, its file, and the digests of the agreements
        that end for the site.

    Raises:
        FedldpError: the ledger was lost or set back, or a file cannot be read or written.
    """
    if (ledger := SiteLedger.existing(policy)) is not None:
        ledger.look()
    old, known = read_private(policy.key), EarlierKeys.of(policy)
    next_key = policy.key.with_name(f"{policy.key.name}.next")
    new = read_private(next_key) if next_key.exists() else make_private(next_key)
    changes = known.changes
    if not changes or changes[-1].new != _public(new):
        changes = (*changes, KeyChange.signed(old, new))
    opens = {**known.receipts, _public(old): Receipts(old).opens}
    kept = _Earlier(
        changes=list(changes), receipts={key: each.hex() for key, each in opens.items()}
    )
    document = _Document(key_changes=1, changes=list(changes)).model_dump()
    file = policy.key.with_suffix(".changed")
    ended = runs_of(policy)
    for digest in ended:
        Acceptances(policy).retire(bytes.fromhex(digest))
    replace_secret(_earlier(policy), kept.model_dump_json(indent=1).encode())
    replace_file(file, for_people(document))
    replace_file(policy.key.with_suffix(".pub"), public_text(new))
    next_key.replace(policy.key)  # the last step: until then, the site still uses its earlier key
    return ChangedKey(tuple(changes), digest_of(document)), file, ended


def runs_of(policy: SitePolicy) -> list[str]:
    """Return the digests of the agreements that the site accepted and has not retired."""
    return [each.digest.hex() for each in Acceptances(policy).current()]


def _earlier(policy: SitePolicy) -> Path:
    return policy.key.with_name(f"{policy.key.name}.earlier")


def _public(key: Ed25519PrivateKey) -> str:
    return key.public_key().public_bytes_raw().hex()


# At the server


def take_over(folder: Path, changed: ChangedKey) -> None:
    """Record at a server that a site changed its key, for all runs, including those under way.

    Args:
        folder: the folder that holds the server's run folders and its receipts.
        changed: the document that the site sent.

    Raises:
        ConfigError: one of the keys was changed to a different key before, or a file cannot be
            written.
    """
    place = folder / "receipts"
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        for change in changed.changes:
            known = next_key_of(folder, change.old)
            if known == change.new:
                continue
            if known is not None:
                raise ConfigError(
                    f"key {change.old[:16]}: the site changed it to {known[:16]} before, not to "
                    f"{change.new[:16]}; somebody else may have the earlier key: call the site"
                )
            replace_file(changed_file(place, change.old), for_people(change.model_dump()))
    except OSError as error:
        raise ConfigError(f"{error.filename}: {error.strerror}; check the folder") from error


def next_key_of(folder: Path, key: str) -> str | None:
    """Return the key that replaced a site's ``key``, if the server knows of one.

    Args:
        folder: the folder of the server's runs.
        key: a public key.

    Raises:
        RunError: the file of the change is damaged.
    """
    path = changed_file(folder / "receipts", key)
    if not path.exists():
        return None
    try:
        found = KeyChange.model_validate_json(path.read_bytes())
        if found.old != key or not found.is_signed:
            raise ValueError("of another key")
    except (OSError, ValueError) as error:
        raise RunError(f"{path} is damaged: restore it from a copy") from error
    return found.new


def check_current(folder: Path, roster: Mapping[str, str]) -> None:
    """Refuse a roster with a key that its site has replaced.

    Args:
        folder: the folder of the server's runs.
        roster: the sites' public keys, by name.

    Raises:
        ConfigError: the roster has such a key.
    """
    for name, key in roster.items():
        if next_key_of(folder, key) is not None:
            raise ConfigError(
                f"site {name}: it changed the key {key[:16]}, which is no longer valid; let the "
                "site join with its present key"
            )
