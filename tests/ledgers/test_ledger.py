"""The client's ledger, of people too: what it charges, answers and refuses, and what it notices."""

from __future__ import annotations

import json
import math
import re
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ledger_helpers import (
    ONE,
    PLENTY,
    Budgets,
    One,
    Store,
    asked,
    digest,
    filled,
    fresh,
    never,
    release,
)

from fedldp.accounting.accountants import Side
from fedldp.accounting.events import (
    Event,
    GaussianReport,
    GaussianShare,
    InClear,
    Memoized,
    PerPerson,
    PerRecord,
    PureReport,
    SampledGaussian,
)
from fedldp.core.errors import (
    ConfigError,
    LedgerUnusable,
    NoLongerKept,
    OverBudget,
    PrivacyError,
)
from fedldp.ledgers.budget import Budget, BudgetKind
from fedldp.ledgers.columns import MemoryLedger
from fedldp.ledgers.protocol import Place
from fedldp.ledgers.sqlite import SqliteLedger

IDEAL = PureReport(epsilon=1.0, idealised=True)
STEPS = SampledGaussian(noise_multiplier=1.0, sampling_rate=0.1, steps=3)


def test_a_release_is_charged_and_kept(path: Path) -> None:
    ledger = SqliteLedger(path, Budget("pure", 3.0))
    sent = [release(ledger, "run", round, ONE, fresh) for round in range(2)]
    entries = SqliteLedger(path).verify()
    assert [(e.number, e.run, e.round, e.phase, e.event, e.costs[0]) for e in entries] == [
        (1, "run", 0, 0, ONE, 1.0),
        (2, "run", 1, 0, ONE, 1.0),
    ]
    assert {e.request for e in entries} == {asked("?").hex()}
    assert [e.payload_sha256 for e in entries] == list(map(digest, sent))
    assert (ledger.spent(), ledger.accounts(ledger.releases())[0].left) == (2.0, 1.0)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_removed_bytes_are_not_randomised_again(path: Path) -> None:
    ledger = filled(path)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE releases SET payload = NULL")
    with pytest.raises(NoLongerKept, match="its bytes are no longer stored"):
        release(ledger, "run", 3, ONE, never)
    with pytest.raises(NoLongerKept):
        One(ledger).recall("run", 3, 0, asked("?"))
    assert len(ledger.verify()) == 4


@pytest.mark.parametrize(
    ("kind", "event", "what"),
    [
        ("pure", GaussianReport(mu=1.0, rho=0.5), 'no finite cost is proven.*set kind = "zcdp"'),
        ("zcdp", InClear(what="weights"), "no finite cost is proven"),
        ("gdp", InClear(what="weights"), "no finite cost is proven"),
        ("pure", IDEAL, "private for real numbers only"),
        ("pure", Memoized(drawn=IDEAL, identity="all"), "private for real numbers only"),
        ("pure", PerRecord(record=IDEAL, client=ONE), "private for real numbers only"),
        ("zcdp", PerRecord(record=STEPS, client=ONE), "private for real numbers only"),
        ("zcdp", STEPS, "private for real numbers only"),
    ],
)
def test_events_that_no_budget_covers_are_refused(
    path: Path, kind: BudgetKind, event: Event, what: str
) -> None:
    ledger = SqliteLedger(path, Budget(kind, 1e300))
    with pytest.raises(OverBudget, match=what):
        release(ledger, "run", 0, event, never)
    with pytest.raises(OverBudget, match=what):
        One(ledger).admit("run", 10**5, 0, event)
    assert ledger.releases() == []


@dataclass(frozen=True, kw_only=True)
class Unknown(Event):
    """An event of a later version."""


@dataclass(frozen=True, kw_only=True)
class Weaker(PureReport):
    """An event with a different meaning from its base class."""


@pytest.mark.parametrize("event", [Unknown(), Weaker(epsilon=0.1)])
def test_an_unknown_event_is_refused(path: Path, event: Event) -> None:
    with pytest.raises(PrivacyError, match=f"event {type(event).__name__}: no accountant knows it"):
        release(SqliteLedger(path, PLENTY), "run", 0, event, never)
    with pytest.raises(PrivacyError, match="no accountant knows it"):
        release(MemoryLedger(), "run", 0, event, never)


