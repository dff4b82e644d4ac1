"""An environment whose agents and server are processes, and what must hold whichever is killed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from environments import HOST, Environment, bits, bits_of, make_environment, whole
from real_processes import Party

from fedldp.deployment.demo import free_ports, is_free
from fedldp.deployment.sites import RELEASED_TWICE
from fedldp.simulation.engine import simulate


def agents_of(env: Environment) -> list[Party]:
    """Return the agents of an environment's sites, with keys from the seed."""
    return [
        Party(env.folder / f"agent-{i}.log", "deploy", "site", policy.key.parent / "site.toml",
              "--test-keys")
        for i, policy in enumerate(env.policies)
    ]  # fmt: skip


def server_of(env: Environment, run: Path, port: int, tls: Path) -> Party:
    """Return the server of an environment's agreement, with its folder and TLS files."""
    agreement = run.with_name(f"{run.name}.agreement")
    agreement.write_bytes(env.agreement.to_bytes())
    return Party(
        env.folder / f"{run.name}.log",
        *("deploy", "server", run, agreement, "--json", "--test", env.write_test()),
        *("--listen", f"{HOST}:{port}"),
        *("--certificate", tls / "server.pem", "--key", tls / "server.key"),
    )


@contextmanager
def started(*parties: Party) -> Iterator[None]:
    """Start processes and end them as systemd does; none stays in any case."""
    try:
        for party in parties:
            party.start()
        yield
        for party in parties:
            party.end()
    finally:
        for party in parties:
            party.stop()


class Stage:
    """An environment's agents and its server, which always listens at the same port."""

    def __init__(self, folder: Path, channel: str, *settings: str, **policy: Any) -> None:
        self.folder = folder
        (self.port,) = free_ports(1)
        table = {"url": f"https://{HOST}:{self.port}", "ca": "../tls/ca.pem"}
        self.env = make_environment(
            folder, *settings, channel=channel, deadline=300.0, policy={"server": [table], **policy}
        )
        self.agents = agents_of(self.env)
        self.server = server_of(self.env, folder / "server", self.port, folder / "tls")

    def close(self) -> None:
        """End the agents as systemd does; no process may remain."""
        for agent in self.agents:
            agent.end()
        assert not any(party.alive for party in (*self.agents, self.server))
        assert is_free(self.port)
        left = [path for path in self.folder.rglob("*") if path.is_file() or path.is_socket()]
        assert [path for path in left if path.suffix in (".sock", ".partial", ".gone")] == []

    def kill(self) -> None:
        for party in (*self.agents, self.server):
            party.stop()

    def assert_whole(self) -> None:
        """Check that all sites took part, each paid once, and the weights equal a simulation's."""
        done = (self.folder / "server" / "metrics.jsonl").read_text().splitlines()
        assert [json.loads(line)["clients"] for line in done] == [3, 3]
        for index in range(len(self.agents)):
            assert self.env.releases(index) == whole(self.env)
        found = bits_of(self.folder / "server" / "model.safetensors")
        assert found == bits(simulate(self.env.config))
        self.assert_sound()

    def assert_sound(self) -> None:
        """Check that no site gave two answers to a request, or failed in an unexpected way."""
        text = "".join(log.read_text() for log in self.folder.glob("*.log"))
        assert RELEASED_TWICE not in text
        assert "Traceback" not in text


@contextmanager
def playing(*given: Any, **named: Any) -> Iterator[Stage]:
    """Yield a stage, and end its processes in any case."""
    stage = Stage(*given, **named)
    try:
        yield stage
    finally:
        stage.kill()
