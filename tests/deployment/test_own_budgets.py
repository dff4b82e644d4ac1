"""A site's own budget: who learns it, with whose consent, and what the site trains with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from environments import (
    Environment,
    acceptance_of,
    allowed,
    ask,
    asks,
    bits,
    content,
    make_environment,
    request_of,
    write_policy,
)

from fedldp.algorithms.problem import Problem
from fedldp.core.errors import FedldpError, LedgerUnusable, PrivacyError, WireError
from fedldp.deployment.acceptance import accept
from fedldp.deployment.agreeing import agree
from fedldp.deployment.agreement import Agreement, check_stated
from fedldp.deployment.channels import ReportChecker
from fedldp.deployment.demo import NO_INVITE, own_budgets_of
from fedldp.deployment.identity import public_of, read_private
from fedldp.deployment.joining import Invite
from fedldp.deployment.messages import read_message
from fedldp.deployment.own_budgets import Joining, OwnBudget
from fedldp.deployment.policy import SitePolicy
from fedldp.deployment.restored import charge_lost
from fedldp.ledgers.sqlite import SqliteLedger
from fedldp.protocol.wire import Report, read_request
from fedldp.simulation.engine import simulate
from fedldp.simulation.settings import resolve

RECIPE = "personalized-sound-digits-sites"
SUMS = "personalized-sound-digits-sums"
ALONE = ("batch_size=1000000", "num_examples=900")  # so that a simulation trains one by one
EPSILONS = [2.0, 4.0, 8.0]


def own_environment(folder: Path, *settings: str, **given: Any) -> Environment:
    return make_environment(folder, *ALONE, *settings, recipe=given.pop("recipe", RECIPE), **given)


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return own_environment(tmp_path_factory.mktemp("own"))


@pytest.fixture(scope="module")
def summed(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return own_environment(tmp_path_factory.mktemp("sums"), recipe=SUMS, channel="sum")


def keys_of(count: int) -> list[Ed25519PrivateKey]:
    return [Ed25519PrivateKey.from_private_bytes(bytes([n + 1] * 32)) for n in range(count)]


KEYS = keys_of(3)


def answers_of(own: Sequence[OwnBudget | None], invite: str = NO_INVITE) -> list[Joining]:
    said = {"version": version("fedldp"), "invite": invite}
    return [
        Joining.signed(key, name=f"site-{n}", own=each, **said)
        for n, (key, each) in enumerate(zip(KEYS, own, strict=False))
    ]


def agreed(*settings: str, recipe: str = RECIPE, **given: Any) -> Agreement:
    roster = {f"site-{n}": public_of(key) for n, key in enumerate(KEYS)}
    own = [f"epsilon={EPSILONS}"] if recipe == RECIPE else []
    config = resolve(recipe, ["num_clients=3", *own, *settings])
    given = {"channel": "named", "answers": answers_of(own_budgets_of(config)), **given}
    problem = Problem((1, 8, 8), 10, 1437)
    return agree(config, problem, roster, invite=NO_INVITE, **given)


def refused(call: Any) -> str:
    with pytest.raises(FedldpError) as found:
        call()
    line = str(found.value)
    assert "\n" not in line
    return line


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "recipe"),
    [
        (("perturbation=sign", "weighting=deviation"), RECIPE),
        (("epsilon=[1.0,2.0,4.0]", "channel=named"), "quickstart"),
    ],
)
def test_a_run_gives_the_weights_of_the_simulation(
    settings: tuple[str, ...], recipe: str, tmp_path: Path
) -> None:
    """Equal bit for bit; and each site pays for its own epsilon, as its guarantee says."""
    env = own_environment(tmp_path, *settings, recipe=recipe)
    served = env.serve()
    assert bits(served) == bits(simulate(env.config))
    unit = "client-run" if recipe == RECIPE else "weight"
    for site, policy in enumerate(env.policies):
        assert policy.own is not None
        lines = env.agreement.statement_of(site).guarantees
        proven = min(line.epsilon for line in lines if line.unit == unit)
        assert 0.99 * policy.own.epsilon < proven <= policy.own.epsilon
        assert env.ledger(site).spent() == pytest.approx(policy.costs(env.agreement)[1])
    spent = [env.ledger(site).spent() for site in range(3)]
    assert spent == sorted(spent)
    assert spent[0] < spent[2] / 2
    worst = max(env.agreement.statement_of(2).guarantees, key=lambda line: line.epsilon)
    assert worst in served.privacy.guarantees


def test_the_selection_follows_from_the_runs_name() -> None:
    found = agreed("participation=preselected", "rounds=8")
    again = Agreement.parse(found.to_bytes())
    again.check()
    check_stated(again)
    turns = found.config.model_dump()["turns"]
    assert max(turns) == 8 >= sum(turns) / 3
    other = [turns[0] - 1, *turns[1:]] if turns[0] else [1, *turns[1:]]
    changed = found.changed(config=found.config.changed(turns=other))
    assert "turns: client 0" in refused(changed.check)
    assert "turns is not set" in refused(
        found.changed(config=found.config.changed(turns=None)).check
    )


# Who learns a budget, and with whose consent


def test_an_agreement_is_read_back_unchanged() -> None:
    found = agreed()
    again = Agreement.parse(found.to_bytes())
    assert again == found
    again.check()
    check_stated(again)
    assert again.config.model_dump()["epsilon"] == EPSILONS
    last = [again.statement_of(site).guarantees[-1] for site in range(3)]
    assert [round(line.epsilon, 4) for line in last] == EPSILONS
    assert {line.adversary for line in last} == {"server"}


@pytest.mark.parametrize(
    ("settings", "recipe", "channel", "part"),
    [
        (("epsilon=2.0", "clip=[1.0,1.0,2.0]"), RECIPE, "named", "clip has a value for each"),
        (("client_delta=[1e-5,1e-6,1e-6]",), RECIPE, "named", "client_delta has a value for each"),
        ((), RECIPE, "sum", "set channel = named"),
        (("channel=named", "epsilon=[1.0,2.0,4.0]"), "quickstart", "sum", "set channel = named"),
    ],
)  # fmt: skip
def test_budgets_that_do_not_hold_are_refused(
    settings: tuple[str, ...], recipe: str, channel: str, part: str
) -> None:
    assert part in refused(lambda: agreed(*settings, recipe=recipe, channel=channel))


def invited(*settings: str) -> Invite:
    return Invite.new(
        resolve(RECIPE, ["num_clients=3", *settings]),
        Problem((1, 8, 8), 10, 1437),
        "https://localhost",
        channel="named",
        quorum=None,
        deadline_seconds=60.0,
    )


def test_an_invite_sets_no_sites_budget() -> None:
    line = refused(invited("epsilon=[2.0,4.0,8.0]").expected)
    assert "deploy join --epsilon" in line


def test_an_epsilon_that_is_not_proven_against_the_server_is_no_sites_budget() -> None:
    config = resolve("personalized-mnist-fig2-low", ["num_clients=3", "epsilon=1.0"])
    own = OwnBudget(epsilon=1.0, unit="record", delta=0.01)
    assert "proven against the server itself" in refused(lambda: own.check(config, 1.0))


def test_budgets_are_admitted_from_all_sites_or_from_none() -> None:
    invite, said = invited("epsilon=2.0"), [OwnBudget(epsilon=each) for each in EPSILONS]

    def admitted(*own: OwnBudget | None) -> Agreement:
        return invite.agreement(answers_of(own, invite.digest.hex()))

    found = admitted(*said)
    assert found.config.model_dump()["epsilon"] == EPSILONS
    assert Agreement.parse(found.to_bytes()).answers == found.answers
    without = admitted(None, None, None)
    assert not without.has_own_budgets
    assert "answers" not in without.document
    for wrong, part in (
        (None, "site site-0 signed no answer to the invite that states its own"),
        (OwnBudget(epsilon=2.0, unit="weight"), "unit = client-run"),
        (OwnBudget(epsilon=2.0, delta=1e-6), "at delta 1e-05"),
    ):
        assert part in refused(lambda wrong=wrong: admitted(wrong, *said[1:]))


def test_every_site_sees_that_all_others_consented(env: Environment) -> None:
    """The server has no site's key; here it has that of a stranger, and one site changes sides."""
    first, second, third = env.agreement.answers
    key = read_private(env.policies[1].key)
    fields = {name: getattr(second, name) for name in ("version", "invite", "name", "own")}

    def said(by: Ed25519PrivateKey = key, **changes: Any) -> Joining:
        return Joining.signed(by, **{**fields, **changes})

    assert said() == second
    for wrong in (
        said(by=KEYS[0]),
        said(name="site-3"),
        said(invite="1" * 64),
        said(own=None),
        second.changed(own=OwnBudget(epsilon=4.0, delta=1e-4)),
        said(own=first.own),
        None,
    ):
        answers = () if wrong is None else (first, wrong, third)
        planted = env.agreement.changed(answers=answers)
        part = "signed no answer to the invite that states its own"
        if wrong is not None and wrong.own == first.own:
            part = "the run would spend epsilon 4"
        for site in (0, 2):
            assert part in refused(lambda site=site, it=planted: env.policies[site].check(it))


