"""Outdated or lost ledgers, as noticed by a site, its server and a witness."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from environments import (
    Environment,
    acceptance_of,
    ask,
    changes_database,
    content,
    end_after_one_try,
    limited,
    make_environment,
    request_of,
    write_policy,
)

from fedldp.core.errors import ConfigError, FedldpError, LedgerUnusable, RunError
from fedldp.deployment import site_ledger
from fedldp.deployment.acceptance import accept
from fedldp.deployment.checks import check_site
from fedldp.deployment.identity import make_identity
from fedldp.deployment.messages import NO_RECEIPT
from fedldp.deployment.restored import charge_lost, moved_to
from fedldp.deployment.site_ledger import Mark, Seen, SiteLedger, Witness, read_mark, write_mark
from fedldp.deployment.watch import ServerWatch
from fedldp.protocol.wire import Reason, Refusal, Report


def next_run(env: Environment, letter: str = "f") -> Environment:
    """Return a new run of the same sites, which have accepted its agreement."""
    agreement = env.another_run(int(letter * 32, 16))
    for policy in env.policies:
        accept(policy, agreement)
    return replace(env, agreement=agreement)


def release(env: Environment, round: int = 1, receipt: bytes = NO_RECEIPT) -> bytes:
    """Let site 0 release in a round, and return its receipt."""
    answer = ask(env.agent(0), env, request_of(env, round), receipt)
    assert isinstance(content(answer), Report)
    return answer.receipt


def refuses(env: Environment, receipt: bytes = NO_RECEIPT) -> None:
    """Check that site 0 releases nothing, and that ``--check`` says so."""
    before = env.ledger(0).releases()
    answer = ask(env.agent(0), env, request_of(env), receipt)
    assert content(answer) == Refusal(1, Reason.LEDGER)
    assert answer.receipt == receipt  # the server continues to show it
    assert env.ledger(0).releases() == before
    assert amiss(env)


def amiss(env: Environment) -> list[str]:
    found = [found.what for found in check_site(env.policies[0]) if not found.ok]
    assert not any("\n" in line for line in found)
    # Files in tests are readable by others, and no server is there.
    return [line for line in found if not line.startswith(("data ", "server "))]


def folder_of(env: Environment) -> Path:
    return env.policies[0].key.parent


def set_back_with_all(env: Environment, copy: Path) -> None:
    """Set a site back as a snapshot of its machine would: the mark's file remains the same file."""
    shutil.rmtree(folder_of(env))
    shutil.copytree(copy, folder_of(env))
    mark, _ = read_mark(env.policies[0].mark)
    assert mark is not None
    write_mark(env.policies[0].mark, mark)


# Two cases that were once undercounted


@pytest.mark.slow
def test_an_older_ledger_releases_nothing_in_a_new_run(tmp_path: Path) -> None:
    env = make_environment(tmp_path, seeded=False)
    ledger, copy = env.policies[0].ledger, tmp_path / "copy"
    env.agent(0)
    shutil.copy(ledger, copy)
    release(env, 1)
    release(env, 2)
    assert amiss(env) == []
    later = next_run(env)
    shutil.copy(copy, ledger)
    refuses(env)
    with pytest.raises(LedgerUnusable, match="it lacks release 2"):
        accept(env.policies[0], later.agreement)
    assert env.ledger(0).releases() == []
    assert "it lacks release 2, which it had on 20" in amiss(env)[0]


@pytest.mark.slow
def test_without_ledger_and_state_no_budget_starts_afresh(tmp_path: Path) -> None:
    env = make_environment(tmp_path, seeded=False)
    policy = env.policies[0]
    release(env)
    shutil.rmtree(policy.state)
    with pytest.raises(LedgerUnusable, match="is gone; restore the state folder from a copy"):
        env.agent(0)
    with pytest.raises(LedgerUnusable, match="is gone; restore the state folder from a copy"):
        next_run(env)
    assert not policy.ledger.exists()
    assert "is gone" in amiss(env)[0]
    # Neither a restore that names no release nor another path changes that.
    with pytest.raises(LedgerUnusable, match="is gone"):
        charge_lost(policy, [env.agreement])
    with pytest.raises(LedgerUnusable, match="correct its path"):
        SiteLedger(policy.changed(state=policy.state.with_name("other")))
    with pytest.raises(ConfigError, match=r"proves 1 more release than .* name the file of every"):
        charge_lost(policy, [], anew=True)
    assert not policy.ledger.exists()
    # Without any copy, everything that the site ever accepted is charged, and it continues.
    charge_lost(policy, [env.agreement], anew=True)
    assert env.ledger(0).spent() == pytest.approx(2 * policy.costs(env.agreement)[0])
    later = next_run(env)
    assert amiss(env) == []
    release(later)


