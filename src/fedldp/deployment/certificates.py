"""Keys and certificates for a certificate authority and a server.

All keys are on the curve P-256, and in PEM.
"""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import ssl
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from fedldp.core.errors import ConfigError, os_errors
from fedldp.core.facts import Status
from fedldp.core.kinds import EXPIRED, EXPIRES
from fedldp.deployment.identity import check_private, new_file, replace_secret
from fedldp.reporting.record import replace_file

AUTHORITY_DAYS = 3650
"""The validity of a new authority, in days; the certificates that it signs last a year."""


@dataclass(frozen=True, kw_only=True)
class Certified:
    """A private key and the certificate of its public key, both in PEM."""

    key: bytes
    certificate: bytes


def authority(name: str, days: int) -> Certified:
    """Return a new certificate authority that may sign only end-entity certificates.

    Args:
        name: its common name.
        days: how long it is valid from now; validity begins a day early, because clocks differ.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    own = [
        (x509.BasicConstraints(ca=True, path_length=0), True),
        (_usage(signs_certificates=True), True),
    ]
    return _certified(key, name, days, _name(name), key, own)


def server_certificate(signer: Certified, hosts: Sequence[str], days: int) -> Certified:
    """Return a new TLS server certificate for ``hosts``, signed by an :func:`authority`.

    Args:
        signer: the authority, with its key.
        hosts: names and IP addresses at which clients reach the server; at least one.
        days: see :func:`authority`.
    """
    issuer = x509.load_pem_x509_certificate(signer.certificate)
    issuer_key = load_pem_private_key(signer.key, None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
    own = [
        (x509.SubjectAlternativeName([_host(host) for host in hosts]), False),
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_usage(signs_certificates=False), True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
    ]
    key = ec.generate_private_key(ec.SECP256R1())
    return _certified(key, hosts[0], days, issuer.subject, issuer_key, own)


def _certified(
    key: ec.EllipticCurvePrivateKey,
    name: str,
    days: int,
    issuer: x509.Name,
    issuer_key: ec.EllipticCurvePrivateKey,
    own: Sequence[tuple[x509.ExtensionType, bool]],
) -> Certified:
    """Return a key and its certificate, with extensions that are critical or not."""
    now, public = datetime.datetime.now(datetime.UTC), key.public_key()
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=days))
    )
    by = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    of = x509.SubjectKeyIdentifier.from_public_key(public)
    for extension, critical in ((of, False), (by, False), *own):
        builder = builder.add_extension(extension, critical)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    certificate = builder.sign(issuer_key, hashes.SHA256())
    return Certified(key=pem, certificate=certificate.public_bytes(Encoding.PEM))


def write_server_keys(folder: Path, hosts: Sequence[str], days: int) -> datetime.datetime:
    """Write a server's certificate for ``hosts`` and its key: server.pem and server.key.

    The authority in ca.pem and ca.key signs it, so that parties that trust this authority trust
    each new certificate. If the folder has none, a new one is made, which is valid for ten years.

    Args:
        folder: where the files are written.
        hosts: see :func:`server_certificate`.
        days: how long the certificate is valid; it expires no later than its authority.

    Returns:
        When the certificate expires.

    Raises:
        ConfigError: a file cannot be read or written, ca.key is not the key of an authority in
            ca.pem, or this authority has expired.
    """
    if not (folder / "ca.pem").exists():
        new = authority("fedldp", AUTHORITY_DAYS)
        new_file(folder / "ca.key", new.key, 0o600)
        new_file(folder / "ca.pem", new.certificate, 0o644)
    signer = _authority_in(folder)
    ends = x509.load_pem_x509_certificate(signer.certificate).not_valid_after_utc
    left = min(days, (ends - datetime.datetime.now(datetime.UTC)).days)
    if left < 1:
        raise ConfigError(
            f"{folder / 'ca.pem'}: this authority expires on {ends:%Y-%m-%d}, and its "
            "certificates cannot last longer; make a new one in another folder"
        )
    own = server_certificate(signer, hosts, left)
    # If this is interrupted after the first file, the server reports that the two do not match.
    replace_secret(folder / "server.key", own.key)
    replace_file(folder / "server.pem", own.certificate)
    return x509.load_pem_x509_certificate(own.certificate).not_valid_after_utc


def _authority_in(folder: Path) -> Certified:
    """Return the authority whose key is in a folder.

    Raises:
        ConfigError: see :func:`write_server_keys`.
    """
    place, public = folder / "ca.key", None
    with os_errors(str(place), "put it back, if you moved it off this machine"):
        key = place.read_bytes()
    with suppress(ValueError, TypeError):
        public = _public_of(load_pem_private_key(key, None).public_key())
    for each in _certificates("ca", folder / "ca.pem"):
        if _public_of(each.public_key()) == public:
            return Certified(key=key, certificate=each.public_bytes(Encoding.PEM))
    raise ConfigError(
        f"{place}: this is not the key of an authority in ca.pem; put the right key back"
    )


def check_host(folder: Path, host: str) -> None:
    """Refuse a server.pem by which sites that trust the ca.pem beside it would not know ``host``.

    Raises:
        ConfigError: it is for other hosts, no authority in ca.pem vouches for it now, or one of the
            two cannot be read.
    """
    certificate, authorities = folder / "server.pem", authorities_of(folder / "ca.pem")
    with os_errors(f"certificate {certificate}", "check the path"):
        chain = certificate.read_bytes()
    try:
        _verified(chain, host, authorities)
    except (ValueError, VerificationError) as error:
        raise ConfigError(
            f"certificate {certificate}: it is not for {host}, or no authority in ca.pem vouches "
            "for it; make one for this host with `fedldp deploy keys --server`"
        ) from error


def fingerprint(certificate: bytes) -> str:
    """Return the SHA-256 of a certificate (DER), as 64 hexadecimal digits."""
    return hashlib.sha256(certificate).hexdigest()


def fingerprints(authorities: Path) -> list[str]:
    """Return the SHA-256 of each certificate in a PEM file, as 64 hexadecimal digits.

    Raises:
        ConfigError: the file cannot be read, or holds no certificate.
    """
    return [fingerprint(each) for each in authorities_of(authorities)]


def authorities_of(authorities: Path) -> list[bytes]:
    """Return each certificate (DER) in a PEM file.

    Raises:
        ConfigError: the file cannot be read, or holds no certificate.
    """
    return [each.public_bytes(Encoding.DER) for each in _certificates("ca", authorities)]


def _certificates(what: str, file: Path) -> list[x509.Certificate]:
    """Return the certificates in a PEM file, at least one.

    Raises:
        ConfigError: the file cannot be read, or holds no certificate.
    """
    with os_errors(f"{what} {file}", "check the path"):
        content = file.read_bytes()
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError as error:
        raise ConfigError(f"{what} {file}: this is not a certificate in PEM") from error


def tls_of_server(certificate: Path, key: Path) -> tuple[ssl.SSLContext, bytes]:
    """Return the TLS settings of a server, and its certificate (DER).

    Args:
        certificate: a PEM file; the server's own certificate comes first.
        key: a PEM file, which only its owner may read.

    Raises:
        ConfigError: the files cannot be read, or do not match.
        PrivacyError: others may read the key.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        check_private("key", key)
        own = x509.load_pem_x509_certificate(certificate.read_bytes())
        context.load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        raise ConfigError(
            f"certificate {certificate}, key {key}: they do not match ({error.reason}); give the "
            "pair that `fedldp deploy keys --server` wrote"
        ) from error
    except OSError as error:
        raise ConfigError(
            f"{error.filename}: {error.strerror}; give --certificate and --key, the server.pem and "
            "server.key that `fedldp deploy invite` wrote"
        ) from error
    except ValueError as error:
        raise ConfigError(f"certificate {certificate}: this is not a certificate in PEM") from error
    return context, own.public_bytes(Encoding.DER)


