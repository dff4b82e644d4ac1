"""Runs all parties on one machine, each as a process: a server and its sites' agents.

The demo makes its own certificates and keys, gives each site the data of one client of a
simulation, and draws all randomness from the seed. The final weights are therefore the same as in
the simulation, and nothing is protected. The demo always ends every process that it started.
"""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from fedldp.accounting.accountants import releases_nothing
from fedldp.accounting.statement import Statement
from fedldp.algorithms.config import RunConfig
from fedldp.core.errors import RunError
from fedldp.core.kinds import HELD_OUT
from fedldp.core.locks import scratch
from fedldp.deployment.agreement import Channel
from fedldp.deployment.parties import DemoEnvironment, Running, Say, running_parties
from fedldp.deployment.policy import SitePolicy
from fedldp.ledgers.budget import Budget
from fedldp.ledgers.sqlite import SqliteLedger
from fedldp.reporting import words
from fedldp.reporting.runs import read_finished
from fedldp.reporting.scores import answers_in
from fedldp.simulation.engine import simulate

ROUNDING = 1e-5
"""How much a weight may differ from the same weight in the simulation, if the simulation trains its
clients in batches."""


@dataclass(frozen=True)
class LedgerOfSite:
    """The content of a site's ledger after the run.

    Attributes:
        site: the name of the site.
        entries: the number of releases, not counting messages that depend on no data.
        spent: the cost of these releases under ``budget``; infinite if something was sent
            unprotected.
        rounds: the rounds in which something was released, ascending.
        budget: the budget.
    """

    site: str
    entries: int
    spent: float
    rounds: list[int]
    budget: Budget


@dataclass(frozen=True, kw_only=True)
class Demo:
    """The result of a demo.

    Attributes:
        accuracy: the accuracy of the final model on the test set; None if the server cannot test
            the model.
        final: all metrics of that model, as in a run's summary.
        rounds: how many rounds were completed.
        privacy: the server's statement.
        ledgers: the sites' ledgers.
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
    ledgers: list[LedgerOfSite]
    answers: list[dict[str, Any]]
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
        try:
            return _run(world, config, kill, tell, events)
        except RunError as error:
            raise RunError(f"{error}; all logs are in {_kept_logs(world.folder)}") from error


def _run(
    world: DemoEnvironment, config: RunConfig, kill: bool, tell: Say, events: list[str]
) -> Demo:
    with running_parties(world, tell) as running:
        running.start_own()
        # Simulate now, while the started processes import their modules, which takes seconds.
        tell(f"simulates {config.name()} with {config.num_clients} clients, for comparison")
        simulated = simulate(config, data_dir=world.data_dir)
        if kill:
            _kill_as_it_goes(running, tell)
        running.await_end()
        running.check_answers()
        summary = json.loads((world.run / "summary.json").read_text())
        weights = load_file(world.run / "model.safetensors")
        answers = read_finished(world.run).answers
    tell("ended all processes")
    apart = max(float(np.abs(weights[n] - w).max()) for n, w in simulated.weights.items())
    return Demo(
        accuracy=summary["final"]["accuracy"],
        final=summary["final"],
        rounds=len(summary["rounds"]),
        privacy=_privacy(Statement.from_json(summary["privacy"]), simulated.privacy),
        ledgers=[_ledger(p, s.name) for p, s in zip(world.sites, world.roster, strict=True)],
        answers=answers,
        equal_to_simulation=apart == 0.0
        and answers == answers_in(record.metrics for record in simulated.rounds),
        largest_difference=apart,
        events=events,
    )


def _privacy(stated: Statement, simulated: Statement) -> Statement:
    """Return the server's statement, with the warning ``HELD_OUT`` if the simulation gives it."""
    return stated.warning(HELD_OUT) if HELD_OUT in simulated.warnings else stated


def _kept_logs(folder: Path) -> Path:
    """Copy all logs out of a folder that will be removed; a log never contains a secret."""
    kept = Path(tempfile.mkdtemp(prefix="fedldp-demo-logs-"))
    for log in folder.rglob("*.log"):
        shutil.copy(log, kept / log.name)
    return kept


def _kill_as_it_goes(running: Running, tell: Say) -> None:
    """Kill one process after another, each in a different round if there are enough rounds."""
    last = running.world.agreement.config.rounds - 1

    def before_round(number: int) -> None:
        running.await_round(min(number - 1, last))

    before_round(1)
    running.kill("agent-0")
    running.start_agent(0)
    before_round(2)
    running.kill("server")
    running.start_server()
    tell("started the server again")


def _ledger(policy: SitePolicy, site: str) -> LedgerOfSite:
    ledger = SqliteLedger(policy.ledger)
    entries = [each for each in ledger.verify() if not releases_nothing(each.event)]
    rounds = sorted({each.round for each in entries})
    return LedgerOfSite(site, len(entries), ledger.spent(), rounds, ledger.budget)
