"""What accepted runs may still spend together, and what each of them promised."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from environments import ask, content, limited, make_environment, request_of
from ledger_helpers import apart, forks

from fedldp.core.errors import ConfigError
from fedldp.deployment.acceptance import Acceptances, accept, payable
from fedldp.deployment.messages import NO_RECEIPT, Answered, pack
from fedldp.ledgers.budget import Budget
from fedldp.protocol.wire import Reason, Refusal, Report, read_reply

ONE: dict[str, Any] = {"sites": 1, "seeded": False}


def test_a_run_that_cannot_be_paid_beside_the_others_is_refused_and_they_are_named(
    tmp_path: Path,
) -> None:
    env = limited(tmp_path, 3, **ONE)
    policy, other = env.policies[0], env.another_run(1)
    cost = policy.costs(env.agreement)[0]
    with pytest.raises(ConfigError, match=r"covers only 1 of the 2 rounds.*--rounds 1") as found:
        accept(policy, other)
    assert f"run {env.agreement.run[:8]} may still spend rho" in str(found.value)
    assert Acceptances(policy).of(other.digest) is None
    # What the first run has spent counts once, not also as what it may still spend.
    assert isinstance(content(ask(env.agent(0), env, request_of(env))), Report)
    can_pay = payable(policy, other)
    assert (can_pay.paid, can_pay.of) == (1, 2)
    assert can_pay.left == pytest.approx((cost,), rel=1e-6)
    # A run that is retired frees the rest.
    Acceptances(policy).retire(env.agreement.digest)
    Acceptances(policy).finish(env.agreement.digest)  # it does not end as well
    found = Acceptances(policy).of(env.agreement.digest)
    assert found.state == "retired"
    assert payable(policy, other).paid == 2
    accept(policy, other)
    with pytest.raises(ConfigError, match="covers only 1 of the 2 rounds"):
        accept(policy, env.agreement)  # which undoes the retirement, if it can be paid


def test_one_run_has_one_agreement_whatever_server_runs_it(tmp_path: Path) -> None:
    """Otherwise, two servers with one run id would ask for the same rounds with other weights."""
    env = make_environment(tmp_path, sites=1, seeded=False)
    policy, longer = env.policies[0], env.agreement.changed(deadline_seconds=9.0)
    for retired in (False, True):
        if retired:
            Acceptances(policy).retire(env.agreement.digest)
        with pytest.raises(ConfigError, match="another agreement of this run was accepted before"):
            accept(policy, longer)
        assert [each.digest for each in Acceptances(policy).all()] == [env.agreement.digest]


def test_a_run_accepted_for_fewer_rounds_releases_no_more(tmp_path: Path) -> None:
    env = limited(tmp_path, 100, enough=1, **ONE)
    agent = env.agent(0)
    assert isinstance(content(ask(agent, env, request_of(env))), Report)
    assert content(ask(agent, env, request_of(env, 2))) == Refusal(2, Reason.OVER_BUDGET)
    accept(env.policies[0], env.agreement)  # for all
    assert isinstance(content(ask(agent, env, request_of(env, 2))), Report)
    assert env.releases(0) == [(1, 0), (2, 0)]
    ledger = env.ledger(0)
    spent = [account.spent for account in ledger.accounts(ledger.releases())]
    (accepted,) = Acceptances(env.policies[0]).all()
    assert accepted.promised == pytest.approx(spent)
    assert accepted.rest(0, env.ledger(0).releases()) == pytest.approx(0.0, abs=1e-9)


def test_an_answer_that_is_under_way_is_the_only_one_on_its_terms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers on two terms at once would not know of each other what they draw once."""
    env = make_environment(tmp_path, sites=1, seeded=False, policy={"answer_after_seconds": 0.5})
    agent, policy = env.agent(0), env.policies[0]
    (before,) = agent.runs
    answering = threading.Thread(target=lambda: ask(agent, env, request_of(env)))
    answering.start()
    while not before.answering.locked():
        time.sleep(0.001)
    accept(policy, env.agreement, enough=1)
    while answering.is_alive():
        assert list(agent.served()) == [env.agreement.digest]
        assert agent.runs == [before] or not before.answering.locked()
        time.sleep(0.01)
    assert list(agent.served()) == [env.agreement.digest]
    (after,) = agent.runs
    assert after.accepted == Acceptances(policy).of(env.agreement.digest) != before.accepted
    # Whoever was about to answer on the terms as they were, does not.
    found = [before]
    monkeypatch.setattr(agent, "_run", lambda digest: found.pop() if found else after)
    monkeypatch.setattr(
        agent, "_answer", lambda run, *_: pack(Answered(NO_RECEIPT, b"%d" % id(run)))
    )
    assert ask(agent, env, request_of(env)).answer == b"%d" % id(after)
    assert env.releases(0) == [(1, 0)]


