"""Python's own TLS accepts our certificates, only for the hosts that they name; private files."""

from __future__ import annotations

import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509

from fedldp.deployment.certificates import (
    Certified,
    authority,
    server_certificate,
    write_secret,
)


def shake_hands(folder: Path, trusted: Certified, server: Certified, host: str) -> None:
    """Shake hands in memory; raise the client's objection."""
    (folder / "server.pem").write_bytes(server.certificate)
    (folder / "server.key").write_bytes(server.key)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(folder / "server.pem", folder / "server.key")
    trusting = ssl.create_default_context(cadata=trusted.certificate.decode())
    trusting.verify_flags |= ssl.VERIFY_X509_STRICT
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(to_client, to_server, server_hostname=host)
    other = serving.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, other, client, other):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "fl.example.org"])
def test_a_server_is_accepted_under_its_own_names(tmp_path: Path, host: str) -> None:
    signer = authority("test", 1)
    server = server_certificate(signer, ["localhost", "127.0.0.1", "fl.example.org"], 1)
    shake_hands(tmp_path, signer, server, host)


def test_a_server_is_not_accepted_under_another_name_or_authority(tmp_path: Path) -> None:
    signer = authority("test", 1)
    server = server_certificate(signer, ["localhost"], 1)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(tmp_path, signer, server, "fl.example.org")
    with pytest.raises(ssl.SSLCertVerificationError, match=r"local issuer|signature"):
        shake_hands(tmp_path, authority("test", 1), server, "localhost")


def test_an_expired_certificate_is_not_accepted(tmp_path: Path) -> None:
    signer = authority("test", 1)
    yesterdays = server_certificate(
        signer, ["localhost"], -1
    )  # a certificate of 0 days may still be valid this second
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        shake_hands(tmp_path, signer, yesterdays, "localhost")


def test_a_servers_key_cannot_sign_certificates(tmp_path: Path) -> None:
    server = server_certificate(authority("test", 1), ["localhost"], 1)
    found = x509.load_pem_x509_certificate(server.certificate)
    assert not found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_a_secret_is_readable_by_its_owner_alone_and_never_overwritten(tmp_path: Path) -> None:
    write_secret(tmp_path / "key", b"secret")
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        write_secret(tmp_path / "key", b"other")
    assert (tmp_path / "key").read_bytes() == b"secret"
