"""Clients refuse what their budget does not cover, in runs as a user types them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import assert_same, cut, metrics, quick
from tables import Table, released

import fedldp
from fedldp.accounting.guarantees import Guarantee
from fedldp.accounting.prices import cost
from fedldp.accounting.statement import Statement
from fedldp.algorithms.config import RunConfig
from fedldp.core.errors import ConfigError
from fedldp.protocol.keys import draws_of_seed
from fedldp.simulation.engine import simulate
from fedldp.simulation.participation import participants
from fedldp.simulation.plan import Plan, plan, problem_of, state
from fedldp.testing.clients import Roles

SENT = ("--set", "mechanism=laplace", "--set", "epsilon=1.0", "--set", "channel=named",
        "--set", "num_clients=6", "--set", "local_epochs=1", "--workers", 1)  # fmt: skip
"""Each client sends one pure report of epsilon 1 in each round."""

EVERYONE_REFUSES = (
    "error: round {round}: 0 of 6 clients took part, and 1 must (6 refused: over-budget); the "
    "complete rounds are kept, but a resumed run would end here too: raise the limit of the "
    "budget, or lower rounds or epsilon, in a new run"
)


def run_line(statement: Statement) -> Guarantee:
    """Return the statement's lines against the server for all that a client sends in the run."""
    (line,) = (
        line
        for line in statement.guarantees
        if (line.unit, line.adversary, line.kind) == ("client-run", "server", "pure")
    )
    return line


def test_clients_whose_budget_is_used_up_end_the_run_with_one_line(
    tmp_path: Path, fedldp_command: Any
) -> None:
    outcome = fedldp_command(
        "run", *SENT, "--set", "client_budget.limit=2.5", "--rounds", 4, "--out", tmp_path / "run"
    )
    assert (outcome.status, outcome.out) == (2, "")
    last = EVERYONE_REFUSES.format(round=3)
    assert outcome.err.splitlines()[-1] == last
    assert "Traceback" not in outcome.err
    kept = metrics(tmp_path / "run")
    assert [(record["round"], record["clients"], record["refused"]) for record in kept] == [
        (1, 6, {}), (2, 6, {})
    ]  # fmt: skip
    assert "after 2 of 4 rounds" in (tmp_path / "run" / "report.html").read_text()
    again = fedldp_command("run", "--resume", tmp_path / "run", "--workers", 1)
    assert (again.status, again.err.splitlines()[-1]) == (2, last)
    assert metrics(tmp_path / "run") == kept


# Some clients refuse, and the round continues without them


SOME: dict[str, Any] = {
    "mechanism": "laplace", "epsilon": 1.0, "channel": "named", "clients_per_round": 4, "rounds": 5,
    "client_budget": {"limit": 2.5},
}  # fmt: skip
SHUFFLED: dict[str, Any] = SOME | {
    "mechanism": "two_point", "channel": "shuffle", "client_budget": {"limit": 2.5 * 650},
}  # fmt: skip


def expected(config: RunConfig, most: int) -> list[tuple[list[int], int]]:
    """Return who takes part in each round, and how many refuse, if all can answer a given number of
    times."""
    answered: Counter[int] = Counter()
    found = []
    for round in range(1, config.rounds + 1):
        asked = list(participants(config, round, draws_of_seed(config.seed)))
        there = [client for client in asked if answered[client] < most]
        answered.update(there)
        found.append((there, len(asked) - len(there)))
    return found


@pytest.mark.parametrize("settings", [SOME, SHUFFLED], ids=["direct", "shuffled"])
def test_the_statement_after_a_run_covers_what_was_really_released(
    settings: dict[str, Any],
) -> None:
    config = quick(**settings)
    planned = plan(config, problem_of(config, None))
    event = Roles(config, planned.problem).encoder().event()
    table: Table = {
        round: dict.fromkeys(there, event)
        for round, (there, _) in enumerate(expected(config, 2), start=1)
    }
    shown: list[Plan] = []
    result = simulate(config, before=shown.append)
    assert [each.privacy for each in shown] == [planned.privacy]  # the plan knows who will refuse
    assert result.ledger.releases(result.run) == released(table)
    assert result.privacy == state(config, planned.problem, released(table)) == planned.privacy
    without = config.changed(client_budget=None)
    unlimited = plan(without, problem_of(without, None)).privacy
    price = cost(event, "pure")
    most = max(Counter(c for r in range(1, 6) for c in participants(config, r, draws_of_seed(0)))
               .values())  # fmt: skip
    assert most > 2
    assert run_line(unlimited).epsilon == most * price
    assert run_line(result.privacy).epsilon == 2 * price
    assert max(result.ledger.spent(client) for client in range(6)) == 2 * price


def test_a_resumed_run_remembers_what_was_spent(tmp_path: Path) -> None:
    config = quick(**SOME)
    cut(config, tmp_path / "run", 3)
    assert_same(simulate(config), fedldp.resume(tmp_path / "run"))


@pytest.mark.slow
def test_a_draw_for_a_whole_run_is_paid_for_once(tmp_path: Path, fedldp_command: Any) -> None:
    config = fedldp.recipe("ldpfl-sound-digits", rounds=2)
    price = cost(Roles(config, problem_of(config, None)).encoder().event(), "pure")
    command = ("run", "ldpfl-sound-digits", "--rounds", 2, "--workers", 1)
    outcome = fedldp_command(
        *command, "--set", f"client_budget.limit={price!r}", "--out", tmp_path / "enough"
    )
    assert outcome.status == 0, outcome.err
    assert [record["refused"] for record in metrics(tmp_path / "enough")] == [{}, {}]
    less = float(np.nextafter(price, 0))
    refused = fedldp_command(
        *command, "--set", f"client_budget.limit={less!r}", "--out", tmp_path / "less"
    )
    assert refused.status == 2
    assert "refused: over-budget" in refused.err.splitlines()[-1]


# Budgets for each person, or each row


def test_too_small_a_budget_for_each_row_is_refused_before_the_run() -> None:
    """No round begins, and the message says what would be enough."""
    config = fedldp.recipe("quickstart", mechanism="laplace", epsilon=1.0, channel="named",
                           num_clients=6, rounds=4, target=None)  # fmt: skip
    for unit in ("person", "record"):
        limited = config.changed(
            client_budget={"limit": 4.5}, person_budget={"limit": 2.5, "unit": unit}
        )
        assert [str(budget) for budget in limited.budgets] == [
            "pure budget of epsilon 4.5",
            f"pure budget of epsilon 2.5 for each {unit}",
        ]
        said = f"person_budget.limit = 2.5: the whole run costs epsilon 4 for each {unit}: raise"
        with pytest.raises(ConfigError, match=said):
            fedldp.run(limited)
        enough = limited.changed(person_budget={"limit": 4.0, "unit": unit})
        planned = plan(enough, problem_of(enough, None))
        assert [history.total() for history in planned.releases.histories()] == [4]
