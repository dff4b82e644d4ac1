"""A server and its sites in one process, connected by function calls."""

from __future__ import annotations

import functools
import itertools
import sqlite3
import threading
import time
import tomllib
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from safetensors.numpy import load_file

from fedldp.accounting.guarantees import Guarantee
from fedldp.accounting.statement import Statement
from fedldp.algorithms.config import RunConfig
from fedldp.core.bounding import Ranges
from fedldp.core.errors import EndedForGood
from fedldp.deployment.acceptance import Acceptance, Acceptances, accept
from fedldp.deployment.agreeing import agree
from fedldp.deployment.agreement import Agreement
from fedldp.deployment.certificates import (
    authority,
    fingerprints,
    server_certificate,
)
from fedldp.deployment.demo import NO_INVITE, _write_examples, answers_of, own_budgets_of
from fedldp.deployment.https.pipe import SiteSession
from fedldp.deployment.identity import make_identity, read_public
from fedldp.deployment.initial import beside
from fedldp.deployment.messages import (
    NO_RECEIPT,
    Answered,
    Ask,
    pack,
    read_message,
)
from fedldp.deployment.policy import SitePolicy, read_policy
from fedldp.deployment.server import Server
from fedldp.deployment.site import Agent
from fedldp.deployment.watch import ServerWatch
from fedldp.ledgers.sqlite import SqliteLedger
from fedldp.protocol.server_loop import Round
from fedldp.protocol.wire import (
    Broadcast,
    Report,
    RoundRequest,
    pack_request,
    read_reply,
    read_request,
)
from fedldp.simulation.inputs import Inputs
from fedldp.simulation.settings import resolve

Body = bytes | None
CHANNELS = pytest.mark.parametrize("channel", ["named", "sum"])

SMALL = ("num_examples=150", "local_epochs=1")
HOST = "127.0.0.1"


def new_tls(host: str = HOST, days: int = 60) -> dict[str, bytes]:
    """Return the files of a new authority and of a server whose certificate it signed."""
    signer = authority("test", days)
    own = server_certificate(signer, [host], days)
    return {"ca.pem": signer.certificate, "server.pem": own.certificate, "server.key": own.key}


_shared_tls = functools.cache(new_tls)


def write_tls(folder: Path, files: dict[str, bytes] | None = None) -> Path:
    """Write ca.pem, server.pem and server.key; unless others are given, those that all tests share.

    Returns:
        the authority's file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (files or _shared_tls()).items():
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o600)
    return folder / "ca.pem"


class Killed(BaseException):
    """Stands in for SIGKILL: nothing in fedldp catches it."""


@dataclass
class FakePipe:
    """Calls agents; ``tamper`` may lose, change or repeat messages.

    A site is present while its agent serves any agreement, as an agent holds no link otherwise.

    Attributes:
        agents: by site, looked up at each call; None for an absent one.
        tamper: gets a site, a request and an answer, and returns what arrives.
        seen: every (site, asked, answered).
        versions: the version of each site.
        ended: after how many rounds the run ended.
    """

    agents: dict[int, Callable[[bytes], bytes] | None]
    tamper: Callable[[int, bytes, Body], list[Body]] = lambda site, asked, answer: [answer]
    seen: list[tuple[int, bytes, Body]] = field(default_factory=list)
    versions: tuple[str, ...] = ()
    ended: int | None = None
    _number: int = 0
    _pending: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    _ready: deque[tuple[int, bytes]] = field(default_factory=deque)
    _sessions: dict[int, tuple[object, SiteSession]] = field(default_factory=dict)

    @property
    def sites(self) -> list[SiteSession]:
        return [self._session(site) for site in range(max(self.agents, default=-1) + 1)]

    def _session(self, site: int) -> SiteSession:
        answers = self.agents.get(site)
        agent = getattr(answers, "__self__", None)
        served = list(agent.served()) if isinstance(agent, Agent) else []
        there = bool(served) if isinstance(agent, Agent) else answers is not None
        before, found = self._sessions.get(site, (None, SiteSession("", "")))
        if there and (before is not agent or not found.number):
            receipt = agent.receipt(served[0]) if served else NO_RECEIPT
            found.begin(b"", self._version(site), receipt)
        found.token, found.version = b"" if there else None, self._version(site)
        found.heard = time.monotonic() if there else found.heard
        found.met = time.monotonic() if isinstance(agent, Agent) else found.met
        self._sessions[site] = agent if there else None, found
        return found

    def _version(self, site: int) -> str:
        return self.versions[site] if self.versions else "0.1.0"

    def ask(self, site: int, body: bytes) -> int:
        self._number += 1
        self._pending[site] = self._number, body
        self._hand_out(site)
        return self._number

    def _hand_out(self, site: int) -> None:
        """Let a site answer what waits for it; what arrives ends the wait."""
        agent, (number, body) = self.agents.get(site), self._pending[site]
        answer = None if agent is None else agent(body)
        self.seen.append((site, body, answer))
        arrived = [each for each in self.tamper(site, body, answer) if each is not None]
        self._ready.extend((number, each) for each in arrived)
        if arrived:
            del self._pending[site]

    def withdraw(self) -> None:
        self._pending.clear()

    def end(self, rounds: int) -> None:
        self.ended = rounds

    def take(self, timeout: float) -> list[tuple[int, bytes]]:
        if not self._ready:
            time.sleep(min(timeout, 0.02))
            for site in list(self._pending):
                self._hand_out(site)
        found = list(self._ready)
        self._ready.clear()
        return found


@dataclass
class Environment:
    """A run's agreement, its sites' policies, and the folder that holds them."""

    folder: Path
    config: RunConfig
    agreement: Agreement
    policies: list[SitePolicy]
    inputs: Inputs

    def another_run(self, number: int = 0xF) -> Agreement:
        """Return an agreement of the same sites on another run."""
        return self.agreement.changed(run=f"{number:032x}")

    def another_study(self, config: RunConfig, server_ca: Sequence[str]) -> Agreement:
        """Return an agreement of the same sites on other settings, for a sum."""
        return agree(
            config, self.inputs.problem, {site.name: site.key for site in self.agreement.sites},
            channel="sum", quorum=len(self.policies), deadline_seconds=300.0,
            test_seed=config.seed, server_ca=server_ca,
        )  # fmt: skip

    def agent(self, index: int, **given: Any) -> Agent:
        return Agent(self.policies[index], test_keys=True, **given)

    def pipe(self, **given: Any) -> FakePipe:
        agents = {i: self.agent(i).answer for i in range(len(self.policies))}
        return FakePipe(agents, **given)

    def server(self) -> Server:
        weights = beside(self.folder / "run.agreement")
        file, test = self.agreement.to_bytes(), self.inputs.dataset.test
        return Server(self.folder / "server", file, test if len(test) else None, weights)

    def serve(
        self,
        pipe: FakePipe | None = None,
        after: Callable[[Round], None] = lambda record: None,
    ) -> Server:
        """Run a new server on the folder to its end."""
        server = self.server()
        server.serve(self.pipe() if pipe is None else pipe, after)
        return server

    def write_test(self) -> Path:
        """Write the test examples as a server's operator has them; return their file."""
        file, test = self.folder / "test.npz", self.inputs.dataset.test
        np.savez(file, features=test.features, labels=test.labels)
        return file

    def releases(self, index: int) -> list[tuple[int, int]]:
        """Return the round and the phase of all that a site released in the run."""
        return [(e.round, e.phase) for e in self.ledger(index).verify()]

    def ledger(self, index: int) -> SqliteLedger:
        return SqliteLedger(self.policies[index].ledger)


