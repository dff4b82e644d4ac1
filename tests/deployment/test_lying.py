"""Lying servers and sites: nothing is paid or released twice, and no site is counted as another."""

from __future__ import annotations

import random
import threading
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from environments import (
    HOST,
    Body,
    Environment,
    acceptance_of,
    ask,
    ask_bytes,
    asks,
    at_once,
    bits,
    content,
    make_environment,
    new_tls,
    request_of,
    write_tls,
)

from fedldp.core.errors import FedldpError
from fedldp.deployment.acceptance import accept
from fedldp.deployment.certificates import (
    ServerTls,
    authorities_of,
    authority,
    is_of_server,
    server_certificate,
)
from fedldp.deployment.messages import Answered, End, Stranger, pack, read_message
from fedldp.deployment.site import Agent
from fedldp.protocol.client_runtime import OneClient
from fedldp.protocol.wire import Reason, Refusal, Report, pack_reply, read_reply

ROUNDS = 3


@pytest.fixture
def runs(tmp_path: Path) -> list[Environment]:
    """Return two runs of the same sites, which have one ledger each."""
    one = make_environment(tmp_path, f"rounds={ROUNDS}", seeded=False)
    other = replace(one, agreement=one.another_run())
    accept(other.policies[0], other.agreement)
    return [one, other]


def end_of(env: Environment, tls: Path | None = None, after: int = 1, **changes: Any) -> bytes:
    """Return the end of a run, as its server signs it, with fields changed afterwards."""
    folder = tls or env.folder / "tls"
    end = End(env.agreement.digest, after)
    signature, chain = ServerTls(folder / "server.pem", folder / "server.key").sign(end.signed)
    return pack(replace(end, **{"signature": signature, "chain": chain, **changes}))


def is_stranger(answer: bytes) -> bool:
    return isinstance(read_message(answer), Stranger)


def is_open(env: Environment) -> bool:
    return acceptance_of(env.policies[0], env.agreement.digest).is_open


def paid(env: Environment) -> Counter[tuple[str, int, int]]:
    """Return how often a site paid for each place of all runs."""
    return Counter((e.run, e.round, e.phase) for e in env.ledger(0).verify())


def test_a_session_answers_for_its_own_run_only(runs: list[Environment]) -> None:
    one, other = runs
    agent = one.agent(0)
    body = ask_bytes(other, request_of(other))
    assert is_stranger(agent.answer(body, one.agreement.digest))
    mixed = read_message(agent.answer(ask_bytes(one, request_of(other))))
    assert isinstance(mixed, Answered)
    assert content(mixed) == Refusal(1, Reason.UNKNOWN_RUN)
    assert paid(one) == Counter()
    assert not is_stranger(agent.answer(body, other.agreement.digest))
    assert paid(one) == {(other.agreement.run, 1, 0): 1}


