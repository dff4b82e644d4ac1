"""The documents that parties send each other as files: JSON, identified by a SHA-256 digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Container, Mapping
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, ClassVar, NoReturn, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import ConfigDict, Field, ValidationError

from fedldp.core.errors import ConfigError, FedldpError
from fedldp.core.frozen_config import FrozenConfig
from fedldp.deployment.identity import is_signed, public_of

Hex = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""A digest or a public key."""
SITE_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
Signature = Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]

LARGEST = 1 << 24
"""The largest permitted size of a document's file, in bytes."""
_FORM = 1


def canonical(document: Mapping[str, Any]) -> bytes:
    """Return a document's canonical bytes, from which its digest is computed.

    Raises:
        ValueError: the document holds NaN or infinity.
    """
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def digest_of(document: Mapping[str, Any]) -> bytes:
    """Return the SHA-256 of a document's canonical bytes: 32 bytes."""
    return hashlib.sha256(canonical(document)).digest()


class Document(FrozenConfig):
    """One kind of document: its first key is the kind, with the version of its form.

    What has its default is left out, so a document is read back as the bytes that were written,
    also by a later release with more fields.
    """

    # A nested document was validated when it was made.
    model_config = ConfigDict(revalidate_instances="never")

    kind: ClassVar[str]
    """The key by which its files are recognised."""
    what: ClassVar[str]
    """The kind in words, for error messages."""

    @cached_property
    def document(self) -> dict[str, Any]:
        """The document as JSON-ready values."""
        return {self.kind: _FORM, **self.model_dump(mode="json", exclude_defaults=True)}

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of its canonical bytes: 32 bytes."""
        return digest_of(self.document)

    def to_bytes(self) -> bytes:
        """Return the content of its file: the canonical form, indented for people to read."""
        return json.dumps(self.document, indent=1, sort_keys=True).encode() + b"\n"

    def changed(self, **fields: Any) -> Self:
        """Return a copy with some fields changed, validated again."""
        own = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self)(**{**own, **fields})

    @classmethod
    def parse(
        cls, content: bytes, data_dir: Path | None = None, *, own: Container[str] | None = ()
    ) -> Self:
        """Return the document in ``content``, without importing or trusting anything it names.

        Args:
            content: the content of the document's file.
            data_dir: the data folder.
            own: the systems, mechanisms, features and files from outside fedldp that may be used,
                as "module:name". (Nothing is known about them until they are imported.) None: any.

        Raises:
            ConfigError: the document is damaged, of another kind or version, contains unprintable
                characters, or names code that may not be imported.
        """
        try:
            read = json.loads(content)
            canonical(read)  # refuses NaN and infinity, which have no canonical form
            printable = _printable(read)
        except (ValueError, RecursionError) as error:
            _refuse("", error)
        if not printable:
            raise ConfigError("it contains characters that cannot be printed; refuse it")
        if not isinstance(read, dict) or cls.kind not in read:
            raise ConfigError(f"this is another kind of file: it has no {cls.kind}; check the path")
        if read.pop(cls.kind) != _FORM:
            _refuse(f" at {cls.kind}")
        try:
            found = cls.model_validate(read, context={"data_dir": data_dir, "own": own})
        except ValidationError as error:
            _refuse(" at " + ".".join(map(str, error.errors()[0]["loc"])), error)
        found.check_read(own)
        return found

    def check_read(self, own: Container[str] | None) -> None:
        """Refuse the document, which was just read, if something in it contradicts itself.

        Raises:
            ConfigError: the document is refused.
        """

    @classmethod
    def is_in(cls, path: Path) -> bool:
        """Return whether a file holds this kind of document, which may be damaged."""
        try:
            found = json.loads(_content(path))
        except (OSError, ValueError, RecursionError):
            return False
        return isinstance(found, dict) and cls.kind in found

    @classmethod
    def read(
        cls, path: Path, data_dir: Path | None = None, *, own: Container[str] | None = ()
    ) -> Self:
        """Return the document in a file; see ``parse``.

        Raises:
            ConfigError: see ``parse``; or the file cannot be read, or is too large.
        """
        try:
            return cls.parse(_content(path), data_dir, own=own)
        except OSError as error:
            raise ConfigError(f"{cls.what} {path}: {error.strerror}; check the path") from error
        except FedldpError as error:
            raise ConfigError(f"{cls.what} {path}: {error}") from error


class SignedDocument(Document):
    """A document that a site signs with its key.

    Attributes:
        key: the site's public key.
        signature: the Ed25519 signature of all other fields and of the document's kind, by ``key``.
    """

    key: Hex
    signature: Signature

    @classmethod
    def signed(cls, private: Ed25519PrivateKey, **fields: Any) -> Self:
        """Return the document with some fields, signed with a site's key."""
        draft = cls(key=public_of(private), signature="0" * 128, **fields)
        return draft.changed(signature=private.sign(draft._to_sign()).hex())

    @property
    def is_signed(self) -> bool:
        """Whether the holder of ``key`` signed this document."""
        return is_signed(self.key, bytes.fromhex(self.signature), self._to_sign())

    def check_read(self, own: Container[str] | None) -> None:
        """Refuse a document that its site did not sign."""
        if not self.is_signed:
            raise ConfigError("it was changed after the site signed it; ask for it again")

    def _to_sign(self) -> bytes:
        rest = {name: value for name, value in self.document.items() if name != "signature"}
        return f"fedldp {self.kind}\x01".encode() + canonical(rest)


def fits_version(agreed: str, other: str) -> bool:
    """Return whether a party with another version of fedldp may take part in a run.

    Versions with the same MAJOR.MINOR compute the same values, bit for bit, and exchange the same
    messages; the third number only counts fixes. No claim depends on the other party's version:
    each site computes its claims with its own code.
    """
    return agreed.split(".")[:2] == other.split(".")[:2]


def check_version(made_with: str) -> None:
    """Refuse a document that an incompatible version of fedldp made.

    Raises:
        ConfigError: the versions are incompatible.
    """
    own = version("fedldp")
    if not fits_version(made_with, own):
        wanted = ".".join(made_with.split(".")[:2])
        raise ConfigError(
            f"fedldp = {made_with:.20}: it was made with this version, but {own} is installed "
            f"here; install fedldp {wanted:.20}, or make it again with the same version everywhere"
        )


def _content(path: Path) -> bytes:
    if path.stat().st_size > LARGEST:
        raise ConfigError(f"it has more than {LARGEST} bytes; check the path")
    return path.read_bytes()


def _refuse(place: str, cause: Exception | None = None) -> NoReturn:
    raise ConfigError(
        f"it is damaged{place}, or was written by another version of fedldp; ask for it again"
    ) from cause


def _printable(value: Any) -> bool:
    """Return whether all strings in a document are printable, so that none can overwrite output."""
    if isinstance(value, dict):
        return all(each.isprintable() and _printable(value[each]) for each in value)
    if isinstance(value, list):
        return all(map(_printable, value))
    return not isinstance(value, str) or value.isprintable()
