"""A server waits for its sites until they have accepted, and tries rounds again."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from environments import (
    Body,
    Environment,
    FakePipe,
    ask,
    assert_each_once,
    bits,
    make_environment,
    request_of,
    whole,
)

from fedldp.core.errors import EndedForGood
from fedldp.deployment import running
from fedldp.deployment.messages import Ask, read_by_site
from fedldp.deployment.policy import retire, write_accepted
from fedldp.deployment.watch import Presence, Watch, read_status
from fedldp.protocol.server_loop import Round
from fedldp.protocol.wire import read_request


class Knowing(FakePipe):
    """A pipe that knows its sites, like the one over HTTPS, where a node is a site's number."""

    versions: tuple[str, ...] = ()

    def present(self) -> Any:
        versions = self.versions or ("0.1.0",) * len(self.agents)
        return [
            Presence(there=self.agents[site] is not None, silent=0.0, version=version)
            for site, version in enumerate(versions)
        ]


def knowing(env: Environment) -> Knowing:
    return Knowing({index: env.agent(index).answer for index in range(len(env.policies))})


def places(pipe: FakePipe) -> list[tuple[int, int]]:
    """Return the round and the phase of every request."""
    found = [read_by_site(asked) for _node, asked, _answer in pipe.seen]
    asked = [read_request(each.request) for each in found if isinstance(each, Ask)]
    return [(each.broadcast.round, each.phase) for each in asked]


def status(env: Environment) -> dict[str, str]:
    found = read_status(env.folder / "server")
    return {site["name"]: site["state"] for site in found["sites"]}


@pytest.mark.slow
@pytest.mark.parametrize("channel", ["named", "sum"])
def test_a_round_with_too_few_answers_is_tried_again_with_the_same_requests(
    tmp_path: Path, channel: str, expected: dict[str, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """At every request, one site is away for longer than the deadline; no site releases twice."""
    env = make_environment(tmp_path, channel=channel, deadline=1.0)
    pipe, lost = env.pipe(), Counter[tuple[int, int]]()

    def tamper(node: int, asked: bytes, answer: Body) -> list[Body]:
        message = read_by_site(asked)
        if node != 101 or not isinstance(message, Ask):
            return [answer]
        request = read_request(message.request)
        place = request.broadcast.round, request.phase
        if lost[place] == 0:
            lost[place] += 1
            pipe.agents[101] = None  # until the round is tried again
        return [answer if pipe.agents[101] else None]

    agent = pipe.agents[101]

    def again(record: logging.LogRecord) -> bool:
        if "trying again" in record.getMessage():
            pipe.agents[101] = agent
        return True

    pipe.tamper = tamper
    log = logging.getLogger("fedldp.server")
    log.addFilter(again)
    try:
        served = env.server().serve(pipe, lambda record: None, None)
    finally:
        log.removeFilter(again)
    assert bits(served) == expected
    assert_each_once(env, pipe)
    assert set(lost) == set(whole(env))
    assert caplog.text.count("trying again in") == len(lost)
    found = read_status(env.folder / "server")
    assert (found["missed"], found["missed_ever"]) == (0, len(lost))
    assert [site["rounds"] for site in found["sites"]] == [2, 2, 2]


@pytest.mark.slow
def test_a_run_ends_after_the_stated_number_of_tries_and_the_next_start_continues_it(
    tmp_path: Path, expected: dict[str, bytes]
) -> None:
    env = make_environment(tmp_path, deadline=1.0)
    pipe = env.pipe()
    pipe.agents[101] = None
    with pytest.raises(EndedForGood, match="site-1 did not answer"):
        env.server().serve(pipe, lambda record: None, 2)
    found = read_status(env.folder / "server")
    assert found["missed"] == 2
    assert found["next"].startswith("ended: round 1")
    assert bits(env.serve()) == expected


def test_a_site_that_withdraws_its_acceptance_is_neither_asked_nor_waited_for(
    tmp_path: Path,
) -> None:
    """It is asked again once it accepts again; the deadline is never reached."""
    env = make_environment(tmp_path, "rounds=5", deadline=300.0, quorum=2)
    pipe, policy, clients = env.pipe(), env.policies[1], list[int]()

    def after_round(record: Round) -> None:
        clients.append(record.clients)
        if record.round == 1:
            retire(policy, env.agreement.digest)
        if record.round == 4:
            write_accepted(policy, env.agreement)

    env.server().serve(pipe, after_round, None)
    assert clients == [3, 2, 2, 2, 3]
    asked = [read_by_site(asked) for node, asked, _answer in pipe.seen if node == 101]
    rounds = [read_request(a.request).broadcast.round for a in asked if isinstance(a, Ask)]
    assert rounds == [1, 2, 5]
    assert env.releases(1) == [(1, 0), (5, 0)]


@pytest.mark.parametrize(("form", "lost"), [("text", "ledger.sqlite"), ("json", "state/secret")])
def test_a_site_that_lost_its_ledger_is_not_restarted_automatically(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fedldp_command: Any, form: str, lost: str
) -> None:
    """Its exit status tells the unit not to restart it."""
    monkeypatch.setattr(running, "_log_to_stderr", lambda as_json: None)
    monkeypatch.setattr(running.os, "umask", lambda mask: mask)
    env = make_environment(tmp_path, sites=1)
    ask(env.agent(0), env, request_of(env))
    (env.policies[0].key.parent / lost).unlink()
    outcome = fedldp_command("deploy", "site", tmp_path / "site-0" / "site.toml", "--log", form)
    assert outcome.status == 78
    assert ("; restore " in outcome.err) == (form == "text")


@pytest.mark.slow
def test_no_site_is_asked_before_the_quorum_has_accepted_and_has_the_version(
    tmp_path: Path, expected: dict[str, bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """That may take any time: the deadline of one second runs only from then on."""
    caplog.set_level(logging.INFO)
    env = make_environment(tmp_path, deadline=1.0)
    pipe, seen = knowing(env), list[dict[str, str]]()
    (accepted,) = env.policies[1].accepted.glob("*.agreement")
    content = accepted.read_bytes()
    accepted.unlink()
    pipe.versions = ("0.1.7", "0.1.0", "0.2.0")
    take, real = pipe.take, Watch.write

    def taken(timeout: float) -> list[tuple[int, Body]]:
        looks = len(seen)
        if looks == 40:
            accepted.write_bytes(content)
        if looks == 80:
            pipe.versions = ("0.1.7", "0.1.0", "0.1.1")
        if looks < 80:
            assert places(pipe) == []
        return take(timeout)

    def written(watch: Watch, **given: Any) -> None:
        real(watch, now=True)
        seen.append(status(env))

    pipe.take = taken  # type: ignore[method-assign]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Watch, "write", written)
        served = env.server().serve(pipe, lambda record: None, None)
    assert bits(served) == expected
    assert seen[30] == {"site-0": "ready", "site-1": "not-accepted", "site-2": "other-version"}
    assert seen[70] == {"site-0": "ready", "site-1": "ready", "site-2": "other-version"}
    assert set(seen[-1].values()) == {"answered"}
    for line in (
        "site-1 is connected, but has not accepted",
        "site-1 is connected and has accepted",
        "site-2 is connected with another version (0.2.0; the agreement requires 0.1.0",
    ):
        assert caplog.text.count(line) == 1
