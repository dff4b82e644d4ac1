"""The HTTPS link alone: who is let in, what is read, and what happens when things break."""

from __future__ import annotations

import contextlib
import itertools
import select
import socket
import string
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from environments import HOST, new_tls, write_tls
from https_ends import DIGEST, LARGEST, Ends, all_taken, eventually, is_hung_up, taken
from pydantic import ValidationError

from fedldp.core.errors import ConfigError
from fedldp.deployment.certificates import authorities_of, fingerprint, is_of_server
from fedldp.deployment.https import pipe as pipe_module
from fedldp.deployment.https import server as listening
from fedldp.deployment.https import site as site_module
from fedldp.deployment.https.hello import NO_DIGEST, TAG, Hello, Nonces
from fedldp.deployment.https.pipe import RunPipe
from fedldp.deployment.https.site import fetch_agreement
from fedldp.deployment.messages import End, read_message

slow = pytest.mark.slow


@pytest.fixture
def pipe(ends: Ends) -> Iterator[RunPipe]:
    with ends.pipe() as pipe:
        yield pipe


def test_requests_go_out_and_answers_come_back(ends: Ends, pipe: RunPipe) -> None:
    assert not any(each.there for each in pipe.sites)
    with ends.link(0), ends.link(1):
        eventually(lambda: all(each.there for each in pipe.sites))
        near, far = (pipe.ask(node, b"to %d" % node) for node in (0, 1))
        assert all_taken(pipe, near, far) == {near: b"0 ot", far: b"1 ot"}
        large = bytes(range(256)) * 1000
        assert taken(pipe, pipe.ask(1, large)) == large[::-1]


def test_the_common_end_of_a_secure_sums_requests_is_held_once() -> None:
    """Before the common weights, each request has what other sites sealed for its site only."""
    boxes, weights = [bytes([n]) * 5000 for n in range(6)], bytes(range(256)) * 400
    bodies = [box + weights for box in boxes]
    pipe = RunPipe(DIGEST, b"agreed", [(str(n), f"{n:064x}") for n in range(6)], LARGEST)
    for site, body in enumerate(bodies):
        pipe.ask(site, body)
    asked = [site.pending[1] for site in pipe.sites if site.pending]
    assert [b"".join(pieces) for pieces in asked] == bodies
    assert len({id(pieces[-1]) for pieces in asked}) == 1


def test_only_the_latest_request_is_handed_out_and_an_answer_may_come_late(
    ends: Ends, pipe: RunPipe
) -> None:
    """A site that was away does not pay for an answer to a request that nobody waits for."""
    with ends.client() as client:
        shown = ends.token(client)
        first = pipe.ask(0, b"first")
        assert client.post("/v1/question", headers=shown).content == b"first"
        pipe.withdraw()
        second, third = pipe.ask(0, b"second"), pipe.ask(0, b"third")
        assert client.post("/v1/question", headers=shown).content == b"third"
        for number in (first, third):
            place = f"/v1/answer/{number}"
            assert client.post(place, headers=shown, content=b"%d" % number).status_code == 204
    assert pipe.take(0.0) == [(each, b"%d" % each) for each in (first, third)]
    assert second in pipe.sites[0].unanswered


# A run that is over


def said(link: list[bytes], asked: bytes) -> bytes:
    link.append(asked)
    return b""


