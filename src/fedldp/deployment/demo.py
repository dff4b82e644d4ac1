"""All parties of a run on one machine: Flower, a server, agents, each a process of its own.

Certificates and keys are made for it, data are a simulation's shares, and all randomness comes
from the seed: so the final weights are those of the simulation, and nothing is protected. Whatever
is started is ended, whatever happens.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
from safetensors.numpy import load_file

from fedldp.accounting.budget import Kind
from fedldp.accounting.events import NoData
from fedldp.accounting.sqlite_ledger import SqliteLedger
from fedldp.deployment.agreeing import agree
from fedldp.deployment.agreement import Agreement, Channel
from fedldp.deployment.identity import make_identity, read_public
from fedldp.deployment.loopback import Loopback
from fedldp.deployment.policy import SitePolicy, read_policy, write_accepted
from fedldp.deployment.sites import RELEASED_TWICE
from fedldp.errors import RunError
from fedldp.simulation.engine import simulate
from fedldp.simulation.inputs import Inputs
from fedldp.systems.base import SystemConfig

Say = Callable[[str], None]

_DEADLINE = 300.0
_KIND: Kind = "zcdp"
_LONGEST_ROUND = 600.0
_TO_START = 90.0

ROUNDING = 1e-5
"""How far weights may be apart where a simulation's clients train together."""


@dataclass(frozen=True)
class LedgerOfSite:
    """What a site's ledger holds after the run.

    Attributes:
        site: its name.
        entries: releases; messages computed from no data are not counted.
        spent: what they cost, in the unit of ``kind``; infinite where something went in clear.
        rounds: those in which something was released, ascending.
        kind: of the budget.
    """

    site: str
    entries: int
    spent: float
    rounds: list[int]
    kind: Kind = _KIND


@dataclass(frozen=True, kw_only=True)
class Demo:
    """What a demo gave.

    Attributes:
        accuracy: of the final model on the test set; None where the server cannot test it.
        rounds: how many were complete.
        privacy: the server's statement.
        ledgers: of the sites.
        equal_to_simulation: whether the final weights are the simulation's, to the last bit.
        largest_difference: between a weight here and there. Where a simulation trains clients
            together, what is not randomised may differ by float rounding.
        events: what happened, in order.
    """

    accuracy: float | None
    rounds: int
    privacy: dict[str, Any]
    ledgers: list[LedgerOfSite]
    equal_to_simulation: bool
    largest_difference: float
    events: list[str] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """Return the document that ``fedldp deploy demo --json`` prints."""
        ledgers = [
            {
                "site": each.site,
                "entries": each.entries,
                "spent": each.spent if math.isfinite(each.spent) else None,
            }
            for each in self.ledgers
        ]
        return {**asdict(self), "ledgers": ledgers}


def run_demo(
    config: SystemConfig,
    *,
    channel: Channel,
    kill: bool = False,
    data_dir: Path | None = None,
    say: Say = lambda what: None,
) -> Demo:
    """Run ``config`` over ``config.num_clients`` sites on this machine.

    Args:
        config: of any recipe that can be deployed; its seed gives all randomness.
        channel: of the reports.
        kill: kill an agent, the server and Flower's apps as rounds go by.
        data_dir: the data folder.
        say: is told in one line each what happens.

    Raises:
        FedldpError: the configuration cannot be deployed, or a process did not do its part.
    """
    events: list[str] = []

    def tell(what: str) -> None:
        events.append(what)
        say(what)

    with tempfile.TemporaryDirectory(prefix="fedldp-") as place:
        world = _World.made(Path(place), config, channel, data_dir)
        with ExitStack() as stack:
            running = stack.enter_context(_running(world, tell))
            running.start_own()
            # Meanwhile they import what they need, which takes seconds.
            tell(f"simulates {config.name()} with {config.num_clients} clients, to compare with")
            simulated = simulate(config, data_dir=data_dir)
            running.start_flower()
            if kill:
                _kill_as_it_goes(running, tell)
            running.await_end()
            running.check_answers()
            summary = json.loads((world.run / "summary.json").read_text())
            weights = load_file(world.run / "model.safetensors")
        tell("ended all processes")
        apart = max(float(np.abs(weights[n] - w).max()) for n, w in simulated.weights.items())
        return Demo(
            accuracy=summary["final"]["accuracy"],
            rounds=len(summary["rounds"]),
            privacy=summary["privacy"],
            ledgers=[_ledger(p, s.name) for p, s in zip(world.sites, world.roster, strict=True)],
            equal_to_simulation=apart == 0.0,
            largest_difference=apart,
            events=events,
        )


