"""A whole run in which one site's agent is killed at one step, with or without a power cut.

``synced.so`` (see ``synced.c``) is preloaded into this program: what was not synced when the agent
was killed is gone after the cut. The agent is a process of its own; the server and the other sites
are here. The program reads cases, one line of JSON each, and prints what is wrong after each.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import sqlite3
import struct
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from environments import (
    Environment,
    FakePipe,
    bits,
    end_after_one_try,
    make_environment,
    whole,
)

from fedldp.accounting.guarantees import Guarantee
from fedldp.core.errors import FedldpError
from fedldp.deployment import journal, messages, server, site_ledger
from fedldp.deployment.messages import Answered, read_message
from fedldp.deployment.policy import SitePolicy
from fedldp.deployment.site import Agent
from fedldp.deployment.site_ledger import Mark, Witness, read_mark, write_mark
from fedldp.deployment.watch import ServerWatch
from fedldp.protocol.wire import Report, read_reply
from fedldp.reporting import record
from fedldp.reporting.runs import read_statement
from fedldp.simulation.engine import simulate

STEPS = (
    *("made", "before commit", "after commit", "witness", "mark written", "mark renamed"),
    *("marked", "leaves", "left"),
)
_SIZE = struct.Struct(">I")


@dataclass
class Killer:
    """Kills this process at the n-th time that it comes to a step."""

    step: str
    number: int

    def at(self, step: str) -> None:
        if step == self.step:
            self.number -= 1
            if not self.number:
                os.kill(os.getpid(), signal.SIGKILL)

    def after(self, owner: Any, name: str, step: str) -> None:
        """Come to a step whenever a function has ended."""
        real = getattr(owner, name)

        def call(*given: Any, **named: Any) -> Any:
            found = real(*given, **named)
            self.at(step)
            return found

        setattr(owner, name, call)

    def apply(self, synchronous: str) -> None:
        killer, connect = self, sqlite3.connect

        class Connection(sqlite3.Connection):
            def execute(self, statement: str, *given: Any) -> sqlite3.Cursor:
                if statement == "BEGIN IMMEDIATE":
                    killer.at("made")
                if statement == "COMMIT":
                    killer.at("before commit")
                if statement.startswith("PRAGMA synchronous"):
                    statement = f"PRAGMA synchronous = {synchronous}"
                found = super().execute(statement, *given)
                if statement == "COMMIT":
                    killer.at("after commit")
                return found

        def connected(*given: Any, **named: Any) -> sqlite3.Connection:
            return connect(*given, factory=Connection, **named)

        sqlite3.connect = connected  # type: ignore[assignment]
        self.after(Witness, "add", "witness")
        self.after(site_ledger, "write_mark", "marked")
        replace = Path.replace

        def replaced(path: Path, *given: Any) -> Path:
            killer.at("mark written")
            found = replace(path, *given)
            killer.at("mark renamed")
            return found

        Path.replace = replaced  # type: ignore[assignment,method-assign]


def serve(policy: SitePolicy, link: socket.socket, killer: Killer) -> None:
    """Answer requests like ``running.run_site``, over a socket."""
    agent = Agent(policy, test_keys=True)
    with agent.ledger.database.held():
        while (request := receive(link)) is not None:
            answer = agent.answer(request)
            killer.at("leaves")
            send(link, answer)
            killer.at("left")


def send(link: socket.socket, body: bytes) -> None:
    link.sendall(_SIZE.pack(len(body)) + body)


def receive(link: socket.socket) -> bytes | None:
    head = link.recv(_SIZE.size, socket.MSG_WAITALL)
    if len(head) < _SIZE.size:
        return None
    (size,) = _SIZE.unpack(head)
    body = link.recv(size, socket.MSG_WAITALL)
    return body if len(body) == size else None


class Site:
    """A site's agent in another process, which is started again once it was killed."""

    def __init__(self, env: Environment, case: dict[str, Any], folder: Path) -> None:
        self.env, self.case, self.folder = env, case, folder
        self.policy = env.policies[0]
        self.amiss: list[str] = []
        self.left: dict[tuple[int, int], set[str]] = {}
        self.kills = 0
        self.syncs: dict[int, int] = {}
        """The site's syncs in each round; those of ``accept`` and of its start do not count."""
        self.log = folder / "syncs"
        self.log.touch()
        self.start(Killer(case["step"], case["number"]))

    def start(self, killer: Killer) -> None:
        self.before = {each: state_of(each) for each in (self.policy.state, self.policy.key.parent)}
        self.shadow = Path(tempfile.mkdtemp(dir=self.folder))
        self.link, theirs = socket.socketpair()
        self.process = os.fork()
        if self.process:
            theirs.close()
            return
        try:
            self.link.close()
            os.environ["SHADOW"] = str(self.shadow)
            os.environ["SYNC_LOG"] = str(self.log)
            killer.apply(self.case.get("synchronous", "EXTRA"))
            serve(self.policy, theirs, killer)
        finally:
            os._exit(0)

    def answer(self, request: bytes) -> bytes | None:
        before = self.log.stat().st_size
        try:
            send(self.link, request)
            answer = receive(self.link)
        except OSError:
            answer = None
        if answer is not None:
            self.note(answer, self.log.stat().st_size - before)
            return answer
        self.link.close()
        os.waitpid(self.process, 0)
        self.kills += 1
        if self.case["cut"]:
            self.cut()
        self.check()
        self.start(Killer("", 0))
        return None

    def note(self, answer: bytes, syncs: int) -> None:
        message = read_message(answer)
        if isinstance(message, Answered):
            _, phase, content = read_reply(message.answer)
            if isinstance(content, Report):
                digest = hashlib.sha256(message.answer).hexdigest()
                self.left.setdefault((content.round, phase), set()).add(digest)
                self.syncs[content.round] = self.syncs.get(content.round, 0) + syncs

    def cut(self) -> None:
        """Leave what was synced; a mark stays the file that it was."""
        for folder, (names, contents) in self.before.items():
            mark = self.policy.mark
            before = key_of(mark) if mark.exists() else ""
            now = _cut(folder, self.shadow, names, contents)
            if mark.parent == folder and now.get(mark.name, before) != before:
                found, _ = read_mark(mark)
                write_mark(mark, Mark() if found is None else found)

    def check(self) -> None:
        """Note each answer that left and is not charged, and a mark of what is not there."""
        for file in self.policy.state.glob("site.db-shm"):
            file.unlink()  # in memory, until the machine stops
        entries = self.env.ledger(0).verify()
        charged = {(entry.round, entry.phase): entry.payload_sha256 for entry in entries}
        self.amiss += [
            f"{place} left, but is not charged"
            for place, digests in self.left.items()
            if {charged.get(place)} != digests
        ]
        mark, _ = read_mark(self.policy.mark)
        if mark.number > len(entries):
            self.amiss.append(f"the mark has release {mark.number}, and the ledger {len(entries)}")

    def end(self) -> None:
        self.link.close()
        os.waitpid(self.process, 0)
        self.check()
        with closing(sqlite3.connect(self.policy.ledger)) as db:
            if db.execute("PRAGMA journal_mode").fetchone() != ("delete",):
                self.amiss.append("a write-ahead log is left")


