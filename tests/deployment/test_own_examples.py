"""What leaves a site must not reveal the size of its file of examples, or that it changed."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from environments import Environment, asks, make_environment

from fedldp.deployment.messages import (
    NO_RECEIPT,
    Answered,
    Ask,
    Challenge,
    Hello,
    Stranger,
    pack,
    read_by_server,
    read_by_site,
)
from fedldp.deployment.policy import write_accepted
from fedldp.deployment.site import Agent
from fedldp.protocol.wire import Report, read_reply, read_request

SOUND = ("mechanism=nearest_direction", "num_examples=90")


def sound_environment(folder: Path, **given: Any) -> Environment:
    return make_environment(folder, *SOUND, recipe="ldpfl-sound-digits", seeded=False, **given)


def data_of(env: Environment, index: int = 0) -> dict[str, np.ndarray]:
    with np.load(env.policies[index].data) as found:
        return dict(found)


def keep(env: Environment, features: np.ndarray, labels: np.ndarray) -> None:
    """Change a site's data, and accept the agreement with them."""
    np.savez(env.policies[0].data, features=features, labels=labels)
    write_accepted(env.policies[0], env.agreement)


@pytest.mark.parametrize("count", [1, 60])
def test_a_report_does_not_reveal_how_many_examples_its_site_has(
    count: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    env = sound_environment(tmp_path)
    own = data_of(env)
    keep(env, *(np.resize(own[name], (count, *own[name].shape[1:])) for name in own))
    pipe = env.pipe()
    env.serve(pipe)
    reports = 0
    for node, asked, answer in pipe.seen:
        if node != 100 or not isinstance(read_by_site(asked), Ask):
            continue
        message = read_by_server(answer or b"")
        assert isinstance(message, Answered)
        report = read_reply(message.answer)[2]
        assert isinstance(report, Report)
        # Without an example in a round, the report would equal what the server sent.
        ask = read_by_site(asked)
        assert isinstance(ask, Ask)
        told = read_request(ask.request).broadcast.weights
        assert report.payload != told.tobytes()
        assert len(report.payload) == told.nbytes
        reports += 1
    assert reports == 2
    missing = 30 - count
    assert (f"{missing} examples of zeros are added" in caplog.text) == (missing > 0)
    assert ("at most 30 examples per site" in caplog.text) == (missing < 0)


def test_data_that_change_during_a_run_are_refused_if_an_example_is_charged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    env = sound_environment(tmp_path, quorum=2, deadline=2.0)
    own = data_of(env)
    backwards = (own["features"][::-1], own["labels"][::-1])
    pipe = env.pipe()

    def begun(agent: Agent) -> bool:
        asked = pack(Challenge(env.agreement.digest, bytes(32)))
        return isinstance(read_by_server(agent.answer(asked)), Hello)

    assert begun(env.agent(0))
    keep(env, *backwards)
    assert begun(env.agent(0))  # nothing has been released yet
    keep(env, own["features"], own["labels"])
    pipe.agents[100] = env.agent(0).answer
    rounds: list[int] = []

    def after(record: Any) -> None:
        if record.round == 1:
            keep(env, *backwards)
            pipe.agents[100] = env.agent(0).answer
        rounds.append(record.round)

    env.server().serve(pipe, after)
    assert rounds[0] == 1
    assert env.releases(0) == [(1, 0)]
    assert "or their order changed since the run began" in caplog.text
    assert not begun(env.agent(0))
    keep(env, own["features"], own["labels"])
    assert begun(env.agent(0))


def test_the_record_of_the_examples_may_not_be_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    env = sound_environment(tmp_path)
    env.serve()
    (noted,) = (env.policies[0].state / "kept").rglob("examples.safetensors")
    noted.unlink()
    asked = pack(Challenge(env.agreement.digest, bytes(32)))
    assert isinstance(read_by_server(env.agent(0).answer(asked)), Stranger)
    assert "that the run began with is missing" in caplog.text


def test_files_kept_for_other_examples_are_all_deleted_or_the_run_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    env = sound_environment(tmp_path)
    own = data_of(env)
    asked = pack(Challenge(env.agreement.digest, bytes(32)))
    assert isinstance(read_by_server(env.agent(0).answer(asked)), Hello)
    keep(env, own["features"][::-1], own["labels"][::-1])

    def refuse(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", refuse)
        assert isinstance(read_by_server(env.agent(0).answer(asked)), Stranger)
    assert "cannot be written: Permission denied" in caplog.text
    assert isinstance(read_by_server(env.agent(0).answer(asked)), Hello)


def test_data_may_change_if_nothing_is_charged_once(tmp_path: Path) -> None:
    env = make_environment(tmp_path, seeded=False)
    own = data_of(env)
    pipe = env.pipe()

    def after(record: Any) -> None:
        keep(env, own["features"][::-1], own["labels"][::-1])
        pipe.agents[100] = env.agent(0).answer

    env.server().serve(pipe, after)
    assert env.releases(0) == [(1, 0), (2, 0)]


def test_simultaneous_requests_do_not_reveal_how_long_each_took(tmp_path: Path) -> None:
    fixed = 0.4
    policy = {"answer_after_seconds": fixed}
    env = make_environment(tmp_path, "rounds=1", seeded=False, policy=policy)
    agent, pipe = env.agent(0), env.pipe()
    env.serve(pipe)
    body = next(asked for node, asked, _ in pipe.seen if node == 100 and asks(asked))
    start, left = time.monotonic(), list[float]()

    def ask() -> None:
        agent.answer(body)
        left.append(time.monotonic() - start)

    together = [threading.Thread(target=ask) for _ in range(4)]
    for each in together:
        each.start()
    for each in together:
        each.join()
    # Answers leave one by one, each with its own delay; otherwise all but the first, which take no
    # time, would arrive together with it.
    assert all(when >= turn * fixed for turn, when in enumerate(sorted(left), 1))


@pytest.mark.slow
def test_a_greeting_does_not_reveal_that_an_answer_waits_to_leave(tmp_path: Path) -> None:
    policy = {"answer_after_seconds": 2.0}
    env = make_environment(tmp_path, "rounds=1", seeded=False, policy=policy, deadline=20.0)
    pipe, agent = env.pipe(), env.agent(0)
    told: list[tuple[bytes, bool]] = []
    answered: list[bytes] = []

    def receipt() -> bytes:
        asked = pack(Challenge(env.agreement.digest, bytes(32)))
        found = read_by_server(agent.answer(asked))
        assert isinstance(found, Hello)
        return found.receipt

    def greeted_all_the_while(body: bytes) -> bytes:
        if not asks(body):
            return agent.answer(body)
        answering = threading.Thread(target=lambda: answered.append(agent.answer(body)))
        answering.start()
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            charged = bool(env.releases(0))
            told.append((receipt(), charged))
            time.sleep(0.05)
        assert not answered
        answering.join()
        return answered[0]

    pipe.agents[100] = greeted_all_the_while
    env.serve(pipe)
    assert {found for found, _ in told} == {NO_RECEIPT}
    assert any(charged for _, charged in told)
    message = read_by_server(answered[0])
    assert isinstance(message, Answered)
    assert receipt() == message.receipt != NO_RECEIPT
