"""The pipes' own code, with a grid and an agent simulated by the test; Flower's processes do not
run."""

from __future__ import annotations

import ast
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedldp.core.errors import ConfigError
from fedldp.deployment import flower_app
from fedldp.deployment.frames import ConnectionLost, read_frame, write_frame
from fedldp.deployment.pipe import FlowerPipe
from fedldp.deployment.sockets import listen

pytest.importorskip("flwr", reason="the deploy extra is not installed")

from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.app.metadata import Metadata
from flwr.supercore.task_identity import TaskIdentity

from fedldp.deployment.flower_app import client_app, server_app

NODE = 2**64 - 5


def test_the_app_is_written_and_imports_only_flwr(tmp_path: Path) -> None:
    folder = tmp_path / "app"
    flower_app.write(folder)
    flower_app.write(folder)
    assert {file.name for file in folder.iterdir()} == set(flower_app.FILES)
    for file in folder.glob("*.py"):
        tree = ast.parse(file.read_text())
        used = {
            name.split(".")[0]
            for node in ast.walk(tree)
            for name in (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            )
        }  # fmt: skip
        assert used <= {"flwr", *sys.stdlib_module_names}
    # Run Flower's own check of the app, and load it without fedldp and torch.
    code = (
        "import sys; from pathlib import Path; import client_app, server_app\n"
        "from flwr.cli.config_utils import load_and_validate\n"
        "config, warnings = load_and_validate(Path('pyproject.toml'))\n"
        "assert not warnings, warnings\n"
        "assert not {'fedldp', 'torch'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)


def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"cannot be written: .*; choose another"):
        flower_app.write(tmp_path / "file")


# ---- the site's pipe


class Agent:
    """Answers each connection with its next act; each time with a new listener, as after a
    restart."""

    def __init__(self, path: Path, *acts: Callable[[socket.socket], None]) -> None:
        self.path = path
        self._acts = acts
        self._thread = threading.Thread(target=self._serve)
        self._listener = listen(path)
        self._thread.start()

    def _serve(self) -> None:
        with self._listener:
            for act in self._acts:
                connection, _address = self._listener.accept()
                with connection:
                    act(connection)
        self.path.unlink()

    def __enter__(self) -> None: ...

    def __exit__(self, *_error: object) -> None:
        self._thread.join()


def echo(connection: socket.socket) -> None:
    write_frame(connection, b"answer to " + read_frame(connection, 1 << 30))


def hang_up(connection: socket.socket) -> None:
    read_frame(connection, 1 << 30)
    connection.sendall(b"\0\0\0")


def say_nothing(connection: socket.socket) -> None:
    with pytest.raises(ConnectionLost):
        read_frame(connection, 1 << 30) and read_frame(connection, 1)


def say_too_much(connection: socket.socket) -> None:
    read_frame(connection, 1 << 30)
    connection.sendall(struct.pack(">Q", (1 << 30) + 1))


def request(body: Any, ttl: float = 60.0) -> Message:
    """Return a message as it arrives at a ClientApp."""
    metadata = Metadata(1, "id", 1, NODE, "", "", time.time(), ttl, "query")
    content = RecordDict({"fedldp": ConfigRecord({"body": body})})
    return Message(content=content, metadata=metadata)  # type: ignore[call-overload]


def passed_on(path: Path, body: Any, ttl: float = 60.0, **config: Any) -> Any:
    context = Context(1, NODE, {"socket": str(path), **config}, RecordDict(), {})
    reply = client_app.app(request(body, ttl), context)
    assert reply.metadata.reply_to_message_id == "id"
    return reply.content["fedldp"]["body"]


@pytest.mark.parametrize("body", [b"", b"request", b"x" * 2_000_000])
def test_the_agents_answer_is_handed_back(tmp_path: Path, body: bytes) -> None:
    path = tmp_path / "run" / "agent.sock"
    with Agent(path, echo):
        assert passed_on(path, body) == b"answer to " + body