@dataclass(frozen=True)
class _World:
    """The files of all parties."""

    folder: Path
    agreement: Agreement
    sites: list[SitePolicy]
    test: str
    data_dir: Path | None

    @property
    def run(self) -> Path:
        return self.folder / "server"

    @property
    def roster(self) -> tuple[Any, ...]:
        return self.agreement.sites

    @classmethod
    def made(
        cls, folder: Path, config: SystemConfig, channel: Channel, data_dir: Path | None
    ) -> _World:
        """Write keys, data, policies and the agreement, which every site accepts."""
        raw = Inputs.of(config.changed(standardise=False), None, data_dir)
        places = [folder / f"site-{index}" for index in range(config.num_clients)]
        roster = {}
        for place in places:
            make_identity(place / "site.key", place / "site.pub")
            roster[place.name] = read_public(place / "site.pub")
        agreement = agree(
            config,
            raw.problem,
            roster,
            channel=channel,
            quorum=config.round_size,
            deadline_seconds=_DEADLINE,
            test_seed=config.seed,
        )
        (folder / "run.agreement").write_bytes(agreement.to_bytes())
        test = raw.dataset.test
        np.savez(folder / "test.npz", features=test.features, labels=test.labels)
        sites = []
        for index, place in enumerate(places):
            own, train = raw.members[index], raw.dataset.train
            np.savez(place / "data.npz", features=train.features[own], labels=train.labels[own])
            sites.append(_policy(place, agreement, data_dir))
            write_accepted(sites[-1], agreement)
        return cls(folder, agreement, sites, str(folder / "test.npz"), data_dir)


def _policy(place: Path, agreement: Agreement, data_dir: Path | None) -> SitePolicy:
    terms: dict[str, Any] = {
        "data": "data.npz",
        "key": "site.key",
        "ledger": "ledger.sqlite",
        "state": "state",
        "socket": "run/site.sock",
        "allow_in_clear": bool(agreement.in_clear),
        "models": [agreement.config.model],
        "budget": {"kind": _KIND, "limit": math.inf},
    }
    if data_dir is not None:
        terms["data_dir"] = str(data_dir.absolute())
    (place / "site.toml").write_text(tomli_w.dumps(terms))
    return read_policy(place / "site.toml")


