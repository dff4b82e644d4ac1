"""Runs all parties on one machine, each as a process: a server and its sites' agents.

The demo makes its own certificates and keys, gives each site the data of one client of a
simulation, and draws all randomness from the seed. The final weights are therefore the same as in
the simulation, and nothing is protected. The demo always ends every process that it started.
"""

from __future__ import annotations

import json
import math
import os
import secrets  # noqa: TID251  # ports
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import tomlkit
from safetensors.numpy import load_file

from fedldp.accounting.accountants import releases_nothing
from fedldp.accounting.statement import Statement
from fedldp.algorithms.config import RunConfig
from fedldp.core.errors import RunError
from fedldp.core.kinds import HELD_OUT
from fedldp.core.locks import scratch
from fedldp.data import Examples
from fedldp.data.label_range import LabelRange
from fedldp.deployment import certificates
from fedldp.deployment.acceptance import accept
from fedldp.deployment.agreeing import agree
from fedldp.deployment.agreement import Agreement, Channel
from fedldp.deployment.checks import check_data
from fedldp.deployment.identity import make_identity, read_private, read_public
from fedldp.deployment.own_budgets import Joining, OwnBudget, has_own_budgets
from fedldp.deployment.policy import (
    SitePolicy,
    budget_table,
    needed_for,
    protected_part,
    read_policy,
)
from fedldp.deployment.sites import RELEASED_TWICE
from fedldp.ledgers.budget import Budget
from fedldp.ledgers.sqlite import SqliteLedger
from fedldp.reporting import words
from fedldp.reporting.runs import read_finished
from fedldp.reporting.scores import answers_in
from fedldp.simulation.engine import simulate
from fedldp.simulation.inputs import Inputs

Say = Callable[[str], None]

ROUNDING = 1e-5
"""How much a weight may differ from the same weight in the simulation, if the simulation trains its
clients in batches."""
HOST = "127.0.0.1"
NO_INVITE = "0" * 64
"""Stands for the digest of an invite, as there is none that a demo's sites could answer."""
_DAYS = 2


@dataclass(frozen=True, kw_only=True)
class Demo:
    """The result of a demo.

    Attributes:
        accuracy: the accuracy of the final model on the test set; None if the server cannot test
            the model.
        final: all metrics of that model, as in a run's summary.
        rounds: how many rounds were completed.
        privacy: the server's statement.
        ledgers: of each site, its name, the number of releases, not counting messages that depend
            on no data, and their cost under its budget; infinite if something was sent unprotected.
        answers: all that people were asked for privately; see ``scores.answers_in``.
        equal_to_simulation: whether the final weights and the answers are, bit for bit, those of
            the simulation.
        largest_difference: the largest difference between a weight here and in the simulation. If
            the simulation trains clients in batches, values that are not randomised may differ by
            float rounding.
        events: what happened, in order.
    """

    accuracy: float | None
    final: dict[str, float | None]
    rounds: int
    privacy: Statement
    ledgers: list[tuple[str, int, float, Budget]]
    answers: list[dict[str, Any]]
    equal_to_simulation: bool
    largest_difference: float
    events: list[str]

    def document(self) -> dict[str, Any]:
        """Return the document that ``fedldp deploy demo --json`` prints."""
        ledgers = [
            {"site": site, "entries": count, "spent": spent if math.isfinite(spent) else None}
            for site, count, spent, _ in self.ledgers
        ]
        return vars(self) | {"privacy": words.document(self.privacy), "ledgers": ledgers}


