"""Rows of the table of failures that one process can show: nothing is released twice."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from environments import (
    CHANNELS,
    Body,
    asks,
    assert_each_once,
    bits,
    make_environment,
)

from fedldp.deployment import sites
from fedldp.deployment.messages import (
    Ask,
    read_by_site,
)


@pytest.mark.slow
@CHANNELS
def test_a_site_that_is_gone_holds_up_two_rounds_and_is_waited_for_when_it_is_back(
    tmp_path: Path, channel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock advances by a second when nothing arrives, and stands still otherwise."""
    env = make_environment(tmp_path, "rounds=5", channel=channel, quorum=2, deadline=7.0)
    pipe, at = env.pipe(), [0.0]
    agents, pipe.agents = pipe.agents, {**pipe.agents, 102: None}
    take = pipe.take

    def waiting(timeout: float) -> list[tuple[int, Body]]:
        at[-1] += 0.0 if any(body for _, body in pipe._ready) else 1.0
        return take(0.0)

    def note(done: Any) -> None:
        at.append(at[-1])
        if done.round == 4:
            pipe.agents = agents

    monkeypatch.setattr(pipe, "take", waiting)
    monkeypatch.setattr(sites, "time", SimpleNamespace(monotonic=lambda: at[-1]))
    env.server().serve(pipe, note)
    waited = np.diff([0.0, *at[:5]])
    assert (waited >= 7).tolist() == [True, True, False, False, False]
    assert not waited[2:].any()
    assert {round for round, _ in env.releases(2)} == {5}
    assert len(env.releases(2)) == len({phase for _, phase in env.releases(0)})


# Messages


def test_late_reordered_and_foreign_answers_are_not_counted(
    tmp_path: Path, expected: dict[str, bytes]
) -> None:
    env, kept = make_environment(tmp_path), list[bytes]()

    def tamper(node: int, asked: bytes, answer: Body) -> list[Body]:
        if not isinstance(read_by_site(asked), Ask):
            return [answer]
        assert answer
        kept.append(answer)
        late = [each for each in kept if each is not answer and asks(asked, round=2)]
        return [*late[:3], answer, *reversed(late)]

    pipe = env.pipe(tamper=tamper)
    assert bits(env.serve(pipe)) == expected
    assert_each_once(env, pipe)
