"""Fixtures for all tests, such as the command line in this process."""

from __future__ import annotations

import functools
import gc
import importlib.metadata
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

if "PYTEST_XDIST_WORKER" in os.environ:  # parallel tests, and their processes, share the cores
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # numpy and torch read it when they are imported

# Ray gives its workers nice 15, with which they stand still for minutes beside other tests.
os.environ.setdefault("RAY_worker_niceness", "0")

# Tests start many processes, which share compiled files whatever the environment says.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Every run records the versions of packages. They do not change while tests run, and reading them
# takes longer than a short run.
importlib.metadata.version = functools.cache(importlib.metadata.version)

import hypothesis
import pytest
import torch
import typer

from fedldp import cli
from fedldp.deployment import words
from fedldp.training.tensors import one_thread

pytest.register_assert_rewrite("documents", "folders")


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # while tests are collected: everything created then stays anyway
    # Properties may set their own number of examples, but none has a deadline: it would fail on a
    # busy machine. Where slow tests run too, properties are tried at more examples.
    examples = 12 if config.getoption("-m") == "not slow" else 100
    hypothesis.settings.register_profile("fedldp", max_examples=examples, deadline=None)
    hypothesis.settings.load_profile("fedldp")


LONGEST = {"test_tutorials.py", "test_cluster.py", "test_failures.py"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # The longest files begin first: if they began last, one process would still run them after all
    # others end.
    items.sort(key=lambda item: item.path.name not in LONGEST)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def nothing_is_synced() -> Iterator[None]:
    """Skip fsync: tests kill processes, never the machine, so written data survive without it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def words_are_quick() -> Iterator[None]:
    """Stretch no digest before its ten words: that takes longer than all else of an acceptance."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words, "_STEPS", 1)
        yield


@pytest.fixture(autouse=True, scope="session")
def keys_are_not_the_users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the key that tells whether data have changed out of the user's configuration."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("configuration")))
        yield


if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)


@dataclass(frozen=True)
class Outcome:
    """How a command ended and what it printed."""

    status: int
    out: str
    err: str

    def assert_refused(self) -> str:
        """Check that the command printed one line as an error and exited with status 2; return the
        line."""
        (line,) = self.assert_all_refused()
        return line

    def assert_all_refused(self) -> list[str]:
        """Check that the command printed only errors, each on one line, and exited with status 2;
        return the lines."""
        assert self.status == 2, self
        assert self.out == ""
        lines = self.err.splitlines()
        assert lines, self
        assert all(line.startswith("error: ") and "Traceback" not in line for line in lines), lines
        return lines


@functools.cache
def built_commands() -> Callable[..., object]:
    """Build the typer commands only once: building them takes longer than most tests."""
    return typer.main.get_command(cli.app)


@pytest.fixture
def fedldp_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    """Run the command line in this process, as its script does; any escaping exception fails."""

    def call(*arguments: object) -> Outcome:
        monkeypatch.setattr(cli, "app", built_commands())
        monkeypatch.setattr(sys, "argv", ["fedldp", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            cli.main()
        printed = capsys.readouterr()
        code = end.value.code
        return Outcome(code if isinstance(code, int) else 0, printed.out, printed.err)

    return call


class Command:
    """The installed script as a process in its own session."""

    def __init__(self, *arguments: object, folder: Path) -> None:
        self.folder = folder
        script = Path(sysconfig.get_path("scripts")) / "fedldp"
        self._err = (folder / f"stderr-{time.monotonic_ns()}").open("w+")
        self.process = subprocess.Popen(
            [str(script), *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=self._err,
            text=True,
            start_new_session=True,
            cwd=folder,
            env={**os.environ, "TMPDIR": str(folder)},
            # Ctrl-C takes effect even if the process that started the tests ignores it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def errors(self) -> str:
        """Return what it has written to stderr so far."""
        return Path(self._err.name).read_text()

    def wait_until(self, ready: Callable[[], bool]) -> None:
        """Wait until ``ready`` returns True; the command must not end before that."""
        # A long wait: on a busy machine, the imports of some ten processes take a minute.
        until = time.monotonic() + 300
        while time.monotonic() < until:
            if ready():
                return
            assert self.process.poll() is None, self.errors()
            time.sleep(0.025)
        raise AssertionError(f"the command hangs: {self.errors()}")

    def end(self) -> Outcome:
        """Wait until the command ends."""
        out, _ = self.process.communicate(timeout=300)
        return Outcome(self.process.returncode, out, self.errors())

    def family(self) -> list[int]:
        """Return the living processes of its session."""
        found = []
        for place in Path("/proc").glob("[0-9]*/stat"):
            try:
                state, _, _, session = place.read_text().rpartition(")")[2].split()[:4]
            except OSError:  # it has ended in the meantime
                continue
            if int(session) == self.process.pid and state != "Z":
                found.append(int(place.parent.name))
        return found

    def shared_data(self) -> list[Path]:
        """Return the copies of the data that it made for its workers."""
        return list(self.folder.glob("fedldp-*"))

    def interrupt(self) -> None:
        """Send Ctrl-C, which a terminal sends to every process of its foreground group."""
        os.killpg(self.process.pid, signal.SIGINT)

    def assert_no_one_is_left(self) -> None:
        """Check that its workers end too."""
        for _ in range(800):
            if not self.family():
                return
            time.sleep(0.025)
        raise AssertionError(f"left behind: {self.family()}")

    def close(self) -> None:
        """End all of its remaining processes."""
        for process in self.family():
            os.kill(process, signal.SIGKILL)
        self.process.communicate()
        self._err.close()


@pytest.fixture
def folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in the test's own folder, without the data of the person who runs the tests."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDLDP_DATA", raising=False)


@pytest.fixture
def as_in_a_run() -> Iterator[None]:
    """Train as every process of a run does: torch's sums depend on the number of threads."""
    with one_thread():
        yield


@pytest.fixture
def short_path() -> Iterator[Path]:
    """Yield a folder with a short name, because the paths of sockets have a limited length."""
    with tempfile.TemporaryDirectory(prefix="f") as folder:
        yield Path(folder)


@pytest.fixture
def fedldp_process(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    """Start the installed script with some arguments, by default in the test's own folder."""
    started: list[Command] = []

    def start(*arguments: object, folder: Path = tmp_path) -> Command:
        started.append(Command(*arguments, folder=folder))
        return started[-1]

    yield start
    for command in started:
        command.close()
