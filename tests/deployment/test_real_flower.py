"""Rows of the table of failures in which Flower's own processes die: one SuperLink, three
SuperNodes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from environments import Environment
from https_proxies import CuttableLink
from real_processes import Call, Proxy, Tamper, eventually, place_of, proxies_at, reports
from stages import Stage, expected, small_environment

from fedldp.deployment.loopback import HOST, Loopback, free_ports

pytestmark = pytest.mark.slow

PATIENT = 600.0
CUT = 60.0
"""Seconds."""


class CuttableFlower(Loopback):
    """A Flower whose SuperNodes reach their SuperLink through a proxy that can cut connections."""

    link: CuttableLink

    def start(self) -> None:
        (self._end,) = free_ports(1)
        super().start()

    def _write_files(self) -> None:
        super()._write_files()
        self.link = CuttableLink(self._end, self._ports["superlink"])
        self.link.__enter__()

    def _command(self, name: str) -> list[str]:
        command = super()._command(name)
        if name != "superlink":
            command[command.index("--superlink") + 1] = f"{HOST}:{self._end}"
        return command

    def close(self) -> None:
        super().close()
        self.link.__exit__()


class SharedFlower:
    """One Flower on which environments run one after another."""

    def __init__(self, folder: Path, flower: Loopback, proxies: list[Proxy]) -> None:
        self.socket, self.flower, self.proxies = folder / "server" / "server.sock", flower, proxies

    @contextmanager
    def running(self, env: Environment) -> Iterator[Stage]:
        """Start an environment's agents, server and Flower app, and end them."""
        stage = Stage(env, self.proxies, self.socket)
        try:
            stage.start()
            eventually(self.socket.exists, "the server's socket")
            self.flower.run_app()
            yield stage
            stage.close()
            eventually(lambda: "serverapp" not in self.flower.processes(), "the app's end")
        finally:
            stage.kill()


@contextmanager
def shared_flower_of(kind: type[Loopback], folder: Path) -> Iterator[SharedFlower]:
    paths = [folder / "proxies" / f"{index}.sock" for index in range(3)]
    server = folder / "server" / "server.sock"
    with proxies_at(paths) as proxies:
        with kind(folder / "flower", paths, server) as flower:
            flower.start()
            yield SharedFlower(folder, flower, proxies)
        assert flower.processes() == {}


@pytest.fixture(scope="module")
def shared_flower(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedFlower]:
    with shared_flower_of(Loopback, tmp_path_factory.mktemp("flower")) as found:
        yield found


@pytest.fixture
def cuttable_flower(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedFlower]:
    """Only the test of the cut needs the proxy, which accepts and ends connections while the
    SuperLink is down.

    A SuperNode gives up if its greeting is cut off, but not if nothing listens.
    """
    with shared_flower_of(CuttableFlower, tmp_path_factory.mktemp("cuttable")) as found:
        yield found


class Holds:
    """Withholds one request from an agent until it is released."""

    def __init__(self, round: int, phase: int = 0) -> None:
        self.place = round, phase
        self.came, self.go_on = threading.Event(), threading.Event()

    def __call__(self, asked: bytes, call: Call) -> bytes | None:
        if place_of(asked) == self.place:
            self.came.set()
            self.go_on.wait(PATIENT)
        return call(asked)


def in_order(*tampering: Tamper) -> Tamper:
    """Return a function that tampers in several ways, one after another."""

    def tamper(asked: bytes, call: Call) -> bytes | None:
        for each in tampering:
            call = partial(each, call=call)
        return call(asked)

    return tamper


def test_flowers_server_processes_die_and_the_run_equals_the_simulation(
    shared_flower: SharedFlower, tmp_path: Path
) -> None:
    """Kills a ServerApp and the SuperLink; ``test_real_demo.py`` kills a server."""
    env = small_environment(tmp_path, channel="sum", deadline=PATIENT)
    holds = [Holds(1, 3), Holds(2, 1)]
    with shared_flower.running(env) as stage:
        shared_flower.proxies[1].tamper = in_order(*holds)

        # kill -9 of the ServerApp.
        assert holds[0].came.wait(PATIENT)
        shared_flower.flower.kill("serverapp")
        holds[0].go_on.set()
        shared_flower.flower.run_app()

        # kill -9 of the SuperLink: Flower has a new run, with the same run folder.
        assert holds[1].came.wait(PATIENT)
        shared_flower.flower.kill("superlink")
        holds[1].go_on.set()
        shared_flower.flower.restart("superlink")
        shared_flower.flower.run_app()

        assert stage.server.wait(PATIENT) == 0
        stage.assert_whole(expected(env))


def test_a_clientapp_and_a_supernode_die_and_the_round_continues(
    shared_flower: SharedFlower, tmp_path: Path
) -> None:
    """One site is enough here: the round ends at its deadline, and both processes are back later.

    A site that is back before the deadline is asked again, and may still be counted in the round.
    """
    env = small_environment(tmp_path, "rounds=6", deadline=120, quorum=1)
    client, node = Holds(1), Holds(1)
    with shared_flower.running(env) as stage:
        shared_flower.proxies[0].tamper, shared_flower.proxies[1].tamper = client, node
        assert client.came.wait(PATIENT)
        assert node.came.wait(PATIENT)
        shared_flower.flower.kill("clientapp-0")
        shared_flower.flower.kill("supernode-1")
        client.go_on.set()  # the agents' answers reach nobody, and they have paid
        node.go_on.set()
        shared_flower.flower.restart("supernode-1")
        assert stage.server.wait(PATIENT) == 0
        counted = [record["clients"] for record in stage.rounds()]
        assert counted[0] >= 1
        assert counted[-1] == 3
        taken = [sorted(round for round, _ in reports(proxy)) for proxy in shared_flower.proxies]
        assert taken[2] == [1, 2, 3, 4, 5, 6]
        for site, rounds in enumerate(taken):
            stage.assert_ledger(site, rounds)
            assert {1, 6} <= set(rounds)
        for number, clients in enumerate(counted, start=1):
            assert clients <= sum(number in rounds for rounds in taken)


def test_a_cut_of_a_minute_loses_nothing(cuttable_flower: SharedFlower, tmp_path: Path) -> None:
    """Packets between SuperNodes and SuperLink are dropped; old connections never come back.

    A SuperNode whose greeting was cut off does nothing any more although its process stays, so it
    is restarted.
    """
    env, hold, flower = (
        small_environment(tmp_path, deadline=PATIENT),
        Holds(1),
        cuttable_flower.flower,
    )
    assert isinstance(flower, CuttableFlower)
    with cuttable_flower.running(env) as stage:
        cuttable_flower.proxies[1].tamper = hold
        assert hold.came.wait(PATIENT)
        flower.link.cut()
        hold.go_on.set()
        time.sleep(CUT)
        flower.link.mend()
        nodes = [f"supernode-{index}" for index in range(len(stage.agents))]
        while stage.server.alive:
            for name in nodes:
                log = (flower.folder / f"{name}.log").read_bytes()
                ended = log.rstrip().endswith(b"handshake operation timed out")
                if ended or name not in flower.processes():
                    flower.restart(name)
            time.sleep(1)
        assert stage.server.wait() == 0
        stage.assert_whole(expected(env))