def test_a_slow_training_holds_up_no_other_run(
    runs: list[Environment], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One connection to the file of state is held, as in an agent that runs."""
    one, other = runs
    agent, slow, done = one.agent(0), threading.Event(), threading.Event()
    (held_up, _) = (agent._run(env.agreement.digest) for env in runs)
    assert held_up is not None
    trains = OneClient.local_update.fget

    def waits(members: OneClient) -> Any:
        if members is held_up.runtime.members:
            slow.set()
            assert done.wait(60)
        return trains(members)

    monkeypatch.setattr(OneClient, "local_update", property(waits))
    with agent.ledger.database.held():
        training = threading.Thread(target=ask, args=(agent, one, request_of(one)))
        training.start()
        assert slow.wait(60)
        assert isinstance(content(ask(agent, other, request_of(other))), Report)
        assert agent.served().keys() == {env.agreement.digest for env in runs}
        assert is_stranger(agent.answer(end_of(other), other.agreement.digest))
        assert not is_open(other)
        assert training.is_alive()
        done.set()
        training.join()
    assert paid(one) == {(env.agreement.run, 1, 0): 1 for env in runs}


@pytest.mark.parametrize("after", [0, 1])
def test_a_site_says_that_it_answered_more_than_its_server_counts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, after: int
) -> None:
    """As if the server was restored from an older copy and ended without asking anybody."""
    env = make_environment(tmp_path, sites=1)
    agent = env.agent(0)
    for round in (1, 2):
        ask(agent, env, request_of(env, round))
    agent.answer(end_of(env, after=after), env.agreement.digest)
    assert ("answered 2 rounds, and the server's statement counts fewer" in caplog.text) != after


def test_only_the_runs_own_server_ends_it(runs: list[Environment], tmp_path: Path) -> None:
    one, other = runs
    agent, digest = one.agent(0), one.agreement.digest
    trusted = agent.policy.server[0].ca
    elsewhere = write_tls(tmp_path / "elsewhere", new_tls())
    # The site trusts this authority by now, but the agreement does not name it.
    trusted.write_bytes(trusted.read_bytes() + elsewhere.read_bytes())
    signer = authority("test", 2)
    own = server_certificate(signer, [HOST], 2)
    files = {"ca.pem": signer.certificate, "server.pem": own.certificate, "server.key": own.key}
    write_tls(tmp_path / "here", files)
    signed = ServerTls(tmp_path / "here" / "server.pem", tmp_path / "here" / "server.key").sign(
        b"x"
    )
    for host, expected in ((HOST, True), ("localhost", False)):
        vouch = authorities_of(tmp_path / "here" / "ca.pem")
        assert is_of_server(b"x", *signed, host, vouch) == expected
        assert not is_of_server(b"y", *signed, host, vouch)
    for lie in (
        end_of(other, digest=digest),
        end_of(one, rounds=2),
        end_of(one, signature=b""),
        end_of(one, chain=b""),
        end_of(one, tls=tmp_path / "elsewhere"),
    ):
        assert is_stranger(agent.answer(lie, digest))
        assert is_open(one), lie
    assert is_stranger(agent.answer(end_of(other), digest))  # the end of another run
    assert is_open(other)
    for _ in range(2):
        assert is_stranger(agent.answer(end_of(one), digest))
    assert not is_open(one)
    assert acceptance_of(one.policies[0], digest).state == "finished"
    assert is_stranger(agent.answer(ask_bytes(one, request_of(one))))
    assert paid(one) == Counter()
    assert is_open(other)
    assert agent.served().keys() == {other.agreement.digest}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_lies_in_any_order_and_at_once_are_paid_once(runs: list[Environment], seed: int) -> None:
    """Requests of both runs are wrong, replayed, reordered and doubled, from several threads."""
    chance = random.Random(seed)
    agent: Agent = runs[0].agent(0)
    lies: list[tuple[bytes, bytes]] = []
    for env in runs:
        for round in range(1, ROUNDS + 1):
            for request in (
                request_of(env, round),
                request_of(env, round, phase=1),
                request_of(runs[0], round),
            ):
                for session in runs:
                    lies += [(session.agreement.digest, ask_bytes(env, request))] * 2
    lies += [(env.agreement.digest, end_of(env, signature=b"")) for env in runs]
    chance.shuffle(lies)
    given: dict[tuple[str, int], set[bytes]] = {}

    def lie(some: list[tuple[bytes, bytes]]) -> None:
        for digest, body in some:
            message = read_message(agent.answer(body, digest))
            if isinstance(message, Answered) and isinstance(content(message), Report):
                run = next(e.agreement.run for e in runs if e.agreement.digest == digest)
                given.setdefault((run, content(message).round), set()).add(message.answer)

    at_once(*(partial(lie, lies[part::4]) for part in range(4)))
    assert given
    assert all(len(answers) == 1 for answers in given.values())
    assert paid(runs[0]) == {(run, round, 0): 1 for run, round in given}
    most = sum(env.policies[0].costs(env.agreement)[1] for env in runs)
    assert runs[0].ledger(0).spent() <= most
    assert all(map(is_open, runs))


# Lying sites


@pytest.fixture(scope="module")
def absent(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return the weights of a round without the second site."""
    env = make_environment(tmp_path_factory.mktemp("absent"), "rounds=1", quorum=2, deadline=1.0)
    pipe = env.pipe()
    pipe.agents[1] = None
    return bits(env.serve(pipe))


@pytest.mark.slow
def test_a_different_second_answer_is_noticed_and_the_first_counts(
    tmp_path: Path, expected: dict[str, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    env = make_environment(tmp_path)

    def tamper(node: int, asked: bytes, answer: Body) -> list[Body]:
        if node != 1 or not asks(asked):
            return [answer]
        return [answer, other_bits(answer)]

    assert bits(env.serve(env.pipe(tamper=tamper))) == expected
    assert "site-1 gave a second, different answer to a request" in caplog.text


def other_bits(answer: Body, **changes: Any) -> bytes:
    message = read_message(answer or b"")
    run, phase, content = read_reply(message.answer)
    flipped = bytes([content.payload[0] ^ 0xFF]) + content.payload[1:]
    report = Report(**{**vars(content), "payload": flipped, **changes})
    return pack(Answered(message.receipt, pack_reply(report, run=run, phase=phase)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"client": 0},
        {"payload": b"\xff" * 100_000},
        {"size": 649, "chunk": 649},
        {"size": 1 << 40},
        {"weight": 1e300},
        {"epsilon": 1e-6},  # which would count a million times
    ],
    ids=lambda changes: repr(changes)[:25],
)
def test_a_site_that_sends_nonsense_is_left_out_and_stops_nobody(
    tmp_path: Path, changes: dict[str, Any], absent: dict[str, bytes]
) -> None:
    env = make_environment(tmp_path, "rounds=1", quorum=2, deadline=1.0)

    def tamper(node: int, asked: bytes, answer: Body) -> list[Body]:
        return [other_bits(answer, **changes) if node == 1 and asks(asked) else answer]

    try:
        served = env.serve(env.pipe(tamper=tamper))
    except FedldpError as error:
        pytest.fail(f"one site stopped the run: {error}")
    assert bits(served) == absent


@pytest.mark.slow
def test_a_report_beyond_all_weights_is_left_out_before_any_step(tmp_path: Path) -> None:
    """Adam would take an ordinary step for such a report, and then hardly move for hundreds of
    rounds."""
    settings = ("rounds=1", "server_optimizer=adam", "server_rate=0.05")
    given: Any = {
        "recipe": "fedavg-quickstart",
        "quorum": 2,
        "deadline": 1.0,
        "policy": {"allow_in_clear": True, "budget": {"kind": "zcdp", "limit": float("inf")}},
    }
    env = make_environment(tmp_path / "liar", *settings, **given)
    huge = np.full(650, 1e20, "<f4").tobytes()

    def tamper(node: int, asked: bytes, answer: Body) -> list[Body]:
        return [other_bits(answer, payload=huge) if node == 1 and asks(asked) else answer]

    served = env.serve(env.pipe(tamper=tamper))
    there = make_environment(tmp_path / "absent", *settings, **given)
    pipe = there.pipe()
    pipe.agents[1] = None
    assert bits(served) == bits(there.serve(pipe))
