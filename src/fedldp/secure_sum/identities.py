"""Certified keys: signatures prove to which client each key in a sum belongs.

Every client has a long-lived Ed25519 key. All sites accept a roster of the public keys before a
run, so a server cannot invent a client: each client signs the keys that it makes for a round.
"""

from __future__ import annotations

import struct
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedldp.core.errors import ConfigError, PrivacyError
from fedldp.secure_sum.messages import IDENTITY_BYTES, KEYS_BYTES, LARGEST_CLIENT, SecureSum


@dataclass(frozen=True, kw_only=True)
class Roster:
    """The clients that may take part in a run, and the keys that identify them.

    Attributes:
        run: the run's name; a signature made for one run is not valid in another.
        keys: every client's Ed25519 public key, 32 raw bytes, by client number.

    Raises:
        ConfigError: a number is out of range, a key is invalid, or two clients have the same key.
    """

    run: str
    keys: Mapping[int, bytes]

    def __post_init__(self) -> None:
        for client, key in self.keys.items():
            if not 0 <= client <= LARGEST_CLIENT:
                raise ConfigError(
                    f"roster: client {client}: number clients from 0 to {LARGEST_CLIENT}"
                )
            if len(key) != IDENTITY_BYTES:
                raise ConfigError(
                    f"roster: the key of client {client} has {len(key)} bytes, not {IDENTITY_BYTES}"
                )
        if len(set(self.keys.values())) < len(self.keys):
            raise ConfigError("roster: two clients have the same key; every site makes its own")

    def of(self, clients: Container[int]) -> Roster:
        """Return the roster with only these clients."""
        return replace(self, keys={c: key for c, key in self.keys.items() if c in clients})

    def certifies(self, setup: SecureSum, round: int, client: int, record: bytes) -> bool:
        """Return whether a record has keys that ``client`` signed for this round of the run."""
        own, keys, signature = self.keys.get(client), record[:KEYS_BYTES], record[KEYS_BYTES:]
        if own is None:
            return False
        try:
            Ed25519PublicKey.from_public_bytes(own).verify(
                signature, self.signed(setup, round, client, keys)
            )
        except (InvalidSignature, ValueError):
            return False
        return True

    def signed(self, setup: SecureSum, round: int, client: int, keys: bytes) -> bytes:
        """Return the bytes that a client signs; different statements give different bytes."""
        run = self.run.encode()
        where = struct.pack("<QQQ", len(run), round, client)
        return b"fedldp secure sum, keys\0" + where + run + setup.packed() + keys


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What a client needs to take part in sums with certified keys.

    Attributes:
        roster: the roster as the client accepted it.
        index: the client's number.
        private: the client's Ed25519 private key, 32 raw bytes.

    Raises:
        PrivacyError: the roster lacks the client, or has another key for it.
    """

    roster: Roster
    index: int
    private: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.private) != IDENTITY_BYTES:
            raise PrivacyError(
                f"identity: the private key has {len(self.private)} bytes, not {IDENTITY_BYTES}"
            )
        own = Ed25519PrivateKey.from_private_bytes(self.private).public_key().public_bytes_raw()
        if self.roster.keys.get(self.index) != own:
            raise PrivacyError(
                f"identity: the roster has no client {self.index} with this key; accept a roster "
                "that includes it"
            )

    def signature(self, setup: SecureSum, round: int, keys: bytes) -> bytes:
        """Return the client's 64-byte signature of its keys for a round."""
        content = self.roster.signed(setup, round, self.index, keys)
        return Ed25519PrivateKey.from_private_bytes(self.private).sign(content)
