"""A new key for a site: the ledger continues, the old key is refused, and nobody can forge a
change."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from environments import (
    Environment,
    acceptance_of,
    ask,
    content,
    make_environment,
    request_of,
    write_policy,
)

from fedldp.core.errors import ConfigError, LedgerUnusable, PrivacyError, RunError
from fedldp.deployment import key_changes
from fedldp.deployment.acceptance import accept
from fedldp.deployment.agreement import Site
from fedldp.deployment.identity import read_private, read_public
from fedldp.deployment.key_changes import (
    ChangedKey,
    EarlierKeys,
    KeyChange,
    change_key,
    check_current,
    is_replaced,
    runs_of,
    take_over,
)
from fedldp.deployment.messages import KeptReceipts
from fedldp.deployment.own_budgets import SignedBudget
from fedldp.deployment.policy import SitePolicy
from fedldp.deployment.restored import charge_lost, moved_to
from fedldp.deployment.site_ledger import Mark, SiteLedger
from fedldp.ledgers.sqlite import LOST
from fedldp.protocol.wire import Reason, Refusal, Report


def public(policy: SitePolicy) -> str:
    return read_private(policy.key).public_key().public_bytes_raw().hex()


def next_run(env: Environment, letter: str = "e") -> Environment:
    """Return a new run with the sites' current keys, which they have accepted."""
    roster = tuple(
        Site(name=site.name, key=public(policy))
        for site, policy in zip(env.agreement.sites, env.policies, strict=True)
    )
    agreement = env.agreement.changed(run=letter * 32, sites=roster)
    if agreement.budgets:
        told = zip(env.policies, agreement.budgets, strict=True)
        budgets = [
            SignedBudget.signed(read_private(policy.key), budget=each.budget)
            for policy, each in told
        ]
        agreement = agreement.changed(budgets=tuple(budgets))
    for policy in env.policies:
        accept(policy, agreement)
    return replace(env, agreement=agreement)


@pytest.mark.slow
def test_the_ledger_continues_and_the_old_key_opens_nothing(tmp_path: Path) -> None:
    env = make_environment(tmp_path, seeded=False, quorum=2)
    policy, before = env.policies[0], public(env.policies[0])
    copy = tmp_path / "copy"
    env.agent(0)
    shutil.copy(policy.ledger, copy)
    env.serve()
    spent = env.ledger(0).spent()
    assert spent > 0
    ended = runs_of(policy)
    changed, file = change_key(policy)
    assert ChangedKey.read(file) == changed
    assert ended == [env.agreement.digest.hex()]
    assert not acceptance_of(policy, env.agreement.digest).is_open
    assert read_public(policy.key.with_suffix(".pub")) == public(policy) != before
    secret = policy.key.with_name(f"{policy.key.name}.earlier")
    assert secret.stat().st_mode & 0o077 == policy.key.stat().st_mode & 0o077 == 0
    take_over(env.folder, changed)
    # Its server was in the folder ``server``, next to which its receipts are.
    later = next_run(env)
    receipts = KeptReceipts(env.folder / "next", later.agreement.run, later.agreement.sites)
    shown = receipts.last(0)
    agent = later.agent(0)
    assert agent._run(env.agreement.digest) is None
    answered = ask(agent, later, request_of(later), shown)
    assert isinstance(content(answered), Report)
    assert later.ledger(0).spent() == pytest.approx(1.5 * spent)
    receipts.keep(0, answered.receipt)
    assert receipts.last(0) == answered.receipt != shown
    # The receipt for the old key reveals an older ledger, even if the ledger fits its mark.
    shutil.copy(copy, policy.ledger)
    with pytest.raises(LedgerUnusable, match="it lacks release 3"):
        SiteLedger(policy, look=True).check()
    SiteLedger(policy, look=True).restored(Mark())
    accept(policy, later.agreement)
    refused = ask(later.agent(0), later, request_of(later), shown)
    assert content(refused) == Refusal(1, Reason.LEDGER)


@pytest.mark.slow
def test_a_current_run_no_longer_asks_the_old_key(tmp_path: Path) -> None:
    """This holds even for a thief of the key who has everything that the site had."""
    env = make_environment(tmp_path, seeded=False, quorum=2)
    thief = tmp_path / "thief"
    shutil.copytree(tmp_path / "site-0", thief)
    changed, _ = change_key(env.policies[0])
    pipe = env.pipe()
    moved_to(write_policy(thief), "none")
    pipe.agents[0] = replace(env, policies=[write_policy(thief)]).agent(0).answer

    def told(record: Any) -> None:
        if record.round == 1:
            take_over(env.folder, changed)

    served = env.serve(pipe, told)
    assert [record.clients for record in served.rounds] == [3, 2]
    again = [node for node, asked, _ in pipe.seen if node == 0]
    assert again
    with pytest.raises(ConfigError, match="site-0: it changed the key"):
        check_current(env.folder, {site.name: site.key for site in env.agreement.sites})
    check_current(env.folder, {"site-0": public(env.policies[0])})


