"""Rows of the table of failures that one process can show: nothing is released twice."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from environments import Environment, FakePipe, asks, assert_each_once, bits, make_environment

from fedldp.core.errors import RunError
from fedldp.deployment import sites
from fedldp.deployment.journal import Journal
from fedldp.deployment.messages import (
    Ask,
    read_by_site,
)
from fedldp.reporting import record
from fedldp.simulation.engine import simulate

CHANNELS = pytest.mark.parametrize("channel", ["named", "sum"])
Body = bytes | None
Tamper = Callable[[int, bytes, Body], list[Body]]


class Killed(BaseException):
    """Stands in for SIGKILL: nothing in fedldp catches it."""


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sites, "_PAUSE", 0.0)
    monkeypatch.setattr(sites, "_LOOK", 0.0)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return bits(simulate(make_environment(tmp_path_factory.mktemp("simulated")).config))


@pytest.mark.slow
@CHANNELS
def test_a_site_that_is_gone_holds_up_two_rounds_and_is_waited_for_when_it_is_back(
    tmp_path: Path, channel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock advances by a second when nothing arrives, and stands still otherwise."""
    env = make_environment(tmp_path, "rounds=5", channel=channel, quorum=2, deadline=7.0)
    pipe, at = env.pipe(), [0.0]
    agents, pipe.agents = pipe.agents, {**pipe.agents, 102: None}
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


AGENT = """
import os, sys
from pathlib import Path
from fedldp.ledgers import sqlite
from fedldp.deployment.policy import read_policy
from fedldp.deployment.site import Agent

when, folder = sys.argv[1], Path(sys.argv[2])
agent = Agent(read_policy(folder / "site.toml"), test_keys=True)
real = agent._ledger.release

def release(*given, **named):
    place, event, clients, make, *others = given
    def make_and_die():
        make()
        os._exit(9)
    if when == "before":
        return real(place, event, clients, make_and_die, *others, **named)
    real(*given, **named)
    os._exit(9)

agent._ledger.release = release
agent.answer((folder / "asked").read_bytes())
"""


# tests/contracts/test_client_kills.py shows what a kill before the commit leaves, for every system.
@pytest.mark.slow
@pytest.mark.parametrize("when", [pytest.param("before", marks=pytest.mark.slow), "after"])
def test_an_agent_killed_before_the_commit_paid_nothing_and_after_it_gives_the_same(
    tmp_path: Path, when: str, expected: dict[str, bytes]
) -> None:
    env = make_environment(tmp_path)
    pipe = env.pipe()
    pipe.agents[100], asked = None, list[bytes]()
    agents = dict(pipe.agents)
    pipe.agents[100] = lambda body: asked.append(body) or b""  # type: ignore[func-returns-value]
    pipe.tamper = _reach(env, 100)
    with pytest.raises(Killed):
        env.serve(pipe)
    (body,) = [body for node, body, _ in pipe.seen if node == 100 and asks(body)]
    folder = env.policies[0].key.parent
    (folder / "asked").write_bytes(body)
    done = subprocess.run([sys.executable, "-c", AGENT, when, folder], env=os.environ, check=False)
    assert done.returncode == 9
    paid = [] if when == "before" else [(1, 0)]
    assert env.releases(0) == paid
    entries = env.ledger(0).releases()
    agents[100] = env.agent(0).answer
    again = FakePipe(agents)
    assert bits(env.serve(again)) == expected
    assert_each_once(env, again)
    assert env.ledger(0).releases()[: len(entries)] == entries


def _reach(env: Environment, node: int) -> Tamper:
    """Return a function that answers a node's greeting, and stops everything at the first
    request."""

    def tamper(there: int, asked: bytes, answer: Body) -> list[Body]:
        if there != node:
            return [answer]
        if asks(asked):
            raise Killed
        return [env.agent(node - 100).answer(asked)]

    return tamper


# Messages


def once(change: Tamper) -> Tamper:
    """Return a function that changes the first answer for every place, and passes the others."""
    seen: set[tuple[int, bytes]] = set()

    def tamper(node: int, asked: bytes, answer: Body) -> list[Body]:
        message = read_by_site(asked)  # greetings always differ, but repeated requests are equal
        place = node, message.request if isinstance(message, Ask) else b""
        if place in seen:
            return [answer]
        seen.add(place)
        return change(node, asked, answer)

    return tamper


def lost(node: int, asked: bytes, answer: Body) -> list[Body]:
    return [None]


def empty(node: int, asked: bytes, answer: Body) -> list[Body]:
    return [b""]


def twice(node: int, asked: bytes, answer: Body) -> list[Body]:
    return [answer, answer]


def garbage(node: int, asked: bytes, answer: Body) -> list[Body]:
    return [bytes(range(256)), answer]


