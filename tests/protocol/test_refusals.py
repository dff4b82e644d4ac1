"""A client refuses before it looks at an example, and answers whatever it is sent."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedldp.core.bounding import Ranges
from fedldp.ledgers.sqlite import SqliteLedger
from fedldp.protocol.wire import (
    Reason,
    Refusal,
    Report,
    pack_arrays,
    read_reply,
    read_request,
)
from fedldp.testing.runtimes import LAYOUT, Site, examples_of, packed_request, refusal_of, reply_of
from fedldp.testing.toys import MeanStep


def with_nan(message: bytes) -> bytes:
    """Return a request whose last weight is NaN, which ``pack_request`` would refuse to pack."""
    return message[:-4] + np.float32(np.nan).tobytes()


OUT_OF_RANGE = {
    "weights beyond the limit": packed_request(weights=3e38),
    "too many weights": packed_request(weights=np.zeros(41, np.float32)),
    "ranges of another model": packed_request(ranges=Ranges.fixed(0.0, 1.0, (20, 20))),
    "a public array with NaN": packed_request(public={"more": np.full(3, np.nan)}),
}
WRONG_ROUND = {"a round beyond the last": packed_request(6), "a phase": packed_request(1, 1)}
MALFORMED = {
    "nothing": b"",
    "a message cut short": packed_request()[:-1],
    "NaN among the weights": with_nan(packed_request()),
    "another kind of message": pack_arrays({"weights": np.zeros(40, np.float32)}),
}
REFUSED = (
    {name: (message, Reason.OUT_OF_RANGE) for name, message in OUT_OF_RANGE.items()}
    | {name: (message, Reason.WRONG_ROUND) for name, message in WRONG_ROUND.items()}
    | {name: (message, Reason.MALFORMED) for name, message in MALFORMED.items()}
    | {"another run": (packed_request(run="another"), Reason.UNKNOWN_RUN)}
)
refused_requests = pytest.mark.parametrize(
    ("message", "reason"), REFUSED.values(), ids=REFUSED.keys()
)
real_and_simulated = pytest.mark.parametrize("real", [True, False], ids=["real", "simulated"])


@refused_requests
@real_and_simulated
def test_requests_outside_the_policy_are_refused_before_training(
    real: bool, message: bytes, reason: Reason, tmp_path: Path
) -> None:
    site = Site(tmp_path, real)
    runtime = site.start()
    refusal = refusal_of(runtime.answer(message))
    assert refusal.reason is reason
    assert site.local_update.calls == 0
    assert not site.entries() if real else site.memory.spent(0) == 0
    assert isinstance(reply_of(runtime.answer(packed_request())), Report), "it goes on"


@refused_requests
def test_a_refusal_depends_on_no_example(message: bytes, reason: Reason, tmp_path: Path) -> None:
    """A refusal depends neither on the client nor on its keys nor on earlier requests."""
    sites = [
        Site(tmp_path / "a", examples=examples_of(0.1)),
        Site(tmp_path / "b", examples=examples_of(3e38, 1)),
        Site(tmp_path / "c", False, examples=examples_of(-7.0, 50)),
        Site(tmp_path / "d", releases=1),
    ]
    for site in sites:
        site.folder.mkdir()
    assert isinstance(reply_of(sites[-1].ask(packed_request(5))), Report)
    assert len({site.ask(message) for site in sites}) == 1


def test_a_refusal_names_the_request_as_far_as_it_could_be_read(tmp_path: Path) -> None:
    site = Site(tmp_path)
    for message, (reason, _) in ((m, (r, n)) for n, (m, r) in REFUSED.items()):
        run, phase, refusal = read_reply(site.ask(message))
        if reason is Reason.MALFORMED:
            assert (run, phase, refusal) == ("", 0, Refusal(0, reason))
            continue
        asked = read_request(message)
        assert isinstance(refusal, Refusal)
        assert (refusal.round, phase) == (asked.broadcast.round, asked.phase)
        assert run == asked.run


valid = packed_request(public={"more": np.arange(3.0)}, ranges=Ranges.fixed(0.0, 1.0, LAYOUT.sizes))


@settings(
    max_examples=37,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_no_bytes_make_a_client_raise(data: st.DataObject, tmp_path: Path) -> None:
    """Complete, truncated, changed and random messages each get one complete answer."""
    message = bytearray(valid if data.draw(st.booleans()) else data.draw(st.binary(max_size=200)))
    for _ in range(data.draw(st.integers(0, 4))):
        if message:
            place = data.draw(st.integers(0, len(message) - 1))
            message[place] = data.draw(st.integers(0, 255))
    cut = bytes(message[: data.draw(st.integers(0, len(message)))])
    site = Site(tmp_path, real=False)
    answer = site.start().answer(cut)
    found = reply_of(answer)
    assert isinstance(found, Report | Refusal)
    assert isinstance(found, Report) or site.local_update.calls == 0


@pytest.mark.parametrize("trouble", ["a directory", "no ledger", "locked"])
def test_with_an_unusable_ledger_nothing_leaves(trouble: str, tmp_path: Path) -> None:
    site = Site(tmp_path)
    runtime = site.start()
    path = tmp_path / "ledger"
    if trouble == "locked":
        runtime = replace(runtime, ledgers=SqliteLedger(path, timeout_seconds=0.0))
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN EXCLUSIVE")
    else:
        path.unlink()
        path.mkdir() if trouble == "a directory" else path.write_bytes(b"no ledger" * 1000)
    assert refusal_of(runtime.answer(packed_request())) == Refusal(1, Reason.LEDGER)
    assert site.local_update.calls == 0
    if trouble == "locked":
        holder.close()


def test_if_the_ledger_breaks_during_training_nothing_leaves(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    site = Site(tmp_path, local_update=MeanStep(lambda *_: path.write_bytes(b"broken" * 2000)))
    assert refusal_of(site.ask(packed_request())) == Refusal(1, Reason.LEDGER)
    assert site.local_update.calls == 1
