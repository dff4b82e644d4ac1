"""Another key for a site: its runs and its ledger go on, and nobody can forge a change."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from environments import (
    CHANNELS,
    Environment,
    ask,
    assert_each_once,
    bits,
    bits_of,
    content,
    make_environment,
    request_of,
)
from real_processes import Party, eventually
from stages import playing

from fedldp.core.errors import ConfigError, LedgerUnusable, PrivacyError, RunError
from fedldp.deployment import key_changes
from fedldp.deployment.acceptance import accept
from fedldp.deployment.agreement import Site
from fedldp.deployment.data_ledgers import note_ledger, other_ledgers
from fedldp.deployment.https.site import fetch_digests
from fedldp.deployment.identity import private_text, public_of, read_keys, read_public
from fedldp.deployment.joining import Invite
from fedldp.deployment.joining import admit as admit_joins
from fedldp.deployment.key_changes import RECEIPTS, KeyChange, KnownKeys, change_key
from fedldp.deployment.messages import NO_RECEIPT, KeptReceipts
from fedldp.deployment.own_budgets import Joining
from fedldp.deployment.restored import charge_lost
from fedldp.deployment.site_ledger import Mark, SiteLedger
from fedldp.ledgers.sqlite import LOST
from fedldp.protocol.wire import Reason, Refusal, Report
from fedldp.simulation.engine import simulate


def admit(env: Environment, change: KeyChange) -> None:
    """Let the server of an environment know a change."""
    (env.folder / RECEIPTS).mkdir(exist_ok=True)
    known, _ = KnownKeys.of(env.folder).admitting(change, env.agreement.sites)
    known.keep(env.folder)


def next_run(env: Environment) -> Environment:
    """Return a new run with the sites' present keys, which they have accepted."""
    roster = tuple(
        Site(name=site.name, key=policy.public_keys[0])
        for site, policy in zip(env.agreement.sites, env.policies, strict=True)
    )
    agreement = env.agreement.changed(run="e" * 32, sites=roster)
    for policy in env.policies:
        accept(policy, agreement)
    return replace(env, agreement=agreement)


@CHANNELS
@pytest.mark.slow
def test_a_run_goes_on_under_its_agreement(tmp_path: Path, channel: Any) -> None:
    """The place, the ledger and the weights are as if the key had not changed."""
    same = make_environment(tmp_path / "same", channel=channel)
    env = make_environment(tmp_path / "other", channel=channel)
    pipe = env.pipe()

    def change(record: Any) -> None:
        if record.round == 1:
            admit(env, change_key(env.policies[0])[0])
            pipe.agents[0] = env.agent(0).answer

    assert bits(env.serve(pipe, change)) == bits(same.serve())
    assert_each_once(env, pipe)
    assert len(env.policies[0].public_keys) == 2


@pytest.mark.slow
def test_processes_go_on_after_a_change_and_refuse_the_earlier_key(tmp_path: Path) -> None:
    """Over HTTPS, in the middle of a run of sums; the server's process starts anew by itself."""
    with playing(tmp_path, "sum", "rounds=4", answer_after_seconds=0.1) as stage:
        policy, server, done = stage.env.policies[0], stage.server, tmp_path / "server"
        for party in (*stage.agents, server):
            party.start()
        eventually((done / "metrics.jsonl").exists, "the first round")
        stage.agents[0].end()
        stolen = read_keys(policy.key)[0]
        rotate = Party(tmp_path / "keys.log", "deploy", "keys", tmp_path / "site-0", "--rotate")
        rotate.start()
        assert rotate.wait() == 0, rotate.text()
        admit(stage.env, KeyChange.read(policy.key.with_suffix(".changed")))
        rounds = (done / "metrics.jsonl").read_text().splitlines()

        def is_refused() -> bool:
            try:
                fetch_digests(policy.server[0].url, policy.server[0].ca, stolen)
            except ConfigError as error:  # or the server is starting
                return "knows that the key was changed" in str(error)
            return False

        eventually(is_refused, "the end of the earlier key")
        stage.agents[0].start()
        assert server.wait() == 0
        assert len(rounds) < 4
        assert "a site has another key: the server starts anew" in server.text()
        once = [(round, phase) for round in range(1, 5) for phase in range(4)]
        assert [stage.env.releases(index) for index in range(3)] == [once] * 3
        assert bits_of(done / "model.safetensors") == bits(simulate(stage.env.config))
        stage.assert_sound()
        stage.close()