@dataclass
class ServerCut:
    """A server that dies at the n-th step; the rest of the run is made by another server.

    Its files are then those that were synced; the sites' files stay, as those of other machines.
    """

    env: Environment
    folder: Path
    number: int
    steps: int = 0
    amiss: list[str] = field(default_factory=list)

    def step(self) -> None:
        self.steps += 1
        if self.steps == self.number:
            os.kill(os.getpid(), signal.SIGKILL)

    def dying(self, real: Callable[..., None]) -> Callable[..., None]:
        def write(*given: Any, **how: Any) -> None:
            self.step()
            real(*given, **how)
            self.step()

        return write

    def serve(self) -> None:
        """Serve in another process until it dies or ends."""
        child = os.fork()
        if child:
            assert os.WIFSIGNALED(os.waitpid(child, 0)[1]), "it came to the end"
            return
        try:
            os.environ["SHADOW"] = str(self.folder)
            for module in (journal, messages, record, server):
                for name in ("replace_file", "append_file"):
                    if hasattr(module, name):
                        setattr(module, name, self.dying(getattr(record, f"_{name}")))
            self.env.serve()
        finally:
            os._exit(0)

    def run(self) -> Any:
        for name in ("replace_file", "append_file"):
            if not hasattr(record, f"_{name}"):
                setattr(record, f"_{name}", getattr(record, name))
        self.serve()
        run, receipts = self.env.folder / "server", self.env.folder / "receipts"
        for each in (run, receipts):
            if each.exists():
                _cut(each, self.folder, {}, {})
        self.check()
        return self.env.serve()

    def check(self) -> None:
        """Note a statement for readers that covers fewer rounds than a site released."""
        folder, whole = self.env.folder / "server", self.env.agreement.planned.guarantees
        if not folder.exists():
            return
        rounds = max(
            len({e.round for e in self.env.ledger(site).verify() if e.costs[0]})
            for site in range(3)
        )
        stated = {_of(line): line for line in read_statement(folder).guarantees}
        for line in whole:
            if line.unit == "client-run" and line.epsilon is not None:
                found = stated[_of(line)].epsilon
                least = line.epsilon * rounds / self.env.config.rounds
                if found is None or found < least * (1 - 1e-9):
                    self.amiss.append(f"{found} is stated after {rounds} rounds, at least {least}")


def _of(line: Guarantee) -> tuple[str, str, float]:
    return line.unit, line.adversary, line.delta


