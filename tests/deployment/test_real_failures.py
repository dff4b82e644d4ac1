"""The table of failures: agents and a server as processes, with TLS, and SIGKILL.

After each failure, every site has paid once for each of its releases, and no process, port or file
remains.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import threading
import time
from pathlib import Path

import pytest
from environments import HOST
from https_proxies import GARBAGE, CuttableLink, GarbageProxy, LossyProxy, RecordingProxy
from real_processes import (
    ClockJumps,
    DiesAtCommit,
    DiesAtEveryFile,
    DiskIsFull,
    GivesUpSoon,
    HoldsAnAnswer,
    OtherWeights,
    Party,
    eventually,
)
from stages import lines, playing

from fedldp.deployment.https.site import tls_of_site

pytestmark = pytest.mark.slow


OF_A_RUN = ("checkpoint", "metrics.jsonl@0", "privacy.json", "summary.json")
PHASES = 4
CUT = 6.0
"""Seconds."""


def command(folder: Path, *arguments: object) -> Party:
    """Return a command that has ended successfully."""
    party = Party(folder / f"{len(list(folder.glob('command-*')))}.command", *arguments)
    party.start()
    assert party.wait() == 0, party.text()
    return party


@pytest.mark.parametrize(
    ("channel", "after", "within"), [("sum", False, "journal"), ("named", True, "")]
)
def test_a_server_that_dies_at_every_file_comes_back_and_the_run_continues(
    tmp_path: Path, channel: str, after: bool, within: str
) -> None:
    """No agent is touched meanwhile: each finds the server again by itself.

    With a sum, the server dies at the requests of all phases.
    """
    with playing(tmp_path, channel) as stage:
        for agent in stage.agents:
            agent.start()
        death = DiesAtEveryFile(tmp_path / "done", after, within)
        deaths = 0
        stage.server.start(death)
        while stage.server.wait() == -9:
            deaths += 1
            stage.server.start(death)
        assert stage.server.wait() == 0, stage.server.text()[-2000:]
        stage.assert_whole()
        done = death.done.read_text().splitlines()
        names = {str(Path(name).relative_to(tmp_path)) for name in done}
        assert deaths == len(names)
        if channel == "sum":
            assert {name.partition("@")[0] for name in names} == {"server/journal"}
            assert len(names) > PHASES
        else:
            files = "journal", "journal@17", *OF_A_RUN
            agreement = stage.env.agreement
            receipts = {f"receipts/{site.key}.{agreement.run}" for site in agreement.sites}
            assert names >= receipts | {f"server/{name}" for name in files}
        assert all(len(lines(agent)) < 40 + 6 * deaths for agent in stage.agents)
        stage.close()


def test_an_agent_that_dies_with_half_an_answer_sent_comes_back_and_pays_once(
    tmp_path: Path,
) -> None:
    """It dies in each phase of a round; ``test_power_cuts`` has all other steps."""
    with (
        playing(tmp_path, "sum", between=True) as stage,
        RecordingProxy(stage.port, stage.behind, tmp_path / "tls") as recorded,
    ):
        for agent in stage.agents[1:]:
            agent.start()
        stage.server.start()
        # When asked again, it answers with the same bytes at once, and dies in the next phase.
        for phase in range(PHASES):
            stage.agents[0].start(HoldsAnAnswer(2 if phase else 1))
            assert stage.agents[0].wait() == -9
        stage.agents[0].start()
        assert stage.server.wait() == 0
        stage.assert_whole(recorded)
        again = "answered again, with the same bytes and at no cost"
        assert stage.agents[0].text().count(again) == PHASES
        (own, *_others) = stage.env.agreement.sites
        assert len(recorded.parts[own.key]) == PHASES
        for agent in stage.agents:
            agent.end()
    stage.close()


def test_messages_that_are_lost_repeated_and_late_are_counted_once(tmp_path: Path) -> None:
    with (
        playing(tmp_path, "sum", between=True) as stage,
        LossyProxy(stage.port, stage.behind, tmp_path / "tls") as lossy,
    ):
        stage.start()
        assert stage.server.wait() == 0
        stage.assert_whole(lossy)
        assert min(lossy.lost["question"], lossy.lost["answer"]) > 1
        assert lossy.doubled > 10
        assert all(len(lines(party)) < 40 for party in (*stage.agents, stage.server))
        for agent in stage.agents:
            agent.end()
    stage.close()


def test_garbage_at_both_ends_stops_no_round(tmp_path: Path) -> None:
    """Sites get it from a proxy with the server's own key; the server gets it from strangers,
    inside and outside TLS."""
    over, sent = threading.Event(), [0]
    noise = [*GARBAGE, b"GET / HTTP/9.9\r\n\r\n", b"POST /v1/answer/1 HTTP/1.1\r\n\r\n"]
    with (
        playing(tmp_path, "sum", between=True) as stage,
        GarbageProxy(stage.port, stage.behind, tmp_path / "tls") as garbage,
    ):
        secured = tls_of_site(tmp_path / "tls" / "ca.pem")

        def flood() -> None:
            while not over.wait(0.02):
                with contextlib.suppress(OSError):
                    raw = socket.create_connection((HOST, stage.behind), timeout=5)
                    if sent[0] % 4 == 0:
                        raw = secured.wrap_socket(raw, server_hostname=HOST)
                    with raw:
                        raw.sendall(noise[sent[0] // 4 % len(noise)])
                        sent[0] += 1

        flooding = threading.Thread(target=flood, daemon=True)
        stage.start()
        flooding.start()
        try:
            assert stage.server.wait() == 0
        finally:
            over.set()
            flooding.join()
        assert sent[0] > 4 * len(noise)
        assert garbage.given > len(GARBAGE)
        stage.assert_whole(garbage)
        assert all(len(lines(party)) < 60 for party in (*stage.agents, stage.server))
        for agent in stage.agents:
            agent.end()
    stage.close()


def test_full_disks_stop_only_what_needs_them(tmp_path: Path) -> None:
    """The disks of a site and of the server fill up; after there is room again, the run equals the
    simulation's."""
    with playing(tmp_path, "sum") as stage:
        stage.env.agent(0)  # makes its ledger
        for agent in stage.agents[1:]:
            agent.start()
        stage.agents[0].start(DiskIsFull(4096))
        stage.server.start()
        eventually(lambda: "the disk cannot be read or written" in stage.agents[0].text())
        eventually(lambda: "refuses: its ledger cannot be used" in stage.server.text())
        stage.agents[0].end()
        assert stage.env.releases(0) == []
        for name in ("journal", "checkpoint"):
            stage.server.stop()
            stage.server.start(DiskIsFull(256, name))
            if name == "journal":
                stage.agents[0].start()
            assert stage.server.wait() == 2
            assert "File too large" in stage.server.text().splitlines()[-1]
        stage.server.start()
        assert stage.server.wait() == 0
        stage.assert_whole()
        stage.close()


