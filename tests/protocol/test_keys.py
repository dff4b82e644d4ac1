"""A client's streams: kept ones repeat, fresh ones never do, and secrets stay secret."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given
from hypothesis import strategies as st

from fedldp.core.errors import PrivacyError
from fedldp.core.randomness import KEY_BYTES, Stream
from fedldp.protocol.keys import SecretKeys, SimulationKeys, draws_of_secret, read_secret

SECRET = bytes(range(KEY_BYTES))


def start(stream: Stream) -> bytes:
    return bytes(stream.bytes(32))


# A client's secret


def test_kept_streams_are_those_of_hkdf() -> None:
    """Compared with a second implementation of RFC 5869 and AES in counter mode."""
    info = b"".join(
        len(label).to_bytes(4, "little") + label
        for label in (b"fedldp", b"client", b"run", b"portions")
    )
    key = HKDF(hashes.SHA256(), 32, salt=None, info=info).derive(SECRET)
    expected = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(32))
    assert start(SecretKeys(SECRET, "run").kept("portions")) == expected


labels = st.text("abc:/\0\u00e9", max_size=6)


@given(first=st.tuples(labels, labels), second=st.tuples(labels, labels))
def test_no_two_runs_or_purposes_share_a_stream(
    first: tuple[str, str], second: tuple[str, str]
) -> None:
    """Names that are equal when joined, such as "a" and "bc", "ab" and "c", differ too."""
    made = [start(Stream.derived(SECRET, "client", *each)) for each in (first, second)]
    assert (made[0] == made[1]) == (first == second)


def test_a_server_with_the_same_secret_has_other_streams() -> None:
    own = SecretKeys(SECRET, "run")
    drawn = draws_of_secret(SECRET, "run")(0)("rows of a person")
    assert start(own.kept("rows of a person")) != start(drawn)


def test_fresh_bytes_come_from_the_operating_system_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given_out: list[bytes] = []

    def entropy(count: int) -> bytes:
        given_out.append(bytes([len(given_out)]) * count)
        return given_out[-1]

    keys = SecretKeys(SECRET, "run", entropy)
    found = start(keys.fresh(1, 0, "mechanism"))
    assert given_out == [bytes(KEY_BYTES)]
    assert found == start(Stream(given_out[0], simulated=False))
    assert SecretKeys(SECRET, "run").entropy is os.urandom


def test_only_streams_of_a_secret_are_for_deployment() -> None:
    real, simulated = SecretKeys(SECRET, "run"), SimulationKeys(0, 1)
    assert not real.simulated
    assert simulated.simulated
    for keys in (real, simulated):
        for stream in (keys.kept("portions"), keys.fresh(1, 0, "mechanism")):
            assert stream.simulated is keys.simulated


@pytest.mark.parametrize("length", [0, 16, 31, 33])
def test_a_secret_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(PrivacyError, match=f"secret: it has {length} bytes, not 32"):
        SecretKeys(bytes(length), "run")


def test_no_secret_is_shown() -> None:
    text = repr(SecretKeys(b"\xaa" * KEY_BYTES, "run"))
    assert "xaa" not in text
    assert "secret" not in text


# A simulation's seed


def test_the_streams_of_a_seed_differ_by_every_argument() -> None:
    clients = [SimulationKeys(seed, client) for seed, client in ((3, 4), (4, 4), (3, 5))]
    places = [(round, phase, "mechanism") for round, phase in ((1, 0), (2, 0), (1, 1), (1, 2))]
    drawn = [start(own.fresh(*place)) for own in clients for place in (*places, (1, 0, "batches"))]
    kept = [own.kept(name) for own in clients for name in ("portions", "rows of a person")]
    drawn += map(start, kept)
    assert len(set(drawn)) == len(drawn) == 3 * (5 + 2)


# The secret's file


def test_a_secret_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    before = os.umask(0)
    try:
        made = read_secret(path)
    finally:
        os.umask(before)
    assert len(made) == KEY_BYTES
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_secret(path) == made == path.read_bytes()
    assert read_secret(tmp_path / "another") != made


def test_a_secret_and_its_place_are_synced_before_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[int, int]] = []

    def fsync(handle: int) -> None:
        found = os.fstat(handle)
        synced.append((found.st_ino, found.st_size if stat.S_ISREG(found.st_mode) else -1))

    monkeypatch.setattr(os, "fsync", fsync)
    path = tmp_path / "secret"
    read_secret(path)
    assert synced == [(path.stat().st_ino, KEY_BYTES), (tmp_path.stat().st_ino, -1)]


@pytest.mark.parametrize("mode", [0o604, 0o620, 0o640, 0o644, 0o601])
def test_a_secret_that_others_may_read_is_refused(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "secret"
    read_secret(path)
    path.chmod(mode)
    with pytest.raises(PrivacyError, match="others may read it; run chmod 600 on it"):
        read_secret(path)


@pytest.mark.parametrize("content", [b"", b"short", bytes(31), bytes(33)])
def test_a_damaged_secret_is_refused_and_not_changed(content: bytes, tmp_path: Path) -> None:
    """A client with a new secret would draw its once-only choices again."""
    path = tmp_path / "secret"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(PrivacyError, match="it is damaged; restore it from a copy"):
        read_secret(path)
    assert path.read_bytes() == content


def test_a_secret_that_a_crash_left_without_a_sync_is_synced_before_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise an answer that follows from the secret could leave before a power cut erases it."""

    class Crash(BaseException):
        pass

    fsync, synced = os.fsync, list[int]()

    def crash_at_a_folder(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise Crash
        fsync(handle)

    path = tmp_path / "secret"
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", crash_at_a_folder)
        with pytest.raises(Crash):
            read_secret(path)
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle).st_ino))
    assert read_secret(path) == path.read_bytes()
    assert tmp_path.stat().st_ino in synced