class _Running:
    """All processes of a demo."""

    def __init__(self, world: _World, tell: Say, flower: Loopback) -> None:
        self.world, self._tell, self.flower = world, tell, flower
        self._own: dict[str, subprocess.Popen[bytes]] = {}

    def start_own(self) -> None:
        """Start agents and server."""
        for index in range(len(self.world.sites)):
            self.start_agent(index)
        self.start_server()

    def start_flower(self) -> None:
        """Start Flower and, once the server listens, the app."""
        self.flower.start()
        self._tell(f"started Flower's SuperLink and {len(self.world.sites)} SuperNodes, with TLS")
        self._await(lambda: (self.world.run / "server.sock").exists(), _TO_START, "the server")
        self.flower.run_app()
        self._tell("started the server's app")

    def start_agent(self, index: int) -> None:
        policy = self.world.folder / f"site-{index}" / "site.toml"
        self._launch(f"agent-{index}", "deploy", "site", str(policy), "--test-keys")

    def start_server(self) -> None:
        world = self.world
        data_dir = [] if world.data_dir is None else ["--data-dir", str(world.data_dir.absolute())]
        self._launch(
            "server",
            *("deploy", "server", str(world.run), str(world.folder / "run.agreement")),
            *("--test", world.test, *data_dir, "--json"),
        )

    def kill(self, name: str) -> None:
        """Send SIGKILL to an agent, the server, or a process of Flower."""
        if name in self._own:
            self._own[name].kill()
            self._own[name].wait()
        else:
            # Flower starts its apps some time after it was told to.
            self._await(lambda: self.ended or name in self.flower.processes(), _TO_START, name)
            if self.ended:
                self._tell(f"did not kill {name}: the run was over")
                return
            self.flower.kill(name)
        self._tell(f"killed {name}")

    @property
    def ended(self) -> bool:
        """Whether the server has ended."""
        return self._own["server"].poll() is not None

    def rounds(self) -> int:
        """Return how many rounds are complete."""
        metrics = self.world.run / "metrics.jsonl"
        return len(metrics.read_text().splitlines()) if metrics.exists() else 0

    def await_round(self, rounds: int) -> None:
        """Wait until so many rounds are complete."""
        self._await(lambda: self.rounds() >= rounds, _LONGEST_ROUND, f"round {rounds}")

    def await_end(self) -> None:
        """Wait until the server has ended well."""
        told = self.rounds()
        since = time.monotonic()
        while not self.ended:
            if self.rounds() > told:
                told, since = self.rounds(), time.monotonic()
                self._tell(f"round {told} is complete")
            if time.monotonic() - since > _LONGEST_ROUND:
                raise RunError(f"round {told + 1} does not end; {self._log('server')}")
            time.sleep(0.1)
        if self._own["server"].returncode != 0:
            raise RunError(f"the server failed; {self._log('server')}")

    def check_answers(self) -> None:
        """Check that no site gave two answers to one question, as far as the server saw them."""
        log = (self.world.folder / "server.log").read_text(errors="replace")
        if RELEASED_TWICE in log:
            raise RunError("a site gave two different answers to one question; please report it")
        self._tell("the server saw no site give two different answers to one question")

    def close(self) -> None:
        """End agents and server."""
        for process in self._own.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        until = time.monotonic() + 5
        for process in self._own.values():
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _launch(self, name: str, *arguments: str) -> None:
        with (self.world.folder / f"{name}.log").open("ab") as log:
            self._own[name] = subprocess.Popen(
                [sys.executable, "-c", "from fedldp.cli import main; main()", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                start_new_session=True,
            )

    def _await(self, done: Callable[[], bool], seconds: float, what: str) -> None:
        until = time.monotonic() + seconds
        while not done():
            for name, process in self._own.items():
                if process.poll() not in (None, 0):
                    raise RunError(f"{name} failed; {self._log(name)}")
            if time.monotonic() > until:
                raise RunError(f"{what}: not there after {seconds:g} s; {self._log('server')}")
            time.sleep(0.1)

    def _log(self, name: str) -> str:
        lines = (self.world.folder / f"{name}.log").read_text(errors="replace").splitlines()
        return f"its log ends with: {' / '.join(lines[-3:])}"


@contextmanager
def _running(world: _World, tell: Say) -> Iterator[_Running]:
    agents = [policy.socket for policy in world.sites]
    with Loopback(world.folder / "flower", agents, world.run / "server.sock") as flower:
        running = _Running(world, tell, flower)
        try:
            yield running
        finally:
            running.close()


def _kill_as_it_goes(running: _Running, tell: Say) -> None:
    """Kill one process after the other, each in another round as far as there are so many."""
    last = running.world.agreement.config.rounds - 1

    def before_round(number: int) -> None:
        running.await_round(min(number - 1, last))

    before_round(1)
    running.kill("agent-0")
    running.start_agent(0)
    before_round(2)
    running.kill("server")
    running.start_server()
    running._await(lambda: "serverapp" not in running.flower.processes(), 60, "the end of the app")
    running.flower.run_app()
    tell("started the server and its app again")
    before_round(3)
    running.kill("serverapp")
    if not running.ended:
        running.flower.run_app()
        tell("started the server's app again")


def _ledger(policy: SitePolicy, site: str) -> LedgerOfSite:
    ledger = SqliteLedger(policy.ledger)
    entries = [each for each in ledger.verify() if not isinstance(each.event, NoData)]
    rounds = sorted({each.round for each in entries})
    return LedgerOfSite(site, len(entries), ledger.spent(), rounds)
