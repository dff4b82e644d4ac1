"""A site restored from an older copy: the charge covers all that may have been released."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from environments import (
    CHANNELS,
    Body,
    Environment,
    Killed,
    ask,
    asks,
    content,
    forget,
    limited,
    make_environment,
    request_of,
    write_policy,
)

from fedldp.core.errors import ConfigError, PrivacyError, RunError
from fedldp.deployment.acceptance import Acceptances, accept
from fedldp.deployment.messages import Answered, read_message
from fedldp.deployment.restored import UnrecordedSpend, charge_lost
from fedldp.deployment.site_ledger import SiteLedger, read_mark, write_mark
from fedldp.ledgers.sqlite import renewals
from fedldp.protocol.wire import Refusal


def cost_of(env: Environment) -> float:
    return float(env.policies[0].costs(env.agreement)[0])


@pytest.mark.slow
@pytest.mark.parametrize("in_the_copy", [True, False])
def test_releases_are_charged_beyond_the_limit_and_nothing_more_is_released(
    in_the_copy: bool, tmp_path: Path
) -> None:
    env = limited(tmp_path, 3, seeded=False)
    policy, ledger, copy = env.policies[0], env.policies[0].ledger, tmp_path / "copy"
    other = env.another_run()
    accept(policy, other, enough=1)
    env.agent(0)
    shutil.copy(ledger, copy)
    env.serve()
    assert env.ledger(0).spent() == pytest.approx(2 * cost_of(env))
    shutil.copy(copy, ledger)
    if not in_the_copy:
        forget(policy, other)
    charge_lost(policy, [] if in_the_copy else [other])
    kept = env.ledger(0)
    kept.verify()
    assert kept.spent() == pytest.approx(4 * cost_of(env))
    assert kept.accounts(kept.releases())[0].left == pytest.approx(-cost_of(env), rel=1e-6)
    before = len(kept.releases())
    env.folder = tmp_path / "a new server"
    with pytest.raises(
        RunError, match=r"site-0 refused: over-budget.*budgets of some sites are used up"
    ):
        env.serve()
    assert len(env.ledger(0).releases()) == before
    kept.verify()


@pytest.mark.slow
@CHANNELS
def test_agreements_accepted_since_the_copy_are_charged(tmp_path: Path, channel: str) -> None:
    env = make_environment(tmp_path, channel=channel, seeded=False)
    policy, copy = env.policies[0], tmp_path / "copy"
    other = env.another_run()
    env.agent(0)
    shutil.copy(policy.ledger, copy)
    env.serve()
    shutil.copy(copy, policy.ledger)
    forget(policy, env.agreement)  # as in a copy from before the acceptance
    (lost,) = charge_lost(policy, [env.agreement])
    assert (lost.run, lost.rounds) == (env.agreement.run, 2)
    assert env.ledger(0).spent() == pytest.approx(2 * cost_of(env))
    restored = Acceptances(policy)
    restored.check_new(env.agreement, new=False)  # it was charged, so it may be accepted again
    with pytest.raises(ConfigError, match="run fedldp deploy restored again, with --since") as told:
        restored.check_new(other, new=False)
    assert "\n" not in str(told.value)
    restored.check_new(other, new=True)


@pytest.mark.slow
def test_a_lost_renewal_can_be_restored_and_hides_no_release(tmp_path: Path) -> None:
    """The mark counts the renewal, which is not repeated: only the owner can renew a budget."""
    env = limited(tmp_path, 2, seeded=False)
    policy, copy = env.policies[0], tmp_path / "copy"
    env.agent(0)
    shutil.copy(policy.ledger, copy)
    env.serve()
    env.ledger(0).renew()
    SiteLedger(policy).keep()
    shutil.copy(copy, policy.ledger)
    mark, _ = read_mark(policy.mark)
    assert (mark.number, mark.renewals) == (3, 1)
    forget(policy, env.agreement)
    with pytest.raises(ConfigError, match="proves 2 more releases than"):
        charge_lost(policy, [])
    # If the mark counted no renewal, each entry would be a release.
    write_mark(policy.mark, mark.changed(renewals=0))
    with pytest.raises(ConfigError, match=r"proves 1 more release than .* --restores 2"):
        charge_lost(policy, [env.agreement])
    write_mark(policy.mark, mark)
    assert env.ledger(0).releases() == []  # nothing was charged by that
    charge_lost(policy, [env.agreement])
    kept = env.ledger(0)
    assert renewals(kept.releases()) == 0
    assert kept.accounts(kept.releases())[0].left == pytest.approx(0, abs=1e-6)
    kept.renew()
    assert kept.accounts(kept.releases())[0].left == pytest.approx(2 * cost_of(env))
    assert kept.spent() == pytest.approx(2 * cost_of(env))  # since the beginning
    kept.verify()


@pytest.mark.slow
def test_a_renewal_in_the_copy_hides_no_release_from_the_mark(tmp_path: Path) -> None:
    """An entry that the owner adds to an older copy does not account for releases that the mark
    counts."""
    env = make_environment(tmp_path, seeded=False)
    policy, copy = env.policies[0], tmp_path / "copy"
    env.serve()
    shutil.copy(policy.ledger, copy)
    other = env.another_run()
    accept(policy, other)
    later = replace(env, agreement=other, folder=tmp_path / "a new server")
    ask(later.agent(0), later, request_of(later))
    shutil.copy(copy, policy.ledger)
    forget(policy, other)
    env.ledger(0).renew()
    with pytest.raises(ConfigError, match="proves 1 more release than"):
        charge_lost(policy, [])


def test_a_run_that_had_ended_before_the_copy_is_not_charged_and_not_accepted_again(
    tmp_path: Path,
) -> None:
    env = make_environment(tmp_path, sites=1, seeded=False)
    policy, copies = env.policies[0], [tmp_path / "before", tmp_path / "after"]
    agent = env.agent(0)
    ask(agent, env, request_of(env))
    shutil.copy(policy.ledger, copies[0])
    Acceptances(policy).finish(env.agreement.digest)
    shutil.copy(policy.ledger, copies[1])
    with pytest.raises(ConfigError, match="its server ended it"):
        accept(policy, env.agreement)
    for copy, since, lost in (
        (copies[1], [], []),
        (copies[1], [env.agreement], [UnrecordedSpend(env.agreement.run, 1)]),
        (copies[0], [], [UnrecordedSpend(env.agreement.run, 1)]),
    ):
        shutil.copy(copy, policy.ledger)
        assert charge_lost(policy, since) == lost


@pytest.mark.slow
def test_a_restored_site_masks_no_second_value_with_the_secrets_of_the_copy(
    tmp_path: Path,
) -> None:
    """The copy is of a moment between two phases, and the site went on: its masks are used."""
    env = make_environment(tmp_path, channel="sum", seeded=False)
    policy, copy, asked = env.policies[0], tmp_path / "copy", list[bytes]()

    def tamper(site: int, body: bytes, answer: Body) -> list[Body]:
        if asks(body, phase=1) and site == 0:
            shutil.copy(policy.ledger, copy)
        if asks(body, phase=2) and site == 0:
            asked.append(body)
            raise Killed
        return [answer]

    with pytest.raises(Killed):
        env.serve(env.pipe(tamper=tamper))
    assert env.releases(0)[-1] == (1, 2)
    shutil.copy(copy, policy.ledger)
    charge_lost(policy, [])
    again = read_message(env.agent(0).answer(asked[0]))
    assert isinstance(again, Answered)
    assert isinstance(content(again), Refusal)
    assert env.ledger(0).spent() == pytest.approx(2 * cost_of(env))


def test_a_second_restore_asks_again(tmp_path: Path) -> None:
    env = make_environment(tmp_path, seeded=False)
    policy = env.policies[0]
    forget(policy, env.agreement)
    charge_lost(policy, [env.agreement])
    Acceptances(policy).check_new(env.agreement, new=False)
    # A copy is made here; then the agreement is accepted, and lost together with the releases.
    charge_lost(policy, [])
    with pytest.raises(ConfigError, match="accept it with --new"):
        Acceptances(policy).check_new(env.agreement, new=False)


def test_another_agreement_of_a_run_that_was_charged_is_refused(tmp_path: Path) -> None:
    env = make_environment(tmp_path, seeded=False)
    config = env.agreement.config.changed(epsilon=9.0)
    charge_lost(env.policies[0], [])
    for new in (False, True):
        with pytest.raises(ConfigError, match="ask for an agreement for a new run"):
            Acceptances(env.policies[0]).check_new(env.agreement.changed(config=config), new=new)


def test_an_agreement_beyond_the_limits_is_not_accepted_and_not_charged_as_lost(
    tmp_path: Path,
) -> None:
    env = make_environment(
        tmp_path, seeded=False, recipe="distributed-gaussian-digits", channel="sum"
    )
    env.policies[0].mark.unlink()
    pure = {"kind": "pure", "limit": 1000.0}
    policy = write_policy(tmp_path / "site-0", state="another", budget=pure)
    with pytest.raises(PrivacyError, match="has no proven finite cost of this kind") as told:
        policy.check(env.agreement)
    assert "\n" not in str(told.value)
    env.policies[0] = policy
    assert charge_lost(policy, [env.agreement]) == [UnrecordedSpend(env.agreement.run, 0)]
    kept = env.ledger(0)
    assert kept.verify() == []
    assert kept.accounts(kept.releases())[0].left == 1000.0