# A site's policy


def here(policy: SitePolicy, agreement: Agreement) -> Agreement:
    return agreement.answered_with(policy.own_here(agreement))


def check_here(policy: SitePolicy, agreement: Agreement) -> None:
    policy.check(here(policy, agreement))


@pytest.mark.parametrize(
    ("kind", "own", "part"),
    [
        ("env", None, "own is not set"),
        ("env", {"epsilon": 1.9}, "own.epsilon in this site's policy allows no other"),
        ("env", {"epsilon": 2.1}, "would spend epsilon 2 at"),
        ("env", {"epsilon": 2.0, "delta": 1e-6}, "at delta 1e-05"),
        ("env", {"epsilon": 2.0, "unit": "weight"}, "unit = client-run"),
        ("summed", {"epsilon": 8.5}, "the run states epsilon 8 for all sites"),
        ("summed", {"epsilon": 2.0, "unit": "client-round"}, "with unit = client-run"),
    ],
)
def test_a_policy_lets_no_other_epsilon_through(
    request: pytest.FixtureRequest, kind: str, own: dict[str, Any] | None, part: str
) -> None:
    env: Environment = request.getfixturevalue(kind)
    place = env.folder / "site-0"
    try:
        assert part in refused(lambda: check_here(write_policy(place, own=own), env.agreement))
    finally:
        check_here(write_policy(place, own={"epsilon": 2.0}), env.agreement)


