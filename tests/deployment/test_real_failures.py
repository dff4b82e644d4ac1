"""The table of failures with real processes and SIGKILL: nothing is released twice or without
payment.

A courier carries the bytes here; ``test_real_flower.py`` has the rows about Flower's own processes.
"""

from __future__ import annotations

import shutil
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from real_processes import (
    Call,
    ClockJumps,
    DiesAtAnswer,
    DiesAtCommit,
    DiesAtEveryFile,
    DiskIsFull,
    OtherWeights,
    Party,
    Place,
    Sabotage,
    eventually,
    place_of,
    reports,
)
from stages import Stage, expected, small_environment, staged

from fedldp.core.errors import EndedForGood
from fedldp.deployment.policy import write_accepted

pytestmark = pytest.mark.slow

CHANNELS = pytest.mark.parametrize("channel", ["named", "sum"])
PATIENT = 300.0
"""A deadline in seconds that no test here reaches."""


# Agents


def dies(stage: Stage, site: int, sabotages: list[Sabotage]) -> None:
    """Start an agent with one cause of death after another, and finally without any."""
    for sabotage in sabotages:
        stage.agents[site].start(sabotage)
        assert stage.agents[site].wait() == -9
    stage.agents[site].start()


# ``test_failures_in_process.py`` has the failures of the other channel, and at other moments.
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_an_agent_dies_at_every_commit(tmp_path: Path, after: bool) -> None:
    env = small_environment(tmp_path, channel="sum", deadline=PATIENT)
    commits = 8
    with staged(env) as (stage, _courier):
        for agent in stage.agents[1:]:
            agent.start()
        stage.server.start()
        # After a commit, it next dies at that of the next phase; before a commit, at the same one.
        numbers = [1] * commits if after else [1, *[2] * (commits - 1)]
        dies(stage, 0, [DiesAtCommit(number, after) for number in numbers])
        assert stage.server.wait() == 0
        stage.assert_whole(expected(env))
        again = "answered again, with the same bytes and at no cost"
        assert stage.agents[0].text().count(again) == (commits if after else 0)
        asked = [place_of(passed.asked) for passed in stage.proxies[0].passed]
        assert sorted(filter(None, asked)) == stage.places([1, 2])


@pytest.mark.parametrize("sent", [0, 100])
def test_an_agent_dies_while_it_answers(tmp_path: Path, sent: int) -> None:
    env = small_environment(tmp_path, channel="sum", deadline=PATIENT)
    answers = 8
    with staged(env) as (stage, _courier):
        for agent in stage.agents[1:]:
            agent.start()
        stage.server.start()
        # When asked again, it answers at once, and dies at the next answer.
        dies(stage, 0, [DiesAtAnswer(1, sent), *[DiesAtAnswer(2, sent)] * (answers - 1)])
        assert stage.server.wait() == 0
        stage.assert_whole(expected(env))
        parts = [passed for passed in stage.proxies[0].passed if passed.answer is None]
        assert len(parts) == (answers if sent else 0)


def test_the_disk_of_a_site_is_full(tmp_path: Path) -> None:
    env = small_environment(tmp_path, deadline=PATIENT)
    env.agent(0)  # makes its ledger
    with staged(env) as (stage, _courier):
        for agent in stage.agents[1:]:
            agent.start()
        stage.agents[0].start(DiskIsFull(4096))
        stage.server.start()
        refused = "site-0 refused: ledger); trying again"
        eventually(lambda: refused in stage.server.text())
        stage.agents[0].end()
        stage.assert_ledger(0, [])
        assert reports(stage.proxies[0]) == {}
        assert "the disk cannot be read or written" in stage.agents[0].text()
        stage.agents[0].start()
        assert stage.server.wait() == 0  # by itself
        stage.assert_whole(expected(env))


def test_the_ledger_of_a_site_is_an_older_copy(tmp_path: Path) -> None:
    env = small_environment(tmp_path, "rounds=4", deadline=PATIENT, quorum=2)
    ledger = env.policies[0].ledger
    env.agent(0)  # makes it
    copy = shutil.copy(ledger, tmp_path / "copy")
    asked, go_on = threading.Event(), threading.Event()

    def wait(body: bytes, call: Call) -> bytes | None:
        if place_of(body) == (2, 0):
            asked.set()
            go_on.wait()
        return call(body)

    def dead(body: bytes, call: Call) -> bytes | None:
        return None if place_of(body) == (2, 0) else call(body)

    with staged(env) as (stage, _courier):
        stage.proxies[1].tamper = wait
        for agent in stage.agents:
            agent.start()
        stage.proxies[0].tamper = dead
        stage.server.start()
        assert asked.wait(PATIENT)  # so round 1 is complete
        stage.agents[0].kill()
        shutil.copy(copy, ledger)
        stage.agents[0].start()
        stage.proxies[0].tamper = lambda body, call: call(body)
        eventually(lambda: "it lacks release 1, which it had" in stage.agents[0].text())
        # For round 2, the server has the site's refusal.
        eventually(lambda: "site site-0 refuses: its ledger cannot" in stage.server.text())
        assert env.releases(0) == []
        stage.agents[0].end()
        policy = ledger.parent / "site.toml"
        told = Party(tmp_path / "told.log", "deploy", "restored", policy, "--none-since", "--yes")
        told.start()
        assert told.wait() == 0
        assert "4 rounds charged as lost\n" in told.text()
        stage.agents[0].start()
        go_on.set()
        assert stage.server.wait() == 0
        # Four rounds are charged as lost although only one was, and the site takes part in two.
        stage.assert_ledger(0, [3, 4], lost=4)
        assert [record["clients"] for record in stage.rounds()] == [3, 2, 3, 3]
        for site in (1, 2):
            stage.assert_ledger(site, [1, 2, 3, 4])


