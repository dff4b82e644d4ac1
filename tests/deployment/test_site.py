"""The site agent against lying servers, failures of its disk, and garbage."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from environments import Environment, ask, content, make_environment, request_of

from fedldp.core.bounding import Ranges
from fedldp.core.errors import FedldpError
from fedldp.deployment.messages import (
    NO_RECEIPT,
    Ask,
    Challenge,
    Hello,
    Stranger,
    pack,
    read_by_server,
)
from fedldp.deployment.site import Agent
from fedldp.protocol.wire import (
    Reason,
    Refusal,
    Report,
)


@pytest.fixture
def env(tmp_path: Path) -> Environment:
    return make_environment(tmp_path, seeded=False)


# Servers that lie


def test_a_site_answers_agreed_requests_and_repeats_an_answer_at_no_cost(env: Environment) -> None:
    agent = env.agent(0)
    first = ask(agent, env, request_of(env))
    spent = env.ledger(0).spent()
    assert isinstance(content(first), Report)
    assert spent > 0
    assert ask(agent, env, request_of(env)).answer == first.answer
    assert ask(env.agent(0), env, request_of(env)).answer == first.answer
    assert env.ledger(0).spent() == spent


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"run": "0" * 32}, Reason.UNKNOWN_RUN),
        ({"round": 3}, Reason.WRONG_ROUND),
        ({"round": 1 << 60}, Reason.WRONG_ROUND),
        ({"phase": 1}, Reason.WRONG_ROUND),
        ({"weights": np.zeros(3, np.float32), "ranges": None}, Reason.OUT_OF_RANGE),
        ({"ranges": None}, Reason.POLICY),
        ({"weights": np.full(650, 3e38, np.float32)}, Reason.OUT_OF_RANGE),
        (
            {"ranges": Ranges(np.zeros(2), np.ones(2), (1, 649))},
            Reason.OUT_OF_RANGE,
        ),
        ({"public": {"x": np.full(2, 1e300)}}, Reason.OUT_OF_RANGE),
    ],
    ids=lambda value: str(value)[:20],
)
def test_requests_that_were_not_agreed_on_are_refused_and_cost_nothing(
    env: Environment, changes: dict[str, Any], reason: Reason
) -> None:
    agent = env.agent(0)
    refusal = content(ask(agent, env, request_of(env, **changes)))
    assert isinstance(refusal, Refusal)
    assert refusal.reason == reason
    assert env.releases(0) == []


def test_requests_that_no_server_packs_are_refused(env: Environment) -> None:
    agent, good = env.agent(0), request_of(env)
    nan = np.frombuffer(good, np.uint8).copy()
    at = good.index(np.zeros(100, np.float32).tobytes())
    nan[at : at + 4] = np.frombuffer(np.float32(np.nan).tobytes(), np.uint8)
    zero = good.replace((1).to_bytes(8, "little"), bytes(8), 1)
    for body in (nan.tobytes(), zero, good[:-1], good + b"\0", b"x"):
        assert content(ask(agent, env, body)) == Refusal(0, Reason.MALFORMED)
    assert env.releases(0) == []


def test_there_is_one_broadcast_for_a_round_and_no_earlier_round(env: Environment) -> None:
    agent = env.agent(0)
    ask(agent, env, request_of(env))
    other = np.ones(env.agreement.layout.size, np.float32)
    again = content(ask(agent, env, request_of(env, weights=other)))
    assert again.reason == Reason.ASKED_OTHERWISE
    ask(agent, env, request_of(env, 2))
    assert content(ask(agent, env, request_of(env))).reason in Reason
    assert isinstance(content(ask(agent, env, request_of(env))), Refusal)
    assert env.releases(0) == [(1, 0), (2, 0)]


def test_other_agreements_are_unknown_even_for_the_same_run(env: Environment) -> None:
    agent = env.agent(0)
    config = env.agreement.config.changed(epsilon=9.0)
    other = replace(env.agreement, config=config)
    assert other.digest != env.agreement.digest
    for digest in (other.digest, bytes(32)):
        for body in (Ask(digest, NO_RECEIPT, request_of(env)), Challenge(digest, bytes(32))):
            assert isinstance(read_by_server(agent.answer(pack(body))), Stranger)
    for body in (b"", b"x", bytes(10_000), pack(Stranger()), agent.answer(b"")):
        assert isinstance(read_by_server(agent.answer(body)), Stranger)
    assert env.releases(0) == []


def test_a_site_never_pays_more_than_its_budget(tmp_path: Path) -> None:
    env = make_environment(tmp_path, policy={"budget": {"kind": "zcdp", "limit": 400.0}})
    agent = env.agent(0)
    assert isinstance(content(ask(agent, env, request_of(env))), Report)
    refusal = content(ask(agent, env, request_of(env, 2)))
    assert refusal == Refusal(2, Reason.OVER_BUDGET)
    assert env.releases(0) == [(1, 0)]


def test_agreements_with_a_seed_are_for_the_demo_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    env = make_environment(tmp_path)
    agent = Agent(env.policies[0])
    body = pack(Ask(env.agreement.digest, NO_RECEIPT, request_of(env)))
    assert isinstance(read_by_server(agent.answer(body)), Stranger)
    assert "which protects nothing" in caplog.text
    assert env.releases(0) == []


# Its disk


def test_a_ledger_that_cannot_be_read_refuses_in_a_normal_answer(
    env: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    agent = env.agent(0)
    receipt = ask(agent, env, request_of(env)).receipt
    env.policies[0].ledger.write_bytes(b"not a database, for a hundred bytes and more" * 9)
    for _ in range(20):
        answer = ask(agent, env, request_of(env, 2), receipt)
        assert content(answer) == Refusal(2, Reason.LEDGER)
        assert answer.receipt == receipt
    # A greeting does not read the ledger: the time for that would reveal that it is being written.
    hello = read_by_server(agent.answer(pack(Challenge(env.agreement.digest, bytes(32)))))
    assert isinstance(hello, Hello)
    assert hello.receipt == receipt
    assert len(caplog.records) < 10


def test_an_agents_files_are_readable_by_its_owner_only(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.umask(0o077)  # as ``running`` sets it
    try:
        ask(env.agent(0), env, request_of(env))
    finally:
        os.umask(before)
    policy = env.policies[0]
    made = [policy.ledger, policy.state, *policy.state.rglob("*")]
    assert len(made) > 3
    for path in made:
        assert path.stat().st_mode & 0o077 == 0, path


def test_garbage_between_requests_stops_nothing_and_the_log_stays_short(
    env: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    agent, digest, rng = env.agent(0), env.agreement.digest, np.random.default_rng(0)
    for round in (1, 2):
        for number in range(10):
            for odd in (
                pack(Ask(digest, NO_RECEIPT, request_of(env, 2, ranges=None))),
                rng.bytes(100),
                pack(Challenge(rng.bytes(32), bytes(32))),
                pack(Ask(digest, NO_RECEIPT, request_of(env, 10 + number))),
                pack(Ask(digest, NO_RECEIPT, rng.bytes(300))),
            ):
                agent.answer(odd)
        assert isinstance(content(ask(agent, env, request_of(env, round))), Report)
    assert env.releases(0) == [(1, 0), (2, 0)]
    assert len(caplog.records) <= 12, caplog.text


def test_an_unwritable_state_folder_is_refused_in_one_line(env: Environment) -> None:
    policy = env.policies[0].model_copy(update={"state": env.policies[0].data / "below"})
    with pytest.raises(FedldpError) as found:
        Agent(policy)
    assert "\n" not in str(found.value)