def test_wrong_clocks_and_a_second_server_with_the_same_key_change_nothing(tmp_path: Path) -> None:
    """All clocks are wrong by years, whenever they are read.

    The other server sends a different request in the same round, to sites that have paid for their
    answers.
    """
    with playing(tmp_path, "named") as stage:
        for site in (0, 1):
            stage.agents[site].start(ClockJumps(1e9))
        stage.agents[2].start(DiesAtCommit(1, after=True))
        stage.server.start(ClockJumps(-1e8))
        assert stage.agents[2].wait() == -9
        eventually(lambda: all(stage.env.releases(site) for site in range(3)))
        stage.server.kill()
        other = stage.server_of("other")
        stage.agents[2].start(ClockJumps(-1e9))
        other.start(OtherWeights())
        eventually(lambda: "site-2 refused: asked-otherwise" in other.text())
        other.stop()
        stage.server.start(ClockJumps(-1e8))
        assert stage.server.wait() == 0
        stage.assert_whole()
        stage.close()


def test_an_answer_that_is_late_is_paid_for_and_not_added_later(tmp_path: Path) -> None:
    with playing(tmp_path, "named", "rounds=3", deadline=4.0, quorum=2) as stage:
        stage.agents[0].start(HoldsAnAnswer(1, seconds=6.0))
        for party in (*stage.agents[1:], stage.server):
            party.start()
        assert stage.server.wait() == 0
        counted = stage.rounds()
        assert (counted[0], counted[-1]) == (2, 3)
        assert stage.env.releases(0)[0] == (1, 0)
        for site in (1, 2):
            assert stage.env.releases(site) == [(1, 0), (2, 0), (3, 0)]
        stage.assert_sound()
        stage.close()


