"""The table of failures over HTTPS: agents and a server as processes, with TLS, and SIGKILL."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from https_ends import write_tls
from real_processes import DiesAtCommit, DiesAtEveryFile, Party, eventually
from safetensors.numpy import load_file
from stages import expected
from worlds import World, make_world, whole, write_policy

from fedldp.deployment.certificates import fingerprints
from fedldp.deployment.loopback import free_ports
from fedldp.deployment.sites import RELEASED_TWICE

pytestmark = pytest.mark.slow


DEATHS = 4
CONNECTED = "site site-0 is connected"


class Stage:
    """A world's agents and its server, which is found at one port whenever it is there."""

    def __init__(
        self, folder: Path, channel: str, deadline: float = 300.0, quorum: int = 3
    ) -> None:
        write_tls(folder / "tls")
        (self.port,) = free_ports(1)
        self.server_table = {"url": f"https://127.0.0.1:{self.port}", "ca": "../tls/ca.pem"}
        self.world: World = make_world(
            folder,
            channel=channel,
            deadline=deadline,
            quorum=quorum,
            policy={"socket": None, "server": self.server_table},
            link="https",
            server_ca=fingerprints(folder / "tls" / "ca.pem"),
        )
        (folder / "run.agreement").write_bytes(self.world.agreement.to_bytes())
        test = self.world.inputs.dataset.test
        np.savez(folder / "test.npz", features=test.features, labels=test.labels)
        self.agents = [
            Party(folder / f"agent-{i}.log",
                  *("deploy", "site", policy.key.parent / "site.toml", "--test-keys"))
            for i, policy in enumerate(self.world.policies)
        ]  # fmt: skip
        self.server = Party(
            folder / "server.log",
            *("deploy", "server", folder / "server", folder / "run.agreement", "--json"),
            *("--test", folder / "test.npz", "--listen", f"127.0.0.1:{self.port}"),
            *("--certificate", folder / "tls" / "server.pem"),
            *("--key", folder / "tls" / "server.key"),
        )

    def close(self) -> None:
        """End the agents as systemd does."""
        for agent in self.agents:
            agent.end()

    def kill(self) -> None:
        for party in (*self.agents, self.server):
            if party.alive:
                party.kill()

    def rounds(self) -> list[int]:
        file = self.world.folder / "server" / "metrics.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        return [json.loads(line)["clients"] for line in lines]

    def assert_whole(self) -> None:
        """Check that all took part, each paid once, and the weights are the simulation's."""
        assert self.rounds() == [3, 3]
        for site in range(3):
            assert self.world.releases(site) == whole(self.world)
        found = load_file(self.world.folder / "server" / "model.safetensors")
        for name, weights in expected(self.world).items():
            assert found[name].tobytes() == weights.tobytes()
        text = "".join(party.text() for party in (*self.agents, self.server))
        assert RELEASED_TWICE not in text
        assert "Traceback" not in text


@pytest.fixture
def stages(tmp_path: Path) -> Iterator[list[Stage]]:
    made: list[Stage] = []
    yield made
    for stage in made:
        stage.kill()


@pytest.mark.parametrize(("channel", "after"), [("named", True), ("sum", False)])
def test_a_server_that_dies_comes_back_and_the_run_goes_on(
    tmp_path: Path, stages: list[Stage], channel: str, after: bool
) -> None:
    """Nobody touches an agent meanwhile: each finds the server again by itself.

    That it may die at every file of its folder, ``test_real_failures.py`` has.
    """
    stage = Stage(tmp_path, channel)
    stages.append(stage)
    for agent in stage.agents:
        agent.start()
    for _ in range(DEATHS):
        stage.server.start(DiesAtEveryFile(tmp_path / "done", after))
        assert stage.server.wait() == -9
    came = stage.server.text().count(CONNECTED)
    stage.server.start()
    eventually(lambda: stage.server.text().count(CONNECTED) > came)
    stage.server.kill()
    stage.server.start()
    assert stage.server.wait() == 0
    stage.assert_whole()
    assert all(len(agent.text().splitlines()) < 80 for agent in stage.agents)
    stage.close()


def test_an_agent_that_dies_at_commits_comes_back_and_pays_once(
    tmp_path: Path, stages: list[Stage]
) -> None:
    stage = Stage(tmp_path, "sum")
    stages.append(stage)
    for agent in stage.agents[1:]:
        agent.start()
    stage.server.start()
    for number, after in ((1, False), (1, True), (2, False), (2, True)):
        stage.agents[0].start(DiesAtCommit(number, after))
        assert stage.agents[0].wait() == -9
    stage.agents[0].start()
    assert stage.server.wait() == 0
    stage.assert_whole()
    stage.close()


def test_a_site_that_takes_another_for_the_server_is_missed_and_named(
    tmp_path: Path, stages: list[Stage]
) -> None:
    """By its own policy, and by its TLS; the round goes on without it."""
    stage = Stage(tmp_path, "named", deadline=8.0, quorum=2)
    stages.append(stage)
    write_tls(tmp_path / "other")
    lost = {**stage.server_table, "ca": "../other/ca.pem"}
    write_policy(stage.world.policies[2].key.parent, socket=None, server=lost)
    for agent in stage.agents:
        agent.start()
    stage.server.start()
    assert stage.server.wait() == 0
    assert stage.rounds() == [2, 2]
    assert [len(stage.world.releases(site)) for site in range(2)] == [2, 2]
    assert stage.world.policies[2].ledger.exists()
    assert stage.world.releases(2) == []
    assert "does not name" in stage.agents[2].text()  # the agreement pins another authority
    assert "CERTIFICATE_VERIFY_FAILED" in stage.agents[2].text()
    stage.close()


def test_agents_wait_for_a_server_without_filling_their_logs(
    tmp_path: Path, stages: list[Stage]
) -> None:
    stage = Stage(tmp_path, "named")
    stages.append(stage)
    for agent in stage.agents:
        agent.start()
    eventually(lambda: all("no connection" in agent.text() for agent in stage.agents))
    time.sleep(5)
    assert all(agent.text().count("no connection") == 1 for agent in stage.agents)
    stage.server.start()
    assert stage.server.wait() == 0
    stage.assert_whole()
    begun = time.monotonic()
    stage.close()
    assert time.monotonic() - begun < 10
    assert list(tmp_path.rglob("*.sock")) == []