@pytest.mark.slow
def test_receipts_go_on_in_the_same_run_and_in_the_next(tmp_path: Path) -> None:
    env = make_environment(tmp_path, seeded=False)
    policy, before = env.policies[0], env.policies[0].public_keys[0]
    env.agent(0)
    shutil.copy(policy.ledger, tmp_path / "copy")
    env.serve()
    spent = env.ledger(0).spent()
    assert spent > 0
    changed, file = change_key(policy)
    assert KeyChange.read(file) == changed
    assert read_public(policy.key.with_suffix(".pub")) == policy.public_keys[0] != before
    assert policy.public_keys[1] == before
    assert policy.key.stat().st_mode & 0o077 == 0
    admit(env, changed)
    later = next_run(env)
    last = [
        KeptReceipts(env.folder / "any", each.run, each.sites).last(0)
        for each in (env.agreement, later.agreement)
    ]
    shown = last[0]
    assert last == [shown, shown]
    assert shown != NO_RECEIPT
    answered = ask(later.agent(0), later, request_of(later), shown)
    assert isinstance(content(answered), Report)
    assert later.ledger(0).spent() == pytest.approx(1.5 * spent)
    # The receipt of the old key reveals an older ledger, even if the ledger fits its mark.
    shutil.copy(tmp_path / "copy", policy.ledger)
    SiteLedger(policy, look=True).restored(Mark())
    accept(policy, later.agreement)
    refused = ask(later.agent(0), later, request_of(later), shown)
    assert content(refused) == Refusal(1, Reason.LEDGER)


def test_the_ledger_beside_the_data_is_known_by_every_key(tmp_path: Path) -> None:
    policy = make_environment(tmp_path, seeded=False).policies[0]
    assert note_ledger(policy.data, read_keys(policy.key), second=False)
    change_key(policy)
    assert note_ledger(policy.data, read_keys(policy.key), second=False)
    assert other_ledgers(policy.data, policy.public_keys) == []
    with pytest.raises(ConfigError, match="the ledger of another site's folder"):
        note_ledger(policy.data, read_keys(policy.key)[:1], second=False)


def test_wherever_a_change_is_interrupted_the_site_has_its_runs_and_one_present_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = make_environment(tmp_path, seeded=False)
    policy, first = env.policies[0], env.policies[0].public_keys[0]
    env.agent(0)
    for step in ("read_keys", "replace_secret", "public_text", "replace_file"):
        before, real = policy.public_keys, getattr(key_changes, step)

        def cut(*given: Any, real: Callable[..., Any] = real) -> Any:
            real(*given)
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(key_changes, step, cut)
            with pytest.raises(KeyboardInterrupt):
                change_key(policy)
        assert policy.public_keys[-len(before) :] == before
        assert env.agent(0).served()
        changed, file = change_key(policy)
        assert KeyChange.read(file) == changed
        assert [*changed.keys] == policy.public_keys[::-1]
        assert changed.keys[0] == first


def test_an_outdated_ledger_gets_no_new_key(tmp_path: Path) -> None:
    env = make_environment(tmp_path, seeded=False)
    policy = env.policies[0]
    env.agent(0)
    shutil.copy(policy.ledger, tmp_path / "copy")
    assert isinstance(content(ask(env.agent(0), env, request_of(env))), Report)
    shutil.copy(tmp_path / "copy", policy.ledger)
    before = policy.public_keys
    with pytest.raises(LedgerUnusable, match="it lacks release 1"):
        change_key(policy)
    policy.ledger.unlink()
    with pytest.raises(LedgerUnusable, match="it was begun but is gone"):
        change_key(policy)
    assert policy.public_keys == before