def test_a_cut_loses_nothing(tmp_path: Path) -> None:
    """Packets are dropped silently for longer than anybody waits, and old connections never come
    back."""
    with (
        playing(tmp_path, "sum", between=True) as stage,
        CuttableLink(stage.port, stage.behind) as link,
    ):
        for party in (*stage.agents[1:], stage.server):
            party.start(GivesUpSoon(CUT / 2))
        eventually(lambda: "site site-2 is connected" in stage.server.text())
        link.cut()
        time.sleep(CUT)
        link.mend()
        stage.agents[0].start(GivesUpSoon(CUT / 2))
        assert stage.server.wait() == 0
        stage.assert_whole()
        assert any("no connection" in agent.text() for agent in stage.agents)
        for party in (*stage.agents, stage.server):
            assert len(lines(party)) < 40
        for agent in stage.agents:
            agent.end()
    stage.close()


# Ledgers that were set back


def test_the_ledger_of_a_site_is_an_older_copy(tmp_path: Path) -> None:
    """Its operator declares that while the run goes on, and the site takes part again."""
    with playing(tmp_path, "named", "rounds=4", quorum=2) as stage:
        env, ledger = stage.env, stage.env.policies[0].ledger
        env.agent(0)  # makes it
        copy = shutil.copy(ledger, tmp_path / "copy")
        for agent in stage.agents[:2]:
            agent.start(DiesAtCommit(2, after=False))
        stage.agents[2].start()
        stage.server.start()
        # So round 1 is complete, and round 2 waits for two sites.
        assert [agent.wait() for agent in stage.agents[:2]] == [-9, -9]
        for file in ledger.parent.glob("site.db*"):  # the agent was killed: its log is there too
            file.unlink()
        shutil.copy(copy, ledger)
        stage.agents[0].start()
        eventually(lambda: "it lacks release 1, which it had" in stage.agents[0].text())
        # For round 2, the server has the site's refusal.
        eventually(lambda: "site site-0 refuses: its ledger cannot" in stage.server.text())
        assert env.releases(0) == []
        stage.agents[0].end()
        policy = ledger.parents[1] / "site.toml"
        told = command(tmp_path, "deploy", "restored", policy, "--none-since", "--yes")
        assert "4 rounds charged as lost\n" in told.text()
        for agent in stage.agents[:2]:
            agent.start()
        assert stage.server.wait() == 0
        # Four rounds are charged as lost although only one was, and the site takes part in two.
        assert stage.rounds() == [3, 2, 3, 3]
        price, _run = env.policies[0].costs(env.agreement)
        assert env.ledger(0).spent() == pytest.approx((4 + 2) * price)
        released = [
            (e.round, e.phase) for e in env.ledger(0).verify() if e.run == env.agreement.run
        ]
        assert released == [(3, 0), (4, 0)]
        for site in (1, 2):
            assert env.releases(site) == [(round, 0) for round in (1, 2, 3, 4)]
        stage.close()
