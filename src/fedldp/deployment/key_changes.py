"""Changes of a site's key: the old keys and the new one sign the change; the old ones are refused.

    site:   NAME.key has the present key, then the earlier ones, newest first
    file:   NAME.changed has the present key, and the signature of each earlier one
    server: receipts/keys has the keys of each site whose change its operator admitted

An agreement stays as it was signed: in its run, a site keeps its place in the roster, its ledger
and its budget, and signs what other sites check with the key that the roster has. The server knows
a site by its first key: so it shows a site the receipts of its earlier keys.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from pathlib import Path
from typing import Annotated, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import Field

from fedldp.core.errors import ConfigError, RunError, os_errors
from fedldp.deployment.agreement import Site
from fedldp.deployment.documents import Document, Hex, Signature, SignedDocument
from fedldp.deployment.identity import (
    is_signed,
    private_text,
    public_of,
    public_text,
    read_keys,
    replace_secret,
)
from fedldp.deployment.policy import SitePolicy
from fedldp.deployment.site_ledger import SiteLedger
from fedldp.reporting.record import replace_file

RECEIPTS = "receipts"
"""The folder beside a server's run folders, with what it knows about its sites in all runs."""


class KeyChange(SignedDocument):
    """A change of a site's key, signed by the present key, whose owner states that they own it.

    Attributes:
        earlier: the earlier public keys, oldest first, each with its signature, by which its owner
            states what the present key is.
    """

    kind = "key_change"
    what = "key change"

    earlier: Annotated[tuple[tuple[Hex, Signature], ...], Field(min_length=1)]

    @classmethod
    def of(cls, keys: Sequence[Ed25519PrivateKey]) -> Self:
        """Return the change to the first of a site's keys from the others, newest first."""
        is_now = _is_now(public_of(keys[0]))
        earlier = [(public_of(each), each.sign(is_now).hex()) for each in keys[:0:-1]]
        return cls.signed(keys[0], earlier=tuple(earlier))

    @property
    def keys(self) -> tuple[str, ...]:
        """All keys of the site, oldest first."""
        return (*(old for old, _ in self.earlier), self.key)

    def check_read(self, own: Container[str] | None) -> None:
        """Refuse a change that one of its keys did not sign, or that names a key twice."""
        super().check_read(own)
        is_now = _is_now(self.key)
        signed = all(is_signed(old, bytes.fromhex(by), is_now) for old, by in self.earlier)
        if not signed or len({*self.keys}) < len(self.keys):
            raise ConfigError("it was changed after the site signed it; ask for it again")


def _is_now(key: str) -> bytes:
    return b"fedldp present key\x01" + bytes.fromhex(key)


class KnownKeys(Document):
    """What a server knows about changed keys.

    Attributes:
        sites: the keys of each site that changed its key, oldest first.
    """

    kind = "known_keys"
    what = "known keys"

    sites: tuple[tuple[Hex, ...], ...] = ()

    @classmethod
    def of(cls, folder: Path) -> KnownKeys:
        """Return what the server knows that has its run folders in ``folder``.

        Raises:
            RunError: its file is damaged.
        """
        path = folder / RECEIPTS / "keys"
        try:
            return cls.read(path) if path.exists() else cls()
        except ConfigError as error:
            raise RunError(
                f"{path} is damaged: restore it from a copy, or remove it and admit each change of "
                "a key again; until then, the keys before the changes would be valid"
            ) from error

    def keep(self, folder: Path) -> None:
        """Let the server know it that has its run folders in ``folder``.

        Of the receipts that a site gave under several keys, before the server knew the change, the
        newest file is from now on the site's last one.

        Raises:
            RunError: a file cannot be written.
        """
        place = folder / RECEIPTS
        with os_errors(f"cannot write {place}", "check the folder", RunError):
            for first, *later in self.sites:
                files = [place / key for key in (*reversed(later), first)]
                # A power cut may leave an empty one.
                given = [each for each in files if each.exists() and each.stat().st_size]
                if given:
                    max(given, key=lambda each: each.stat().st_mtime_ns).replace(place / first)
                for key in later:
                    (place / key).unlink(missing_ok=True)
        replace_file(place / "keys", self.to_bytes())

    def _of(self, key: str) -> tuple[str, ...]:
        return next((each for each in self.sites if key in each), (key,))

    def is_replaced(self, key: str) -> bool:
        """Return whether a site has changed its key ``key`` to another one."""
        return self._of(key)[-1] != key

    def first(self, key: str) -> str:
        """Return the first key of the site that has or had ``key``, by which a server knows it."""
        return self._of(key)[0]

    def admitting(self, change: KeyChange, roster: Sequence[Site]) -> tuple[KnownKeys, str]:
        """Return what the server knows with the change of a site, and the site's name.

        Args:
            change: the change, which must continue what is known of the site.
            roster: the sites of an agreement, of which the site is exactly one.

        Raises:
            ConfigError: no site of the roster had one of its keys, it was admitted before, or the
                site had changed its key to another one.
        """
        keys = change.keys
        names = [site.name for site in roster if not {*keys}.isdisjoint(self._of(site.key))]
        known = [each for each in self.sites if not {*keys}.isdisjoint(each)]
        if not names:
            raise ConfigError(
                f"key {change.key[:16]}: no site of this agreement had one of the keys before it; "
                "give the invite of a run that the site takes part in"
            )
        if len(names) > 1 or any(each[: len(keys)] != keys[: len(each)] for each in known):
            raise ConfigError(
                f"site {names[0]}: the change to {change.key[:16]} does not continue from the keys "
                "that are known; somebody else may have an earlier key: call the site"
            )
        if any(len(keys) <= len(each) for each in known):
            raise ConfigError(f"site {names[0]}: this change of its key was admitted before")
        rest = tuple(each for each in self.sites if each not in known)
        return KnownKeys(sites=(*rest, keys)), names[0]


def change_key(policy: SitePolicy) -> tuple[KeyChange, Path]:
    """Give a site a new key, beside which it keeps the earlier ones; its ledger continues.

    If this is interrupted, it may be called again: the site then has one key more.

    Args:
        policy: the policy of the site, whose agent must not be running.

    Returns:
        What to send to the operator of every server, and its file.

    Raises:
        FedldpError: the ledger was lost or set back, or a file cannot be read or written.
    """
    if (ledger := SiteLedger.existing(policy)) is not None:
        ledger.look()
    keys = [Ed25519PrivateKey.generate(), *read_keys(policy.key)]
    change, file = KeyChange.of(keys), policy.key.with_suffix(".changed")
    replace_secret(policy.key, b"".join(map(private_text, keys)))
    replace_file(policy.key.with_suffix(".pub"), public_text(keys[0]))
    replace_file(file, change.to_bytes())
    return change, file
