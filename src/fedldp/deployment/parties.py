"""The files of all parties of a demo, and the parties' processes on this machine."""

from __future__ import annotations

import math
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from fedldp.accounting.accountants import BudgetKind
from fedldp.algorithms.config import RunConfig
from fedldp.core.errors import RunError
from fedldp.data import Examples
from fedldp.data.label_range import LabelRange
from fedldp.deployment import certificates
from fedldp.deployment.acceptance import accept
from fedldp.deployment.agreeing import agree
from fedldp.deployment.agreement import Agreement, Channel
from fedldp.deployment.checks import check_data
from fedldp.deployment.identity import make_identity, read_private, read_public
from fedldp.deployment.own_budgets import OwnBudget, SignedBudget, stay_at_sites
from fedldp.deployment.policy import SitePolicy, needed_for, protected_part, read_policy
from fedldp.deployment.sites import RELEASED_TWICE
from fedldp.simulation.inputs import Inputs

Say = Callable[[str], None]

KIND: BudgetKind = "zcdp"
_DEADLINE = 600.0
_LONGEST_ROUND = 900.0
_DAYS = 2
HOST = "127.0.0.1"


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


@dataclass(frozen=True)
class DemoEnvironment:
    """The files of all parties.

    Attributes:
        folder: holds the files.
        agreement: the agreement of all parties.
        sites: the policy of each site, by its number.
        test: the server's option for its test set; empty if there is none, as in a run that asks.
        data_dir: the data folder.
        port: the server's port for HTTPS.
    """

    folder: Path
    agreement: Agreement
    sites: list[SitePolicy]
    test: list[str]
    data_dir: Path | None
    port: int

    @property
    def run(self) -> Path:
        return self.folder / "server"

    @property
    def roster(self) -> tuple[Any, ...]:
        return self.agreement.sites

    @classmethod
    def made(
        cls,
        folder: Path,
        config: RunConfig,
        channel: Channel,
        data_dir: Path | None,
        *,
        seeded: bool = True,
    ) -> DemoEnvironment:
        """Write keys, data, policies and the agreement, and have every site accept it.

        Args:
            folder: the folder for all files.
            config: the configuration of the run.
            channel: how reports reach the server.
            data_dir: the data folder.
            seeded: whether all randomness comes from the configuration's seed.
        """
        (port,) = free_ports(1)
        certificates.write_server_keys(folder, [HOST], _DAYS)
        raw = Inputs.of(config.changed(standardise=False), None, data_dir)
        places = [folder / f"site-{index}" for index in range(config.num_clients)]
        roster, budgets, own = {}, [], own_budgets_of(config)
        for index, place in enumerate(places):
            make_identity(place / "site.key", place / "site.pub")
            roster[place.name] = read_public(place / "site.pub")
            if own and not stay_at_sites(config):
                budgets.append(SignedBudget.by(read_private(place / "site.key"), own[index]))
        agreement = agree(
            config,
            raw.problem,
            roster,
            channel=channel,
            # None requires all sites of a round. Otherwise, the quorum is the number of sites that
            # the server selects.
            quorum=None if config.composition.participation.told else config.fewest_in_sum,
            deadline_seconds=_DEADLINE,
            test_seed=config.seed if seeded else None,
            server_ca=certificates.fingerprints(folder / "ca.pem"),
            budgets=budgets,
        )
        (folder / "run.agreement").write_bytes(agreement.to_bytes())
        within = config.columns.label_range
        test = []
        if len(raw.dataset.test):
            _write_examples(folder / "test.npz", raw.dataset.test, within)
            test = ["--test", str(folder / "test.npz")]
        sites = []
        for index, place in enumerate(places):
            _write_examples(place / "data.npz", raw.dataset.train.taken(raw.members[index]), within)
            sites.append(_policy(place, agreement, port, data_dir, own[index] if own else None))
            check_data(sites[-1], agreement)
            # Check this now, because the server would wait forever for a site that cannot read the
            # agreement.
            accept(sites[-1], agreement).allowed(sites[-1])
        return cls(folder, agreement, sites, test, data_dir, port)


def _write_examples(path: Path, examples: Examples, within: LabelRange | None) -> None:
    labels = examples.labels if within is None else within.numbers(examples.labels)
    arrays: dict[str, Any] = {"features": examples.features, "labels": labels}
    if examples.people is not None:
        arrays["groups"] = examples.people
    np.savez(path, **arrays)