def test_an_agent_that_hangs_up_is_asked_again(tmp_path: Path) -> None:
    path = tmp_path / "run" / "agent.sock"
    with Agent(path, hang_up, hang_up, echo):
        assert passed_on(path, b"x") == b"answer to x"


def test_an_absent_agent_gives_an_empty_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_app, "PATIENCE", 0.3)
    began = time.monotonic()
    assert passed_on(tmp_path / "nobody.sock", b"x") == b""
    assert 0.2 < time.monotonic() - began < 5


@pytest.mark.parametrize(("ttl", "config"), [(0.3, {}), (60.0, {"timeout": 0.3})])
def test_too_slow_an_agent_gives_an_empty_answer(
    tmp_path: Path, ttl: float, config: dict[str, float]
) -> None:
    path = tmp_path / "run" / "agent.sock"
    with Agent(path, say_nothing):
        assert passed_on(path, b"x", ttl, **config) == b""


def test_too_long_an_answer_is_an_error_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "run" / "agent.sock"
    with (
        Agent(path, say_too_much),
        pytest.raises(ValueError, match="has 1073741825 bytes, more than 1073741824"),
    ):
        passed_on(path, b"x")


def test_a_message_that_is_not_bytes_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="not one value of bytes"):
        passed_on(tmp_path / "nobody.sock", "text")


# ---- the server's pipe


class Grid:
    """Flower's grid with two nodes; a pull returns what the test puts in ``replies``."""

    def __init__(self) -> None:
        self.pushed: list[Message] = []
        self.replies: dict[str, Message] = {}
        self.pulls = 0
        self.stuck = threading.Event()
        self.stuck.set()

    def get_node_ids(self) -> Iterable[int]:
        return [7, NODE]

    def push_messages(self, messages: list[Message]) -> list[str]:
        (message,) = messages
        if message.metadata.dst_node_id == 13:
            return [""]
        self.pushed.append(message)
        return [f"id-{len(self.pushed)}"]

    def pull_messages(self, names: list[str]) -> list[Message]:
        self.pulls += 1
        self.stuck.wait()
        return [self.replies.pop(name) for name in names if name in self.replies]

    def reply(self, number: int, content: RecordDict | None, code: int = 0) -> None:
        """Make the SuperLink's reply to the ``number``-th message available."""
        metadata = Metadata(1, "r", 1, 1, f"id-{number}", "", time.time(), 60.0, "query")
        found: dict[str, Any] = {"content": content} if content else {"error": Error(code)}
        self.replies[f"id-{number}"] = Message(metadata=metadata, **found)


def answer(body: Any) -> RecordDict:
    return RecordDict({"fedldp": ConfigRecord({"body": body})})