def test_a_site_that_comes_late_is_told_that_its_run_is_over(
    ends: Ends, caplog: pytest.LogCaptureFixture
) -> None:
    """Also by another server, which knows the run from its queue."""
    caplog.set_level("INFO")
    near, far, later, never = (list[bytes]() for _ in range(4))
    with ends.pipe() as pipe:
        with ends.link(1):
            eventually(lambda: pipe.sites[1].there)
        with ends.link(0, answers=partial(said, near)):
            eventually(lambda: pipe.sites[0].there)
            pipe.end(3)
            known = ends.listening._known[DIGEST]
            telling = threading.Thread(target=ends.listening.tell, args=(pipe,))
            telling.start()
            eventually(lambda: near)
            # It waits for the site that was there before, unless that was told while it went.
            assert telling.is_alive() or len(known.told) == 2
        with ends.link(1, answers=partial(said, far)):
            eventually(lambda: far)
            telling.join(10)
            assert not telling.is_alive()
    names = {key.public_key().public_bytes_raw().hex(): "site" for key in ends.keys}
    with ends.pipe() as pipe:
        pipe.digest = b"another".ljust(32)
        listener = ends.listening
        listener._known = {}
        listener.remember(DIGEST, names, 3)
        with ends.link(1, answers=partial(said, later)):
            eventually(lambda: later)
        assert not listener.is_asked_for(DIGEST, 1)
        listener.remember(DIGEST, names, None)
        with ends.link(1, answers=partial(said, never)):
            eventually(lambda: "waits for agreement" in caplog.text)
            assert not never
        assert listener.is_asked_for(DIGEST, 1)
        assert not listener.is_asked_for(DIGEST, 2)
    for end in (near[0], far[0]):
        message = read_message(end)
        assert isinstance(message, End)
        assert (message.digest, message.rounds) == (DIGEST, 3)
        known = authorities_of(ends.folder / "ca.pem")
        assert is_of_server(message.signed, message.signature, message.chain, HOST, known)
    assert "does not know this site's key" not in caplog.text


