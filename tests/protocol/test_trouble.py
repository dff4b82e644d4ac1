"""Failures on a client: in training, in encoding, or of the whole process."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedldp.protocol.client_runtime
from fedldp.accounting.events import (
    Event,
    PureReport,
)
from fedldp.core.errors import ConfigError, PrivacyError
from fedldp.ledgers.sqlite import SqliteLedger
from fedldp.protocol.roles import Client, Sender
from fedldp.protocol.updates import alone
from fedldp.protocol.wire import (
    Broadcast,
    Reason,
    Refusal,
    Report,
    Sensitive,
)
from fedldp.testing.clients import EachAlone
from fedldp.testing.runtimes import (
    ENCODER,
    Site,
    Stating,
    examples_of,
    packed_request,
    refusal_of,
    reply_of,
)
from fedldp.testing.toys import MeanStep

real_and_simulated = pytest.mark.parametrize("real", [True, False], ids=["real", "simulated"])


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

    class Seeing(EachAlone):
        def event(self, phase: int = 0, round: int = 1) -> Event:
            return ENCODER.event(phase)

        def one(self, update: Sensitive[Any], broadcast: Broadcast, sender: Sender) -> Report:
            given.append(np.isnan(update.open().rows).all())
            return alone(ENCODER, update, broadcast, sender)

    site = Site(
        tmp_path, real, local_update=MeanStep(trouble), encoder=Seeing(), failed=seen.append
    )
    message = site.ask(packed_request())
    report = reply_of(message)
    assert isinstance(report, Report)
    assert b"42" not in message
    assert given == [True, True][1 - real :]  # a real client first tries the encoder
    assert [type(error) for error in seen] == [Trouble]
    assert site.ask(packed_request()) == message


def test_failed_training_costs_as_much_as_training(tmp_path: Path) -> None:
    site = Site(tmp_path, local_update=MeanStep(trouble), failed=lambda error: None, releases=1)
    site.ask(packed_request())
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


def test_a_real_client_whose_training_fails_still_answers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A missing answer would reveal the failure; the log names only the type of the error."""
    site = Site(tmp_path, real=True, local_update=MeanStep(trouble))
    assert isinstance(reply_of(site.ask(packed_request())), Report)
    assert caplog.messages == ["training or encoding failed: Trouble"]


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


# Killed


FORK = multiprocessing.get_context("fork")
forks = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def drawing_once(broadcast: Broadcast, client: Client) -> None:
    """Keep a once-only choice of fresh bytes, which would differ if drawn again."""
    drawn = client.fresh("mechanism").bytes(32)
    client.store.arrays(f"once-{broadcast.round}", lambda: {"drawn": drawn})


def end_after(name: str, module: Any, when: Callable[..., bool] = lambda *given: True) -> None:
    """Make a function end this process silently as soon as it returns."""
    original = getattr(module, name)

    def ending(*given: Any, **options: Any) -> None:
        found = original(*given, **options)
        if when(*given):
            os._exit(7)
        return found

    setattr(module, name, ending)


def end_at_commit(after: bool) -> None:
    class Connection(sqlite3.Connection):
        def execute(self, sql: str, *given: Any) -> Any:
            if sql == "COMMIT" and not after:
                os._exit(7)
            found = super().execute(sql, *given)
            if sql == "COMMIT":
                os._exit(7)
            return found

    connect = sqlite3.connect
    sqlite3.connect = lambda *given, **options: connect(  # type: ignore[assignment]
        *given, **options, factory=Connection
    )


DEATHS: dict[str, Callable[[], None]] = {
    "once it has kept what it drew": lambda: end_after("link", os),
    "once its report is made": lambda: end_after("pack_reports", fedldp.protocol.client_runtime),
    "before its ledger commits": lambda: end_at_commit(after=False),
    "once its ledger has committed": lambda: end_at_commit(after=True),
}


@forks
@pytest.mark.parametrize("death", DEATHS.values(), ids=DEATHS)
def test_a_process_that_ends_and_is_asked_again_sends_one_string_of_bytes(
    death: Callable[[], None], tmp_path: Path
) -> None:
    site = Site(tmp_path, local_update=MeanStep(drawing_once))
    site.start()
    site.ask(packed_request(1))

    def asked() -> None:
        death()
        site.ask(packed_request(2))

    process = FORK.Process(target=asked)
    process.start()
    process.join()
    assert process.exitcode == 7
    charged = site.entries()
    left = {site.ask(packed_request(2)) for _ in range(2)}
    assert len(left) == 1
    entries = site.entries()
    assert [entry[:2] for entry in entries] == [(1, 0), (2, 0)]
    assert entries[: len(charged)] == charged
    assert entries[-1][3] == hashlib.sha256(left.pop()).hexdigest()
    assert (len(charged) == 2) == (death is DEATHS["once its ledger has committed"])
    assert refusal_of(site.ask(packed_request(2, weights=0.5))).reason is Reason.ASKED_OTHERWISE
    ledger = site.ledger()
    assert isinstance(ledger, SqliteLedger)
    ledger.verify()


@forks
def test_a_process_that_ended_after_a_draw_draws_nothing_again(tmp_path: Path) -> None:
    """Nothing was charged, and the next request finds the earlier draw."""
    site = Site(tmp_path, local_update=MeanStep(drawing_once))
    site.start()

    def asked() -> None:
        end_after("link", os)
        site.ask(packed_request(1))

    process = FORK.Process(target=asked)
    process.start()
    process.join()
    store = site.start().members.store(0)
    drawn = store.arrays("once-1", dict)["drawn"].tobytes()
    site.ask(packed_request(1, weights=0.5))
    assert store.arrays("once-1", dict)["drawn"].tobytes() == drawn