def eventually(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.fixture
def grid(monkeypatch: pytest.MonkeyPatch) -> Grid:
    for name in ("_run_id", "_task_id", "_node_id"):  # as in the process of a ServerApp
        monkeypatch.setattr(TaskIdentity, name, 1)
    return Grid()


@pytest.fixture
def pipe(tmp_path: Path, grid: Grid) -> Iterator[FlowerPipe]:
    """Yield a pipe to a ServerApp in a thread, and end it properly after the test."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            server_app.app(grid, context)
        except ConnectionError as error:
            failed.append(error)

    with FlowerPipe(tmp_path / "run" / "pipe.sock") as pipe:
        context: Any = SimpleNamespace(run_config={"socket": str(pipe.path)})
        thread = threading.Thread(target=run)
        thread.start()
        assert pipe.wait_connected(10)
        yield pipe
        pipe.end()
        thread.join(10)
        assert not thread.is_alive()
    assert not failed


def take(pipe: FlowerPipe, count: int) -> dict[int, bytes | None]:
    found: list[tuple[int, bytes | None]] = []
    until = time.monotonic() + 10
    while len(found) < count and time.monotonic() < until:
        found += pipe.take(0.1)
    assert len(found) == count
    return dict(found)


def test_nodes_requests_answers_and_errors_reach_the_server(pipe: FlowerPipe, grid: Grid) -> None:
    assert pipe.nodes(5) == [7, NODE]
    assert grid.pulls == 0  # there was nothing to wait for
    bodies = [b"one", b"two" * 1_000_000, b"", b"four"]
    tags = [pipe.ask(NODE, body, 99) for body in bodies]
    eventually(lambda: len(grid.pushed) == 4)
    for message, body in zip(grid.pushed, bodies, strict=True):
        assert message.content["fedldp"]["body"] == body
        assert (message.metadata.dst_node_id, message.metadata.ttl) == (NODE, 99.0)
        assert message.metadata.message_type == "query"
    grid.reply(3, answer(b"three"))
    assert take(pipe, 1) == {tags[2]: b"three"}
    grid.reply(1, None, code=8)
    grid.reply(2, answer(b"2" * 3_000_000))
    grid.reply(4, answer(b""))
    assert take(pipe, 3) == {tags[0]: None, tags[1]: b"2" * 3_000_000, tags[3]: b""}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "content",
    [
        RecordDict(),
        RecordDict({"other": ConfigRecord({"body": b"x"})}),
        answer("text"),
        RecordDict({"fedldp": ConfigRecord({"other": b"x"})}),
    ],
)
def test_an_answer_that_no_pipe_sends_is_a_failure(
    pipe: FlowerPipe, grid: Grid, content: RecordDict
) -> None:
    tag = pipe.ask(NODE, b"x", 99)
    eventually(lambda: len(grid.pushed) == 1)
    grid.replies["id-1"] = Message(
        content=content,
        metadata=Metadata(1, "r", NODE, 1, "id-1", "", time.time(), 60.0, "query"),
    )  # type: ignore[call-overload]
    assert take(pipe, 1) == {tag: None}


def test_messages_that_flower_refuses_fail_at_once(pipe: FlowerPipe) -> None:
    tag = pipe.ask(13, b"x", 99)
    assert take(pipe, 1) == {tag: None}


@pytest.mark.slow
def test_a_hundred_requests_are_pulled_in_turn(pipe: FlowerPipe, grid: Grid) -> None:
    tags = [pipe.ask(NODE, b"x", 99) for _ in range(100)]
    eventually(lambda: len(grid.pushed) == 100)
    for number in (100, 50):  # the first ones do not delay the last ones
        grid.reply(number, answer(b"%d" % number))
        assert take(pipe, 1) == {tags[number - 1]: b"%d" % number}


def test_a_hanging_pull_delays_nothing(
    pipe: FlowerPipe, grid: Grid, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_app, "PULL_PATIENCE", 0.3)
    grid.stuck.clear()
    tags = [pipe.ask(NODE, b"x", 99), pipe.ask(7, b"y", 99)]
    eventually(lambda: grid.pulls == 1)
    assert pipe.nodes(5) == [7, NODE]
    eventually(lambda: grid.pulls > 1)
    grid.reply(1, None, code=3)  # the SuperLink's answer for a message that was pulled already
    grid.reply(2, answer(b"yes"))
    grid.stuck.set()
    assert take(pipe, 2) == {tags[0]: None, tags[1]: b"yes"}


def test_without_a_server_the_run_fails_with_one_line(tmp_path: Path, grid: Grid) -> None:
    context: Any = SimpleNamespace(run_config={"socket": str(tmp_path / "nobody.sock")})
    with pytest.raises(ConnectionError, match="start fedldp deploy server"):
        server_app.app(grid, context)


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (b"", "the server hung up"),
        (b"\0\0\0", "the server hung up"),
        (struct.pack(">Q", 1 << 40), "a frame of 1099511627776 bytes, not of 1 to"),
        (struct.pack(">Q", 0), "a frame of 0 bytes, not of 1 to"),
        (struct.pack(">Q", 1) + b"?", "a frame of the unknown kind"),
    ],
)
def test_a_server_that_dies_or_sends_nonsense_ends_the_run(
    grid: Grid, said: bytes, error: str
) -> None:
    here, there = socket.socketpair()
    with there:
        with here:
            here.sendall(said)
        with pytest.raises(ConnectionError, match=error):
            server_app.Pipe(grid, there).run()