def test_sites_with_outdated_ledgers_release_nothing_in_a_new_run(tmp_path: Path) -> None:
    """One site has an older copy that is not declared; another has neither ledger nor state, only
    its key."""
    env = small_environment(tmp_path, deadline=PATIENT, quorum=1, seeded=False)
    older = shutil.copy(env.agent(0).policy.ledger, tmp_path / "older")
    with staged(env) as (stage, _courier):
        stage.start()
        assert stage.server.wait() == 0
        for site, agent in enumerate(stage.agents):
            stage.assert_ledger(site, [1, 2])
            agent.end()
        shutil.copy(older, env.policies[0].ledger)
        env.policies[1].ledger.unlink()
        shutil.rmtree(env.policies[1].state)
        agreement = replace(env.agreement, run="f" * 32, deadline_seconds=4.0)
        for policy in env.policies:
            write_accepted(policy, agreement)
        (tmp_path / "later.agreement").write_bytes(agreement.to_bytes())
        for proxy in stage.proxies:
            proxy.passed.clear()
        later = stage.another_server("later", stage.socket, "later.agreement")
        stage.agents[1].start()
        assert stage.agents[1].wait() == EndedForGood.exit_status
        assert "is gone; restore it from a copy" in stage.agents[1].text()
        for site in (0, 2):
            stage.agents[site].start()
        later.start()
        assert later.wait() == 0
        assert "it lacks release 2, which it had on" in stage.agents[0].text()
        assert "site site-0 refuses: its ledger cannot be used" in later.text()
        assert [len(reports(proxy)) for proxy in stage.proxies] == [0, 0, 2]
        assert env.releases(0) == []
        assert not env.policies[1].ledger.exists()
        assert env.releases(2) == [(1, 0), (2, 0)] * 2


def test_clocks_jump(tmp_path: Path) -> None:
    env = small_environment(tmp_path, channel="sum", deadline=PATIENT)
    with staged(env) as (stage, _courier):
        for agent in stage.agents:
            agent.start(ClockJumps(1e9))
        stage.server.start(ClockJumps(-1e8))
        assert stage.server.wait() == 0
        stage.assert_whole(expected(env))


# The server


@pytest.mark.parametrize(("channel", "after"), [("sum", False), ("named", True)])
def test_the_server_dies_at_every_file_that_it_writes(
    tmp_path: Path, channel: str, after: bool
) -> None:
    env = small_environment(tmp_path, channel=channel, deadline=PATIENT)
    done = tmp_path / "done"
    with staged(env) as (stage, _courier):
        for agent in stage.agents:
            agent.start()
        deaths = 0
        stage.server.start(DiesAtEveryFile(done, after))
        while stage.server.wait() == -9:
            deaths += 1
            stage.server.start(DiesAtEveryFile(done, after))
        assert stage.server.wait() == 0, stage.server.text()[-2000:]
        stage.assert_whole(expected(env))
        names = {str(Path(name).relative_to(tmp_path)) for name in done.read_text().splitlines()}
        assert deaths == len(names)
        journal = {f"round-{r}/{e}.question" for r, e in stage.places([1, 2])}
        if channel == "sum":
            journal |= {f"round-{r}/{e}.answers" for r, e in stage.places([1, 2])}
        assert {f"server/journal/{name}" for name in journal} <= names
        others = {"checkpoint", "metrics.jsonl", "privacy.json", "summary.json"}
        assert {f"server/{name}" for name in others} <= names
        run = env.agreement.run
        assert {f"receipts/{site.key}.{run}" for site in env.agreement.sites} <= names


@pytest.mark.parametrize("name", ["2.answers", "checkpoint"])
def test_the_disk_of_the_server_is_full(tmp_path: Path, name: str) -> None:
    """The server's other files are tested in ``test_failures_in_process.py``."""
    env = small_environment(tmp_path, channel="sum", deadline=PATIENT)
    with staged(env) as (stage, _courier):
        for agent in stage.agents:
            agent.start()
        stage.server.start(DiskIsFull(256, name))
        assert stage.server.wait() == 2
        stage.server.start()
        assert stage.server.wait() == 0
        stage.assert_whole(expected(env))