def test_a_server_that_was_started_again_waits_for_a_site_that_was_away(
    ends: Ends, pipe: RunPipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = list[bytes]()
    pipe.end(2)
    ending = threading.Thread(target=ends.listening.tell, args=(pipe,))
    ending.start()
    with ends.link(0, answers=partial(said, told)), ends.link(1, answers=partial(said, told)):
        ending.join(10)
        assert not ending.is_alive()
        eventually(lambda: len(told) >= 2)


# Who is let in


@slow
def test_a_site_accepts_no_other_server(
    ends: Ends, pipe: RunPipe, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_tls(tmp_path / "other", new_tls())
    with ends.link(0, ca=tmp_path / "other" / "ca.pem"):
        eventually(lambda: "CERTIFICATE_VERIFY_FAILED" in caplog.text)
        time.sleep(0.5)
        assert not any(each.there for each in pipe.sites)
    with ends.link(0, url=f"https://localhost:{ends.port}"):  # its certificate is for 127.0.0.1
        eventually(lambda: "Hostname mismatch" in caplog.text)
        assert not any(each.there for each in pipe.sites)


@slow
def test_a_site_is_accepted_under_its_own_name_only(ends: Ends, pipe: RunPipe) -> None:
    """Not with another site's key, at another server, or with an earlier signature."""
    near, far = ends.keys
    public = far.public_key().public_bytes_raw().hex()
    with ends.client() as client:
        own = ends.hello(client, near)
        as_far = own.changed(key=public)
        elsewhere = ends.hello(client, near, certificate=fingerprint(b"of another server"))
        changed = own.changed(version="9.9")
        made_up = ends.hello(client, near, nonce=f"{'A' * 98}==")
    for hello, status in ((as_far, 403), (elsewhere, 403), (changed, 403), (made_up, 401),
                          (own, 200), (own, 401)):  # fmt: skip
        with ends.client() as client:
            assert client.post("/v1/hello", content=hello.to_bytes()).status_code == status


@slow
def test_a_nonce_is_valid_once_and_for_a_minute() -> None:
    now = [0.0]
    nonces = Nonces(lambda: now[0])
    first, second = nonces.fresh(), nonces.fresh()
    assert nonces.is_good(first)
    nonces.use(first)
    assert not nonces.is_good(first)
    now[0] = 60.0
    assert nonces.is_good(second)
    now[0] = 61.0
    assert not nonces.is_good(second)
    assert not Nonces(lambda: now[0]).is_good(nonces.fresh())
    nonces.use(nonces.fresh())
    assert len(nonces._used) == 1  # expired ones are forgotten


def test_a_nonce_has_one_spelling() -> None:
    """Base64 reads 16 spellings alike, and only the one that was used would be known as used."""
    nonces, key, nothing = Nonces(), Ed25519PrivateKey.generate(), bytes(32).hex()
    terms = {"certificate": nothing, "agreement": nothing, "receipt": nothing, "version": "1"}
    nonce = nonces.fresh()
    letters = f"{string.ascii_letters}{string.digits}-_"
    same = [each for c in letters if nonces.is_good(each := f"{nonce[:97]}{c}==")]
    assert len(same) == 16
    assert Hello.signed(key, nonce=nonce, **terms).is_signed
    for spelling in set(same) - {nonce}:
        with pytest.raises(ValidationError):
            Hello.signed(key, nonce=spelling, **terms)


@pytest.mark.parametrize("nonce", [b"x" * 100, b"\n" * 100, b"\xff" * 100, b"", b"A" * 97 + b"B=="])
def test_a_site_signs_nothing_for_a_server_that_gives_no_nonce(
    tmp_path: Path, nonce: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def other(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        socket = SimpleNamespace(getpeercert=lambda der: b"certificate")
        told = {"network_stream": SimpleNamespace(get_extra_info=lambda name: socket)}
        length, body = {"content-length": str(len(nonce))}, httpx.ByteStream(nonce)
        return httpx.Response(200, headers=length, stream=body, extensions=told)

    def client(*given: object) -> httpx.Client:
        return httpx.Client(base_url="https://s", transport=httpx.MockTransport(other))

    monkeypatch.setattr("fedldp.deployment.https.site._client", client)
    with pytest.raises(ConfigError, match=r"^server https://s: it is not a fedldp server"):
        fetch_agreement("https://s", tmp_path, Ed25519PrivateKey.generate(), LARGEST, DIGEST)
    assert asked == ["/v1/nonce"]


@slow
def test_without_a_token_nothing_is_handed_out_or_accepted(ends: Ends, pipe: RunPipe) -> None:
    tag = pipe.ask(0, b"asked")
    shown = ("", "Bearer", "Bearer 00", f"Bearer {'0' * 64}", "Bearer zz", "Basic Zm9v")
    wrong = [{"authorization": each} for each in shown]
    for headers in wrong:
        for place in ("/v1/question", f"/v1/answer/{tag}"):
            with ends.client() as client:
                assert client.post(place, headers=headers).status_code == 401
    assert pipe.take(0.0) == []


@slow
def test_the_latest_session_of_a_site_counts(ends: Ends, pipe: RunPipe) -> None:
    with ends.client() as one, ends.client() as other:
        before = ends.token(one)
        after = ends.token(other)
        assert one.post("/v1/question", headers=before).status_code == 401
        tag = pipe.ask(0, b"asked")
        assert other.post("/v1/question", headers=after).content == b"asked"
        assert other.post(f"/v1/answer/{tag}", headers=after, content=b"y").status_code == 204
    assert taken(pipe, tag) == b"y"


def test_a_session_is_of_a_run_and_other_runs_are_not_named(ends: Ends, pipe: RunPipe) -> None:
    """The server serves another run at the same time, in which only one of the sites takes part."""
    (near, far), other = ends.keys, b"another".ljust(32)
    public = near.public_key().public_bytes_raw().hex()
    assert ends.listener is not None
    second = RunPipe(other, b"agreed otherwise", [("near", public)], LARGEST)

    def said(place: str, key: Ed25519PrivateKey, digest: bytes) -> tuple[int, bytes]:
        with ends.client() as client:
            hello = ends.hello(client, key, agreement=digest.hex())
            found = client.post(place, content=hello.to_bytes())
            return found.status_code, found.content

    with ends.listener.serving(second):
        assert said("/v1/agreement", near, NO_DIGEST) == (200, DIGEST + other)
        assert said("/v1/agreement", far, NO_DIGEST) == (200, DIGEST)
        assert said("/v1/agreement", near, other) == (200, b"agreed otherwise")
        assert said("/v1/agreement", far, other)[0] == 404
        assert said("/v1/agreement", far, b"x" * 32)[0] == 404
        assert said("/v1/hello", far, other)[0] == 404
        assert said("/v1/hello", near, b"x" * 32)[0] == 404
        assert [(each.there, each.near) for each in pipe.sites] == [(False, True)] * 2
        with ends.client() as client:
            hello = ends.hello(client, near, agreement=other.hex())
            token = client.post("/v1/hello", content=hello.to_bytes()).content.hex()
            shown = {"authorization": f"Bearer {token}"}
            assert [each.there for each in second.sites] == [True]
            assert not pipe.sites[0].there
            tag = pipe.ask(0, b"of one run")
            second.ask(0, b"of another")
            assert client.post("/v1/question", headers=shown).content == b"of another"
            forged = client.post(f"/v1/answer/{tag + 7}", headers=shown, content=b"y")
            assert forged.status_code == 404
        with ends.client() as client:
            changed = ends.hello(client, near).changed(
                agreement=other.hex()
            )  # signed for another run
            assert client.post("/v1/hello", content=changed.to_bytes()).status_code == 403
    with ends.client() as client:  # the other run is over
        assert client.post("/v1/question", headers=shown).status_code == 401
    assert said("/v1/hello", near, other)[0] == 404


# What is read


@slow
def test_messages_that_are_too_long_are_refused_before_they_are_read(
    ends: Ends, pipe: RunPipe
) -> None:
    def announced(place: str, length: str, headers: dict[str, str]) -> bytes:
        lines = [f"POST {place} HTTP/1.1", "host: here", length]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        with ends.secured() as raw:
            raw.sendall("\r\n".join([*lines, "", ""]).encode())
            head = raw.recv(1 << 16)
            assert is_hung_up(raw)
        return head.split()[1]

    tag = pipe.ask(0, b"asked")
    answer = f"/v1/answer/{tag}"
    with ends.client() as client:
        shown = ends.token(client)
    for length in ("content-length: 10000000000", "transfer-encoding: chunked"):
        assert announced("/v1/hello", length, {}) == b"413"
        assert announced(answer, length, {}) == b"401"
        assert announced(answer, length, shown) == b"413"
        assert announced("/v1/question", length, shown) == b"413"
    packed = {**shown, "content-encoding": "gzip"}
    assert announced(answer, "content-length: 10", packed) == b"413"
    assert pipe.take(0.0) == []
    with ends.client() as client:
        most = bytes(LARGEST)
        assert client.post(answer, headers=shown, content=most).status_code == 204
    assert taken(pipe, tag) == most


@slow
def test_a_site_reads_no_more_than_it_expects(
    ends: Ends, pipe: RunPipe, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[bytes] = []
    with ends.link(0, largest_message=100, answers=lambda body: asked.append(body) or b"yes"):
        pipe.ask(0, bytes(101))
        eventually(lambda: "more than the 100 allowed here" in caplog.text)
        assert taken(pipe, pipe.ask(0, bytes(100))) == b"yes"
    assert asked == [bytes(100)]


def answer_of(status: int = 200, tag: str = "999999", body: bytes = b"", **headers: str) -> Any:
    """Return what a site receives in place of a request; no request has the number 999999."""
    found = {TAG: tag, "content-length": str(len(body))}
    found |= {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda: httpx.Response(status, headers=found, stream=httpx.ByteStream(body))


TO_SITES = [
    lambda: httpx.RemoteProtocolError("no HTTP, or a part of it"),
    answer_of(content_length="10000000000", body=bytes(1 << 16)),
    answer_of(content_encoding="gzip", body=b"x" * 9),
    answer_of(content_length="-1"),
    answer_of(content_length="100", body=b"cut"),
    answer_of(tag="nine", body=b"x"),
    answer_of(body=b"nonsense."),
    answer_of(body=b"fedldp-site\x01" + bytes(64)),
    answer_of(302, location="https://127.0.0.1:1/"),
    answer_of(500, body=b"x" * 60_000),
    answer_of(401),
]
TO_SERVERS = [
    b"",
    bytes(range(256)) * 16,
    b"GET / HTTP/9.9\r\n\r\n",
    b"POST /v1/answer/1 HTTP/1.1\r\n\r\n",
    b"POST /v1/hello HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
    b"POST /v1/hello HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nffffffff\r\nx",
    b"GET /v1/nonce HTTP/1.1\r\nx: " + b"a" * (1 << 17),
]


class Between:
    """Decides what becomes of a site's HTTP requests; by default they pass."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.passes: Callable[[httpx.Request], httpx.Response | Exception | None]
        self.passes = lambda request: None
        real = httpx.HTTPTransport.handle_request

        def handle(transport: httpx.HTTPTransport, request: httpx.Request) -> httpx.Response:
            found = self.passes(request)
            if isinstance(found, Exception):
                raise found
            return real(transport, request) if found is None else found

        patch.setattr(httpx.HTTPTransport, "handle_request", handle)


def test_garbage_at_both_ends_stops_nothing(
    ends: Ends, pipe: RunPipe, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The site gets it in place of every other request; the server gets it from strangers, inside
    and outside TLS."""
    asked, between = itertools.count(1), Between(monkeypatch)

    def garbage(request: httpx.Request) -> Any:
        turn = next(asked) if request.url.path == "/v1/question" else 0
        return TO_SITES[turn // 2 % len(TO_SITES)]() if turn % 2 else None

    between.passes = garbage
    with ends.link(0):
        for number in range(len(TO_SITES) + 1):
            for raw in (ends.secured(), socket.create_connection((HOST, ends.port))):
                with raw, contextlib.suppress(OSError):
                    raw.sendall(TO_SERVERS[number % len(TO_SERVERS)])
            body = b"%03d" % number
            assert taken(pipe, pipe.ask(0, body)) == body[::-1]
    assert next(asked) > 2 * len(TO_SITES)
    assert len(caplog.records) < 40


def test_many_wrong_keys_keep_no_site_out_and_fill_no_log(
    ends: Ends, pipe: RunPipe, caplog: pytest.LogCaptureFixture
) -> None:
    with ends.link(0):
        for number in range(40):
            with ends.client() as client:
                hello = ends.hello(client, Ed25519PrivateKey.generate())
                assert client.post("/v1/hello", content=hello.to_bytes()).status_code == 403
            if number % 10 == 0:
                assert taken(pipe, pipe.ask(0, b"asked")) == b"deksa"
    assert caplog.text.count("not in the roster") in (1, 2)
    assert len(caplog.records) < 12


# Connections that last


@slow
def test_a_site_keeps_its_connection_from_request_to_request(
    ends: Ends, pipe: RunPipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds while nothing is asked, too: a new connection would wait behind all strangers."""
    monkeypatch.setattr(pipe_module, "POLL_SECONDS", 0.05)
    came, real = list[listening.Connection](), listening.Connections.made

    def made(all_: listening.Connections, connection: listening.Connection) -> None:
        came.append(connection)
        real(all_, connection)

    monkeypatch.setattr(listening.Connections, "made", made)
    with ends.link(0):
        for _ in range(3):
            assert taken(pipe, pipe.ask(0, b"asked")) == b"deksa"
            time.sleep(0.2)
    assert len(came) == 1


def test_strangers_that_begin_no_handshake_hold_few_files_and_keep_no_site_out(
    ends: Ends, pipe: RunPipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "MOST_STRANGERS", 8)
    with contextlib.ExitStack() as held:
        place = "127.0.0.1", ends.port
        idle = [held.enter_context(socket.create_connection(place)) for _ in range(50)]
        with ends.link(0):
            assert taken(pipe, pipe.ask(0, b"asked")) == b"deksa"
        # As many are left as there may be strangers and sites, or fewer.
        eventually(lambda: len(select.select(idle, [], [], 0.0)[0]) >= len(idle) - 8 - 2)


@slow
def test_a_stranger_is_sent_away_in_time(
    ends: Ends, pipe: RunPipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "SECONDS_AS_STRANGER", 0.3)
    with ends.link(0), ends.secured() as idle:
        idle.sendall(b"POST /v1/hello HTTP/1.1\r\ncontent-length: 150\r\nhost: a\r\n\r\nslow")
        assert is_hung_up(idle)
        time.sleep(0.5)
        assert taken(pipe, pipe.ask(0, b"asked")) == b"deksa"


# What breaks


def test_a_cut_loses_nothing(
    ends: Ends, pipe: RunPipe, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Packets are dropped silently for longer than anybody waits, and no connection comes back."""
    monkeypatch.setattr(site_module, "BEAT_SECONDS", 0.3)
    monkeypatch.setattr(pipe_module, "POLL_SECONDS", 0.3)
    monkeypatch.setattr(pipe_module, "_ALIVE_SECONDS", 1.0)
    between = Between(monkeypatch)
    with ends.link(0):
        assert taken(pipe, pipe.ask(0, b"first")) == b"tsrif"
        between.passes = lambda request: httpx.ReadTimeout("nothing came")
        eventually(lambda: "no connection" in caplog.text)
        tag = pipe.ask(0, b"second")
        eventually(lambda: not pipe.sites[0].there)
        between.passes = lambda request: None
        assert taken(pipe, tag) == b"dnoces"
    assert len(caplog.records) < 12


@slow
def test_a_request_that_was_lost_is_handed_out_again_and_counts_once(
    ends: Ends, pipe: RunPipe
) -> None:
    with ends.client() as client:
        shown = ends.token(client)
        tag = pipe.ask(0, b"asked")
        for _ in range(2):
            found = client.post("/v1/question", headers=shown)
            assert (found.content, found.headers[TAG]) == (b"asked", str(tag))
        shown = ends.token(client)
        assert client.post("/v1/question", headers=shown).content == b"asked"
        with ends.client() as other:
            far = ends.token(other, 1)
            assert other.post(f"/v1/answer/{tag}", headers=far, content=b"n").status_code == 404
        statuses = []
        for _ in range(2):
            with ends.client() as again:
                answered = again.post(f"/v1/answer/{tag}", headers=shown, content=b"yes")
                statuses.append(answered.status_code)
        assert statuses == [204, 404]
    assert pipe.take(0.0) == [(tag, b"yes")]


def test_half_an_answer_does_not_count(ends: Ends, pipe: RunPipe) -> None:
    """Its site died while it sent the answer; started again, it sends the same bytes."""
    with ends.client() as client:
        shown = ends.token(client)
        tag = pipe.ask(0, b"asked")
        assert client.post("/v1/question", headers=shown).content == b"asked"
        lines = [f"POST /v1/answer/{tag} HTTP/1.1", "host: here", "content-length: 6"]
        lines += [f"{name}: {value}" for name, value in shown.items()]
        with ends.secured() as dying:
            dying.sendall("\r\n".join([*lines, "", "ans"]).encode())
        assert pipe.take(0.2) == []
        shown = ends.token(client)
        assert client.post("/v1/question", headers=shown).content == b"asked"
        found = client.post(f"/v1/answer/{tag}", headers=shown, content=b"answer")
        assert found.status_code == 204
    assert taken(pipe, tag) == b"answer"


@pytest.mark.parametrize("breaks", [True, pytest.param(False, marks=slow)])
def test_a_site_is_asked_once_whatever_happens_to_its_connection(
    ends: Ends, pipe: RunPipe, breaks: bool
) -> None:
    """The site sends its answer again without being asked again. It keeps its connection even if
    the answer takes longer than the 5 s after which httpx by default closes an idle one."""
    asked: list[bytes] = []
    listener = ends.listener
    held, near = listener._connections._of_sites, (DIGEST, 0)
    before: list[object] = []

    def answer(body: bytes) -> bytes:
        asked.append(body)
        before.extend(held[near])
        if breaks:
            assert listener._loop is not None
            for each in before:
                listener._loop.call_soon_threadsafe(each.abort)  # type: ignore[attr-defined]
        else:
            time.sleep(6)
        return b"yes"

    with ends.link(0, answers=answer):
        eventually(lambda: any(each.there for each in pipe.sites))
        token = pipe.sites[0].token
        assert taken(pipe, pipe.ask(0, b"asked")) == b"yes"
        assert (asked, pipe.sites[0].token) == ([b"asked"], token)
        assert (list(held[near]) != before) == breaks


@slow
def test_an_agent_that_fails_says_so_and_continues(ends: Ends, pipe: RunPipe) -> None:
    def answer(asked: bytes) -> bytes:
        if asked == b"bad":
            raise ValueError(asked)
        return b"good"

    with ends.link(0, answers=answer):
        assert taken(pipe, pipe.ask(0, b"bad")) == b""
        assert taken(pipe, pipe.ask(0, b"asked")) == b"good"