def test_a_policy_allows_no_other_epsilon_common_to_all(tmp_path: Path) -> None:
    of_all = own_environment(tmp_path, "epsilon=2.0")
    place = tmp_path / "site-0"
    assert not of_all.agreement.has_own_budgets
    write_policy(place, own={"epsilon": 2.0}).check(of_all.agreement)
    for own in ({"epsilon": 1.0}, {"epsilon": 2.0, "unit": "weight"}):
        with pytest.raises(PrivacyError, match="allows no other"):
            write_policy(place, own=own).check(of_all.agreement)


def test_a_site_whose_policy_changed_no_longer_answers(tmp_path: Path) -> None:
    env = own_environment(tmp_path)
    request = request_of(env)
    answer = content(ask(env.agent(1), env, request))
    assert isinstance(answer, Report)
    again = content(ask(env.agent(1), env, request))
    assert (again.payload, again.client) == (answer.payload, 1)
    env.policies[1] = write_policy(tmp_path / "site-1", own={"epsilon": 3.0})
    with pytest.raises(PrivacyError):
        allowed(env.policies[1], env.agreement.digest)
    with pytest.raises(AssertionError):  # the site answers that it does not know the run
        ask(env.agent(1), env, request)
    assert env.releases(1) == [(1, 0)]


def test_a_report_with_anothers_budget_is_not_counted(tmp_path: Path) -> None:
    """A label decides how bits are read, so a site may not use another site's label."""
    env = own_environment(tmp_path, "epsilon=[1.0,2.0,4.0]", "channel=named", recipe="quickstart")
    server, request = env.server(), request_of(env)
    reports = ReportChecker(env.agreement, server._role, server._draws, server._state)
    for site, epsilon in enumerate([1.0, 2.0, 4.0]):
        report = content(ask(env.agent(site), env, request))
        assert report.epsilon == epsilon
        reports.check(read_request(request), report, site)
        with pytest.raises(WireError, match=f"its epsilon is {epsilon}"):
            reports.check(read_request(request), report, (site + 1) % 3)


