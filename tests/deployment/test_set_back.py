"""Ledgers that were set back or lost: what a site, its server and a witness notice of it."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest
from environments import World, ask, content, make_world, request_of, write_policy

from fedldp.core.errors import ConfigError, FedldpError, LedgerUnusable, RunError
from fedldp.deployment import site_ledger, sites
from fedldp.deployment.checks import check_site
from fedldp.deployment.identity import make_identity
from fedldp.deployment.messages import NO_RECEIPT
from fedldp.deployment.policy import write_accepted
from fedldp.deployment.restored import charge_lost, moved_to
from fedldp.deployment.site_ledger import Mark, SiteLedger, Witness, read_mark, write_mark
from fedldp.protocol.wire import Reason, Refusal, Report


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sites, "_PAUSE", 0.0)
    monkeypatch.setattr(sites, "_LOOK", 0.0)


def next_run(world: World, letter: str = "f") -> World:
    """Return a new run of the same sites, which have accepted its agreement."""
    agreement = replace(world.agreement, run=letter * len(world.agreement.run))
    for policy in world.policies:
        write_accepted(policy, agreement)
    return replace(world, agreement=agreement)


def release(world: World, round: int = 1, receipt: bytes = NO_RECEIPT) -> bytes:
    """Let site 0 release in a round, and return its receipt."""
    answer = ask(world.agent(0), world, request_of(world, round), receipt)
    assert isinstance(content(answer), Report)
    return answer.receipt


def refuses(world: World, receipt: bytes = NO_RECEIPT) -> None:
    """Check that site 0 releases nothing, and that ``--check`` says so."""
    before = world.ledger(0).releases()
    answer = ask(world.agent(0), world, request_of(world), receipt)
    assert content(answer) == Refusal(1, Reason.LEDGER)
    assert answer.receipt == receipt  # the server goes on to show it
    assert world.ledger(0).releases() == before
    assert amiss(world)


def amiss(world: World) -> list[str]:
    found = [found.what for found in check_site(world.policies[0]) if not found.ok]
    assert not any("\n" in line for line in found)
    return [line for line in found if not line.startswith("data ")]  # tests' files are open


def folder_of(world: World) -> Path:
    return world.policies[0].key.parent


def set_back_with_all(world: World, copy: Path) -> None:
    """Set a site back as a snapshot of its machine does: the mark's file is the same one."""
    shutil.rmtree(folder_of(world))
    shutil.copytree(copy, folder_of(world))
    mark, _ = read_mark(world.policies[0].mark)
    assert mark is not None
    write_mark(world.policies[0].mark, mark)


# Two under-counts that once occurred


def test_an_older_ledger_releases_nothing_in_a_new_run(tmp_path: Path) -> None:
    world = make_world(tmp_path, seeded=False)
    ledger, copy = world.policies[0].ledger, tmp_path / "copy"
    world.agent(0)
    shutil.copy(ledger, copy)
    release(world, 1)
    release(world, 2)
    assert amiss(world) == []
    shutil.copy(copy, ledger)
    refuses(next_run(world))
    assert world.ledger(0).releases() == []
    assert "it lacks release 2, which it had on 20" in amiss(world)[0]


def test_without_ledger_and_state_no_budget_begins_anew(tmp_path: Path) -> None:
    world = make_world(tmp_path, seeded=False)
    policy = world.policies[0]
    release(world)
    policy.ledger.unlink()
    shutil.rmtree(policy.state)
    later = next_run(world)
    with pytest.raises(LedgerUnusable, match="is gone; restore it from a copy"):
        later.agent(0)
    assert not policy.ledger.exists()
    assert "is gone" in amiss(world)[0]
    # Nor by a restore that names nothing, or by another path.
    with pytest.raises(LedgerUnusable, match="is gone"):
        charge_lost(policy, [world.agreement])
    with pytest.raises(LedgerUnusable, match="correct its path"):
        SiteLedger(policy.changed(ledger=policy.ledger.with_name("other")))
    policy.accepted_as(later.agreement.digest).unlink()
    with pytest.raises(ConfigError, match=r"proves 1 release more than .* name the file of every"):
        charge_lost(policy, [], anew=True)
    assert not policy.ledger.exists()
    # Without any copy, everything that it ever accepted is charged, and it goes on.
    charge_lost(policy, [world.agreement], anew=True)
    assert world.ledger(0).spent() == pytest.approx(2 * policy.costs(world.agreement)[0])
    write_accepted(policy, later.agreement)
    assert amiss(world) == []
    release(later)


