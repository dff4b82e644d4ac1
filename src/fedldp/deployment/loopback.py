"""All of Flower on this machine, for the demo and tests, with TLS and node authentication.

It runs a SuperLink, SuperNodes that connect to their agents' sockets, and the app with the two
pipes, each as a separate process that can be killed and restarted. All files are in one folder, and
nothing leaves the machine. Linux only: processes are found in /proc.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sysconfig
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NoReturn, Self

from fedldp.core.errors import RunError
from fedldp.deployment import certificates, flower_app
from fedldp.deployment.flower_processes import NODE_IS_IN, FlowerProcess, find, is_waiting

HOST = "127.0.0.1"
CONNECTION = "loopback"
DAYS = 2
START_PATIENCE = 60.0
"""Seconds that a process may take to start listening; it takes about three on an idle machine."""
NODE_PATIENCE = 120.0
"""Seconds that a restarted SuperNode may take to be accepted: the SuperLink refuses a SuperNode
that it still lists as online."""


class Loopback:
    """Flower with ``len(agents)`` SuperNodes, as a context manager: exit ends every process.

    The processes are called superlink, supernode-I, serverapp and clientapp-I, where I counts from
    0 in the order of ``agents``. There are also superexec and superexec-I, with which Flower starts
    its apps. The logs are the files ``NAME.log`` in the folder; a process that Flower starts writes
    to the log of the process that started it.

    Attributes:
        node_ids: Flower's ids of the SuperNodes, in the order of ``agents``; set by :meth:`start`.
    """

    def __init__(self, folder: Path, agents: Sequence[Path], server: Path) -> None:
        """Prepare, without starting a process.

        Args:
            folder: the folder for all files; it must be new or empty.
            agents: the Unix sockets of the sites' agents.
            server: the Unix socket of :class:`~fedldp.deployment.pipe.FlowerPipe`.
        """
        self.folder = Path(os.path.abspath(folder))
        self.agents = [os.path.abspath(agent) for agent in agents]
        self.server = os.path.abspath(server)
        self.node_ids: list[int] = []
        self._own: dict[str, subprocess.Popen[bytes]] = {}
        self._ports: dict[str, int] = {}
        self._times_in_before: dict[str, int] = {}
        self._handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        """Make SIGTERM end the started processes too; :meth:`start` starts them."""
        if threading.current_thread() is threading.main_thread():
            self._handlers = {
                signal.SIGTERM: signal.signal(signal.SIGTERM, _leave),
                signal.SIGINT: signal.getsignal(signal.SIGINT),
            }
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End every process, even if Ctrl-C is pressed again."""
        for number in self._handlers:
            signal.signal(number, signal.SIG_IGN)
        try:
            self.close()
        finally:
            for number, handler in self._handlers.items():
                signal.signal(number, handler)

    def start(self) -> None:
        """Make keys, start the SuperLink, register the nodes and start the SuperNodes.

        Raises:
            RunError: flwr is not installed, or a process does not start; the message names its log.
        """
        names = ["superlink", *(f"supernode-{index}" for index in range(len(self.agents)))]
        self._ports = dict(zip(names, free_ports(len(names)), strict=True))
        self._write_files()
        self._launch("superlink")
        self._must_come_up("superlink")
        registering = [
            self._flwr("supernode", "register", str(self._node(index) / "key.pub"), CONNECTION)
            for index in range(len(self.agents))
        ]
        self.node_ids = [
            int(self._result("a SuperNode's key", process)["node-id"]) for process in registering
        ]
        for name in names[1:]:
            self._launch(name)
        for name in names[1:]:
            self._must_come_up(name)

    def run_app(self) -> int:
        """Run the app, or run it again, and return Flower's id of the run.

        The ServerApp connects some seconds later; see ``FlowerPipe.wait_connected``.

        Raises:
            RunError: Flower refused the app.
        """
        setting = f"socket={json.dumps(self.server)}"
        app = str(self.folder / "app")
        process = self._flwr("run", app, CONNECTION, "-c", setting)
        return int(self._result("to run the app", process)["run-id"])

    def processes(self) -> dict[str, int]:
        """Return the ids of the running processes, by name.

        If two processes have the same name, such as the ServerApps of two runs, the name of the
        second includes its process id.
        """
        found: dict[str, int] = {}
        for process in self._find():
            name = process.name if process.name not in found else f"{process.name}-{process.pid}"
            found[name] = process.pid
        return found

    def without_clientapp(self) -> list[str]:
        """Return the SuperNodes that received a message, have not replied and have no ClientApp."""
        alive = self.processes()
        return [
            name
            for name in self._ports
            if name in alive
            and name.replace("supernode", "clientapp") not in alive
            and name != "superlink"
            and is_waiting((self.folder / f"{name}.log").read_bytes())
        ]

    def kill(self, name: str) -> int:
        """Send SIGKILL to a process, wait until it is gone, and return its id.

        Raises:
            RunError: no such process is running.
        """
        for process in self._find():
            if process.name == name:
                process.kill()
                self._reap(process.pid)
                return process.pid
        alive = ", ".join(sorted(self.processes()))
        raise RunError(f"no process {name!r} is running to be killed; running: {alive or 'none'}")

    def restart(self, name: str) -> None:
        """Start superlink or supernode-I again, after a kill or to replace the running process.

        For about a minute, the SuperLink still lists a killed SuperNode as online and refuses it,
        so the SuperNode is started again until it is accepted. When a SuperLink ends, its runs fail
        for good; :meth:`run_app` begins another run.

        Raises:
            RunError: the process does not start.
        """
        if name not in self._ports:
            raise RunError(
                f"cannot restart {name!r}: give superlink or supernode-I; Flower starts the others"
            )
        if name in self.processes():
            self.kill(name)
        give_up = time.monotonic() + NODE_PATIENCE
        while True:
            self._await_free(name)
            self._launch(name)
            if self._comes_up(name):
                return
            if time.monotonic() > give_up:
                self._fail(name, f"was refused for {NODE_PATIENCE:g} s")
            time.sleep(2)

    def close(self) -> None:
        """End every process that this started, and their child processes; may be called twice.

        Raises:
            RunError: a process cannot be ended.
        """
        give_up = time.monotonic() + 20
        while True:
            # Flower's apps end when their parents do, so some may end before they are killed here.
            found = self._find()
            for process in found:
                process.kill()
                self._reap(process.pid)
            if not found:
                break
            if time.monotonic() > give_up:
                raise RunError(f"these processes of Flower did not end: {self.processes()}")
        self._own.clear()

    def _find(self) -> list[FlowerProcess]:
        return find(self.folder, self._ports)

    def _reap(self, pid: int) -> None:
        """Reap a child process, so that Flower's programs no longer consider it to be running."""
        for process in self._own.values():
            if process.pid == pid:
                process.wait(START_PATIENCE)

    def _node(self, index: int) -> Path:
        return self.folder / f"supernode-{index}"

    def _write_files(self) -> None:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if any(self.folder.iterdir()):
                raise RunError(f"the folder {self.folder} is not empty: choose a new one")
        except OSError as error:
            raise RunError(
                f"the folder {self.folder} cannot be used: {error.strerror}; choose another folder"
            ) from error
        signer = certificates.authority("fedldp loopback", DAYS)
        server = certificates.server_certificate(signer, ["localhost", HOST], DAYS)
        (self.folder / "ca.pem").write_bytes(signer.certificate)
        (self.folder / "server.pem").write_bytes(server.certificate)
        certificates.write_secret(self.folder / "server.key", server.key)
        for index in range(len(self.agents)):
            self._node(index).mkdir()
            pair = certificates.node_key()
            certificates.write_secret(self._node(index) / "key", pair.private)
            (self._node(index) / "key.pub").write_bytes(pair.public)
        for name in (*self._ports, "cli"):
            (self.folder / "home" / name).mkdir(parents=True)
        (self.folder / "tmp").mkdir()
        address = f"{HOST}:{self._ports['superlink']}"
        (self.folder / "home" / "cli" / "config.toml").write_text(
            f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n'
            f'address = "{address}"\n'
            f"root-certificates = {json.dumps(str(self.folder / 'ca.pem'))}\n",
            encoding="utf-8",
        )
        flower_app.write(self.folder / "app")

    def _command(self, name: str) -> list[str]:
        port = ["--host", HOST, "--port", str(self._ports[name])]
        if name == "superlink":
            return [
                script("flower-superlink"), *port,
                "--ssl-ca-certfile", str(self.folder / "ca.pem"),
                "--ssl-certfile", str(self.folder / "server.pem"),
                "--ssl-keyfile", str(self.folder / "server.key"),
                "--enable-supernode-auth",
                "--database", str(self.folder / "superlink.db"),
                "--disable-runtime-dependency-installation",
            ]  # fmt: skip
        index = int(name.removeprefix("supernode-"))
        return [
            script("flower-supernode"), *port,
            "--root-certificates", str(self.folder / "ca.pem"),
            "--superlink", f"{HOST}:{self._ports['superlink']}",
            "--auth-supernode-private-key", str(self._node(index) / "key"),
            "--node-config", f"socket={json.dumps(self.agents[index])}",
        ]  # fmt: skip

    def _launch(self, name: str) -> None:
        self._times_in_before[name] = self._times_in(name)
        with (self.folder / f"{name}.log").open("ab") as log:
            self._own[name] = subprocess.Popen(
                self._command(name),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment(name),
                cwd=self.folder,
                start_new_session=True,  # Ctrl-C reaches only our process, which ends the new one
            )

    def _environment(self, name: str) -> dict[str, str]:
        kept = {key: text for key, text in os.environ.items() if not key.startswith("FLWR_")}
        return kept | {
            "HOME": str(self.folder / "home"),
            "TMPDIR": str(self.folder / "tmp"),
            "FLWR_HOME": str(self.folder / "home" / name),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
            "NO_PROXY": f"{HOST},localhost",
            "no_proxy": f"{HOST},localhost",
            # Flower starts its other programs by name, so they must be on PATH.
            "PATH": sysconfig.get_path("scripts") + os.pathsep + os.environ.get("PATH", ""),
        }

    def _flwr(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [script("flwr"), *arguments, "--format", "json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._environment("cli"),
            cwd=self.folder,
            start_new_session=True,
        )

    def _result(self, what: str, process: subprocess.Popen[bytes]) -> dict[str, Any]:
        try:
            out, _ = process.communicate(timeout=START_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            out, _ = process.communicate()
        with contextlib.suppress(ValueError):
            found = json.loads(out[out.index(b"{") :])
            if process.returncode == 0 and found.get("success"):
                return dict(found)
        said = " ".join(out.decode("utf-8", "replace").split())[-300:]
        raise RunError(f"Flower refused {what}: {said}")

    def _comes_up(self, name: str) -> bool:
        """Wait until a process serves; return False if it ended instead."""
        patience = START_PATIENCE if name == "superlink" else NODE_PATIENCE
        give_up = time.monotonic() + patience
        while self._own[name].poll() is None:
            if self._serves(name):
                return True
            if time.monotonic() > give_up:
                self._fail(name, f"is not up after {patience:g} s")
            time.sleep(0.1)
        return False

    def _serves(self, name: str) -> bool:
        if name == "superlink":
            return not is_free(self._ports[name])
        return self._times_in(name) > self._times_in_before[name]

    def _times_in(self, name: str) -> int:
        """Count how many times the SuperLink accepted a SuperNode, according to the node's log."""
        log = self.folder / f"{name}.log"
        return log.read_bytes().count(NODE_IS_IN) if log.exists() else 0

    def _await_free(self, name: str) -> None:
        """Wait until the children of a killed process are gone too, so that its port is free."""
        give_up = time.monotonic() + START_PATIENCE
        while time.monotonic() < give_up and not is_free(self._ports[name]):
            time.sleep(0.1)

    def _must_come_up(self, name: str) -> None:
        if not self._comes_up(name):
            self._fail(name, "ended at once")

    def _fail(self, name: str, what: str) -> NoReturn:
        raise RunError(f"Flower's {name} {what}: see {self.folder / f'{name}.log'}")


def script(name: str) -> str:
    """Return the path of a program that comes with flwr.

    Raises:
        RunError: flwr is not installed.
    """
    path = Path(sysconfig.get_path("scripts")) / name
    if not path.exists():
        raise RunError(f"{name} is not installed: pip install 'fedldp[flower]'")
    return str(path)


def is_free(port: int) -> bool:
    """Return whether a process can listen at a TCP port of the loopback interface."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return probe.connect_ex((HOST, port)) != 0


def free_ports(count: int) -> list[int]:
    """Return different free ports, below those that the system uses for outgoing connections."""
    found: list[int] = []
    while len(found) < count:
        port = 20_000 + secrets.randbelow(12_000)
        if port not in found and is_free(port):
            found.append(port)
    return found


def _leave(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + signal.SIGTERM)
