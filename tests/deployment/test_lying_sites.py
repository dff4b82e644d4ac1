"""Lying sites: none is counted as another, stops the others, or decides how its report is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from environments import Body, asks, bits, make_environment

from fedldp.core.errors import FedldpError
from fedldp.deployment.messages import Answered, pack, read_message
from fedldp.protocol.wire import Report, pack_reply, read_reply


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
    assert isinstance(message, Answered)
    run, phase, content = read_reply(message.answer)
    assert isinstance(content, Report)
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