def test_a_damaged_file_of_keys_is_refused(tmp_path: Path) -> None:
    policy = make_environment(tmp_path, seeded=False).policies[0]
    change_key(policy)
    text = policy.key.read_bytes()
    policy.key.write_bytes(text.replace(b"MC4", b"MC5", 1))
    with pytest.raises(PrivacyError, match="was not written by"):
        read_keys(policy.key)


ONE, TWO, THREE = (Ed25519PrivateKey.from_private_bytes(bytes([at]) * 32) for at in range(3))
FOREIGN = Ed25519PrivateKey.from_private_bytes(b"f" * 32)
FIRST, BOTH = KeyChange.of([TWO, ONE]), KeyChange.of([THREE, TWO, ONE])
ROSTER = [Site(name="north", key=public_of(ONE)), Site(name="south", key=public_of(FOREIGN))]


@pytest.mark.parametrize(
    "forged",
    [
        BOTH.model_dump() | {"key": FIRST.key},
        BOTH.model_dump() | {"signature": FIRST.signature},
        # half signed: by the present key only, or by a part of the earlier ones
        KeyChange.signed(THREE, earlier=FIRST.earlier).model_dump(),
        KeyChange.signed(THREE, earlier=(*FIRST.earlier, BOTH.earlier[1])).model_dump(),
        BOTH.model_dump() | {"earlier": BOTH.earlier[1:]},
        # in another order, or to a key that the site had
        BOTH.model_dump() | {"earlier": BOTH.earlier[::-1]},
        KeyChange.of([ONE, TWO, ONE]).model_dump(),
    ],
)
def test_a_half_signed_or_reordered_change_is_refused(
    tmp_path: Path, forged: dict[str, Any]
) -> None:
    (tmp_path / "file").write_text(json.dumps({"key_change": 1, **forged}))
    with pytest.raises(ConfigError, match="it was changed after the site signed it"):
        KeyChange.read(tmp_path / "file")


def test_a_foreign_replayed_or_second_change_is_refused() -> None:
    nothing = KnownKeys()
    first, both = KnownKeys(sites=(FIRST.keys,)), KnownKeys(sites=(BOTH.keys,))
    assert nothing.admitting(FIRST, ROSTER) == (first, "north")
    assert nothing.admitting(BOTH, ROSTER) == first.admitting(BOTH, ROSTER) == (both, "north")
    # This server, or one of its runs, has known the site by its second key only.
    later = [Site(name="north", key=public_of(TWO))]
    assert nothing.admitting(BOTH, later) == first.admitting(BOTH, later) == (both, "north")
    assert [both.first(each) for each in BOTH.keys] == [BOTH.keys[0]] * 3
    assert [both.is_replaced(each) for each in BOTH.keys] == [True, True, False]
    refused = [
        (nothing, KeyChange.of([THREE, TWO]), "no site of this agreement had"),
        (first, FIRST, "was admitted before"),
        (both, FIRST, "was admitted before"),
        (first, KeyChange.of([THREE, ONE]), "call the site"),
        (both, KeyChange.of([Ed25519PrivateKey.generate(), TWO]), "call the site"),
        (KnownKeys(sites=(KeyChange.of([TWO, FOREIGN]).keys,)), FIRST, "call the site"),
        (both, KeyChange.of([Ed25519PrivateKey.generate(), TWO, ONE]), "call the site"),
        # another site's key, though both agree
        (nothing, KeyChange.of([FOREIGN, ONE]), "call the site"),
    ]
    for known, given, why in refused:
        with pytest.raises(ConfigError, match=why):
            known.admitting(given, ROSTER)


def test_receipts_of_a_later_key_count_as_the_sites_last(tmp_path: Path) -> None:
    """A site joined another run with its new key before the server knew the change."""
    sites = [Site(name="north", key=key) for key in BOTH.keys]
    for number, site in enumerate(sites, 1):
        KeptReceipts(tmp_path / "run", "f" * 32, [site]).keep(0, bytes([number]) * 32)
    KnownKeys(sites=(BOTH.keys,)).keep(tmp_path)
    kept = KeptReceipts(tmp_path / "run", "f" * 32, sites)
    assert [kept.last(each) for each in range(3)] == [bytes([3]) * 32] * 3