# The mark


@pytest.mark.sampled(1)
@pytest.mark.parametrize("how", ["over", "anew", "elsewhere"])
def test_a_copy_of_the_whole_folder_is_told_from_what_it_was_made_of(
    tmp_path: Path, how: str
) -> None:
    world = make_world(tmp_path, seeded=False)
    place, copy = folder_of(world), tmp_path / "copy"
    world.agent(0)
    shutil.copytree(place, copy)
    release(world)
    if how == "over":  # into the existing files
        shutil.copytree(copy, place, dirs_exist_ok=True)
    else:
        shutil.rmtree(place)
        shutil.copytree(copy, place)
    if how == "elsewhere":
        world = next_run(world)
    refuses(world)
    assert "it is a copy" in amiss(world)[0]
    (lost, *_) = charge_lost(world.policies[0], [])
    assert lost.rounds == 2
    release(world)


@pytest.mark.slow
def test_another_machine_is_told_from_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(tmp_path, seeded=False)
    release(world)
    with monkeypatch.context() as patch:
        patch.setattr(site_ledger, "_machine", lambda: "another")
        refuses(world)
        assert "another machine" in amiss(world)[0]
    assert amiss(world) == []


@pytest.mark.slow
def test_a_site_that_was_moved_goes_on_at_no_cost(tmp_path: Path) -> None:
    world = make_world(tmp_path, seeded=False)
    policy, older = world.policies[0], tmp_path / "older"
    world.agent(0)
    shutil.copytree(folder_of(world), older)
    receipt = release(world)
    shutil.copytree(folder_of(world), tmp_path / "moved")
    shutil.rmtree(folder_of(world))
    (tmp_path / "moved").rename(folder_of(world))
    refuses(world)
    (last,) = world.ledger(0).releases()
    for wrong in ("none", "", last.hash[:15], "0" * 64, f"{last.hash}0", "x"):
        with pytest.raises(ConfigError, match=r"--moved .*: the ledger's last release does not"):
            moved_to(policy, wrong)
    moved_to(policy, last.hash[:16])
    assert amiss(world) == []
    assert len(world.ledger(0).releases()) == 1
    release(world, 2, receipt)
    # No declaration of its operator makes up for an older ledger at the new place.
    shutil.copy(older / "ledger.sqlite", policy.ledger)
    with pytest.raises(LedgerUnusable, match="lacks release 2"):
        moved_to(policy, "none")


@pytest.mark.slow
def test_without_its_mark_a_ledger_is_not_marked_again(tmp_path: Path) -> None:
    world = make_world(tmp_path, seeded=False)
    mark = world.policies[0].mark
    release(world)
    good = json.loads(mark.read_text())
    changes = {"number": -1}, {"hash": "xyz"}, {"seen": {"number": 1}}, {"seen": 3}
    for damaged in ("", "[]", "{}", "\0", *(json.dumps({**good, **each}) for each in changes)):
        mark.write_text(damaged)
        assert f"mark {mark}: it is damaged; put it back" in amiss(world)[0]
    mark.unlink()
    refuses(world)
    assert f"mark {mark}: it is gone; put it back" in amiss(world)[0]