# The mark


def test_a_copy_of_the_whole_folder_is_distinguished_from_the_original(tmp_path: Path) -> None:
    env = make_environment(tmp_path, seeded=False)
    place, copy = folder_of(env), tmp_path / "copy"
    env.agent(0)
    shutil.copytree(place, copy)
    release(env)
    shutil.rmtree(place)
    shutil.copytree(copy, place)
    refuses(env)
    assert "it is a copy" in amiss(env)[0]
    (lost, *_) = charge_lost(env.policies[0], [])
    assert lost.rounds == 2
    release(env)


def test_another_machine_is_distinguished_from_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = make_environment(tmp_path, seeded=False)
    release(env)
    with monkeypatch.context() as patch:
        patch.setattr(site_ledger, "_machine", lambda: "another")
        refuses(env)
        assert "another machine" in amiss(env)[0]
    assert amiss(env) == []


def test_a_moved_site_continues_at_no_cost(tmp_path: Path) -> None:
    env = make_environment(tmp_path, seeded=False)
    policy, older = env.policies[0], tmp_path / "older"
    env.agent(0)
    shutil.copytree(folder_of(env), older)
    receipt = release(env)
    shutil.copytree(folder_of(env), tmp_path / "moved")
    shutil.rmtree(folder_of(env))
    (tmp_path / "moved").rename(folder_of(env))
    refuses(env)
    (last,) = env.ledger(0).releases()
    for wrong in ("none", "", last.hash[:15], "0" * 64, f"{last.hash}0", "x"):
        with pytest.raises(ConfigError, match=r"--moved .*: the ledger's last release does not"):
            moved_to(policy, wrong)
    moved_to(policy, last.hash[:16])
    assert amiss(env) == []
    assert len(env.ledger(0).releases()) == 1
    release(env, 2, receipt)
    # A declaration of its operator does not make up for an older ledger at the new place.
    shutil.copy(older / "state" / "site.db", policy.ledger)
    with pytest.raises(LedgerUnusable, match="lacks release 2"):
        moved_to(policy, "none")


def test_without_its_mark_a_ledger_is_not_marked_again(tmp_path: Path) -> None:
    env = make_environment(tmp_path, seeded=False)
    mark = env.policies[0].mark
    release(env)
    good = json.loads(mark.read_text())
    changes = {"number": -1}, {"hash": "xyz"}, {"seen": {"number": 1}}, {"seen": 3}
    for damaged in ("", "[]", "{}", "\0", *(json.dumps({**good, **each}) for each in changes)):
        mark.write_text(damaged)
        assert f"mark {mark}: it is damaged; put it back" in amiss(env)[0]
    mark.unlink()
    refuses(env)
    assert f"mark {mark}: it is gone; put it back" in amiss(env)[0]
    assert not mark.exists()