def gone_from(phase: int, *nodes: int) -> Any:
    """Return a function that drops all answers of some sites from a phase of each round on."""

    def tamper(node: int, asked: bytes, answer: Body) -> list[Body]:
        lost = read_request(read_message(asked).request).phase >= phase
        return [None if lost and node in nodes else answer]

    return tamper


def summing(privacy: Statement) -> list[Guarantee]:
    return [line for line in privacy.guarantees if line.adversary == "summing-server"]


def at_once(*works: Callable[[], object]) -> None:
    """Do everything at the same time, each in a thread of its own."""
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def asks(asked: bytes, round: int = 1, phase: int = 0) -> bool:
    request = read_request(read_message(asked).request)
    return (request.broadcast.round, request.phase) == (round, phase)


def serve_until_killed(
    env: Environment,
    round: int,
    phase: int = 0,
    answered: int = 0,
    after: Callable[[Round], None] = lambda record: None,
) -> FakePipe:
    """Kill a new server when it has so many answers in a phase of a round, and asks one site more.

    The site that is asked then answers, and the server never sees it.
    """
    asked = itertools.count()

    def tamper(node: int, body: bytes, answer: Body) -> list[Body]:
        if asks(body, round, phase) and next(asked) == answered:
            raise Killed
        return [answer]

    pipe = env.pipe(tamper=tamper)
    with pytest.raises(Killed):
        env.serve(pipe, after)
    return pipe


def whole(env: Environment) -> list[tuple[int, int]]:
    phases = range(1 if env.agreement.channel == "named" else 4)
    return [(round, phase) for round in (1, 2) for phase in phases]


def assert_each_once(env: Environment, pipe: FakePipe | None = None) -> None:
    """Check that each site released each phase once and never gave two reports for one place."""
    for index in range(len(env.policies)):
        assert env.releases(index) == whole(env)
    given: dict[tuple[int, int, int], set[bytes]] = {}
    for node, _asked, answer in [] if pipe is None else pipe.seen:
        message = read_message(answer) if answer else None
        if isinstance(message, Answered):
            _run, phase, content = read_reply(message.answer)
            if isinstance(content, Report):
                place = node, content.round, phase
                given.setdefault(place, set()).add(message.answer)
    assert all(len(each) == 1 for each in given.values())


def bits(served: Any) -> dict[str, bytes]:
    """Return final weights by name, as bytes, which are equal only if weights agree bit for bit."""
    return {name: weights.tobytes() for name, weights in served.weights.items()}