@pytest.mark.parametrize("newest", range(3))
@pytest.mark.parametrize("again", [False, True])
def test_the_newest_receipt_is_kept_whichever_key_it_was_given_under(
    tmp_path: Path, newest: int, again: bool
) -> None:
    """A server that had not started anew may write one under a later key after the change."""
    place = tmp_path / RECEIPTS
    place.mkdir()
    known = KnownKeys(sites=(BOTH.keys,))
    if again:  # the change of another site is admitted
        known.keep(tmp_path)
        known = KnownKeys(sites=(BOTH.keys, ("e" * 64, "f" * 64)))
    for number, key in enumerate(BOTH.keys):
        (place / key).write_text(bytes([number + 1]).hex() * 32)
        os.utime(place / key, (10, 20 if number == newest else 10 + number))
    (place / BOTH.keys[1 if newest == 2 else 2]).write_text("")  # by a power cut
    known.keep(tmp_path)
    kept = KeptReceipts(tmp_path / "run", "f" * 32, [Site(name="north", key=BOTH.key)])
    assert kept.last(0) == bytes([newest + 1]) * 32
    assert {each.name for each in place.iterdir()} == {BOTH.keys[0], "keys"}


def test_a_damaged_file_of_known_keys_is_refused(tmp_path: Path) -> None:
    (tmp_path / RECEIPTS).mkdir()
    (tmp_path / RECEIPTS / "keys").write_text("{")
    with pytest.raises(RunError, match="keys is damaged: restore it from a copy, or remove it and"):
        KnownKeys.of(tmp_path)


def test_a_site_has_the_place_of_its_newest_key(tmp_path: Path) -> None:
    """A thief of the earlier key may have joined the same run with it."""
    env = make_environment(tmp_path, seeded=False)
    policy, thief = env.policies[0], env.policies[0].public_keys[0]
    change_key(policy)
    present = policy.public_keys[0]
    for keys in ((thief, present), (present, thief)):
        sites = tuple(Site(name=f"site-{key[:8]}", key=key) for key in keys)
        agreement = env.agreement.model_copy(update={"sites": sites})
        index, key = policy.in_roster(agreement)
        assert (index, public_of(key)) == (keys.index(present), present)


def test_an_answer_with_an_old_key_is_not_admitted(tmp_path: Path) -> None:
    invite = Invite.model_construct(kind="invite")
    old = Joining.signed(ONE, version=version("fedldp"), invite="0" * 64, name="north")
    (tmp_path / "old.join").write_bytes(old.to_bytes())
    known = KnownKeys(sites=(FIRST.keys,))
    vars(invite)["digest"] = bytes(32)
    with pytest.raises(ConfigError, match="changed the key"):
        admit_joins(invite, [tmp_path / "old.join"], known)


OWN = "personalized-sound-digits-sites"


@pytest.mark.slow
def test_a_restore_after_a_change_charges_what_the_site_had_announced(tmp_path: Path) -> None:
    """Without the old key nobody knows which budget of the roster was the site's."""
    env = make_environment(tmp_path, recipe=OWN, seeded=False)
    policy = env.policies[0]
    env.agent(0)
    shutil.copy(policy.ledger, tmp_path / "copy")
    env.serve()
    (true,) = {entry.costs[0] for entry in env.ledger(0).releases()}
    change_key(policy)
    both = policy.key.read_bytes()
    shutil.copy(tmp_path / "copy", policy.ledger)
    policy.key.write_bytes(private_text(read_keys(policy.key)[0]))
    with pytest.raises(ConfigError, match="put back the key that the site had then"):
        charge_lost(policy, [])
    policy.key.write_bytes(both)
    (lost,) = charge_lost(policy, [])
    assert lost.rounds == 2
    assert {entry.request for entry in env.ledger(0).verify()} == {LOST.hex()}
    assert env.ledger(0).spent() == pytest.approx(2 * true)