def lifetime(
    file: Path, *, authorities: bool = False
) -> tuple[datetime.datetime, datetime.datetime]:
    """Return from when to when a certificate in a PEM file is valid.

    It is the first one; of authorities, the one that lasts longest.

    Raises:
        OSError, ValueError: the file cannot be read, or holds no certificate.
    """
    found = x509.load_pem_x509_certificates(file.read_bytes())
    own = max(found, key=lambda each: each.not_valid_after_utc) if authorities else found[0]
    return own.not_valid_before_utc, own.not_valid_after_utc


_WARNS_DAYS = 30


def validity(what: str, ends: datetime.datetime) -> Status | None:
    """Return the fact that a certificate has expired or will expire within 30 days, or None."""
    left = ends - datetime.datetime.now(datetime.UTC)
    if left.total_seconds() < 0:
        return EXPIRED(what=what, on=f"{ends:%Y-%m-%d}")
    if left.days < _WARNS_DAYS:
        return EXPIRES(what=what, on=f"{ends:%Y-%m-%d}", days=left.days)
    return None


class ServerTls:
    """A server's certificate and key.

    Attributes:
        file: the certificate's file.
        context: the TLS settings.
        certificate: the server's own certificate (DER).

    Raises:
        ConfigError: see ``tls_of_server``.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        self.file, self._files = certificate.resolve(), (certificate, key)
        self.context, self.certificate = tls_of_server(certificate, key)

    def validity(self) -> Status | None:
        """Return what needs attention about the certificate in use; see ``validity``."""
        at = x509.load_der_x509_certificate(self.certificate).not_valid_after_utc
        return validity(str(self._files[0]), at)

    def sign(self, content: bytes) -> tuple[bytes, bytes]:
        """Sign with the server's key; return the signature and the certificates (PEM).

        Raises:
            ConfigError: the files cannot be read.
        """
        chain, secret = self._files
        try:
            key: Any = load_pem_private_key(secret.read_bytes(), None)
            signature: bytes = key.sign(content, *_scheme(key))
            return signature, chain.read_bytes()
        except (OSError, ValueError, TypeError) as error:
            raise ConfigError(f"key {secret}: it cannot be used to sign") from error


def is_of_server(
    content: bytes, signature: bytes, chain: bytes, host: str, authorities: Sequence[bytes]
) -> bool:
    """Return whether the TLS key of a host's server signed some content.

    Args:
        content: what was signed.
        signature: the signature.
        chain: the server's certificates (PEM), its own first.
        host: the name or address by which the server is reached.
        authorities: the certificates (DER) of which one must vouch for the server now.
    """
    try:
        key: Any = _verified(chain, host, authorities).public_key()
        key.verify(signature, content, *_scheme(key))
    except (ValueError, VerificationError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def _verified(chain: bytes, host: str, authorities: Sequence[bytes]) -> x509.Certificate:
    """Return a server's certificate, if it is for a host and an authority vouches for it now.

    Raises:
        ValueError, VerificationError: it is not.
    """
    own, *between = x509.load_pem_x509_certificates(chain)
    store = Store([x509.load_der_x509_certificate(each) for each in authorities])
    subject = _host(host)
    assert isinstance(subject, x509.DNSName | x509.IPAddress)
    PolicyBuilder().store(store).build_server_verifier(subject).verify(own, between)
    return own


def _scheme(key: Any) -> tuple[Any, ...]:
    """Return how a key signs: what it takes after the content."""
    if isinstance(key, ec.EllipticCurvePrivateKey | ec.EllipticCurvePublicKey):
        return (ec.ECDSA(hashes.SHA256()),)
    if isinstance(key, rsa.RSAPrivateKey | rsa.RSAPublicKey):
        return padding.PKCS1v15(), hashes.SHA256()
    return ()


def _public_of(key: Any) -> bytes:
    found: bytes = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return found


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