def bits_of(model: Path) -> dict[str, bytes]:
    """Return the weights in a server's model.safetensors in the form of ``bits``."""
    return {name: weights.tobytes() for name, weights in load_file(model).items()}


def end_after_one_try(watch: ServerWatch) -> None:
    """End a run, in place of ``ServerWatch.missed``, where its server would try a round again."""
    raise EndedForGood("the quorum was missed in one try")


def make_environment(
    folder: Path,
    *settings: str,
    recipe: str = "quickstart",
    sites: int = 3,
    channel: Any = "named",
    seeded: bool = True,
    quorum: int | None = None,
    deadline: float = 5.0,
    policy: dict[str, Any] | None = None,
    tls: dict[str, bytes] | None = None,
    initial: str | None = None,
    enough: int | None = None,
) -> Environment:
    """Return an environment whose sites have the shares of a simulation's clients."""
    config = resolve(recipe, [f"num_clients={sites}", "rounds=2", *SMALL, *settings])
    inputs = Inputs.of(config.changed(standardise=False), None, None)
    roster, chosen = {}, own_budgets_of(config)
    places = [folder / f"site-{index}" for index in range(sites)]
    for place in places:
        make_identity(place / "site.key", place / "site.pub")
        roster[place.name] = read_public(place / "site.pub")
    agreement = agree(
        config,
        inputs.problem,
        roster,
        channel=channel,
        quorum=sites if quorum is None else quorum or None,
        deadline_seconds=deadline,
        test_seed=config.seed if seeded else None,
        server_ca=fingerprints(write_tls(folder / "tls", tls)),
        initial=initial,
        invite=NO_INVITE if chosen else None,
        answers=answers_of(places, chosen),
    )
    policies = []
    for index, place in enumerate(places):
        own = inputs.members[index]
        _write_examples(
            place / "data.npz", inputs.dataset.train.taken(own), config.columns.label_range
        )
        table = {"own": chosen[index].model_dump()} if chosen else {}
        policies.append(write_policy(place, **table, **(policy or {})))
        accept(policies[-1], agreement, enough=enough)
    return Environment(folder, config, agreement, policies, inputs)


def limited(folder: Path, rounds: float, *settings: str, **given: Any) -> Environment:
    """Return an environment whose sites' budgets pay for some rounds."""
    free = make_environment(folder / "free", *settings, **{**given, "enough": None})
    limit = rounds * free.policies[0].costs(free.agreement)[0] * (1 + 1e-9)
    policy = {"budget": {"kind": "zcdp", "limit": limit}}
    return make_environment(folder / "limited", *settings, policy=policy, **given)


def write_policy(place: Path, **changes: Any) -> SitePolicy:
    """Write a site's policy with some settings changed, or left out if None."""
    terms: dict[str, Any] = {
        "data": "data.npz",
        "key": "site.key",
        "state": "state",
        "server": [{"url": f"https://{HOST}:9", "ca": "ca.pem"}],
        "budget": {"kind": "zcdp", "limit": 1e9},
        **changes,
    }
    terms = {name: value for name, value in terms.items() if value is not None}
    (place / "ca.pem").write_bytes(_shared_tls()["ca.pem"])
    (place / "site.toml").write_text(tomli_w.dumps(terms))
    assert tomllib.loads((place / "site.toml").read_text())
    return read_policy(place / "site.toml")


# What a site has accepted


def acceptance_of(policy: SitePolicy, digest: bytes) -> Acceptance:
    found = Acceptances(policy).of(digest)
    assert found is not None
    return found


def allowed(policy: SitePolicy, digest: bytes) -> Agreement:
    return acceptance_of(policy, digest).allowed(policy)[0]


def forget(policy: SitePolicy, agreement: Agreement) -> None:
    """Remove an accepted agreement, as in a copy from before it was accepted."""
    changes_database(policy, "DELETE FROM agreements WHERE run = ?", agreement.run)


def changes_database(policy: SitePolicy, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(policy.ledger)) as db, db:
        db.execute(statement, values)


# One site, without a server


def request_of(env: Environment, round: int = 1, **changes: Any) -> bytes:
    layout = env.agreement.layout
    weights, count = np.zeros(layout.size, np.float32), len(layout.sizes)
    ranges = Ranges(np.zeros(count), np.ones(count), layout.sizes)
    found: Any = {"round": round, "weights": weights, "ranges": ranges, "public": {}}
    request = {"run": env.agreement.run, "phase": 0}
    for name, value in changes.items():
        (request if name in request else found)[name] = value
    return pack_request(RoundRequest(**request, broadcast=Broadcast(**found)))


def ask_bytes(env: Environment, request: bytes, receipt: bytes = NO_RECEIPT) -> bytes:
    return pack(Ask(env.agreement.digest, receipt, request))


def ask(agent: Agent, env: Environment, request: bytes, receipt: bytes = NO_RECEIPT) -> Answered:
    answer = read_message(agent.answer(ask_bytes(env, request, receipt)))
    assert isinstance(answer, Answered)
    return answer


def content(answer: Answered) -> Any:
    return read_reply(answer.answer)[2]
