"""Certificates: whom a site accepts, and how they are renewed without cutting anybody off."""

from __future__ import annotations

import shutil
import stat
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from environments import (
    HOST,
    make_environment,
    new_tls,
    write_policy,
)
from https_ends import Ends, eventually, taken

from fedldp.core.errors import ConfigError, PrivacyError
from fedldp.deployment.certificates import (
    Certified,
    authority,
    check_host,
    fingerprints,
    server_certificate,
    tls_of_server,
    write_server_keys,
)
from fedldp.deployment.identity import new_file
from fedldp.deployment.joining import host_of


def test_a_servers_key_cannot_sign_certificates(tmp_path: Path) -> None:
    server = server_certificate(authority("test", 1), ["localhost"], 1)
    found = x509.load_pem_x509_certificate(server.certificate)
    assert not found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_a_secret_is_readable_by_its_owner_alone_and_never_overwritten(tmp_path: Path) -> None:
    new_file(tmp_path / "key", b"secret", 0o600)
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    with pytest.raises(ConfigError, match="exists already"):
        new_file(tmp_path / "key", b"other", 0o600)
    assert (tmp_path / "key").read_bytes() == b"secret"


@pytest.fixture
def ends(tmp_path: Path) -> Ends:
    write_server_keys(tmp_path / "tls", [HOST], 2)
    return Ends(tmp_path / "tls", [Ed25519PrivateKey.generate() for _ in range(2)])


def let_it_end(folder: Path, days: int = -1) -> None:
    """Replace a server's certificate by an expired one."""
    signer = Certified(
        key=(folder / "ca.key").read_bytes(), certificate=(folder / "ca.pem").read_bytes()
    )
    old = server_certificate(signer, [HOST], days)
    (folder / "server.pem").write_bytes(old.certificate)
    (folder / "server.key").write_bytes(old.key)


def is_served(ends: Ends) -> bool:
    """Return whether a newly started server gets an answer from the waiting site."""
    with ends.pipe() as pipe:
        eventually(lambda: any(each.there for each in pipe.sites))
        return taken(pipe, pipe.ask(0, b"asked")) == b"deksa"


# Certificates


def test_a_certificate_that_expired_in_a_pause_is_renewed_and_the_site_returns_by_itself(
    ends: Ends, caplog: pytest.LogCaptureFixture
) -> None:
    let_it_end(ends.folder)
    before = (ends.folder / "server.key").read_bytes()
    with ExitStack() as waiting:
        with ends.pipe() as pipe:
            waiting.enter_context(ends.link(0))
            eventually(lambda: "certificate has expired" in caplog.text)
            assert not any(each.there for each in pipe.sites)
        until = write_server_keys(ends.folder, [HOST], 365)
        assert timedelta(364) < until - datetime.now(UTC) < timedelta(366)
        assert is_served(ends)
    key = ends.folder / "server.key"
    assert key.read_bytes() != before
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    renewed = x509.load_pem_x509_certificate((ends.folder / "server.pem").read_bytes())
    names = renewed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == [HOST]


@pytest.mark.slow
def test_two_authorities_overlap_and_the_site_moves_from_one_to_the_other(
    ends: Ends, tmp_path: Path
) -> None:
    """Both have the same name, so only their keys show which of them signed."""
    write_server_keys(tmp_path / "new", [HOST], 2)
    old, new = ends.folder / "ca.pem", tmp_path / "new" / "ca.pem"
    both = tmp_path / "both.pem"
    both.write_bytes(old.read_bytes() + new.read_bytes())
    assert fingerprints(both) == fingerprints(old) + fingerprints(new)
    with ends.pipe():
        pass  # only to find a free port
    with ends.link(0, ca=both):
        assert is_served(ends)
        for name in ("server.pem", "server.key"):
            shutil.copy(tmp_path / "new" / name, ends.folder / name)
        assert is_served(ends)