# The file


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 4096, b"not a database at all, but long enough to look at" * 100]
)
def test_a_foreign_file_is_refused_and_not_changed(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(PrivacyError):
        SqliteLedger(path, PLENTY)
    assert path.read_bytes() == content


def test_a_path_with_odd_characters(tmp_path: Path) -> None:
    path = tmp_path / "a b%20?mode=memory#é.ledger"
    filled(path)
    assert len(SqliteLedger(path).releases()) == 4
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE releases SET costs = '[0.5]' WHERE number = 2",
        "UPDATE releases SET costs = 'free' WHERE number = 2",
        "UPDATE releases SET event = replace(event, '1.0', '0.5') WHERE number = 2",
        "UPDATE releases SET round = 100 WHERE number = 4",
        "UPDATE releases SET run = 'other' WHERE number = 1",
        "UPDATE releases SET phase = 1 WHERE number = 4",
        "UPDATE releases SET request = replace(request, '8', '9') WHERE number = 4",
        "UPDATE releases SET payload_sha256 = 'ab' WHERE number = 3",
        "DELETE FROM releases WHERE number = 1",
        "DELETE FROM releases WHERE number = 3",
        'UPDATE budgets SET "limit" = 1e9',
        "UPDATE budgets SET kind = 'zcdp'",
        "UPDATE budgets SET unit = 'person'",
        "INSERT INTO budgets VALUES ('person', 'pure', 1e9, '')",
        "DELETE FROM budgets",
        "PRAGMA user_version = 2",
    ],
)
def test_a_changed_or_removed_entry_is_found_by_every_use(path: Path, statement: str) -> None:
    ledger = filled(path)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement)
    uses: list[Callable[[], object]] = [
        ledger.verify, ledger.releases, ledger.spent,
        lambda: release(ledger, "run", 3, ONE, never),
        lambda: release(ledger, "run", 4, ONE, never),
        lambda: One(ledger).recall("run", 3, 0, asked("?")),
        lambda: One(ledger).admit("run", 10**5, 0, ONE),
        lambda: SqliteLedger(path).verify(),
    ]  # fmt: skip
    for use in uses:
        with pytest.raises(LedgerUnusable, match=r"client\.ledger"):
            use()


def test_changed_bytes_are_not_sent_again(path: Path) -> None:
    ledger = filled(path)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE releases SET payload = x'00' WHERE number = 4")
    with pytest.raises(PrivacyError, match="the bytes of release 4 were changed"):
        ledger.verify()
    with pytest.raises(PrivacyError, match="the bytes of release 4 were changed"):
        release(ledger, "run", 3, ONE, never)


def rechained(path: Path, statement: str) -> None:
    """Change a ledger as somebody would who recomputes the hashes."""
    from fedldp.ledgers import sqlite as module

    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement)
        previous = module._genesis((PLENTY,))
        query = f"SELECT {module._ENTRY} FROM releases ORDER BY number"
        for row in db.execute(query).fetchall():
            previous = module._chain(previous, *row[:-1])
            db.execute("UPDATE releases SET hash = ? WHERE number = ?", (previous, row[0]))


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        (
            "UPDATE releases SET costs = '[0.5]' WHERE number = 2",
            "release 2 is charged 0.5, not 1.0",
        ),
        ("UPDATE releases SET costs = 'free' WHERE number = 2", "release 2 cannot be read"),
        ("UPDATE releases SET costs = '[-1.0]' WHERE number = 2", "release 2 is charged -1.0"),
        ("UPDATE releases SET event = '{}' WHERE number = 2", "release 2 cannot be read"),
        ("UPDATE releases SET event = 'x' WHERE number = 2", "release 2 cannot be read"),
        ("DELETE FROM releases WHERE number = 3", "release 3 was changed or removed"),
        (
            """UPDATE releases SET event = '{"event": "InClear", "what": "all"}'""",
            "release 1 is charged 1.0, not inf",
        ),
        (
            """UPDATE releases SET costs = '[1e6]', """
            """event = '{"event": "PureReport", "epsilon": 1e6}'""",
            "the releases cost more",
        ),
    ],
)
def test_entries_must_make_sense_whatever_their_hashes(
    path: Path, statement: str, what: str
) -> None:
    filled(path)
    rechained(path, statement)
    with pytest.raises(PrivacyError, match=what):
        SqliteLedger(path).verify()


def test_an_event_drawn_once_is_checked_against_the_earlier_draw(path: Path) -> None:
    once = Memoized(drawn=ONE, identity="bits")
    ledger = SqliteLedger(path, PLENTY)
    for run, round in (("a", 1), ("a", 2), ("b", 1), ("a", 3)):
        release(ledger, run, round, once, fresh)
    assert [entry.costs[0] for entry in SqliteLedger(path).verify()] == [1.0, 0.0, 1.0, 0.0]
    assert SqliteLedger(path).spent() == ledger.spent() == 2.0
    rechained(path, "UPDATE releases SET costs = '[0.0]' WHERE number = 3")
    for each in (ledger, SqliteLedger(path)):
        with pytest.raises(LedgerUnusable, match=r"release 3 is charged 0\.0, not 1\.0"):
            each.verify()