def test_a_release_that_cannot_be_marked_does_not_leave_and_costs_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = make_environment(tmp_path, seeded=False)
    agent = env.agent(0)

    def full(*given: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        answer = ask(agent, env, request_of(env))
        assert content(answer) == Refusal(1, Reason.LEDGER)
    assert len(env.ledger(0).releases()) == 1
    assert isinstance(content(ask(agent, env, request_of(env))), Report)
    assert len(env.ledger(0).releases()) == 1
    mark, amiss_with_it = read_mark(env.policies[0].mark)
    assert mark is not None
    assert amiss_with_it is None
    assert (mark.number, mark.hash) == (1, env.ledger(0).releases()[0].hash)


def test_a_kill_before_the_mark_is_no_reason_to_refuse(tmp_path: Path) -> None:
    env = make_environment(tmp_path, seeded=False)
    policy = env.policies[0]
    release(env)
    write_mark(policy.mark, Mark())  # as before the kill: what was paid has not left
    assert amiss(env) == []
    release(env)
    last = env.ledger(0).releases()[0].hash
    assert read_mark(policy.mark)[0] == Mark(
        number=1, hash=last, date=env.ledger(0).releases()[0].date
    )
    assert len(env.ledger(0).releases()) == 1


# Receipts


@pytest.mark.slow
def test_in_a_new_run_the_server_shows_the_receipts_of_earlier_ones(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ServerWatch, "missed", end_after_one_try)
    env = make_environment(tmp_path, seeded=False)
    copy = tmp_path / "copy"
    env.agent(0)
    shutil.copytree(folder_of(env), copy)
    env.serve()
    set_back_with_all(env, copy)
    assert amiss(env) == []  # the site alone cannot notice it
    later, another = next_run(env), next_run(env, "e")
    later.folder = tmp_path / "later"
    # The next run's folder is elsewhere, next to a copy of the receipts of all runs.
    later.folder.mkdir()
    shutil.copytree(tmp_path / "receipts", later.folder / "receipts")
    with pytest.raises(RunError, match="one try"):
        later.serve()
    assert "site site-0 refuses: its ledger cannot be used, or is an older copy" in caplog.text
    assert env.ledger(0).releases() == []
    assert "own receipt of release 2, which the ledger lacks" in amiss(env)[0]
    # This also holds for a server without a receipt and after a restart, until the operator
    # declares the restore.
    refuses(another)
    charge_lost(env.policies[0], [])
    assert amiss(env) == []
    spent = env.ledger(0).spent()
    assert spent >= 2 * env.policies[0].costs(env.agreement)[0]
    last = replace(next_run(env, "d"), folder=later.folder / "last")
    last.folder.mkdir()
    shutil.copytree(later.folder / "receipts", last.folder / "receipts")
    last.serve()
    assert len({e.round for e in env.ledger(0).releases() if e.run == last.agreement.run}) == 2


@pytest.mark.slow
def test_a_server_cannot_shut_a_site_out_with_an_invented_receipt(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    env = make_environment(tmp_path, seeded=False)
    given = release(env)
    agent, other = env.agent(0), next_run(env)
    turned = bytes([given[0] ^ 1]) + given[1:]
    before = env.policies[0].mark.read_bytes()
    for invented in (b"\x01" * 32, turned, given[::-1]):
        answer = ask(agent, other, request_of(other), invented)
        assert content(answer) == Refusal(1, Reason.LEDGER)
        assert answer.receipt == invented
    assert "a receipt that this site's key never made" in caplog.text
    assert env.policies[0].mark.read_bytes() == before
    assert amiss(env) == []
    # Other servers are answered, and so is this one if it shows a genuine receipt or none.
    assert isinstance(content(ask(agent, other, request_of(other), given)), Report)
    assert isinstance(content(ask(agent, other, request_of(other, 2), NO_RECEIPT)), Report)


@pytest.mark.slow
def test_a_receipt_tells_a_server_nothing_about_other_runs(tmp_path: Path) -> None:
    env = make_environment(tmp_path, "rounds=3", seeded=False)
    agent, other = env.agent(0), next_run(env)
    first = ask(agent, env, request_of(env)).receipt
    ask(agent, other, request_of(other))
    again = ask(agent, env, request_of(env), first)
    assert again.receipt == first  # although the ledger has grown
    second = ask(agent, other, request_of(other), first).receipt
    assert ask(agent, env, request_of(env), second).receipt == second  # the later one is kept
    assert len({first, ask(agent, env, request_of(env, 2), first).receipt}) == 2


@pytest.mark.slow
def test_each_restore_covers_only_releases_before_it(tmp_path: Path) -> None:
    env = make_environment(tmp_path, "rounds=4", seeded=False)
    policy, copy, later = env.policies[0], tmp_path / "copy", tmp_path / "later"
    env.agent(0)
    shutil.copytree(folder_of(env), copy)
    first = release(env)
    set_back_with_all(env, copy)
    charge_lost(policy, [])
    shutil.copytree(folder_of(env), later)  # after the first restore
    second = release(env, 2, first)
    set_back_with_all(env, later)
    # Releases from before the declared restore may be missing, but not later ones.
    answer = ask(env.agent(0), env, request_of(env, 2), first)
    assert isinstance(content(answer), Report)
    set_back_with_all(env, later)
    refuses(env, second)
    charge_lost(policy, [])
    release(env, 3, second)
    # Restored twice from one copy.
    set_back_with_all(env, copy)
    charge_lost(policy, [], restores=3)
    assert env.ledger(0).spent() == pytest.approx(3 * policy.costs(env.agreement)[1])
    release(env, 4, second)


def test_a_damaged_receipt_stops_the_server_in_one_line(tmp_path: Path) -> None:
    env = make_environment(tmp_path, seeded=False)
    kept = tmp_path / "receipts"
    kept.mkdir()
    for damaged in ("{}", "00", "no"):
        (kept / env.agreement.sites[1].key).write_text(damaged)
        with pytest.raises(RunError, match="is damaged: restore it from a copy, or remove") as told:
            env.server()
        assert "\n" not in str(told.value)
        assert "site site-1" in str(told.value)


def test_putting_the_newest_ledger_back_equals_a_declared_restore(
    tmp_path: Path,
) -> None:
    env = make_environment(tmp_path, seeded=False)
    policy, copy, newest = env.policies[0], tmp_path / "copy", tmp_path / "newest"
    env.agent(0)
    shutil.copytree(folder_of(env), copy)
    receipt = release(env)
    shutil.copy(policy.ledger, newest)
    set_back_with_all(env, copy)
    refuses(env, receipt)
    shutil.copy(newest, policy.ledger)
    assert amiss(env) == []
    assert release(env, 1, receipt) == receipt  # the same, at no cost
    assert len(env.ledger(0).releases()) == 1


# A witness


@pytest.fixture
def witnessed(tmp_path: Path) -> tuple[Environment, Path]:
    witness = tmp_path / "other disk" / "witness"
    witness.parent.mkdir()
    witness.touch()
    policy = {"witness": str(witness)}
    return make_environment(tmp_path / "world", "rounds=4", seeded=False, policy=policy), witness


def test_a_witness_reports_a_release_that_everything_else_forgot(
    witnessed: tuple[Environment, Path], tmp_path: Path
) -> None:
    env, witness = witnessed
    copy = tmp_path / "copy"
    env.agent(0)
    shutil.copytree(folder_of(env), copy)
    release(env, 1)
    release(env, 2)
    entries = env.ledger(0).releases()
    lines = [line.split(" ")[1:] for line in witness.read_text().splitlines()]
    assert lines == [[str(entry.number), entry.hash] for entry in entries]
    set_back_with_all(env, copy)
    refuses(env)  # although the server shows nothing
    assert f"lacks release 2, which the witness {witness} records" in amiss(env)[0]
    with pytest.raises(LedgerUnusable, match="which the witness"):
        moved_to(env.policies[0], "none")
    charge_lost(env.policies[0], [])
    assert amiss(env) == []
    release(env, 3)


@pytest.mark.slow
def test_a_missing_or_foreign_witness_is_refused(
    witnessed: tuple[Environment, Path],
) -> None:
    env, witness = witnessed
    release(env)
    good = witness.read_bytes()
    witness.rename(witness.with_name("away"))
    refuses(env)
    assert f"create it once: touch {witness}" in amiss(env)[0]
    for others in (b"hello\n", b"\0" * 5000, good.replace(b" ", b"  "), b"x" * 9000):
        witness.write_bytes(others)
        refuses(env)
        assert "fedldp did not write its last line" in amiss(env)[0]
    # A truncated line belongs to a release that did not leave.
    witness.write_bytes(good + good[:30])
    assert amiss(env) == []
    release(env, 2)
    lines = witness.read_bytes().split(b"\n")
    assert [len(line) for line in lines] == [len(good) - 1, 30, len(good) - 1, 0]
    assert amiss(env) == []
    # An empty witness starts at the ledger's current state.
    witness.write_bytes(b"")
    assert amiss(env) == []
    release(env, 3)
    assert [line.split(" ")[1] for line in witness.read_text().splitlines()] == ["2", "3"]


def test_a_witness_that_cannot_be_written_to_lets_nothing_leave(
    witnessed: tuple[Environment, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    env, witness = witnessed
    agent, fsync = env.agent(0), os.fsync

    def full(handle: int) -> None:
        if os.path.samestat(os.fstat(handle), witness.stat()):
            raise OSError(28, "No space left on device")
        fsync(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert content(ask(agent, env, request_of(env))) == Refusal(1, Reason.LEDGER)
    assert isinstance(content(ask(agent, env, request_of(env))), Report)
    assert len(env.ledger(0).releases()) == 1


# What --check says


def changes_policy(env: Environment, **terms: Any) -> None:
    budget = env.policies[0].budgets[0]
    kept = {"kind": budget.kind, "limit": budget.limit}
    env.policies[0] = write_policy(folder_of(env), budget=kept, **terms)


def with_another_key(env: Environment) -> None:
    make_identity(env.folder / "another.key", env.folder / "another.pub")
    shutil.copy(env.folder / "another.key", env.policies[0].key)


def not_accepted_as_it_is(env: Environment) -> None:
    content = acceptance_of(env.policies[0], env.agreement.digest).content
    changed = content.replace(b"site-1", b"site-9")
    changes_database(env.policies[0], "UPDATE agreements SET content = ?", changed)


def with_other_shapes(env: Environment) -> None:
    file = env.policies[0].data
    np.savez(file, features=np.zeros((5, 3), np.float32), labels=np.zeros(5, np.int64))


BREAKS: dict[str, Callable[[Environment], object]] = {
    "no secret": lambda env: changes_database(env.policies[0], "DELETE FROM site"),
    "not promised": lambda env: changes_database(
        env.policies[0], "UPDATE agreements SET promised = '[0]'"
    ),
    "another key": with_another_key,
    "no budget": lambda env: charge_lost(env.policies[0], [], restores=3),
    "other data": lambda env: env.policies[0].data.write_bytes(b"none"),
    "no cuda": lambda env: changes_policy(env, device="cuda"),
    "not accepted as it is": not_accepted_as_it_is,
    "open to others": lambda env: env.policies[0].state.chmod(0o755),
    "another policy": lambda env: changes_policy(env, channels=["sum"]),
    "other shapes": with_other_shapes,
    "no witness": lambda env: changes_policy(env, witness="gone/witness"),
    "whole": lambda env: None,
}


@pytest.mark.slow
@pytest.mark.parametrize("broken", BREAKS)
def test_a_check_says_ok_only_if_the_agent_answers(tmp_path: Path, broken: str) -> None:
    env = limited(tmp_path, 4, seeded=False)
    release(env)
    BREAKS[broken](env)
    env.policies[0].data.chmod(0o600)
    found = check_site(env.policies[0])
    checked = all(each.ok or each.what.startswith("server ") for each in found)  # there is none
    assert checked == answers(env) == (broken == "whole")


def answers(env: Environment) -> bool:
    try:
        agent = env.agent(0)
    except FedldpError:
        return False
    try:
        return isinstance(content(ask(agent, env, request_of(env, 2))), Report)
    except AssertionError:
        return False  # a stranger


def test_a_line_cut_short_by_a_full_disk_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short write raises no system error, but the release may not leave."""
    path, write = tmp_path / "witness", os.write
    path.touch()
    witness = Witness(path)
    monkeypatch.setattr(os, "write", lambda handle, line: write(handle, line[:20]))
    with pytest.raises(LedgerUnusable, match="cannot be written: No space left"):
        witness.add("2026-01-01T00:00:00+00:00", 1, "a" * 64)
    monkeypatch.undo()
    assert witness.last() is None
    witness.add("2026-01-01T00:00:00+00:00", 1, "a" * 64)
    assert witness.last() == (1, "a" * 64)


# Several runs at once


def test_a_mark_that_is_replaced_while_it_is_read_is_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer of another run, or another process, may replace it at any moment."""
    mark = tmp_path / "mark"
    write_mark(mark, Mark(number=1))
    right = site_ledger._Bound.model_validate_json

    def replaced(content: bytes) -> Any:
        write_mark(mark, Mark(number=2))
        return right(content)

    monkeypatch.setattr(site_ledger._Bound, "model_validate_json", replaced)
    assert read_mark(mark) == (Mark(number=1), None)
    monkeypatch.undo()
    assert read_mark(mark) == (Mark(number=2), None)
    copy = tmp_path / "copy"
    copy.write_bytes(mark.read_bytes())
    assert read_mark(copy) == (Mark(number=2), "it is a copy")


def test_a_release_of_another_run_does_not_undo_a_refusal(tmp_path: Path) -> None:
    """What a receipt proved is recorded, although another run's answer is marked meanwhile."""
    env = make_environment(tmp_path)
    kept = SiteLedger(env.policies[0])
    seen = Seen(restores=0, number=5, hash="a" * 64)

    def refuse() -> None:
        with pytest.raises(LedgerUnusable, match="release 5, which the ledger lacks"):
            kept.refuse_for(seen)

    other = threading.Thread(target=refuse)
    right = kept._write

    def slowly(mark: Mark, entries: Any) -> None:
        other.start()
        other.join(0.2)
        right(mark, entries)

    kept._write = slowly  # type: ignore[method-assign]
    ask(env.agent(0), env, request_of(env))
    write_mark(env.policies[0].mark, Mark())
    kept.keep()
    other.join()
    mark, _ = read_mark(env.policies[0].mark)
    assert mark.seen == seen