@pytest.mark.slow
def test_wherever_a_change_is_interrupted_the_next_call_leads_to_one_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = make_environment(tmp_path / "world", seeded=False)
    place = tmp_path / "world" / "site-0"
    env.agent(0)
    steps = ("make_private", "runs_of", "replace_secret", "replace_file", "public_text")
    for number, step in enumerate(steps):
        policy, before = env.policies[0], public(env.policies[0])
        real = getattr(key_changes, step)

        def cut(*given: Any, real: Callable[..., Any] = real) -> Any:
            real(*given)
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(key_changes, step, cut)
            if step == "runs_of":
                env = next_run(env, str(number))
            with pytest.raises(KeyboardInterrupt):
                change_key(policy)
        assert public(policy) == before  # until everything is written
        half = list(place.glob("*.next"))
        expected = public(policy.changed(key=half[0]))
        changed, file = change_key(policy)
        assert public(policy) == expected == changed.changes[-1].key
        assert changed.changes[-1].old == before
        assert ChangedKey.read(file) == changed
        assert len(changed.changes) == number + 1
        assert EarlierKeys.of(policy).receipts.keys() == {each.old for each in changed.changes}
        assert not list(place.glob("*.next"))
        env.agent(0)


def test_an_outdated_ledger_gets_no_new_key(tmp_path: Path) -> None:
    env = make_environment(tmp_path, seeded=False)
    policy = env.policies[0]
    env.agent(0)
    shutil.copy(policy.ledger, tmp_path / "copy")
    assert isinstance(content(ask(env.agent(0), env, request_of(env))), Report)
    shutil.copy(tmp_path / "copy", policy.ledger)
    before = public(policy)
    with pytest.raises(LedgerUnusable, match="it lacks release 1"):
        change_key(policy)
    policy.ledger.unlink()
    with pytest.raises(LedgerUnusable, match="it was begun but is gone"):
        change_key(policy)
    assert public(policy) == before


def test_nobody_can_take_over_anothers_key(tmp_path: Path) -> None:
    one, two, three = (Ed25519PrivateKey.generate() for _ in range(3))
    good, further = KeyChange.between(one, two), KeyChange.between(two, three)

    def written(*changes: KeyChange) -> ChangedKey:
        document = {"key_changes": 1, "changes": [each.model_dump() for each in changes]}
        (tmp_path / "file").write_text(json.dumps(document))
        return ChangedKey.read(tmp_path / "file")

    found = written(good, further)
    other = KeyChange.between(one, three)
    forged = [
        good.model_copy(update={"key": further.key}),
        good.model_copy(update={"old": further.key}),
        good.model_copy(update={"by_old": good.signature}),  # signed by the next key only
        good.model_copy(update={"signature": good.by_old}),  # to somebody else's key
        KeyChange.between(one, one),
    ]
    for each in forged:
        with pytest.raises(ConfigError, match="it was changed after the site signed it"):
            written(each)
    for chain in ((further, good), (good, KeyChange.between(two, one)), (good, other)):
        with pytest.raises(ConfigError, match="do not form a chain"):
            written(*chain)
    with pytest.raises(ConfigError, match="damaged"):
        written()
    (tmp_path / "file").write_text('{"join": 1}')
    assert not ChangedKey.is_in(tmp_path / "file")
    take_over(tmp_path, found)
    take_over(tmp_path, found)  # again: nothing happens
    assert is_replaced(tmp_path, good.old)
    assert not is_replaced(tmp_path, further.key)
    with pytest.raises(ConfigError, match="somebody else may have the earlier key"):
        take_over(tmp_path, ChangedKey(changes=(other,)))
    kept = tmp_path / "receipts" / f"{good.old}.changed"
    kept.write_text(kept.read_text().replace(good.key, further.key))
    with pytest.raises(ConfigError, match="it was changed after the site signed it"):
        take_over(tmp_path, found)
    assert is_replaced(tmp_path, good.old)  # the earlier key stays refused
    kept.write_text("{")
    with pytest.raises(RunError, match="is damaged"):
        KeptReceipts(tmp_path / "run", "f" * 32, [])


def test_records_of_old_keys_are_complete_or_reported(tmp_path: Path) -> None:
    env = make_environment(tmp_path, seeded=False)
    policy = env.policies[0]
    change_key(policy)
    earlier = policy.key.with_name(f"{policy.key.name}.earlier")
    earlier.write_text("{}")
    with pytest.raises(PrivacyError, match=r"earlier: it is damaged; restore it"):
        env.agent(0)


OWN = "personalized-sound-digits-sites"


@pytest.mark.slow
@pytest.mark.parametrize("noted", [True, False])
def test_a_restore_after_a_change_charges_what_the_site_had_announced(
    tmp_path: Path, noted: bool
) -> None:
    """If nobody recorded the old key, the largest known release is charged."""
    env = make_environment(tmp_path, recipe=OWN, seeded=False)
    policy = env.policies[0]
    env.agent(0)
    shutil.copy(policy.ledger, tmp_path / "copy")
    env.serve()
    (true,) = {entry.costs[0] for entry in env.ledger(0).releases()}
    (largest,) = {entry.costs[0] for entry in env.ledger(2).releases()}
    assert true < largest
    change_key(policy)
    if not noted:
        policy.key.with_name(f"{policy.key.name}.earlier").unlink()
    shutil.copy(tmp_path / "copy", policy.ledger)
    (lost,) = charge_lost(policy, [])
    assert lost.rounds == 2
    entries = env.ledger(0).verify()
    assert {entry.request for entry in entries} == {LOST.hex()}
    assert env.ledger(0).spent() == pytest.approx(2 * (true if noted else largest))
    later = next_run(env)
    later.folder = tmp_path / "later"
    later.serve()
    assert env.ledger(0).spent() == pytest.approx(2 * (true if noted else largest) + 2 * true)
