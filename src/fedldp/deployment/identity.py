"""A site's identity: an Ed25519 key, whose public half is in the agreement's roster."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from fedldp.core.errors import ConfigError, PrivacyError, os_errors

_HEX = re.compile(r"[0-9a-f]{64}")
_PEM = re.compile(rb"-----BEGIN.*?-----END[^\n]*", re.DOTALL)


def make_identity(private: Path, public: Path) -> None:
    """Write a new key pair: private (PEM, readable only by its owner) and public (hexadecimal).

    Raises:
        ConfigError: one of the files already exists, or cannot be written.
    """
    key = Ed25519PrivateKey.generate()
    new_file(private, private_text(key), 0o600)
    new_file(public, public_text(key), 0o644)


def public_of(key: Ed25519PrivateKey) -> str:
    """Return the public half of a key, in hexadecimal."""
    return key.public_key().public_bytes_raw().hex()


def private_text(key: Ed25519PrivateKey) -> bytes:
    """Return a key as the content of a file (PEM)."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def public_text(key: Ed25519PrivateKey) -> bytes:
    """Return the public half of a key as the content of a file."""
    return public_of(key).encode() + b"\n"


def new_file(path: Path, content: bytes, mode: int) -> None:
    """Write a file that does not exist yet.

    Raises:
        ConfigError: the file exists, or cannot be written.
    """
    with os_errors(f"cannot write {path}", "check the folder"):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        except FileExistsError:
            raise ConfigError(
                f"{path} exists already; remove it, or choose another folder"
            ) from None
        try:
            with os.fdopen(handle, "wb") as file:
                os.fchmod(file.fileno(), mode)
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            path.unlink()  # nobody should mistake a partial file for a complete one
            raise


def replace_secret(path: Path, content: bytes) -> None:
    """Replace a file with one that only its owner can read.

    Raises:
        ConfigError: the file cannot be written.
    """
    new = path.with_name(f"{path.name}.new")
    with os_errors(f"cannot write {path}", "check the folder"):
        new.unlink(missing_ok=True)
        new_file(new, content, 0o600)
        new.replace(path)


def check_private(what: str, path: Path) -> None:
    """Refuse a file or folder that others than its owner may read.

    Raises:
        PrivacyError: others may read it.
        OSError: it does not exist.
    """
    if path.stat().st_mode & 0o077:
        mode = "700" if path.is_dir() else "600"
        raise PrivacyError(f"{what} {path}: others may read it; run chmod {mode} on it")


def read_private(path: Path) -> Ed25519PrivateKey:
    """Return the present key in a PEM file; see ``read_keys``."""
    return read_keys(path)[0]


def read_keys(path: Path) -> list[Ed25519PrivateKey]:
    """Return the private keys in a PEM file: the present one, then the earlier ones.

    Raises:
        PrivacyError: the file has something else, or others may read it.
    """
    with os_errors(f"key {path}", "check the path", PrivacyError):
        check_private("key", path)
        content = path.read_bytes()
    keys = list[object]()
    with suppress(ValueError, TypeError, UnsupportedAlgorithm):
        keys = [load_pem_private_key(each, None) for each in _PEM.findall(content)]
    found = [key for key in keys if isinstance(key, Ed25519PrivateKey)]
    if not found or len(found) < len(keys):
        raise PrivacyError(f"key {path}: this key was not written by `fedldp deploy keys`")
    return found


def read_public(path: Path) -> str:
    """Return the public key in a file, in hexadecimal.

    Raises:
        ConfigError: the file has no public key.
    """
    with os_errors(f"key {path}", "check the path"):
        text = path.read_bytes().decode("ascii", "replace").strip()
    if not _HEX.fullmatch(text):
        raise ConfigError(f"key {path}: this public key was not written by `fedldp deploy keys`")
    return text


def is_signed(public: str, signature: bytes, content: bytes) -> bool:
    """Return whether ``signature`` is a signature of ``content`` by the holder of ``public``."""
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(signature, content)
    except (InvalidSignature, ValueError):
        return False
    return True
