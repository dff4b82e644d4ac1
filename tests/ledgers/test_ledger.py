"""The client's ledger: its charges, answers and refusals, and the changes that it detects."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from ledger_helpers import ONE, PLENTY, One, asked, digest, filled, fresh, never, release

from fedldp.accounting.events import (
    Event,
    GaussianReport,
    InClear,
    Memoized,
    PerRecord,
    PureReport,
    SampledGaussian,
)
from fedldp.core.errors import (
    LedgerUnusable,
    NoLongerKept,
    OverBudget,
    PrivacyError,
)
from fedldp.ledgers.budget import Budget, BudgetKind
from fedldp.ledgers.columns import MemoryLedger
from fedldp.ledgers.sqlite import SqliteLedger

IDEAL = PureReport(epsilon=1.0, idealised=True)
STEPS = SampledGaussian(noise_multiplier=1.0, sampling_rate=0.1, steps=3)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "client.ledger"


def test_a_release_is_charged_and_kept(path: Path) -> None:
    ledger = SqliteLedger(path, Budget("pure", 3.0))
    sent = [release(ledger, "run", round, ONE, fresh) for round in range(2)]
    entries = SqliteLedger(path).verify()
    assert [(e.number, e.run, e.round, e.phase, e.event, e.cost) for e in entries] == [
        (1, "run", 0, 0, ONE, 1.0),
        (2, "run", 1, 0, ONE, 1.0),
    ]
    assert {e.request for e in entries} == {asked("?").hex()}
    assert [e.payload_sha256 for e in entries] == list(map(digest, sent))
    assert (ledger.spent(), ledger.remaining()) == (2.0, 1.0)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_only_the_bytes_of_each_runs_latest_round_are_kept(path: Path) -> None:
    ledger = filled(path)
    more = [release(ledger, "run", 3, ONE, fresh, phase=phase) for phase in (2, 1)]
    other = release(ledger, "other", 0, ONE, fresh)
    for phase, sent in ((2, more[0]), (1, more[1])):
        assert release(ledger, "run", 3, ONE, never, phase=phase) == sent
    release(ledger, "run", 4, ONE, fresh)
    with pytest.raises(NoLongerKept, match="run run round 3: round 4 was released since"):
        release(ledger, "run", 3, ONE, never)
    assert release(ledger, "other", 0, ONE, never) == other
    assert ledger.spent() == 8.0
    with closing(sqlite3.connect(path)) as db, db:
        query = "SELECT run, round FROM releases WHERE payload IS NOT NULL ORDER BY number"
        assert db.execute(query).fetchall() == [("other", 0), ("run", 4)]


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
        ("pure", GaussianReport(mu=1.0, rho=0.5), "no finite cost is proven.*a zcdp budget covers"),
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


def test_the_budget_stays(path: Path) -> None:
    filled(path)
    assert SqliteLedger(path).budget == SqliteLedger(path, PLENTY).budget == PLENTY
    for other in (Budget("pure", 2e6), Budget("pure", 1.0), Budget("zcdp", 1e6)):
        with pytest.raises(PrivacyError, match="it was begun with a pure budget of epsilon"):
            SqliteLedger(path, other)


def test_without_a_budget_no_file_is_made(path: Path) -> None:
    with pytest.raises(PrivacyError, match="this file does not exist"):
        SqliteLedger(path)
    assert not path.exists()


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
        'UPDATE budget SET "limit" = 1e9',
        "UPDATE budget SET kind = 'zcdp'",
        "UPDATE budget SET unit = 'person'",
        "INSERT INTO budget VALUES ('person', 'pure', 1e9, '')",
        "DELETE FROM budget",
        "PRAGMA user_version = 2",
    ],
)
def test_a_changed_or_removed_entry_is_found_by_every_use(path: Path, statement: str) -> None:
    ledger = filled(path)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement)
    uses: list[Callable[[], object]] = [
        ledger.verify, ledger.releases, ledger.spent, ledger.remaining,
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
    assert [entry.cost for entry in SqliteLedger(path).verify()] == [1.0, 0.0, 1.0, 0.0]
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


def test_removing_the_newest_entries_shows_only_in_the_last_hash(path: Path) -> None:
    last = filled(path).verify()[-1].hash
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("DELETE FROM releases WHERE number > 2")
    entries = SqliteLedger(path).verify()
    assert len(entries) == 2
    assert last not in [entry.hash for entry in entries]


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
