"""All parties of a run on one machine: a server, agents, perhaps Flower: a process each.

Certificates and keys are made for it, data are a simulation's shares, and all randomness comes
from the seed: so the final weights are those of the simulation, and nothing is protected. Whatever
is started is ended, whatever happens.
"""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from fedldp.accounting.accountants import BudgetKind, releases_nothing
from fedldp.accounting.statement import HELD_OUT
from fedldp.algorithms.config import RunConfig
from fedldp.core.errors import RunError
from fedldp.deployment.agreement import Channel, Link
from fedldp.deployment.parties import KIND, DemoEnvironment, Running, Say, running_parties
from fedldp.deployment.policy import SitePolicy
from fedldp.ledgers.sqlite import SqliteLedger
from fedldp.simulation.engine import simulate

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
        of_one: for whom the budget is, where not for the whole site.
    """

    site: str
    entries: int
    spent: float
    rounds: list[int]
    kind: BudgetKind = KIND
    of_one: str = ""


@dataclass(frozen=True, kw_only=True)
class Demo:
    """What a demo gave.

    Attributes:
        accuracy: of the final model on the test set; None where the server cannot test it.
        final: all figures of that model, as in a run's summary.
        rounds: how many were complete.
        privacy: the server's statement.
        ledgers: of the sites.
        equal_to_simulation: whether the final weights are the simulation's, to the last bit.
        largest_difference: between a weight here and there. Where a simulation trains clients
            together, what is not randomised may differ by float rounding.
        events: what happened, in order.
    """

    accuracy: float | None
    final: dict[str, float | None]
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
    config: RunConfig,
    *,
    channel: Channel,
    link: Link = "https",
    kill: bool = False,
    data_dir: Path | None = None,
    say: Say = lambda what: None,
) -> Demo:
    """Run ``config`` over ``config.num_clients`` sites on this machine.

    Args:
        config: of any recipe that can be deployed; its seed gives all randomness.
        channel: of the reports.
        link: that carries them.
        kill: kill an agent, the server and what Flower has of apps as rounds go by.
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
        world = DemoEnvironment.made(Path(place), config, channel, link, data_dir)
        try:
            return _run(world, config, kill, tell, events)
        except RunError as error:
            raise RunError(f"{error}; all logs are in {_kept_logs(world.folder)}") from error


def _run(
    world: DemoEnvironment, config: RunConfig, kill: bool, tell: Say, events: list[str]
) -> Demo:
    with running_parties(world, tell) as running:
        running.start_own()
        # Meanwhile they import what they need, which takes seconds.
        tell(f"simulates {config.name()} with {config.num_clients} clients, to compare with")
        simulated = simulate(config, data_dir=world.data_dir)
        if world.agreement.link == "flower":
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
        final=summary["final"],
        rounds=len(summary["rounds"]),
        privacy=_privacy(summary["privacy"], simulated.privacy),
        ledgers=[_ledger(p, s.name) for p, s in zip(world.sites, world.roster, strict=True)],
        equal_to_simulation=apart == 0.0,
        largest_difference=apart,
        events=events,
    )


def _privacy(stated: dict[str, Any], simulated: dict[str, Any]) -> dict[str, Any]:
    """Return the server's statement: the server does not know whose its test examples are."""
    if HELD_OUT not in simulated["warnings"]:
        return stated
    return {**stated, "warnings": [*stated["warnings"], HELD_OUT]}


def _kept_logs(folder: Path) -> Path:
    """Copy all logs out of a folder that goes away; nothing secret is ever in one."""
    kept = Path(tempfile.mkdtemp(prefix="fedldp-demo-logs-"))
    for log in folder.rglob("*.log"):
        shutil.copy(log, kept / log.name)
    return kept


def _kill_as_it_goes(running: Running, tell: Say) -> None:
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
    if running.world.agreement.link == "https":
        tell("started the server again")
        return
    running.await_that(
        lambda: "serverapp" not in running.flower.processes(), 60, "the end of the app"
    )
    running.flower.run_app()
    tell("started the server and its app again")
    before_round(3)
    running.kill("serverapp")
    if not running.ended:
        running.flower.run_app()
        tell("started the server's app again")


def _ledger(policy: SitePolicy, site: str) -> LedgerOfSite:
    ledger = SqliteLedger(policy.ledger)
    entries = [each for each in ledger.verify() if not releases_nothing(each.event)]
    rounds = sorted({each.round for each in entries})
    of_one = ledger.budgets[0].of_one
    return LedgerOfSite(site, len(entries), ledger.spent(), rounds, of_one=of_one)