def cut(node: int, asked: bytes, answer: Body) -> list[Body]:
    assert answer
    return [answer[:-1], answer[: len(answer) // 2]]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("channel", "change"),
    [*(("named", change) for change in (lost, empty, twice, garbage)),
     ("sum", lost), ("sum", twice),
     *(pytest.param("sum", change, marks=pytest.mark.slow) for change in (empty, garbage))],
    ids=lambda value: getattr(value, "__name__", value),
)  # fmt: skip
def test_lost_answers_are_requested_again_and_repeated_ones_count_once(
    tmp_path: Path, channel: str, change: Tamper, expected: dict[str, bytes]
) -> None:
    env = make_environment(tmp_path, channel=channel)
    pipe = env.pipe(tamper=once(change))
    assert bits(env.serve(pipe)) == expected
    assert_each_once(env, pipe)


def test_late_reordered_and_foreign_answers_are_not_counted(
    tmp_path: Path, expected: dict[str, bytes]
) -> None:
    env, kept = make_environment(tmp_path), list[bytes]()

    def tamper(node: int, asked: bytes, answer: Body) -> list[Body]:
        if not isinstance(read_by_site(asked), Ask):
            return [answer]
        assert answer
        kept.append(answer)
        late = [each for each in kept if each is not answer and asks(asked, round=2)]
        return [*late[:3], answer, *reversed(late)]

    pipe = env.pipe(tamper=tamper)
    assert bits(env.serve(pipe)) == expected
    assert_each_once(env, pipe)


class Reordered(FakePipe):
    """Delivers the latest arrival first, one at a time."""

    def take(self, timeout: float) -> list[tuple[int, Body]]:
        return [self._ready.pop()] if self._ready else []


@CHANNELS
def test_the_order_of_answers_does_not_matter(
    tmp_path: Path, channel: str, expected: dict[str, bytes]
) -> None:
    env = make_environment(tmp_path, channel=channel)
    assert bits(env.serve(Reordered(env.pipe().agents))) == expected


# The server


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("channel", "round", "phase", "answered"),
    [("named", 1, 0, 2), ("named", 2, 0, 0), ("sum", 1, 0, 2), ("sum", 1, 3, 0), ("sum", 1, 3, 2),
     *(pytest.param("sum", *place, marks=pytest.mark.slow)
       for place in ((1, 1, 2), (1, 2, 2), (2, 0, 0)))],
)  # fmt: skip
def test_a_server_killed_in_any_phase_asks_the_same_and_ends_as_if_it_had_not_been(
    tmp_path: Path,
    channel: str,
    round: int,
    phase: int,
    answered: int,
    expected: dict[str, bytes],
) -> None:
    env, asked_before = make_environment(tmp_path, channel=channel), list[bytes]()

    def tamper(node: int, asked: bytes, answer: Body) -> list[Body]:
        if asks(asked, round, phase):
            asked_before.append(read_by_site(asked).request)  # type: ignore[union-attr]
            if len(asked_before) > answered:
                raise Killed
        return [answer]

    pipe = env.pipe(tamper=tamper)
    with pytest.raises(Killed):
        env.serve(pipe)
    again = FakePipe(pipe.agents, seen=pipe.seen)
    assert bits(env.serve(again)) == expected
    assert_each_once(env, again)
    later = {read_by_site(a).request for _, a, _ in again.seen if asks(a, round, phase)}  # type: ignore[union-attr]
    assert later == set(asked_before)
    assert not list((env.folder / "server" / "journal").glob("round-*"))


def killing(owner: Any, name: str, monkeypatch: pytest.MonkeyPatch, *, nth: int, late: bool) -> Any:
    real, count = getattr(owner, name), [0]

    def call(*given: Any, **named: Any) -> Any:
        count[0] += 1
        if count[0] == nth and not late:
            raise Killed
        done = real(*given, **named)
        if count[0] == nth:
            raise Killed
        return done

    monkeypatch.setattr(owner, name, call)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("channel", "owner", "name", "nth", "late"),
    [
        ("named", Journal, "ask", 2, False),
        pytest.param("sum", Journal, "ask", 4, True, marks=pytest.mark.slow),
        ("sum", Journal, "close", 3, False),
        pytest.param("sum", Journal, "close", 3, True, marks=pytest.mark.slow),
        ("sum", record.RunFolder, "write_round", 1, False),
        ("named", record.RunFolder, "write_metrics", 1, False),
        pytest.param("sum", record.RunFolder, "write_round", 1, True, marks=pytest.mark.slow),
        pytest.param("named", record.RunFolder, "write_round", 2, True, marks=pytest.mark.slow),
        pytest.param("sum", Journal, "forget_before", 1, False, marks=pytest.mark.slow),
        ("named", record.RunFolder, "write_model", 1, False),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_server_killed_while_it_writes_continues(
    tmp_path: Path, channel: str, owner: Any, name: str, nth: int, late: bool,
    monkeypatch: pytest.MonkeyPatch, expected: dict[str, bytes],
) -> None:  # fmt: skip
    env = make_environment(tmp_path, channel=channel)
    pipe = env.pipe()
    with monkeypatch.context() as patch:
        killing(owner, name, patch, nth=nth, late=late)
        with pytest.raises(Killed):
            env.serve(pipe)
    assert bits(env.serve(FakePipe(pipe.agents, seen=pipe.seen))) == expected
    assert_each_once(env, pipe)
    folder = env.folder / "server"
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 2
    assert not list((folder / "journal").glob("round-*"))


@CHANNELS
@pytest.mark.parametrize(
    "nth", [2, *(pytest.param(nth, marks=pytest.mark.slow) for nth in (1, 3, 5))]
)
def test_a_full_disk_at_the_server_stops_it_with_one_line_and_it_can_continue(
    tmp_path: Path, channel: str, nth: int,
    monkeypatch: pytest.MonkeyPatch, expected: dict[str, bytes],
) -> None:  # fmt: skip
    env = make_environment(tmp_path, channel=channel)
    pipe, real, left = env.pipe(), os.fsync, [nth * 8]

    def full(handle: int) -> None:
        if "/server" in os.readlink(f"/proc/self/fd/{handle}"):
            left[0] -= 1
            if left[0] <= 0:
                raise OSError(28, "No space left on device")
        real(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(RunError) as found:
            env.serve(pipe)
    assert "\n" not in str(found.value)
    assert "No space left on device" in str(found.value)
    assert bits(env.serve(FakePipe(pipe.agents, seen=pipe.seen))) == expected
    assert_each_once(env, pipe)