@pytest.mark.slow
def test_a_ledger_of_an_earlier_fedldp_is_marked_at_first_use_and_it_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = make_world(tmp_path, seeded=False)
    policy, copy = world.policies[0], tmp_path / "copy"
    world.agent(0)
    shutil.copy(policy.ledger, copy)
    release(world)
    policy.mark.unlink()
    (policy.state / "ledger-begun").write_text("The site's ledger was begun. Do not remove it.\n")
    assert amiss(world) == []
    assert not policy.mark.exists()  # a check marks nothing
    release(world)
    (line,) = [r.getMessage() for r in caplog.records if "marked now, at release 1" in r.message]
    assert world.ledger(0).releases()[0].hash in line
    shutil.copy(copy, policy.ledger)
    refuses(world)


@pytest.mark.slow
def test_what_cannot_be_marked_does_not_leave_and_costs_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(tmp_path, seeded=False)
    agent = world.agent(0)

    def full(*given: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        answer = ask(agent, world, request_of(world))
        assert content(answer) == Refusal(1, Reason.LEDGER)
    assert len(world.ledger(0).releases()) == 1
    assert isinstance(content(ask(agent, world, request_of(world))), Report)
    assert len(world.ledger(0).releases()) == 1
    mark, amiss_with_it = read_mark(world.policies[0].mark)
    assert mark is not None
    assert amiss_with_it is None
    assert (mark.number, mark.hash) == (1, world.ledger(0).releases()[0].hash)


@pytest.mark.slow
def test_a_kill_before_the_mark_is_no_reason_to_refuse(tmp_path: Path) -> None:
    world = make_world(tmp_path, seeded=False)
    policy = world.policies[0]
    release(world)
    write_mark(policy.mark, Mark())  # as before: what was paid has not left
    assert amiss(world) == []
    release(world)
    last = world.ledger(0).releases()[0].hash
    assert read_mark(policy.mark)[0] == Mark(0, 1, last, ANY, renewals=0)
    assert len(world.ledger(0).releases()) == 1


# Receipts


@pytest.mark.slow
def test_the_server_shows_in_a_new_run_what_it_saw_in_earlier_ones(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = make_world(tmp_path, seeded=False)
    copy = tmp_path / "copy"
    world.agent(0)
    shutil.copytree(folder_of(world), copy)
    world.serve()
    set_back_with_all(world, copy)
    assert amiss(world) == []  # the site alone cannot know
    later = next_run(world)
    later.folder = tmp_path / "later"
    # The next run's folder lies elsewhere, with a copy of the receipts of all runs beside it.
    later.folder.mkdir()
    shutil.copytree(tmp_path / "receipts", later.folder / "receipts")
    with pytest.raises(RunError, match="site-0 refused: ledger"):
        later.serve()
    assert "site site-0 refuses: its ledger cannot be used, or is an older copy" in caplog.text
    assert world.ledger(0).releases() == []
    assert "own receipt of release 2, which it lacks" in amiss(world)[0]
    # Also for a server without a receipt, and after a restart: until its operator declares it.
    refuses(next_run(world, "e"))
    charge_lost(world.policies[0], [])
    assert amiss(world) == []
    spent = world.ledger(0).spent()
    assert spent >= 2 * world.policies[0].costs(world.agreement)[0]
    last = replace(next_run(world, "d"), folder=later.folder / "last")
    last.folder.mkdir()
    shutil.copytree(later.folder / "receipts", last.folder / "receipts")
    last.serve()
    assert len({e.round for e in world.ledger(0).releases() if e.run == last.agreement.run}) == 2


def test_a_server_cannot_shut_a_site_out_by_what_it_invents(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = make_world(tmp_path, seeded=False)
    given = release(world)
    agent, other = world.agent(0), next_run(world)
    turned = bytes([given[0] ^ 1]) + given[1:]
    before = world.policies[0].mark.read_bytes()
    for invented in (b"\x01" * 32, turned, given[::-1]):
        answer = ask(agent, other, request_of(other), invented)
        assert content(answer) == Refusal(1, Reason.LEDGER)
        assert answer.receipt == invented
    assert "a receipt that this site's key never made" in caplog.text
    assert world.policies[0].mark.read_bytes() == before
    assert amiss(world) == []
    # Others are answered, and so is this one once it shows a genuine receipt, or none.
    assert isinstance(content(ask(agent, other, request_of(other), given)), Report)
    assert isinstance(content(ask(agent, other, request_of(other, 2), NO_RECEIPT)), Report)


@pytest.mark.slow
def test_a_receipt_tells_a_server_nothing_of_other_runs(tmp_path: Path) -> None:
    world = make_world(tmp_path, "rounds=3", seeded=False)
    agent, other = world.agent(0), next_run(world)
    first = ask(agent, world, request_of(world)).receipt
    ask(agent, other, request_of(other))
    again = ask(agent, world, request_of(world), first)
    assert again.receipt == first  # though the ledger grew
    assert ask(agent, other, request_of(other, 9), first).receipt != first  # the later is kept
    assert len({first, ask(agent, world, request_of(world, 2), first).receipt}) == 2


@pytest.mark.slow
def test_each_restore_ends_what_was_given_before_it_and_no_more(tmp_path: Path) -> None:
    world = make_world(tmp_path, "rounds=4", seeded=False)
    policy, copy, later = world.policies[0], tmp_path / "copy", tmp_path / "later"
    world.agent(0)
    shutil.copytree(folder_of(world), copy)
    first = release(world)
    set_back_with_all(world, copy)
    charge_lost(policy, [])
    shutil.copytree(folder_of(world), later)  # after the first restore
    second = release(world, 2, first)
    set_back_with_all(world, later)
    # Releases from before the declared restore may be missing; later ones may not.
    answer = ask(world.agent(0), world, request_of(world, 2), first)
    assert isinstance(content(answer), Report)
    set_back_with_all(world, later)
    refuses(world, second)
    charge_lost(policy, [])
    release(world, 3, second)
    # Twice from one copy.
    set_back_with_all(world, copy)
    charge_lost(policy, [], restores=3)
    release(world, 4, second)


@pytest.mark.slow
def test_of_parallel_runs_the_server_keeps_the_later_receipt(tmp_path: Path) -> None:
    world = make_world(tmp_path, seeded=False)
    other = next_run(world)
    agent = world.agent(0)
    first = ask(agent, world, request_of(world)).receipt
    second = ask(agent, other, request_of(other), first).receipt
    # Asked again in the first run, it does not return the earlier receipt.
    assert ask(agent, world, request_of(world), second).receipt == second


@pytest.mark.slow
def test_a_damaged_receipt_stops_the_server_in_one_line(tmp_path: Path) -> None:
    world = make_world(tmp_path, seeded=False)
    kept = tmp_path / "receipts"
    kept.mkdir()
    for damaged in ("", "{}", '{"receipt": "00"}', '{"receipt": 3}', "[]"):
        (kept / world.agreement.sites[1].key).write_text(damaged)
        with pytest.raises(RunError, match="is damaged: restore it from a copy, or remove") as told:
            world.server()
        assert "\n" not in str(told.value)
        assert "site site-1" in str(told.value)


@pytest.mark.slow
def test_receipts_of_an_earlier_fedldp_are_taken_over(tmp_path: Path) -> None:
    world = make_world(tmp_path, seeded=False)
    server = world.server()
    earlier = server.folder.path / "receipts.json"
    earlier.write_text(json.dumps({"1": "07" * 32}))
    world.server()
    assert not earlier.exists()
    kept = json.loads((tmp_path / "receipts" / world.agreement.sites[1].key).read_text())
    assert kept == {"site": "site-1", "run": world.agreement.run, "receipt": "07" * 32}
    earlier.write_text(json.dumps({"9": "07" * 32}))
    with pytest.raises(RunError, match=r"receipts\.json is damaged"):
        world.server()


@pytest.mark.slow
def test_the_newest_ledger_in_its_place_is_as_good_as_a_restore_that_is_said(
    tmp_path: Path,
) -> None:
    world = make_world(tmp_path, seeded=False)
    policy, copy, newest = world.policies[0], tmp_path / "copy", tmp_path / "newest"
    world.agent(0)
    shutil.copytree(folder_of(world), copy)
    receipt = release(world)
    shutil.copy(policy.ledger, newest)
    set_back_with_all(world, copy)
    refuses(world, receipt)
    shutil.copy(newest, policy.ledger)
    assert amiss(world) == []
    assert release(world, 1, receipt) == receipt  # the same, at no cost
    assert len(world.ledger(0).releases()) == 1


# A witness


@pytest.fixture
def witnessed(tmp_path: Path) -> tuple[World, Path]:
    witness = tmp_path / "other disk" / "witness"
    witness.parent.mkdir()
    witness.touch()
    policy = {"witness": str(witness)}
    return make_world(tmp_path / "world", "rounds=4", seeded=False, policy=policy), witness


@pytest.mark.slow
def test_a_witness_tells_of_what_everything_else_forgot(
    witnessed: tuple[World, Path], tmp_path: Path
) -> None:
    world, witness = witnessed
    copy = tmp_path / "copy"
    world.agent(0)
    shutil.copytree(folder_of(world), copy)
    release(world, 1)
    release(world, 2)
    entries = world.ledger(0).releases()
    lines = [line.split(" ")[1:] for line in witness.read_text().splitlines()]
    assert lines == [[str(entry.number), entry.hash] for entry in entries]
    set_back_with_all(world, copy)
    refuses(world)  # and the server shows nothing
    assert f"lacks release 2, which the witness {witness} knows" in amiss(world)[0]
    with pytest.raises(LedgerUnusable, match="which the witness"):
        moved_to(world.policies[0], "none")
    charge_lost(world.policies[0], [])
    assert amiss(world) == []
    release(world, 3)


@pytest.mark.slow
def test_without_a_witness_a_snapshot_of_all_with_a_silent_server_is_not_noticed(
    tmp_path: Path,
) -> None:
    """What the guide calls unnoticeable: if this test fails, the guide must change."""
    world = make_world(tmp_path, seeded=False)
    copy = tmp_path / "copy"
    world.agent(0)
    shutil.copytree(folder_of(world), copy)
    release(world)
    set_back_with_all(world, copy)
    assert amiss(world) == []
    release(world)


@pytest.mark.slow
def test_a_witness_that_is_missing_or_not_ones_own_is_no_witness(
    witnessed: tuple[World, Path],
) -> None:
    world, witness = witnessed
    release(world)
    good = witness.read_bytes()
    witness.rename(witness.with_name("away"))
    refuses(world)
    assert f"create it once: touch {witness}" in amiss(world)[0]
    for others in (b"hello\n", b"\0" * 5000, good.replace(b" ", b"  "), b"x" * 9000):
        witness.write_bytes(others)
        refuses(world)
        assert "fedldp did not write its last line" in amiss(world)[0]
    # A truncated line belongs to a release that did not leave.
    witness.write_bytes(good + good[:30])
    assert amiss(world) == []
    release(world, 2)
    lines = witness.read_bytes().split(b"\n")
    assert [len(line) for line in lines] == [len(good) - 1, 30, len(good) - 1, 0]
    assert amiss(world) == []
    # An empty one starts at the ledger's present state.
    witness.write_bytes(b"")
    assert amiss(world) == []
    release(world, 3)
    assert [line.split(" ")[1] for line in witness.read_text().splitlines()] == ["2", "3"]


def test_a_witness_that_cannot_be_written_lets_nothing_leave(
    witnessed: tuple[World, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    world, witness = witnessed
    agent, fsync = world.agent(0), os.fsync

    def full(handle: int) -> None:
        if os.path.samestat(os.fstat(handle), witness.stat()):
            raise OSError(28, "No space left on device")
        fsync(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert content(ask(agent, world, request_of(world))) == Refusal(1, Reason.LEDGER)
    assert isinstance(content(ask(agent, world, request_of(world))), Report)
    assert len(world.ledger(0).releases()) == 1


# What --check says


def without_secret(world: World) -> None:
    (world.policies[0].state / "secret").unlink()


def with_another_key(world: World) -> None:
    make_identity(world.folder / "another.key", world.folder / "another.pub")
    shutil.copy(world.folder / "another.key", world.policies[0].key)


def without_budget(world: World) -> None:
    charge_lost(world.policies[0], [], restores=3)


def with_other_data(world: World) -> None:
    world.policies[0].data.write_bytes(b"none")


def without_cuda(world: World) -> None:
    place = folder_of(world)
    world.policies[0] = write_policy(place, device="cuda", budget=world_budget(world))


def world_budget(world: World) -> dict[str, Any]:
    budget = world.policies[0].budgets[0]
    return {"kind": budget.kind, "limit": budget.limit}


def not_accepted_as_it_is(world: World) -> None:
    (file,) = world.policies[0].accepted.glob("*")
    file.write_bytes(file.read_bytes().replace(b"site-1", b"site-9"))


def open_to_others(world: World) -> None:
    world.policies[0].state.chmod(0o755)


def with_another_policy(world: World) -> None:
    place = folder_of(world)
    world.policies[0] = write_policy(place, channels=["sum"], budget=world_budget(world))


def with_other_shapes(world: World) -> None:
    file = world.policies[0].data
    np.savez(file, features=np.zeros((5, 3), np.float32), labels=np.zeros(5, np.int64))


def without_witness(world: World) -> None:
    place, budget = folder_of(world), world_budget(world)
    world.policies[0] = write_policy(place, witness="gone/witness", budget=budget)


def of_another_version(world: World) -> None:
    world.agreement = replace(world.agreement, run="e" * 32, version="9.9.9")
    write_accepted(world.policies[0], world.agreement)


@pytest.mark.slow
@pytest.mark.parametrize(
    "breaks",
    [without_secret, with_another_key, without_budget, with_other_data, without_cuda,
     not_accepted_as_it_is, open_to_others, with_another_policy, with_other_shapes,
     without_witness, of_another_version, None],
    ids=lambda breaks: getattr(breaks, "__name__", "whole"),
)  # fmt: skip
def test_a_check_says_ok_only_where_the_agent_answers(
    tmp_path: Path, breaks: Callable[[World], None] | None
) -> None:
    cost = make_world(tmp_path / "free", seeded=False)
    limit = 4 * cost.policies[0].costs(cost.agreement)[0]
    policy = {"budget": {"kind": "zcdp", "limit": limit}}
    world = make_world(tmp_path / "limited", seeded=False, policy=policy)
    release(world)
    if breaks is not None:
        breaks(world)
    world.policies[0].data.chmod(0o600)
    checked = all(found.ok for found in check_site(world.policies[0]))
    assert checked == answers(world)
    assert checked == (breaks is None)


def answers(world: World) -> bool:
    try:
        agent = world.agent(0)
    except FedldpError:
        return False
    try:
        return isinstance(content(ask(agent, world, request_of(world, 2))), Report)
    except AssertionError:
        return False  # a stranger


@pytest.mark.slow
def test_the_log_and_the_check_name_the_last_release(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    world = make_world(tmp_path, seeded=False)
    release(world)
    (entry,) = world.ledger(0).releases()
    assert f"release 1, hash {entry.hash[:16]}" in caplog.text
    lines = [found.what for found in check_site(world.policies[0])]
    (line,) = [line for line in lines if line.startswith("ledger")]
    assert line.endswith(f", hash {entry.hash}")
    assert "release 1 on 20" in line


def test_a_line_that_a_full_disk_cuts_is_no_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short write raises no system error; still the release may not leave."""
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