def own_budgets_of(config: RunConfig) -> list[OwnBudget]:
    """Return each client's own budget as its site would state it; empty if all share one budget."""
    epsilons = config.model_dump().get("epsilon")
    meaning = config.composition.calibration.meaning
    if not isinstance(epsilons, list) or meaning is None:
        return []
    unit: Any = meaning.unit  # Any, because the unit is checked elsewhere
    delta = config.model_dump().get("client_delta")
    if not isinstance(delta, float):
        delta = config.delta
    return [OwnBudget(epsilon=each, unit=unit, delta=delta) for each in epsilons]


def _policy(
    place: Path, agreement: Agreement, port: int, data_dir: Path | None, own: OwnBudget | None
) -> SitePolicy:
    part = protected_part(agreement) if agreement.in_clear else None
    terms: dict[str, Any] = {
        "data": "data.npz",
        "key": "site.key",
        "state": "state",
        "allow_in_clear": bool(agreement.in_clear) and part is None,
        "server": [{"url": f"https://{HOST}:{port}", "ca": str(place.parent / "ca.pem")}],
        **needed_for(agreement),
    }
    if part is None:
        terms["budget"] = {"kind": KIND, "limit": math.inf}
    else:
        terms["person_budget"] = {"kind": KIND, "limit": math.inf, "unit": part}
    if own is not None:
        terms["own"] = own.model_dump()
    if data_dir is not None:
        terms["data_dir"] = str(data_dir.absolute())
    (place / "site.toml").write_text(tomli_w.dumps(terms))
    return read_policy(place / "site.toml")


class Running:
    """All processes of a demo."""

    def __init__(self, world: DemoEnvironment, tell: Say) -> None:
        self.world, self._tell = world, tell
        self._own: dict[str, subprocess.Popen[bytes]] = {}

    def start_own(self) -> None:
        """Start the agents and the server."""
        for index in range(len(self.world.sites)):
            self.start_agent(index)
        self.start_server()

    def start_agent(self, index: int) -> None:
        policy = self.world.folder / f"site-{index}" / "site.toml"
        self._launch(f"agent-{index}", "deploy", "site", str(policy), "--test-keys")

    def start_server(self) -> None:
        world = self.world
        data_dir = [] if world.data_dir is None else ["--data-dir", str(world.data_dir.absolute())]
        tls = ["--certificate", str(world.folder / "server.pem")]
        tls += ["--key", str(world.folder / "server.key")]
        self._launch(
            "server",
            *("deploy", "server", str(world.run), str(world.folder / "run.agreement")),
            *(*world.test, *data_dir, "--json"),
            *("--listen", f"{HOST}:{world.port}", *tls),
        )

    def kill(self, name: str) -> None:
        """Send SIGKILL to an agent or the server."""
        self._own[name].kill()
        self._own[name].wait()
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
        """Wait until this many rounds are complete."""
        self.await_that(lambda: self.rounds() >= rounds, _LONGEST_ROUND, f"round {rounds}")

    def await_end(self) -> None:
        """Wait until the server has ended successfully."""
        told = self.rounds()
        since = time.monotonic()
        while not self.ended:
            now = time.monotonic()
            if self.rounds() > told:
                told, since = self.rounds(), now
                self._tell(f"round {told} is complete")
            if now - since > _LONGEST_ROUND:
                raise RunError(f"round {told + 1} did not end; {self._log('server')}")
            time.sleep(0.1)
        if self._own["server"].returncode != 0:
            raise RunError(f"the server failed; {self._log('server')}")

    def check_answers(self) -> None:
        """Check that the server saw no site give two different answers to one request."""
        log = (self.world.folder / "server.log").read_text(errors="replace")
        if RELEASED_TWICE in log:
            raise RunError("a site gave two different answers to one request; please report it")
        self._tell("the server saw no site give two different answers to one request")

    def close(self) -> None:
        """End the agents and the server."""
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
                env={**os.environ, "OMP_NUM_THREADS": "1", "NO_PROXY": HOST, "no_proxy": HOST},
                start_new_session=True,
            )

    def await_that(self, done: Callable[[], bool], seconds: float, what: str) -> None:
        until = time.monotonic() + seconds
        while not done():
            for name, process in self._own.items():
                if process.poll() not in (None, 0):
                    raise RunError(f"{name} failed; {self._log(name)}")
            if time.monotonic() > until:
                raise RunError(
                    f"after {seconds:g} s, gave up waiting for {what}; {self._log('server')}"
                )
            time.sleep(0.1)

    def _log(self, name: str) -> str:
        lines = (self.world.folder / f"{name}.log").read_text(errors="replace").splitlines()
        return f"its log ends with: {' / '.join(lines[-3:])}"


@contextmanager
def running_parties(world: DemoEnvironment, tell: Say) -> Iterator[Running]:
    """Yield the processes of a demo before they are started; on exit, end all that are running."""
    running = Running(world, tell)
    try:
        yield running
    finally:
        running.close()