# Budgets that stay at their sites


@pytest.mark.slow
def test_a_sum_with_own_budgets_gives_the_weights_of_the_simulation(tmp_path: Path) -> None:
    env = own_environment(tmp_path, recipe=SUMS, channel="sum")
    served = env.serve()
    assert bits(served) == bits(simulate(env.config))
    for site, policy in enumerate(env.policies):
        assert policy.own is not None
        answered = here(policy, env.agreement)
        assert env.ledger(site).spent() == pytest.approx(policy.costs(answered)[1])
        lines = answered.statement_of(site).guarantees
        (line,) = [line for line in lines if line.unit == "client-run"]
        assert 0.99 * policy.own.epsilon < line.epsilon <= policy.own.epsilon
        assert line.adversary == "server"  # from its own noise, whatever happens to the sum
    stated = max(line.epsilon for line in served.privacy.guarantees)
    assert 7.9 < stated <= 8.0  # the server knows only the largest possible epsilon
    files = [path for path in (tmp_path / "server").rglob("*") if path.is_file()]
    folder = b"".join(path.read_bytes() for path in files)
    assert b'"epsilon": 8.0' in folder
    for other in (b"2.0", b"4.0"):
        assert b'"epsilon": ' + other not in folder


def test_the_sites_choices_are_not_in_the_agreement() -> None:
    found = [
        agreed(f"epsilon={list(chosen)}", recipe=SUMS, channel="sum")
        for chosen in ((2.0, 4.0, 8.0), (0.5, 0.5, 0.5))
    ]
    documents = [{**each.document, "run": None} for each in found]
    assert documents[0] == documents[1]
    assert documents[0]["config"]["epsilon"] == 8.0
    again = Agreement.parse(found[0].to_bytes())
    again.check()
    check_stated(again)
    own = answers_of([OwnBudget.of(again.config, each) for each in EPSILONS])
    for answers in ((), tuple(own), tuple(own[:1])):  # whoever consents
        planted = again.changed(config=again.config.changed(epsilon=EPSILONS), answers=answers)
        assert "nobody need know a site's own" in refused(planted.check)
    assert "channel = named" in refused(lambda: agreed(recipe=SUMS, channel="named"))


def test_what_all_parties_know_is_the_same_with_an_epsilon_of_ones_own(
    summed: Environment,
) -> None:
    policy, agreement = summed.policies[0], summed.agreement
    answered = here(policy, agreement)
    assert answered.config.model_dump()["epsilon"] == 2.0
    assert answered.to_bytes() == agreement.to_bytes()
    assert (answered.digest, answered.planned) == (agreement.digest, agreement.planned)
    assert (answered.setup, answered.layout) == (agreement.setup, agreement.layout)
    assert agreement.answered_with(None) is agreement
    kept = acceptance_of(policy, agreement.digest)
    assert kept.own == 2.0
    assert kept.allowed(policy)[0].events_of(0) == answered.events_of(0) != agreement.events_of(0)
    assert kept.promised[0] >= policy.costs(answered)[1]
    assert kept.promised[0] < policy.costs(agreement)[1] / 2


