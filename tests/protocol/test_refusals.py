"""A client's policy, its refusals, and failures while it trains, encodes or draws."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from runtimes import (
    ENCODER,
    LAYOUT,
    Site,
    Stating,
    Watched,
    examples_of,
    packed_request,
    refusal_of,
    reply_of,
)

from fedldp.accounting.events import (
    PureReport,
)
from fedldp.core.bounding import LARGEST_WEIGHT, Ranges
from fedldp.core.errors import ConfigError, PrivacyError
from fedldp.ledgers.sqlite import SqliteLedger
from fedldp.protocol.client_runtime import Policy
from fedldp.protocol.roles import Client
from fedldp.protocol.wire import (
    Broadcast,
    Layout,
    Reason,
    Refusal,
    Report,
    RoundRequest,
    pack_arrays,
    read_reply,
    read_request,
)
from fedldp.testing.toys import MeanStep

TENSORS = Layout(("first", "second"), ((2, 3), (4,)))
POLICY = Policy(run="run", rounds=5, phases=2, layout=TENSORS)
ABOVE = float(np.nextafter(np.float32(LARGEST_WEIGHT), np.float32(np.inf)))


def asked(run: str = "run", phase: int = 0, round: int = 1, **parts: Any) -> RoundRequest:
    given = {"weights": np.full(10, 0.5, np.float32), **parts}
    return RoundRequest(run=run, phase=phase, broadcast=Broadcast(round=round, **given))


def with_weight(value: float) -> NDArray[np.float32]:
    weights = np.zeros(10, np.float32)
    weights[7] = value
    return weights


OUTSIDE = {
    Reason.WRONG_ROUND: [
        *(asked(round=round) for round in (-1, 0, 6, 2**62)),
        *(asked(phase=phase) for phase in (-1, 2, 2**31)),
    ],
    Reason.OUT_OF_RANGE: [
        *(asked(weights=np.zeros(shape, np.float32)) for shape in ((9,), (11,), (2, 5))),
        *(asked(weights=with_weight(x)) for x in (ABOVE, -ABOVE, 3e38, np.inf, -np.inf, np.nan)),
        *(asked(ranges=Ranges.fixed(0.0, 1.0, sizes)) for sizes in ((4, 6), (10,), (6, 3, 1))),
        *(
            asked(public={"fine": np.ones(2), "encoder": np.array([[0, 0], [0, value]], dtype)})
            for value in (ABOVE, -ABOVE, np.inf, -np.inf, np.nan)
            for dtype in (np.float32, np.float64)
        ),
    ],
    None: [
        *(asked(round=round, phase=phase) for phase, round in ((0, 1), (1, 2), (0, 5))),
        *(asked(weights=with_weight(x)) for x in (LARGEST_WEIGHT, -LARGEST_WEIGHT, -0.0, 1e-45)),
        asked(ranges=Ranges.fixed(0.0, 1.0, TENSORS.sizes)),
        asked(public={"encoder": np.full(3, LARGEST_WEIGHT), "more": np.full(3, -LARGEST_WEIGHT)}),
        asked(public={"nothing": np.zeros(0), "one": np.array(5.0), "big": np.array([10**9])}),
        asked(public={"flags": np.array([True, False]), "bytes": np.full(3, 255, np.uint8)}),
    ],
}


@pytest.mark.parametrize("reason", OUTSIDE, ids=str)
def test_requests_outside_the_terms_are_refused_and_others_pass(reason: Reason | None) -> None:
    for request in OUTSIDE[reason]:
        assert POLICY.refuses(request) is reason, request


def test_only_a_phase_without_training_may_lack_weights() -> None:
    for weights, refused in [((0,), None), ((10,), None), ((9,), Reason.OUT_OF_RANGE)]:
        told = replace(asked(weights=np.zeros(weights, np.float32)), phase=1)
        assert POLICY.refuses(told) is refused
        assert replace(POLICY, trains_in=1).refuses(told) is (
            None if weights == (10,) else Reason.OUT_OF_RANGE
        )


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
def test_a_refusal_depends_on_the_request_alone(
    message: bytes, reason: Reason, tmp_path: Path
) -> None:
    """Neither on examples nor on keys nor on earlier requests; nobody trains for it or pays."""
    sites = [
        Site(tmp_path / "a", examples=examples_of(0.1)),
        Site(tmp_path / "b", examples=examples_of(3e38, 1)),
        Site(tmp_path / "c", False, examples=examples_of(-7.0, 50)),
        Site(tmp_path / "d", releases=1),
    ]
    for site in sites:
        site.folder.mkdir()
    assert isinstance(reply_of(sites[-1].ask(packed_request(5))), Report)
    (answer,) = {site.ask(message) for site in sites}
    run, phase, refusal = read_reply(answer)
    assert refusal.reason is reason
    assert [site.local_update.calls for site in sites] == [0, 0, 0, 1]
    assert sites[0].entries() == sites[1].entries() == []
    assert sites[2].memory.spent(0) == 0
    # It names the request as far as it could be read.
    told = ("", 0, 0)
    if reason is not Reason.MALFORMED:
        asked = read_request(message)
        told = asked.run, asked.phase, asked.broadcast.round
    assert (run, phase, refusal.round) == told


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


class Trouble(RuntimeError):
    """Any error in training."""


def trouble(broadcast: Broadcast, client: Client) -> None:
    raise Trouble("a private number: 42")


@real_and_simulated
def test_failed_training_is_answered_like_training_that_gave_nan(
    real: bool, tmp_path: Path
) -> None:
    """The answer randomises the broadcast, so it does not reveal whether training failed."""
    seen: list[Exception] = []
    given: list[Any] = []
    encoder = Watched(lambda update, *_: given.append(np.isnan(update.open().rows).all()))
    site = Site(tmp_path, real, local_update=MeanStep(trouble), encoder=encoder, failed=seen.append)
    message = site.ask(packed_request())
    assert isinstance(reply_of(message), Report)
    assert b"42" not in message
    assert given == [True, True][1 - real :]  # a real client first tries the encoder
    assert [type(error) for error in seen] == [Trouble]
    assert site.ask(packed_request()) == message


def test_a_real_client_whose_training_fails_answers_at_the_usual_cost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A missing answer would reveal the failure; the log names only the type of the error."""
    site = Site(tmp_path, local_update=MeanStep(trouble), releases=1)
    assert isinstance(reply_of(site.ask(packed_request())), Report)
    assert caplog.messages == ["training or encoding failed: Trouble"]
    assert [entry[2] for entry in site.entries()] == [ENCODER.event()]
    assert refusal_of(site.ask(packed_request(2))).reason is Reason.OVER_BUDGET


