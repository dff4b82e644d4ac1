"""Budgets for each person or each record, next to the client's budget or alone."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from ledger_helpers import One, asked, never

from fedldp.accounting.accountants import Side
from fedldp.accounting.events import (
    Event,
    GaussianShare,
    InClear,
    Memoized,
    PerPerson,
    PerRecord,
    PureReport,
)
from fedldp.core.errors import ConfigError, LedgerUnusable, OverBudget
from fedldp.ledgers.budget import Budget
from fedldp.ledgers.columns import MemoryLedger
from fedldp.ledgers.protocol import Place
from fedldp.ledgers.sqlite import SqliteLedger

CLEAR = InClear(what="all that many people add up to")
SHARE = GaussianShare(squared_distance=64, variance=320)  # rho 0.1
OF_PEOPLE = PerPerson(person=SHARE, client=CLEAR)
OF_ROWS = PerRecord(record=SHARE, client=CLEAR)
OF_BOTH = PerPerson(person=PureReport(epsilon=1.0), client=PureReport(epsilon=3.0))

Budgets = Budget | Iterable[Budget]
Store = Callable[[Budgets], tuple[One, Any]]


@pytest.fixture(params=["file", "memory", "worker"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    def begin(budgets: Budgets) -> tuple[One, Any]:
        if request.param == "file":
            file = SqliteLedger(tmp_path / "client.ledger", budgets)
            return One(file), file.spent
        memory = MemoryLedger(budgets)
        if request.param == "worker":
            memory = memory.extract([5])
        return One(memory, 5), lambda: memory.spent(5)

    return begin


def send(ledger: One, run: str, round: int, event: Event) -> None:
    ledger.release(run, round, 0, asked("?"), event, lambda: b"x")


def zcdp(limit: float, unit: Side = "client") -> Budget:
    return Budget("zcdp", limit, unit)


def test_the_costs_of_runs_add_up_for_a_person_until_the_budget_is_used_up(store: Store) -> None:
    ledger, spent = store(zcdp(0.45, "person"))
    for run, round in (("a", 1), ("a", 2), ("b", 1), ("c", 7)):
        send(ledger, run, round, OF_PEOPLE)
    assert spent() == pytest.approx(0.4)
    with pytest.raises(OverBudget, match=r"zcdp budget of rho 0\.45 for each person: 0\.4"):
        ledger.admit("d", 10**5, 0, OF_PEOPLE)
    with pytest.raises(OverBudget, match="nothing was released"):
        ledger.release("d", 1, 0, asked("?"), OF_PEOPLE, never)
    # A release that protects whole clients costs a person no more than a client.
    send(ledger, "d", 1, GaussianShare(squared_distance=1, variance=64))
    assert spent() == pytest.approx(0.4 + 1 / 128)


def test_a_release_that_protects_only_people_is_refused_under_a_clients_budget(
    store: Store,
) -> None:
    ledger, spent = store(zcdp(1e9))
    with pytest.raises(OverBudget) as found:
        ledger.admit("run", 1, 0, OF_PEOPLE)
    assert str(found.value) == (
        "PerPerson: no finite cost is proven under a zcdp budget for whole clients; for "
        "single people, give a person_budget; nothing was released"
    )
    with pytest.raises(OverBudget, match="for single records, give a person_budget with unit = re"):
        ledger.admit("run", 1, 0, OF_ROWS)
    with pytest.raises(OverBudget, match="under a zcdp budget; nothing was released"):
        ledger.admit("run", 1, 0, CLEAR)
    assert spent() == 0.0


def test_a_budget_for_records_does_not_cover_persons_and_one_for_persons_covers_records(
    store: Store,
) -> None:
    ledger, _ = store(zcdp(1e9, "person"))
    with pytest.raises(OverBudget, match="for single people; for single records, give a person_b"):
        ledger.admit("run", 1, 0, OF_ROWS)
    assert zcdp(1.0, "record").admit(OF_PEOPLE, 0.0) == pytest.approx(0.1)
    assert zcdp(1.0, "record").admit(OF_ROWS, 0.0) == pytest.approx(0.1)


@pytest.mark.parametrize(("client", "person", "fits"), [(9.0, 2.0, 2), (6.0, 9.0, 2), (3.0, 9, 1)])
def test_both_budgets_are_checked(store: Store, client: float, person: float, fits: int) -> None:
    ledger, spent = store([Budget("pure", person, "person"), Budget("pure", client)])
    for round in range(fits):
        send(ledger, "run", round, OF_BOTH)
    unit = " for each person" if client == 9.0 else ""
    with pytest.raises(OverBudget, match=rf"pure budget of epsilon \d\.0{unit}: "):
        ledger.admit("run", fits, 0, OF_BOTH)
    assert spent() == 3.0 * fits  # the budget of the larger unit


def test_a_client_budget_that_only_counts_leaves_people_their_own_budget(tmp_path: Path) -> None:
    file = SqliteLedger(tmp_path / "client.ledger", [zcdp(math.inf), zcdp(0.15, "person")])
    ledger = One(file)
    send(ledger, "run", 1, OF_PEOPLE)
    assert file.spent() == math.inf
    with pytest.raises(OverBudget, match="for each person"):
        ledger.admit("run", 2, 0, OF_PEOPLE)


def test_a_draw_for_a_person_costs_once_in_a_run(store: Store) -> None:
    once = PerPerson(person=Memoized(drawn=PureReport(epsilon=1.0), identity="x"), client=CLEAR)
    ledger, spent = store(Budget("pure", 2.5, "person"))
    for run in ("a", "b"):
        for round in (1, 2, 3):
            send(ledger, run, round, once)
    assert spent() == 2.0
    with pytest.raises(OverBudget):
        ledger.admit("c", 1, 0, once)


def test_many_clients_at_once_stay_within_all_budgets() -> None:
    ledger = MemoryLedger([Budget("pure", 9.0), Budget("pure", 2.0, "person")])
    clients = range(4)
    for round in (1, 2):
        place = Place("run", round, 0, asked("?"))
        ledger.release(place, OF_BOTH, clients, lambda: [b"x"] * 4)
    refusals = ledger.check(Place("run", 3, 0, asked("?")), OF_BOTH, clients)
    assert all(isinstance(each, OverBudget) for each in refusals)
    kept = MemoryLedger.from_record(ledger.to_record(), ledger.budgets)
    (again,) = kept.check(Place("run", 3, 0, asked("?")), OF_BOTH, [0])
    assert str(again) == str(refusals[0])


def test_one_unit_has_one_budget() -> None:
    for make in (MemoryLedger, lambda budgets: SqliteLedger("nowhere", budgets)):
        with pytest.raises(ConfigError, match="at most one per unit, not person and person"):
            make([zcdp(1.0, "person"), zcdp(2.0, "person")])
    with pytest.raises(ConfigError, match="unit = people: choose record, person, client"):
        Budget("zcdp", 1.0, "people")  # type: ignore[arg-type]


# The file


BOTH = (zcdp(math.inf), zcdp(0.5, "person"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "client.ledger"


def filled(path: Path, budgets: Budgets, event: Event = OF_PEOPLE) -> SqliteLedger:
    ledger = SqliteLedger(path, budgets)
    for round in (1, 2):
        send(One(ledger), "run", round, event)
    return ledger


def test_a_file_keeps_the_units_of_its_budgets(path: Path) -> None:
    filled(path, reversed(BOTH))
    for given in (None, BOTH, list(reversed(BOTH))):
        ledger = SqliteLedger(path, given)
        assert ledger.budgets == BOTH
        assert [entry.costs for entry in ledger.verify()] == [(math.inf, 0.1)] * 2
        assert ledger.all_spent(ledger.releases()) == [math.inf, pytest.approx(0.2)]
    for other in (zcdp(0.5), zcdp(0.5, "person"), (zcdp(math.inf), zcdp(0.5, "record"))):
        with pytest.raises(LedgerUnusable, match="begun with a zcdp budget without a limit and a "):
            SqliteLedger(path, other)
    assert SqliteLedger(path).charge_lost("lost", 1, 0, OF_PEOPLE) is None
    assert SqliteLedger(path).all_spent(SqliteLedger(path).verify())[1] == pytest.approx(0.3)


def test_show_names_the_units_of_budgets(path: Path, fedldp_command: Any) -> None:
    filled(path, BOTH)
    out = fedldp_command("ledger", "show", path).out
    assert "budget     zcdp budget without a limit\nspent      rho infinity\n" in out
    assert "budget     zcdp budget of rho 0.5 for each person\n" in out
    assert "spent      rho 0.2 for each person\nremaining  rho 0.3 for each person" in out
    shown = json.loads(fedldp_command("ledger", "show", path, "--json").out)
    assert [(each["unit"], each["limit"]) for each in shown["budgets"]] == [
        ("client", None),
        ("person", 0.5),
    ]
    assert [each["costs"] for each in shown["releases"]] == [[None, 0.1]] * 2
    out = fedldp_command("ledger", "verify", path).out
    assert "releases 2, within the zcdp budget without a limit and the zcdp budget of rho" in out