def test_a_site_that_chooses_none_answers_with_the_epsilon_that_is_stated(tmp_path: Path) -> None:
    env = own_environment(tmp_path, recipe=SUMS, channel="sum")
    policy = write_policy(tmp_path / "site-0")
    accepted = accept(policy, env.agreement)
    assert accepted.own is None
    found, _ = accepted.allowed(policy)
    assert found.events_of(0) == env.agreement.events_of(0)
    assert accepted.promised[0] >= policy.costs(env.agreement)[1]


def test_after_a_restore_the_largest_choice_is_charged(tmp_path: Path) -> None:
    """The copy may be from before the site chose another epsilon, and accepted again."""
    env = own_environment(tmp_path, recipe=SUMS, channel="sum")
    charge_lost(env.policies[0], [])
    spent, most = env.ledger(0).spent(), env.policies[0].costs(env.agreement)[1]
    assert spent == pytest.approx(most)


@pytest.mark.slow
def test_changing_a_sites_epsilon_during_a_run_needs_its_owner(tmp_path: Path) -> None:
    """Nobody else would notice the change."""
    env = own_environment(tmp_path, recipe=SUMS, channel="sum")
    env.serve()
    digest, spent = env.agreement.digest, env.ledger(0).spent()
    for own in (None, {"epsilon": 1.0}, {"epsilon": 4.0}):
        policy = write_policy(tmp_path / "site-0", own=own)
        with pytest.raises(PrivacyError, match=r"the agreement was accepted with 2.0.*again"):
            allowed(policy, digest)
        assert replace(env, policies=[policy]).agent(0)._run(digest) is None
    accept(policy, env.agreement)
    assert allowed(policy, digest) is not None
    assert replace(env, policies=[policy]).agent(0)._run(digest) is not None
    assert env.ledger(0).spent() == spent  # an acceptance does not give it back


def test_a_site_trains_and_pays_by_its_own_epsilon_alone(summed: Environment) -> None:
    found = [here(policy, summed.agreement) for policy in summed.policies]
    mechanisms: list[Any] = [
        each.config.algorithm(each.problem).release(0).mechanism for each in found
    ]
    sigmas = [mechanism.sigma for mechanism in mechanisms]
    assert sigmas == sorted(sigmas, reverse=True)
    assert len({mechanism.unit for mechanism in mechanisms}) == 1
    costs = [policy.costs(each)[0] for policy, each in zip(summed.policies, found, strict=True)]
    assert costs == sorted(costs)
    assert len(set(costs)) == 3


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [2.0, 0.5])
def test_noise_for_one_epsilon_is_never_charged_as_that_for_another(
    epsilon: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A masked value is kept only if it was charged: otherwise the site masks another."""
    env = own_environment(tmp_path, "rounds=1", recipe=SUMS, channel="sum", quorum=2)
    add, full = SqliteLedger._add, [True]

    def on_a_full_disk(self: SqliteLedger, db: Any, past: Any, place: Any, *more: Any) -> Any:
        if full and place.phase == 2 and self.path == env.policies[0].ledger:
            full.clear()
            raise LedgerUnusable("the disk is full")
        return add(self, db, past, place, *more)

    monkeypatch.setattr(SqliteLedger, "_add", on_a_full_disk)
    pipe = env.pipe()
    env.serve(pipe)
    assert env.releases(0) == [(1, 0), (1, 1)]
    (asked,) = [asked for node, asked, _ in pipe.seen if node == 0 and asks(asked, phase=2)]
    env.policies[0] = write_policy(tmp_path / "site-0", own={"epsilon": epsilon})
    accept(env.policies[0], env.agreement)
    found = content(read_message(env.agent(0).answer(asked)))
    assert isinstance(found, Report)
    assert env.releases(0) == [(1, 0), (1, 1), (1, 2)]
    answered = here(env.policies[0], env.agreement)
    assert env.ledger(0).releases()[-1].event in answered.events_of(0)