def test_a_run_that_is_retired_releases_nothing_even_if_it_is_asked_now(tmp_path: Path) -> None:
    env = limited(tmp_path, 2, **ONE)
    agent = env.agent(0)
    assert isinstance(content(ask(agent, env, request_of(env))), Report)
    run = agent._run(env.agreement.digest)
    assert run is not None
    Acceptances(env.policies[0]).retire(env.agreement.digest)
    refused = run.runtime.answer(request_of(env, 2))  # a request that was being answered then
    assert read_reply(refused)[2] == Refusal(2, Reason.POLICY)
    assert env.releases(0) == [(1, 0)]


def test_a_ledger_without_a_limit_promises_whatever_a_run_costs(tmp_path: Path) -> None:
    budget = {"kind": "zcdp", "limit": math.inf}
    env = make_environment(tmp_path, sites=1, seeded=False, policy={"budget": budget})
    for number in range(3):
        accept(env.policies[0], env.another_run(number))
    assert len(Acceptances(env.policies[0]).current()) == 4
    told = payable(env.policies[0], env.another_run(3)).others
    cost = env.policies[0].costs(env.agreement)[1]
    assert len(told) == 5
    assert told[-1] == f"together {Budget('zcdp', math.inf).amount(4 * cost)}"


def test_a_run_that_its_server_ended_frees_the_rest_and_stays_in_the_ledger(tmp_path: Path) -> None:
    env = limited(tmp_path, 2, **ONE)
    policy, digest = env.policies[0], env.agreement.digest
    agent = env.agent(0)
    assert isinstance(content(ask(agent, env, request_of(env))), Report)
    run = agent._run(digest)
    assert run is not None
    Acceptances(policy).finish(digest)
    assert read_reply(run.runtime.answer(request_of(env, 2)))[2] == Refusal(2, Reason.POLICY)
    assert agent.served() == {}
    Acceptances(policy).finish(digest)  # told again: it is noted once
    acts = [act["what"] for act in env.ledger(0).database.history()]
    assert acts.count("finished") == 1
    assert payable(policy, env.another_run(1)).paid == 1
    Acceptances(policy).retire(digest)  # or else it could be accepted again
    (accepted,) = Acceptances(policy).all()
    assert accepted.state == "finished"
    with pytest.raises(ConfigError, match="its server ended it"):
        accept(policy, env.agreement)


@pytest.mark.slow
@forks
def test_24_processes_that_accept_at_once_never_promise_a_budget_twice(tmp_path: Path) -> None:
    env = limited(tmp_path, 13, **ONE)
    policy = env.policies[0]
    numbers = itertools.count(1)

    def work(mine: list[int]) -> Callable[[], None]:
        def attempt() -> None:
            for number in mine:
                with suppress(ConfigError):
                    accept(policy, env.another_run(number))

        return attempt

    processes = [apart(work([next(numbers), next(numbers)])) for _ in range(24)]
    for process in processes:
        process.join()
        assert process.exitcode == 0
    accepted = Acceptances(policy).current()
    assert len(accepted) == 6  # of two rounds each; the thirteenth round is left
    assert sum(each.promised[0] for each in accepted) <= policy.budgets[0].limit
