"""Nodes that say late or never which site they belong to."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from environments import Body, FakePipe, assert_each_once, bits, make_environment

from fedldp.deployment import sites
from fedldp.deployment.messages import Ask, read_by_site


class OneBehind(FakePipe):
    """One node delivers each answer when the next message arrives, if the answer is still valid."""

    kept: tuple[int, Body, float] | None = None

    def ask(self, node: int, body: bytes, ttl: int) -> int:
        tag = super().ask(node, body, ttl)
        if node == 100:
            before, self.kept = self.kept, (*self._ready.pop(), time.monotonic() + ttl)
            if before is not None:
                tag_before, answer, until = before
                self._ready.append((tag_before, answer if time.monotonic() < until else None))
        return tag


@pytest.mark.slow
@pytest.mark.parametrize("channel", ["named", "sum"])
def test_a_node_that_answers_one_message_late_is_found_and_counted(
    tmp_path: Path, channel: str, monkeypatch: pytest.MonkeyPatch, expected: dict[str, bytes]
) -> None:
    monkeypatch.setattr(sites, "_GREET_AGAIN", 0.2)
    env = make_environment(tmp_path, channel=channel)
    pipe = OneBehind(env.pipe().agents)
    assert bits(env.serve(pipe)) == expected
    assert_each_once(env, pipe)


class Silent(FakePipe):
    """Has one more node than agents; it answers nothing, so greetings to it stay pending."""

    def nodes(self, timeout: float) -> list[int]:
        return [*super().nodes(timeout), 7]

    def ask(self, node: int, body: bytes, ttl: int) -> int:
        tag = super().ask(node, body, ttl)
        if node == 7:
            self._ready.pop()
        return tag


@pytest.mark.slow
def test_a_silent_node_gets_at_most_two_greetings_and_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sites, "_GREET_AGAIN", 0.0)
    env = make_environment(tmp_path, quorum=2, deadline=1.0)
    pipe = Silent({**env.pipe().agents, 100: None})
    env.serve(pipe)
    assert sum(node == 7 for node, _asked, _answer in pipe.seen) == 2
    assert caplog.text.count("node 7: no answer to a greeting; greeted again") == 1


class TwoNodes(FakePipe):
    """Has a site's old node, which answers one greeting after the new node has, and nothing
    else."""

    def nodes(self, timeout: float) -> list[int]:
        return [7, *super().nodes(timeout)]

    def ask(self, node: int, body: bytes, ttl: int) -> int:
        agent = self.agents[100]
        assert agent is not None
        if node != 7:
            tag = super().ask(node, body, ttl)
            if node == 100 and not isinstance(read_by_site(body), Ask):
                self._ready.append(self.old)
            return tag
        self._tag += 1
        self.seen.append((node, body, None))
        self.old = self._tag, agent(body)
        return self._tag


def test_an_old_node_that_answers_last_does_not_take_its_sites_place(
    tmp_path: Path, expected: dict[str, bytes]
) -> None:
    env = make_environment(tmp_path)
    pipe = TwoNodes(env.pipe().agents)
    assert bits(env.serve(pipe)) == expected
    assert not any(node == 7 and isinstance(read_by_site(b), Ask) for node, b, _ in pipe.seen)
