"""A server that is restarted automatically and watched from outside, without intervention."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import pytest
from real_processes import DiesAtFile, Hastens, Party, eventually
from stages import playing

from fedldp.core.kinds import NOT_RUNNING, SILENT
from fedldp.deployment import watch
from fedldp.deployment.checks import check_server, check_site
from fedldp.deployment.demo import free_ports
from fedldp.deployment.https import pipe
from fedldp.deployment.policy import read_policy
from fedldp.deployment.status import status_of_server, status_of_site

pytestmark = pytest.mark.slow

DEATHS = (4, 9)
"""After how many files a server dies, which begins again each time."""


def test_a_waiting_server_says_for_whom_it_waits_and_ends_when_it_is_told_to(
    tmp_path: Path,
) -> None:
    with playing(tmp_path, "named") as stage:
        stage.agents[1].start()
        stage.server.start()
        folder = tmp_path / "server"
        eventually(lambda: (folder / "agreement").exists())
        eventually(lambda: status_of_server(folder)["sites"][1]["state"] == "ready")
        found = status_of_server(folder)
        assert [site["state"] for site in found["sites"]] == ["unseen", "ready", "unseen"]
        eventually(lambda: "1 have, but not site-0, site-2" in status_of_server(folder)["next"])
        (first, *_) = check_server(
            folder, *(tmp_path / n for n in ("server.agreement", "server.pem", "server.key"))
        )
        assert "it runs: round 1: waits until 3 sites" in first.what
        stage.server.interrupt(0)
        assert status_of_server(folder)["warnings"][0]["kind"] == NOT_RUNNING.name
        assert stage.env.releases(1) == []
        # SIGTERM ends each side with the same line.
        stage.server.start()
        eventually(lambda: stage.server.text().count("site-1 is connected and has accepted") == 2)
        stage.server.end()  # which checks the exit status
        assert stage.server.text().count("told to stop; started again, it goes on") == 2
        for party in (stage.agents[0], stage.agents[2], stage.server):
            party.start()
        assert stage.server.wait() == 0
        stage.assert_whole()
        stage.close()
        assert stage.agents[1].text().count("told to stop") == 1


def test_a_killed_server_comes_back_without_intervention(tmp_path: Path) -> None:
    """A loop stands in for systemd. Status, metrics, checks and logs are read all the time."""
    with playing(tmp_path, "sum") as stage:
        metrics, own = free_ports(2)
        asked = *stage.server._arguments, "--metrics", metrics
        server = stage.server = Party(tmp_path / "server.log", *asked)
        asked = *stage.agents[0]._arguments, "--metrics", own
        stage.agents[0] = Party(tmp_path / "agent-0.log", *asked)
        ended, folder = list[int](), tmp_path / "server"

        def keep_up() -> None:
            while 0 not in ended:
                files = DEATHS[len(ended)] if len(ended) < len(DEATHS) else None
                server.start(files and DiesAtFile(files))
                ended.append(server.wait())

        for agent in stage.agents:
            agent.start()
        policy = read_policy(tmp_path / "site-0" / "site.toml")
        eventually(lambda: status_of_site(policy)["sites"][0]["state"] == "away")
        systemd = threading.Thread(target=keep_up)
        systemd.start()
        done, sampled = list[int | None](), set[str]()
        while systemd.is_alive():
            if (folder / "agreement").exists():
                found = status_of_server(folder)
                json.dumps(found, allow_nan=False)
                done.append(found["rounds"]["done"])
            for port in (metrics, own):
                try:
                    with urllib.request.urlopen(
                        f"http://127.0.0.1:{port}/metrics", timeout=5
                    ) as it:
                        sampled |= {line.split(" ")[0] for line in it.read().decode().splitlines()}
                except OSError:
                    pass  # it is being killed
            time.sleep(0.05)
        assert ended == [-9] * len(DEATHS) + [0]
        stage.assert_whole()
        # A server that is killed between a checkpoint and its line leaves the number unknown.
        known = [number for number in done if number is not None]
        assert known == sorted(known)
        run = f'run="{stage.env.agreement.run[:8]}"'
        takes_part = f'fedldp_site_takes_part{{{run},site="site-2"}}'
        assert {takes_part, f"fedldp_rounds_complete{{{run}}}"} <= sampled
        assert {"fedldp_connected", 'fedldp_budget_left{kind="zcdp",unit="client"}'} <= sampled
        last = status_of_server(folder)
        assert (last["state"], last["warnings"]) == ("complete", [])
        eventually(lambda: status_of_site(policy)["runs"][0]["state"] == "finished")
        assert status_of_site(policy)["rounds"] == {"done": 2, "of": 2}
        (agent,) = (each for each in check_site(policy) if each.what.startswith("agent "))
        assert agent.ok
        assert agent.what.endswith("it runs")
        stage.close()
        assert status_of_site(policy)["sites"][0]["state"] == "stopped"


def test_lines_are_ours_although_a_library_configured_logging() -> None:
    program = """import logging
logging.basicConfig(format="a library's: %(message)s")
from fedldp.deployment.running import _begin
_begin()
logging.getLogger("fedldp.site").info("takes part")"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    (line,) = done.stderr.splitlines()
    assert line.endswith("fedldp.site takes part")


FASTER = 5.0


def test_a_frozen_agent_is_noticed_within_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the status, checks, metrics and log of both sides; then it goes on."""
    assert watch.SILENT_SECONDS + watch._BEAT_SECONDS < 60
    assert pipe._ALIVE_SECONDS < 60
    monkeypatch.setattr(watch, "SILENT_SECONDS", watch.SILENT_SECONDS / FASTER)
    with playing(tmp_path, "named") as stage:
        (port,) = free_ports(1)
        stage.server = Party(
            tmp_path / "server.log", *stage.server._arguments, "--metrics", str(port)
        )
        stage.agents[0].start(Hastens(FASTER))
        stage.server.start(Hastens(FASTER))
        policy, folder = read_policy(tmp_path / "site-0" / "site.toml"), tmp_path / "server"
        takes_part = f'fedldp_site_takes_part{{run="{stage.env.agreement.run[:8]}",site="site-0"}}'

        def states() -> list[object]:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as it:
                lines = dict(line.rsplit(" ", 1) for line in it.read().decode().splitlines())
            known = [status_of_site(policy), status_of_server(folder)]
            return [*(found["sites"][0]["state"] for found in known), lines[takes_part]]

        eventually(lambda: (folder / "agreement").exists())
        eventually(lambda: status_of_server(folder)["sites"][0]["state"] == "ready")
        eventually(lambda: states() == ["ready", "ready", "1.0"])
        pid = stage.agents[0].process.pid or 0
        os.kill(pid, signal.SIGSTOP)
        frozen = time.monotonic()
        try:
            eventually(lambda: states() == ["silent", "away", "0.0"], patience=60.0)
            assert SILENT.name in [each["kind"] for each in status_of_site(policy)["warnings"]]
            assert not next(f.ok for f in check_site(policy) if f.what.startswith("agent "))
            time.sleep(max(0.0, frozen + 75.0 / FASTER - time.monotonic()))
        finally:
            os.kill(pid, signal.SIGCONT)
        eventually(lambda: states() == ["ready", "ready", "1.0"])
        assert stage.server.text().count("site-0 is no longer connected") == 1
        assert stage.agents[0].text().count("this process stood still for") == 1
        stage.server.kill()
        eventually(lambda: status_of_site(policy)["sites"][0]["state"] == "away")
        stage.close()
        assert status_of_site(policy)["sites"][0]["state"] == "stopped"
