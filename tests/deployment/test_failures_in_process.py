"""Rows of the table of failures that one process can show: nothing is released twice."""

from __future__ import annotations

import errno
import itertools
import logging
import os
import sqlite3
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from environments import (
    CHANNELS,
    Body,
    Environment,
    FakePipe,
    ask,
    asks,
    assert_each_once,
    bits,
    content,
    forget,
    make_environment,
    request_of,
    serve_until_killed,
    whole,
)

from fedldp.core.errors import EndedForGood, LedgerUnusable, RunError, StoreUnusable
from fedldp.deployment import running, sites
from fedldp.deployment.acceptance import Acceptances, accept
from fedldp.deployment.journal import Journal
from fedldp.deployment.messages import read_message
from fedldp.deployment.watch import ServerWatch, read_status
from fedldp.ledgers.sqlite import SqliteLedger
from fedldp.protocol.client_store import FolderStore
from fedldp.protocol.server_loop import Round
from fedldp.protocol.wire import Reason, Refusal, Report, read_request


@pytest.mark.slow
@CHANNELS
def test_a_site_that_is_gone_holds_up_two_rounds_and_is_waited_for_when_it_is_back(
    tmp_path: Path, channel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock advances by a second when nothing arrives, and stands still otherwise."""
    env = make_environment(tmp_path, "rounds=5", channel=channel, quorum=2, deadline=7.0)
    pipe, at = env.pipe(), [0.0]
    agents, pipe.agents = pipe.agents, {**pipe.agents, 2: None}
    take = pipe.take

    def waiting(timeout: float) -> list[tuple[int, Body]]:
        at[-1] += 0.0 if any(body for _, body in pipe._ready) else 1.0
        return take(0.0)

    def note(done: Any) -> None:
        at.append(at[-1])
        if done.round == 4:
            pipe.agents = agents

    monkeypatch.setattr(pipe, "take", waiting)
    monkeypatch.setattr(sites, "time", SimpleNamespace(monotonic=lambda: at[-1]))
    env.server().serve(pipe, note)
    waited = np.diff([0.0, *at[:5]])
    assert (waited >= 7).tolist() == [True, True, False, False, False]
    assert not waited[2:].any()
    assert {round for round, _ in env.releases(2)} == {5}
    assert len(env.releases(2)) == len({phase for _, phase in env.releases(0)})


# Agents


# Messages


def test_late_reordered_and_foreign_answers_are_not_counted(
    tmp_path: Path, expected: dict[str, bytes]
) -> None:
    env, kept = make_environment(tmp_path), list[bytes]()

    def tamper(node: int, asked: bytes, answer: Body) -> list[Body]:
        assert answer
        kept.append(answer)
        late = [each for each in kept if each is not answer and asks(asked, round=2)]
        return [*late[:3], answer, *reversed(late)]

    pipe = env.pipe(tamper=tamper)
    assert bits(env.serve(pipe)) == expected
    assert_each_once(env, pipe)


def test_an_answer_that_is_late_is_paid_for_and_not_added_later(tmp_path: Path) -> None:
    env = make_environment(tmp_path, "rounds=3", quorum=2, deadline=1.0)
    late, clients = list[Body](), list[int]()

    def tamper(node: int, asked: bytes, answer: Body) -> list[Body]:
        if node == 0 and asks(asked, round=1):
            late.append(answer)
            return []
        return [*late[:1], answer] if node == 0 else [answer]

    env.server().serve(env.pipe(tamper=tamper), lambda record: clients.append(record.clients))
    assert clients == [2, 3, 3]
    for index in range(3):
        assert env.releases(index) == [(1, 0), (2, 0), (3, 0)]


# The server


def test_wrong_clocks_and_a_second_server_with_the_same_key_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock is wrong by years whenever it is read. The other server has other weights, and asks
    sites that have paid for their answers in this round."""
    real, looks = time.time, itertools.count()
    monkeypatch.setattr(time, "time", lambda: real() + 1e9 * (-1) ** next(looks))
    env = make_environment(tmp_path, seeded=False)
    other = replace(env, folder=tmp_path / "another server").server()
    other._state = replace(other._state, weights=other._state.weights + np.float32(0.01))

    pipe = serve_until_killed(env, round=1, answered=2)
    assert [env.releases(site) for site in range(3)] == [[(1, 0)]] * 3
    with pytest.raises(EndedForGood, match="site-2 refused: asked-otherwise"):
        other.serve(FakePipe(pipe.agents, seen=pipe.seen), lambda record: None)
    again = FakePipe(pipe.agents, seen=pipe.seen)
    assert [record.clients for record in env.serve(again).rounds] == [3, 3]
    assert_each_once(env, again)


@pytest.mark.parametrize("file", ["journal", "checkpoint.partial"])
def test_a_server_whose_disk_is_full_stops_in_one_line_and_continues_when_there_is_room(
    tmp_path: Path, file: str, expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    env, fsync, written = make_environment(tmp_path), os.fsync, tmp_path / "server" / file

    def full(handle: int) -> None:
        if written.exists() and os.path.samestat(os.fstat(handle), written.stat()):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(RunError, match=r"^cannot write .*No space left") as told:
            env.serve()
    assert "\n" not in str(told.value)
    assert bits(env.serve()) == expected
    assert_each_once(env)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("channel", "round", "phase", "answered"),
    [("named", 2, 0, 0), ("sum", 1, 0, 2), ("sum", 1, 1, 2), ("sum", 1, 2, 2), ("sum", 1, 3, 2)],
)
def test_a_server_killed_in_any_phase_asks_the_same_and_ends_as_if_it_had_not_been(
    tmp_path: Path,
    channel: str,
    round: int,
    phase: int,
    answered: int,
    expected: dict[str, bytes],
) -> None:
    env = make_environment(tmp_path, channel=channel)
    pipe = serve_until_killed(env, round, phase, answered)
    before = {read_message(a).request for _, a, _ in pipe.seen if asks(a, round, phase)}
    again = FakePipe(pipe.agents, seen=pipe.seen)
    assert bits(env.serve(again)) == expected
    assert_each_once(env, again)
    later = {read_message(a).request for _, a, _ in again.seen if asks(a, round, phase)}
    assert later == before
    assert Journal(env.folder / "server" / "journal").receipts() == {}


def places(pipe: FakePipe) -> list[tuple[int, int]]:
    """Return the round and the phase of every request."""
    asked = [read_request(read_message(asked).request) for _node, asked, _answer in pipe.seen]
    return [(each.broadcast.round, each.phase) for each in asked]


def status(env: Environment) -> dict[str, str]:
    found = read_status(env.folder / "server")
    return {site["name"]: site["state"] for site in found["sites"]}


@pytest.mark.slow
@pytest.mark.parametrize("channel", ["named", "sum"])
def test_a_round_with_too_few_answers_is_tried_again_with_the_same_requests(
    tmp_path: Path, channel: str, expected: dict[str, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """At every request, one site is away for longer than the deadline; no site releases twice."""
    env = make_environment(tmp_path, channel=channel, deadline=1.0)
    pipe, lost = env.pipe(), Counter[tuple[int, int]]()

    def tamper(node: int, asked: bytes, answer: Body) -> list[Body]:
        if node != 1:
            return [answer]
        request = read_request(read_message(asked).request)
        place = request.broadcast.round, request.phase
        if lost[place] == 0:
            lost[place] += 1
            pipe.agents[1] = None  # until the round is tried again
        return [answer if pipe.agents[1] else None]

    agent = pipe.agents[1]

    def again(record: logging.LogRecord) -> bool:
        if "trying again" in record.getMessage():
            pipe.agents[1] = agent
        return True

    pipe.tamper = tamper
    log = logging.getLogger("fedldp.server")
    log.addFilter(again)
    try:
        served = env.serve(pipe, lambda record: None)
    finally:
        log.removeFilter(again)
    assert bits(served) == expected
    assert_each_once(env, pipe)
    assert set(lost) == set(whole(env))
    assert caplog.text.count("trying again in") == len(lost)
    found = read_status(env.folder / "server")
    assert (found["missed"], found["missed_ever"]) == (0, len(lost))


@pytest.mark.slow
def test_a_site_that_withdraws_its_acceptance_is_neither_asked_nor_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked again once it accepts again; the deadline is never reached."""
    # The server looks at its sites in every round, however short the rounds are.
    monkeypatch.setattr(sites, "_SEE", 0.0)
    env = make_environment(tmp_path, "rounds=5", deadline=300.0, quorum=2)
    pipe, policy, clients = env.pipe(), env.policies[1], list[int]()

    def after_round(record: Round) -> None:
        clients.append(record.clients)
        if record.round == 1:
            Acceptances(policy).retire(env.agreement.digest)
        if record.round == 4:
            accept(policy, env.agreement)

    env.server().serve(pipe, after_round)
    assert clients == [3, 2, 2, 2, 3]
    asked = [read_message(asked) for node, asked, _answer in pipe.seen if node == 1]
    rounds = [read_request(each.request).broadcast.round for each in asked]
    assert rounds == [1, 2, 5]
    assert env.releases(1) == [(1, 0), (5, 0)]


def test_a_site_that_lost_its_ledger_is_not_restarted_automatically(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fedldp_command: Any
) -> None:
    """Its exit status tells the unit not to restart it."""
    monkeypatch.setattr(running, "_begin", lambda: None)
    env = make_environment(tmp_path, sites=1)
    ask(env.agent(0), env, request_of(env))
    env.policies[0].ledger.unlink()
    outcome = fedldp_command("deploy", "site", tmp_path / "site-0" / "site.toml")
    assert outcome.status == 78
    assert "; restore " in outcome.err


@pytest.mark.slow
def test_no_site_is_asked_before_the_quorum_has_accepted_and_has_the_version(
    tmp_path: Path, expected: dict[str, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """That may take any time: the deadline of one second runs only from then on."""
    caplog.set_level(logging.INFO)
    env = make_environment(tmp_path, deadline=1.0)
    pipe, seen = env.pipe(), list[dict[str, str]]()
    forget(env.policies[1], env.agreement)
    pipe.versions = ("0.1.7", "0.1.0", "0.2.0")
    take, real = pipe.take, ServerWatch.goes_on

    def taken(timeout: float) -> list[tuple[int, Body]]:
        looks = len(seen)
        if looks == 40:
            accept(env.policies[1], env.agreement)
        if looks == 80:
            pipe.versions = ("0.1.7", "0.1.0", "0.1.1")
        if looks < 80:
            assert places(pipe) == []
        return take(timeout)

    def goes_on(watch: ServerWatch, what: str) -> None:
        real(watch, what)
        watch.write()
        seen.append(status(env))

    pipe.take = taken  # type: ignore[method-assign]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ServerWatch, "goes_on", goes_on)
        served = env.serve(pipe, lambda record: None)
    assert bits(served) == expected
    assert seen[30] == {"site-0": "ready", "site-1": "not-accepted", "site-2": "other-version"}
    assert seen[70] == {"site-0": "ready", "site-1": "ready", "site-2": "other-version"}
    assert set(status(env).values()) == {"answered"}
    for line in (
        "site-1 is connected, but has not accepted",
        "site-1 is connected and has accepted",
        "site-2 is connected with another version (0.2.0; the agreement requires 0.1.0",
    ):
        assert caplog.text.count(line) == 1


SOUND = ("mechanism=nearest_direction", "num_examples=90")


class Faults:
    """Fails the nth write into a database, once; counts all writes there.

    Attributes:
        nth: which write fails, counted from 1.
        count: how many writes there were.
    """

    def __init__(self, patch: pytest.MonkeyPatch, database: Path, nth: int) -> None:
        self.nth, self.count = nth, 0
        faults, connect = self, sqlite3.connect

        class Connection(sqlite3.Connection):
            def execute(self, statement: str, *given: Any) -> sqlite3.Cursor:
                faults.seen(statement)
                return super().execute(statement, *given)

        def connected(place: str, **named: Any) -> sqlite3.Connection:
            return connect(place, factory=Connection, **named)

        def chosen(place: str, **named: Any) -> sqlite3.Connection:
            return (connected if database.as_uri() in str(place) else connect)(place, **named)

        patch.setattr(sqlite3, "connect", chosen)

    def seen(self, statement: str) -> None:
        self.count += statement.startswith(("INSERT", "UPDATE", "DELETE", "COMMIT"))
        if self.count == self.nth:
            self.count += 1
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorname = "SQLITE_FULL"
            raise error


def environment(folder: Path, kind: str) -> Environment:
    if kind == "sum":
        return make_environment(folder, channel="sum")
    return make_environment(folder, *SOUND, recipe="ldpfl-sound-digits")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    found = {}
    for kind in ("sum", "once"):
        env = environment(tmp_path_factory.mktemp(kind), kind)
        found[kind] = bits(env.serve(env.pipe()))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "nth"),
    [("once", 1), ("once", 6), ("once", 11), ("sum", 2), ("sum", 9), ("sum", 17), ("sum", 38)],
)
def test_a_disk_that_is_full_at_any_write_delays_a_run_and_changes_nothing(
    tmp_path: Path, kind: str, nth: int,
    undisturbed: dict[str, dict[str, bytes]],
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    env = environment(tmp_path, kind)
    with monkeypatch.context() as patch:
        faults = Faults(patch, env.policies[0].ledger, nth)
        pipe = env.pipe()
        served = env.serve(pipe, lambda record: None)
    assert faults.count > nth
    assert bits(served) == undisturbed[kind]
    if kind == "sum":
        assert_each_once(env, pipe)
    assert "training or encoding failed" not in caplog.text
    assert "the disk is full; free some space (database or disk is full)" in caplog.text


def test_a_disk_that_stays_full_is_refused_at_no_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    env = make_environment(tmp_path, *SOUND, recipe="ldpfl-sound-digits")
    agent, request = env.agent(0), request_of(env)
    with monkeypatch.context() as patch:
        patch.setattr(SqliteLedger, "keep", _full)
        for _ in range(3):
            assert content(ask(agent, env, request)) == Refusal(1, Reason.LEDGER)
    assert env.releases(0) == []
    assert isinstance(content(ask(agent, env, request)), Report)
    assert "training or encoding failed" not in caplog.text


def _full(*given: Any) -> None:
    raise LedgerUnusable("ledger: the disk is full")


def test_a_damaged_file_of_a_store_is_told_as_that(tmp_path: Path) -> None:
    store = FolderStore(tmp_path, "run")
    store.arrays("mine", lambda: {"a": np.zeros(3)})
    (path,) = tmp_path.glob("*/mine.safetensors")
    path.write_bytes(b"damaged")
    for read in (lambda: store.known("mine"), lambda: store.arrays("mine", dict)):
        with pytest.raises(StoreUnusable, match=r"cannot be read.*restore the folder") as found:
            read()
        assert "\n" not in str(found.value)
