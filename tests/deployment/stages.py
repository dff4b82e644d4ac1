"""An environment whose parties are real processes, and what must hold whichever of them is
killed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from environments import Environment, make_environment
from numpy.typing import NDArray
from real_processes import Courier, Party, Place, Proxy, proxies_at, reports
from safetensors.numpy import load_file

from fedldp.deployment.sites import RELEASED_TWICE
from fedldp.simulation.engine import simulate


def small_environment(folder: Path, *settings: str, **given: Any) -> Environment:
    """Return an environment with quick rounds and with sockets where processes can reach them."""
    settings = ("num_examples=150", "local_epochs=1", *settings)
    policy = {"server": None, "socket": "run/site.sock"}
    return make_environment(folder, *settings, policy=policy, link="flower", **given)


class Stage:
    """Agents, a server, and the proxies before the agents.

    Attributes:
        env: the environment of the run.
        proxies: the proxy before each agent.
        socket: the server's socket.
    """

    def __init__(self, env: Environment, proxies: Sequence[Proxy], socket: Path) -> None:
        self.env, self.proxies, self.socket = env, proxies, socket
        self.run = env.folder / "server"
        (env.folder / "run.agreement").write_bytes(env.agreement.to_bytes())
        test = env.inputs.dataset.test
        np.savez(env.folder / "test.npz", features=test.features, labels=test.labels)
        self.agents = [
            Party(
                env.folder / f"agent-{index}.log",
                *("deploy", "site", policy.key.parent / "site.toml", "--test-keys"),
            )
            for index, policy in enumerate(env.policies)
        ]
        for proxy, policy in zip(proxies, env.policies, strict=True):
            proxy.forget()
            proxy.target = policy.socket
        self.server = self.another_server("server", socket)

    def another_server(self, name: str, socket: Path, agreement: str = "run.agreement") -> Party:
        """Return a server with its own folder."""
        folder = self.env.folder
        return Party(
            folder / f"{name}.log",
            *("deploy", "server", folder / name, folder / agreement, "--json"),
            *("--test", folder / "test.npz", "--socket", socket),
        )

    def start(self) -> None:
        for agent in self.agents:
            if not agent.alive:
                agent.start()
        self.server.start()

    def close(self) -> None:
        """End all processes as systemd does; none may remain."""
        for party in (*self.agents, self.server):
            party.end()
        assert not any(party.alive for party in (*self.agents, self.server))
        assert list(self.env.folder.rglob("*.sock")) == []

    def kill(self) -> None:
        """End the remaining processes after a failed test."""
        for party in (*self.agents, self.server):
            if party.alive:
                party.kill()

    # What must hold

    def rounds(self) -> list[dict[str, Any]]:
        """Return the records of the complete rounds, from the server's folder."""
        file = self.run / "metrics.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def places(self, rounds: Sequence[int]) -> list[Place]:
        phases = 1 if self.env.agreement.channel == "named" else 4
        return [(round, phase) for round in rounds for phase in range(phases)]

    def assert_ledger(self, site: int, rounds: Sequence[int], lost: int = 0) -> None:
        """Check that a site paid for some rounds, each once, and gave one answer for each place.

        If an older copy of the ledger was restored, ``lost`` rounds are charged as well, and
        releases since that copy are in no ledger.
        """
        ledger, agreement = self.env.ledger(site), self.env.agreement
        entries = ledger.verify()
        found = [(e.round, e.phase) for e in entries if e.run == agreement.run]
        assert found == self.places(rounds)
        price, _run = self.env.policies[site].costs(agreement)
        assert price > 0
        assert math.isclose(sum(entry.cost for entry in entries), (len(rounds) + lost) * price)
        given = reports(self.proxies[site])
        assert all(len(each) == 1 for each in given.values())
        assert lost or given.keys() <= set(found)
        self._assert_parts(self.proxies[site])

    def _assert_parts(self, proxy: Proxy) -> None:
        """Check that every partial answer is the beginning of a complete one."""
        for part in (passed for passed in proxy.passed if passed.answer is None):
            whole = [p.frame for p in proxy.passed if p.asked == part.asked and p.answer]
            assert whole
            assert all(frame.startswith(part.frame) for frame in whole)

    def assert_whole(self, weights: dict[str, NDArray[np.float32]] | None) -> None:
        """Check, to the last bit, a run in which all sites took part in all rounds."""
        rounds = range(1, self.env.config.rounds + 1)
        for site in range(len(self.agents)):
            self.assert_ledger(site, rounds)
            assert set(reports(self.proxies[site])) == set(self.places(rounds))
        assert [record["round"] for record in self.rounds()] == list(rounds)
        assert all(record["clients"] == len(self.agents) for record in self.rounds())
        assert RELEASED_TWICE not in self.server.text()
        assert "Traceback" not in "".join(p.text() for p in (*self.agents, self.server))
        if weights is not None:
            found = load_file(self.run / "model.safetensors")
            assert found.keys() == weights.keys()
            for name, expected in weights.items():
                assert found[name].tobytes() == expected.tobytes()


@contextmanager
def staged(env: Environment, **given: Any) -> Iterator[tuple[Stage, Courier]]:
    """Yield a stage and the courier that carries its bytes; end both."""
    paths = [env.folder / "proxies" / f"{index}.sock" for index in range(len(env.policies))]
    socket = env.folder / "server.sock.d" / "server.sock"
    with proxies_at(paths) as proxies, Courier(socket, paths, **given) as courier:
        stage = Stage(env, proxies, socket)
        try:
            yield stage, courier
            for proxy in proxies:
                proxy.close()
            stage.close()
        finally:
            stage.kill()


_EXPECTED: dict[str, dict[str, NDArray[np.float32]]] = {}


def expected(env: Environment) -> dict[str, NDArray[np.float32]]:
    """Return the final weights of a simulation of the environment's configuration."""
    name = env.config.model_dump_json()
    if name not in _EXPECTED:
        _EXPECTED[name] = simulate(env.config).weights
    return _EXPECTED[name]