def server_cut(
    case: dict[str, Any], folder: Path, expected: Callable[[Environment], Any]
) -> dict[str, Any]:
    """Return what is wrong after a server died at a step and all that was not synced is gone."""
    shadow = folder / "shadow"
    shadow.mkdir()
    env = make_environment(folder / "world", channel=case["channel"], deadline=60.0)
    cut = ServerCut(env, shadow, case["server_step"])
    served = cut.run()
    amiss = cut.amiss + ([] if bits(served) == expected(env) else ["other weights"])
    for index in range(3):
        if env.releases(index) != whole(env):
            amiss.append(f"site {index} released {env.releases(index)}")
    if served.privacy.guarantees != env.agreement.planned.guarantees:
        amiss.append("another statement")
    return {"amiss": amiss}


def server_syncs(case: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return a server's syncs in each round."""
    env = make_environment(
        *(folder / "world", f"rounds={case['rounds']}"), channel=case["channel"],
        sites=case["sites"], deadline=60.0,
    )  # fmt: skip
    log, of_sites, rounds = folder / "syncs", [0], list[int]()
    log.touch()
    os.environ["SYNC_LOG"] = str(log)
    pipe = env.pipe()

    def counting(agent: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
        def answer(body: bytes) -> bytes:
            before = log.stat().st_size
            found = agent(body)
            of_sites[0] += log.stat().st_size - before
            return found

        return answer

    pipe.agents = {site: counting(agent) for site, agent in pipe.agents.items() if agent}
    env.server().serve(pipe, lambda record: rounds.append(log.stat().st_size - of_sites[0]))
    del os.environ["SYNC_LOG"]
    return {"syncs": [after - before for before, after in pairwise(rounds)]}


def _cut(
    folder: Path, shadow: Path, names: dict[str, str], contents: dict[str, bytes]
) -> dict[str, str]:
    """Leave of a folder's files what was synced; return the keys that they had then, by name."""
    noted = shadow / f"d-{key_of(folder)}"
    if noted.exists():
        names = dict(line.split() for line in noted.read_text().splitlines())
    for file in [each for each in folder.iterdir() if each.is_file()]:
        if file.name not in names:
            file.unlink()
    for name, key in names.items():
        synced = shadow / f"f-{key}"
        content = synced.read_bytes() if synced.exists() else contents.get(key, b"")
        (folder / name).write_bytes(content)
    return names


def state_of(folder: Path) -> tuple[dict[str, str], dict[str, bytes]]:
    """Return the keys of a folder's files by name, and their contents by key."""
    files = [each for each in folder.iterdir() if each.is_file()]
    names = {each.name: key_of(each) for each in files}
    return names, {names[each.name]: each.read_bytes() for each in files}


def key_of(path: Path) -> str:
    """Return what ``synced.c`` calls a file or folder."""
    opened = os.open(path, os.O_RDONLY)
    try:
        born = site_ledger._born(opened)
    finally:
        os.close(opened)
    seconds, _, nanoseconds = str(born).partition(".")
    return f"{path.stat().st_ino}-{seconds}-{int(nanoseconds or 0)}"


def run(
    case: dict[str, Any], folder: Path, expected: Callable[[Environment], Any]
) -> dict[str, Any]:
    """Run a case; return what is wrong, and the site's syncs in each round."""
    witness = folder / "witness"
    witness.touch()
    channel, more = case["channel"], {"witness": str(witness)} if case.get("witness") else {}
    env = make_environment(folder / "world", channel=channel, deadline=60.0, policy=more)
    for index in (1, 2):
        (folder / f"witness-{index}").touch()
        if more:
            mine = {"witness": folder / f"witness-{index}"}
            env.policies[index] = env.policies[index].changed(**mine)
    site = Site(env, case, folder)
    agents: dict[int, Any] = {index: env.agent(index).answer for index in (1, 2)}
    amiss = site.amiss
    try:
        served = env.serve(FakePipe({0: site.answer, **agents}))
    except FedldpError as error:
        amiss.append(str(error))
    else:
        if bits(served) != expected(env):
            amiss.append("other weights than the simulation's")
    site.end()
    if env.releases(0) != whole(env):
        amiss.append(f"it released {env.releases(0)}")
    amiss += [f"{place} was answered twice" for place, all_ in site.left.items() if len(all_) > 1]
    if site.kills != (case["step"] != ""):
        amiss.append(f"it was killed {site.kills} times")
    return {"amiss": amiss, "syncs": list(site.syncs.values())}


def main() -> None:
    from fedldp.deployment import sites, words

    # What is slow and has no step: pauses, and the words of an agreement.
    for name in ("_PAUSE", "_SEE"):
        setattr(sites, name, 0.0)
    setattr(words, "_STEPS", 1)  # noqa: B010 (it is private)
    ServerWatch.missed = end_after_one_try  # type: ignore[method-assign]
    known: dict[str, Any] = {}

    def expected(env: Environment) -> Any:
        name = env.config.model_dump_json()
        if name not in known:
            known[name] = bits(simulate(env.config))
        return known[name]

    for line in sys.stdin:
        case = json.loads(line)
        with tempfile.TemporaryDirectory() as place:
            if "sites" in case:
                found = server_syncs(case, Path(place))
            elif "server_step" in case:
                found = server_cut(case, Path(place), expected)
            else:
                found = run(case, Path(place), expected)
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