def test_failed_training_and_training_without_a_change_give_the_same_bytes(tmp_path: Path) -> None:
    """Both answers randomise the broadcast, with the same randomness."""
    still = Site(tmp_path, real=False, examples=examples_of(0.0))
    failing = Site(tmp_path, real=False, local_update=MeanStep(trouble), failed=lambda error: None)
    nan = Site(tmp_path, real=False, examples=examples_of(np.nan))
    assert len({site.ask(packed_request(weights=0.25)) for site in (still, failing, nan)}) == 1


def test_a_simulation_shows_its_user_what_failed(tmp_path: Path) -> None:
    site = Site(tmp_path, real=False, local_update=MeanStep(trouble))
    with pytest.raises(Trouble):
        site.ask(packed_request())
    assert site.memory.spent(0) == 0
    site.local_update = MeanStep()
    assert isinstance(reply_of(site.ask(packed_request())), Report)


@pytest.mark.parametrize("error", [ConfigError("no"), PrivacyError("no"), KeyError("importance")])
def test_an_encoders_refusal_is_a_refusal_and_costs_nothing(
    error: Exception, tmp_path: Path
) -> None:
    def refuse(broadcast: Broadcast) -> Report:
        raise error

    seen: list[Exception] = []
    encoder = Stating(PureReport(epsilon=1.0), refuse)
    site = Site(tmp_path, encoder=encoder, failed=seen.append)
    assert refusal_of(site.ask(packed_request())) == Refusal(1, Reason.POLICY)
    assert seen == [error]
    assert not site.entries()
    silent = replace(site, failed=None)
    assert refusal_of(silent.ask(packed_request())) == Refusal(1, Reason.POLICY)


def test_a_report_that_cannot_be_packed_does_not_leave(tmp_path: Path) -> None:
    def send(broadcast: Broadcast) -> Report:
        return Report(round=broadcast.round, size=3, payload=b"x", chunk=3, weight=float("nan"))

    encoder = Stating(PureReport(epsilon=1.0), send)
    site = Site(tmp_path, encoder=encoder, failed=lambda error: None)
    assert refusal_of(site.ask(packed_request())).reason is Reason.POLICY
    assert not site.entries()