def run_demo(
    config: RunConfig,
    *,
    channel: Channel,
    kill: bool = False,
    data_dir: Path | None = None,
    say: Say = lambda what: None,
) -> Demo:
    """Run ``config`` over ``config.num_clients`` sites on this machine.

    Args:
        config: any configuration that can be deployed; all randomness comes from its seed.
        channel: how reports reach the server.
        kill: whether to kill an agent and the server during the run.
        data_dir: the data folder.
        say: is called with one line for each event.

    Raises:
        FedldpError: the configuration cannot be deployed, or a process failed.
    """
    events: list[str] = []

    def tell(what: str) -> None:
        events.append(what)
        say(what)

    with scratch() as place:
        world = DemoEnvironment.made(place, config, channel, data_dir)
        with closing(Running(world, tell)) as running:
            running.start_own()
            # Simulate now, while the started processes import their modules, which takes seconds.
            tell(f"simulates {config.name()} with {config.num_clients} clients, for comparison")
            simulated = simulate(config, data_dir=data_dir)
            if kill:
                _kill_as_it_goes(running, tell)
            running.await_round()
            running.check_answers()
        tell("ended all processes")
        summary = json.loads((world.run / "summary.json").read_text())
        weights = load_file(world.run / "model.safetensors")
        answers = read_finished(world.run).answers
        ledgers = [_ledger(policy) for policy in world.sites]
    stated = Statement.from_json(summary["privacy"])
    apart = max(float(np.abs(weights[n] - w).max()) for n, w in simulated.weights.items())
    return Demo(
        accuracy=summary["final"]["accuracy"],
        final=summary["final"],
        rounds=len(summary["rounds"]),
        privacy=stated.warning(HELD_OUT) if HELD_OUT in simulated.privacy.warnings else stated,
        ledgers=ledgers,
        answers=answers,
        equal_to_simulation=apart == 0.0
        and answers == answers_in(record.metrics for record in simulated.rounds),
        largest_difference=apart,
        events=events,
    )


def _kill_as_it_goes(running: Running, tell: Say) -> None:
    """Kill one process after another, each in a different round if there are enough rounds."""
    running.kill("agent-0")
    running.start_agent(0)
    running.await_round(min(1, running.world.agreement.config.rounds - 1))
    running.kill("server")
    running.start_server()
    tell("started the server again")


def _ledger(policy: SitePolicy) -> tuple[str, int, float, Budget]:
    """Return what a site's ledger has after the run; see ``Demo.ledgers``."""
    ledger = SqliteLedger(policy.ledger)
    released = [each for each in ledger.verify() if not releases_nothing(each.event)]
    return policy.key.parent.name, len(released), ledger.spent(), ledger.budget


# The parties


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
        roster, own = {}, own_budgets_of(config)
        for place in places:
            make_identity(place / "site.key", place / "site.pub")
            roster[place.name] = read_public(place / "site.pub")
        agreement = agree(
            config,
            raw.problem,
            roster,
            channel=channel,
            # None requires all sites of a round. Otherwise, the quorum is the number of sites that
            # the server selects.
            quorum=None if config.composition.participation.told else config.fewest_in_sum,
            test_seed=config.seed if seeded else None,
            server_ca=certificates.fingerprints(folder / "ca.pem"),
            invite=NO_INVITE if own else None,
            answers=answers_of(places, own),
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
    epsilons = config.model_dump()["epsilon"] if has_own_budgets(config) else ()
    return [OwnBudget.of(config, each) for each in epsilons]


def answers_of(places: Sequence[Path], own: Sequence[OwnBudget]) -> list[Joining]:
    """Return the answers in which the sites with folders state their own budgets, if they do."""
    given = {"version": version("fedldp"), "invite": NO_INVITE}
    return [
        Joining.signed(read_private(place / "site.key"), name=place.name, own=each, **given)
        for place, each in zip(places, own, strict=False)
    ]


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
        **budget_table(part, math.inf),
    }
    if own is not None:
        terms["own"] = own.model_dump()
    if data_dir is not None:
        terms["data_dir"] = str(data_dir.absolute())
    (place / "site.toml").write_text(tomlkit.dumps(terms))
    return read_policy(place / "site.toml")


class Running:
    """All processes of a demo; whoever makes it closes it, also after an error."""

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

    def rounds(self) -> int:
        """Return how many rounds are complete."""
        metrics = self.world.run / "metrics.jsonl"
        return len(metrics.read_text().splitlines()) if metrics.exists() else 0

    def await_round(self, rounds: float = math.inf) -> None:
        """Wait until this many rounds are complete, or until the server has ended successfully."""
        told = self.rounds()
        while told < rounds and self._own["server"].poll() is None:
            time.sleep(0.1)
            if self.rounds() > told:
                told = self.rounds()
                self._tell(f"round {told} is complete")
            self._check_processes()
        self._check_processes()

    def _check_processes(self) -> None:
        for name, process in self._own.items():
            if process.poll() not in (None, 0):
                raise RunError(f"{name} failed; {self._log(name)}")

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

    def _log(self, name: str) -> str:
        lines = (self.world.folder / f"{name}.log").read_text(errors="replace").splitlines()
        return f"its log ends with: {' / '.join(lines[-3:])}"