def test_a_site_may_know_one_or_both_of_an_agreements_authorities(tmp_path: Path) -> None:
    for name in ("old", "new", "other"):
        write_server_keys(tmp_path / name, [HOST], 2)
    old, new, other = (tmp_path / name / "ca.pem" for name in ("old", "new", "other"))
    (tmp_path / "both.pem").write_bytes(old.read_bytes() + new.read_bytes())
    (tmp_path / "more.pem").write_bytes(old.read_bytes() + other.read_bytes())
    url = f"https://{HOST}:8443"
    env = make_environment(
        tmp_path / "world",
        sites=1,
        tls={**new_tls(), "ca.pem": (tmp_path / "both.pem").read_bytes()},
        policy={"server": [{"url": url, "ca": str(old)}]},
    )
    for file in (old, new, tmp_path / "both.pem"):
        policy = write_policy(tmp_path / "world" / "site-0", server=[{"url": url, "ca": str(file)}])
        policy.check(env.agreement)
    for file in (other, tmp_path / "more.pem"):
        policy = write_policy(tmp_path / "world" / "site-0", server=[{"url": url, "ca": str(file)}])
        with pytest.raises(PrivacyError, match="ca"):
            policy.check(env.agreement)


def test_a_certificate_is_renewed_only_by_its_own_authority(ends: Ends, tmp_path: Path) -> None:
    folder = ends.folder
    # The file may also hold another authority, in any order.
    other = authority("fedldp", 0)
    (folder / "ca.pem").write_bytes(other.certificate + (folder / "ca.pem").read_bytes())
    write_server_keys(folder, [HOST], 30)
    tls_of_server(folder / "server.pem", folder / "server.key")
    own = (folder / "ca.key").read_bytes()
    (folder / "ca.key").write_bytes(authority("fedldp", 9).key)
    with pytest.raises(ConfigError, match=r"is not the key of an authority in ca\.pem"):
        write_server_keys(folder, [HOST], 60)
    (folder / "ca.key").write_bytes(other.key)
    with pytest.raises(ConfigError, match="its certificates cannot last longer"):
        write_server_keys(folder, [HOST], 60)
    (folder / "ca.key").unlink()
    with pytest.raises(ConfigError, match="put it back, if you moved it off"):
        write_server_keys(folder, [HOST], 60)
    (folder / "ca.key").write_bytes(b"none")
    with pytest.raises(ConfigError, match="is not the key of an authority"):
        write_server_keys(folder, [HOST], 60)
    (folder / "ca.key").write_bytes(own)
    write_server_keys(folder, [HOST], 60)


# A pause


@pytest.fixture
def a_week_later(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that makes all clocks of this process jump by a week."""
    ahead = [0.0]
    for name in ("time", "monotonic"):
        real = getattr(time, name)
        monkeypatch.setattr(time, name, lambda real=real: real() + ahead[0])

    def jump() -> None:
        ahead[0] += 7 * 24 * 3600

    return jump


def test_a_connection_outlasts_a_week_in_which_nothing_ran(ends: Ends, a_week_later: Any) -> None:
    with ends.pipe() as pipe, ends.link(0):
        eventually(lambda: any(each.there for each in pipe.sites))
        assert taken(pipe, pipe.ask(0, b"asked")) == b"deksa"
        a_week_later()
        assert taken(pipe, pipe.ask(0, b"again")) == b"niaga"


@pytest.mark.parametrize(
    "url",
    [
        "https://server.example.org:8443",
        "https://SERVER.example.org",
        "https://Server.Example.org:8443",
        "https://192.0.2.7:8443",
        "https://[2001:db8::1]:8443",
        "https://[2001:DB8:0:0::1]:8443",
    ],
)
def test_a_host_has_no_case_and_an_address_has_one_value(tmp_path: Path, url: str) -> None:
    """A certificate for Server.Example.org was once refused for this very host."""
    write_server_keys(tmp_path, ["Server.Example.org", "192.0.2.7", "2001:db8::1"], 2)
    check_host(tmp_path, host_of(url))
    for other in ("example.org", "server.example.org.evil", "192.0.2.70", "2001:db8::2"):
        with pytest.raises(ConfigError, match="it is not for"):
            check_host(tmp_path, other)
    (tmp_path / "server.pem").write_bytes((tmp_path / "ca.pem").read_bytes())
    with pytest.raises(ConfigError, match="it is not for"):
        check_host(tmp_path, host_of(url))