def test_releases_and_changes_of_other_processes_are_noticed(path: Path) -> None:
    ledger = filled(path)
    ledger.releases().clear()  # the list belongs to the caller
    release(SqliteLedger(path), "run", 4, ONE, fresh)
    assert [entry.round for entry in ledger.releases()] == [0, 1, 2, 3, 4]
    whole = path.read_bytes()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE releases SET costs = '[0.0]' WHERE number = 1")
    for _ in range(2):
        with pytest.raises(LedgerUnusable, match="release 1 was changed or removed"):
            ledger.releases()
    path.write_bytes(whole)
    assert ledger.spent() == 5.0


@pytest.mark.slow
def test_a_damaged_file_is_refused_or_read_correctly(path: Path) -> None:
    entries = filled(path).verify()
    whole = path.read_bytes()
    refused = 0
    for place in range(0, len(whole), 53):
        damaged = bytearray(whole)
        damaged[place] ^= 0x15
        path.write_bytes(damaged)
        try:
            assert SqliteLedger(path).verify() == entries
        except PrivacyError:
            refused += 1
    assert refused > 10


def test_a_truncated_file_is_refused_or_continued_correctly(path: Path) -> None:
    ledger = filled(path)
    entries = ledger.releases()
    whole = path.read_bytes()
    refused = 0
    for size in range(0, len(whole), 500):
        path.write_bytes(whole[:size])
        try:
            release(ledger, "run", 4, ONE, fresh)
        except PrivacyError:
            refused += 1
        else:
            assert ledger.releases()[:-1] == entries
    assert refused > 24


CLEAR = InClear(what="all that many people add up to")
SHARE = GaussianShare(squared_distance=64, variance=320)  # rho 0.1
OF_PEOPLE = PerPerson(person=SHARE, client=CLEAR)
OF_ROWS = PerRecord(record=SHARE, client=CLEAR)
OF_BOTH = PerPerson(person=PureReport(epsilon=1.0), client=PureReport(epsilon=3.0))


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
    for event in (OF_PEOPLE, OF_ROWS, CLEAR):
        with pytest.raises(OverBudget, match=r"under a zcdp budget; .*give a person_budget"):
            ledger.admit("run", 1, 0, event)
    assert spent() == 0.0


def test_a_budget_for_records_does_not_cover_persons_and_one_for_persons_covers_records(
    store: Store,
) -> None:
    ledger, _ = store(zcdp(1e9, "person"))
    with pytest.raises(OverBudget, match="under a zcdp budget for each person; "):
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


def filled_for_people(path: Path, budgets: Budgets, event: Event = OF_PEOPLE) -> SqliteLedger:
    ledger = SqliteLedger(path, budgets)
    for round in (1, 2):
        send(One(ledger), "[red]run", round, event)
    return ledger


def test_a_file_keeps_the_units_of_its_budgets(path: Path) -> None:
    filled_for_people(path, reversed(BOTH))
    for given in (None, BOTH, list(reversed(BOTH))):
        ledger = SqliteLedger(path, given)
        assert ledger.budgets == BOTH
        assert [entry.costs for entry in ledger.verify()] == [(math.inf, 0.1)] * 2
        spent = [account.spent for account in ledger.accounts(ledger.releases())]
        assert spent == [math.inf, pytest.approx(0.2)]
    for other in (zcdp(0.5), zcdp(0.5, "person"), (zcdp(math.inf), zcdp(0.5, "record"))):
        with pytest.raises(LedgerUnusable, match="begun with a zcdp budget without a limit and a "):
            SqliteLedger(path, other)
    assert SqliteLedger(path).charge_lost("lost", 1, 0, OF_PEOPLE) is None
    again = SqliteLedger(path)
    assert again.accounts(again.verify())[1].spent == pytest.approx(0.3)


def test_show_names_the_units_of_budgets(path: Path, fedldp_command: Any) -> None:
    filled_for_people(path, BOTH)
    out = fedldp_command("ledger", "show", path).out
    assert "budget     zcdp budget without a limit\nspent      rho infinity\n" in out
    assert "budget     zcdp budget of rho 0.5 for each person\n" in out
    assert "spent      rho 0.2 for each person\nremaining  rho 0.3 for each person" in out
    assert re.search(r"1 +│ +\[red\]run +│ +1 +│ +0 +│", out)
    shown = json.loads(fedldp_command("ledger", "show", path, "--json").out)
    assert [(each["unit"], each["limit"]) for each in shown["budgets"]] == [
        ("client", None),
        ("person", 0.5),
    ]
    assert [each["costs"] for each in shown["releases"]] == [[None, 0.1]] * 2
    out = fedldp_command("ledger", "verify", path).out
    budgets = "the zcdp budget without a limit and the zcdp budget of rho 0.5 for each person"
    assert out == f"ok: {path}: releases 2, within {budgets}\n"
