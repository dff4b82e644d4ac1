"""A site that came back from an older copy: never less is charged than may have been released."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from worlds import World, make_world

from fedldp.deployment.agreement import Agreement
from fedldp.deployment.policy import write_accepted
from fedldp.deployment.restored import Restored, charge_lost
from fedldp.errors import ConfigError, RunError


def cost_of(world: World) -> float:
    return float(world.policies[0].costs(world.agreement)[0])


def limited(folder: Path, rounds: float) -> World:
    """Return a world whose sites can pay for so many rounds."""
    cost = cost_of(make_world(folder / "free", seeded=False))
    return make_world(
        folder / "limited", seeded=False,
        policy={"budget": {"kind": "zcdp", "limit": rounds * cost * (1 + 1e-9)}},
    )  # fmt: skip


def another_run(world: World) -> Agreement:
    """Return an agreement of the same sites, in a run of its own."""
    return replace(world.agreement, run="f" * len(world.agreement.run))


@pytest.mark.parametrize("in_the_copy", [True, False])
def test_what_has_left_is_charged_beyond_the_limit_and_nothing_more_is_released(
    in_the_copy: bool, tmp_path: Path
) -> None:
    world = limited(tmp_path, 3)
    policy, ledger, copy = world.policies[0], world.policies[0].ledger, tmp_path / "copy"
    other = another_run(world)
    write_accepted(policy, other)
    world.agent(0)
    shutil.copy(ledger, copy)
    world.serve()
    assert world.ledger(0).spent() == pytest.approx(2 * cost_of(world))
    shutil.copy(copy, ledger)
    if not in_the_copy:
        policy.accepted_as(other.digest).unlink()
    charge_lost(policy, [] if in_the_copy else [other])
    kept = world.ledger(0)
    kept.verify()
    assert kept.spent() == pytest.approx(4 * cost_of(world))
    assert kept.remaining() == pytest.approx(-cost_of(world), rel=1e-6)
    before = len(kept.releases())
    world.folder = tmp_path / "a new server"
    with pytest.raises(RunError, match="site-0 refused: over-budget"):
        world.serve()
    assert len(world.ledger(0).releases()) == before
    kept.verify()


def test_what_was_accepted_since_the_copy_is_charged(tmp_path: Path) -> None:
    world = make_world(tmp_path, seeded=False)
    policy, copy = world.policies[0], tmp_path / "copy"
    other = another_run(world)
    world.agent(0)
    shutil.copy(policy.ledger, copy)
    world.serve()
    shutil.copy(copy, policy.ledger)
    policy.accepted_as(world.agreement.digest).unlink()  # as in a copy from before
    (lost,) = charge_lost(policy, [world.agreement])
    assert (lost.run, lost.rounds) == (world.agreement.run, 2)
    assert world.ledger(0).spent() == pytest.approx(2 * cost_of(world))
    restored = Restored(policy)
    restored.check_new(world.agreement, new=False)  # it was charged: it may be accepted again
    with pytest.raises(ConfigError, match="run fedldp deploy restored again, with --since") as told:
        restored.check_new(other, new=False)
    assert "\n" not in str(told.value)
    restored.check_new(other, new=True)


def test_before_any_restore_every_agreement_is_new(tmp_path: Path) -> None:
    world = make_world(tmp_path, seeded=False)
    Restored(world.policies[0]).check_new(another_run(world), new=False)


def test_a_restore_without_agreements_is_one_too(tmp_path: Path) -> None:
    world = make_world(tmp_path, seeded=False)
    policy = world.policies[0]
    policy.accepted_as(world.agreement.digest).unlink()
    assert charge_lost(policy, []) == []
    with pytest.raises(ConfigError, match="accept it with --new"):
        Restored(policy).check_new(world.agreement, new=False)