@CHANNELS
def test_a_server_that_sends_a_different_request_for_the_same_round(
    tmp_path: Path, channel: str
) -> None:
    """With two broadcasts for one round under the same agreement, sites answer only the first."""
    env = small_environment(tmp_path, channel=channel, deadline=PATIENT)

    def stops(asked: bytes, call: Call) -> bytes | None:
        answer = call(asked)
        return None if place_of(asked) == (1, 0) else answer

    with staged(env) as (stage, _courier):
        for proxy in stage.proxies:
            proxy.tamper = stops
        for agent in stage.agents:
            agent.start()
        stage.server.start()
        eventually(lambda: all(reports(proxy) for proxy in stage.proxies))
        stage.server.kill()
        for proxy in stage.proxies:
            proxy.tamper = lambda asked, call: call(asked)
        other = stage.another_server("other", stage.socket)
        other.start(OtherWeights())
        assert other.wait() == EndedForGood.exit_status
        assert "site-0 refused: asked-otherwise" in other.text().splitlines()[-1]
        stage.server.start()
        assert stage.server.wait() == 0
        stage.assert_whole(expected(env))


# Messages


@CHANNELS
def test_messages_that_are_lost_repeated_or_late(tmp_path: Path, channel: str) -> None:
    """Each message is lost once; then it arrives twice, and the agent is asked twice."""
    env = small_environment(tmp_path, channel=channel, deadline=PATIENT)
    lost = set()

    def deliver(site: int, asked: bytes, answer: bytes | None) -> list[bytes | None]:
        key = site, asked
        if place_of(asked) is not None and key not in lost:
            lost.add(key)
            return [None]
        return [answer, answer, b"garbage"]

    with staged(env, deliver=deliver) as (stage, _courier):
        for proxy in stage.proxies:
            proxy.tamper = lambda asked, call: (call(asked), call(asked))[1]
        stage.start()
        assert stage.server.wait() == 0
        stage.assert_whole(expected(env))
        assert len(lost) == len(stage.places([1, 2])) * 3


def test_a_site_slower_than_the_deadline(tmp_path: Path) -> None:
    """The site has paid, and its answer arrives in the next round, where it is not added."""
    env = small_environment(tmp_path, "rounds=3", deadline=4, quorum=2)
    late = threading.Event()

    def slow(asked: bytes, call: Call) -> bytes | None:
        answer = call(asked)
        if place_of(asked) == (1, 0):
            late.wait(60)
        return answer

    def next_round(asked: bytes, call: Call) -> bytes | None:
        if place_of(asked) == (2, 0):
            late.set()
            time.sleep(0.5)
        return call(asked)

    with staged(env) as (stage, _courier):
        stage.proxies[0].tamper, stage.proxies[1].tamper = slow, next_round
        stage.start()
        assert stage.server.wait() == 0
        assert [record["clients"] for record in stage.rounds()] == [2, 3, 3]
        for site in range(3):
            stage.assert_ledger(site, [1, 2, 3])


def test_garbage_stops_no_round(tmp_path: Path) -> None:
    """Fifty connections a second send noise, incomplete frames, endless lengths, or nothing."""
    env = small_environment(tmp_path, "rounds=4", channel="sum", deadline=PATIENT)
    over, sent, asked = threading.Event(), [0], list[Place]()
    garbage = [
        bytes(8) + b"x",
        (1 << 60).to_bytes(8, "big"),
        (100).to_bytes(8, "big") + b"cut",
        (12).to_bytes(8, "big") + b"fedldp-site\x01",
        (76).to_bytes(8, "big") + b"fedldp-site\x01" + bytes(64),
        (4000).to_bytes(8, "big") + bytes(range(250)) * 16,
        b"",
    ]

    with staged(env) as (stage, _courier):

        def flood() -> None:
            while not over.wait(0.02):
                for policy in env.policies:
                    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as agent:
                        try:
                            agent.connect(str(policy.socket))
                            agent.sendall(garbage[sent[0] % len(garbage)])
                            sent[0] += 1
                        except OSError:
                            pass

        flooding = threading.Thread(target=flood, daemon=True)
        stage.proxies[0].tamper = lambda body, call: (asked.append(place_of(body)), call(body))[1]
        for agent in stage.agents:
            agent.start()
        eventually(lambda: all(policy.socket.exists() for policy in env.policies))
        flooding.start()
        eventually(lambda: sent[0] > 30)
        stage.server.start()
        assert stage.server.wait() == 0
        over.set()
        flooding.join()
        stage.assert_whole(expected(env))
        seconds = sum(record["seconds"] for record in stage.rounds())
        assert sent[0] > 30
        assert seconds < PATIENT / 4
        for agent in stage.agents:
            assert agent.text().count("malformed") <= 2  # at most one a minute
