"""One client in one run: its answers, their cost, and what training and the encoder see."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runtimes import (
    LAYOUT,
    RUN,
    SECRET,
    Site,
    Stating,
    Watched,
    examples_of,
    packed_request,
    refusal_of,
    reply_of,
)

from fedldp.accounting.events import (
    Event,
    InClear,
    Memoized,
    NoRelease,
    PerRecord,
    PureReport,
    SampledGaussian,
)
from fedldp.core.errors import PrivacyError
from fedldp.protocol.keys import SecretKeys
from fedldp.protocol.roles import Client, Sender
from fedldp.protocol.wire import (
    Broadcast,
    Reason,
    Refusal,
    Report,
    RoundRequest,
    Sensitive,
    pack_request,
)
from fedldp.testing.toys import MeanStep

SAMPLED = SampledGaussian(noise_multiplier=1.0, sampling_rate=0.5, steps=1)
real_and_simulated = pytest.mark.parametrize("real", [True, False], ids=["real", "simulated"])


# Answers


@real_and_simulated
@pytest.mark.parametrize(
    ("round", "weights", "reason"),
    [
        (3, 1e-6, Reason.ASKED_OTHERWISE),
        (2, 0.0, Reason.NOT_KEPT),
        (4, 0.0, Reason.OVER_BUDGET),
    ],
)
def test_what_the_ledger_refuses_is_refused_before_training_and_the_last_answer_is_kept(
    real: bool, round: int, weights: float, reason: Reason, tmp_path: Path
) -> None:
    site = Site(tmp_path, real, releases=2)
    site.ask(packed_request(1))
    latest, trained = site.ask(packed_request(3)), site.local_update.calls
    assert refusal_of(site.ask(packed_request(round, weights=weights))) == Refusal(round, reason)
    assert site.local_update.calls == trained
    assert site.ask(packed_request(3)) == latest


def test_a_round_released_meanwhile_is_noticed(tmp_path: Path) -> None:
    """If a client has two processes, the first one to release decides."""
    site = Site(tmp_path)
    other = replace(site, local_update=MeanStep())
    inner: list[bytes] = []

    def meanwhile(broadcast: Broadcast, client: Client) -> None:
        inner.append(other.ask(packed_request(1, weights=0.5)))

    site.local_update = MeanStep(meanwhile)
    assert refusal_of(site.ask(packed_request())) == Refusal(1, Reason.ASKED_OTHERWISE)
    assert isinstance(reply_of(inner[0]), Report)
    site.local_update = MeanStep(
        lambda broadcast, client: inner.append(other.ask(packed_request(2)))
    )
    assert site.ask(packed_request(2)) == inner[-1], "the same request: the same bytes"


# Releases and their cost


@pytest.mark.parametrize(
    "event",
    [
        PureReport(epsilon=1.0, idealised=True),
        SAMPLED,
        Memoized(drawn=PureReport(epsilon=1.0, idealised=True), identity="drawn"),
        PerRecord(record=SAMPLED, client=InClear(what="weights")),
        PerRecord(
            record=Memoized(drawn=SAMPLED, identity="drawn"), client=NoRelease(what="nothing")
        ),
    ],
)
def test_a_mechanism_private_only_in_real_arithmetic_is_refused_at_the_start(
    event: Event, tmp_path: Path
) -> None:
    site = Site(tmp_path, encoder=Stating(event))
    with pytest.raises(PrivacyError, match="it is private for real numbers only") as refused:
        site.start()
    assert "\n" not in str(refused.value)
    simulated = Site(tmp_path, real=False, encoder=Stating(event), releases=1e6)
    assert simulated.start() is not None


def test_an_idealised_event_of_a_later_phase_is_refused_at_the_start_too(
    tmp_path: Path,
) -> None:
    class Later(Stating):
        def event(self, phase: int = 0, round: int = 1) -> Event:
            return SAMPLED if phase == 1 else NoRelease(what="keys")

    encoder = Later(NoRelease(what="keys"))
    assert Site(tmp_path, encoder=encoder).start() is not None
    with pytest.raises(PrivacyError, match="real numbers only"):
        Site(tmp_path, encoder=encoder, phases=2).start()


@pytest.mark.parametrize("real", [True, False])
def test_a_client_has_the_number_of_examples_it_is_charged_for(real: bool, tmp_path: Path) -> None:
    def start(count: int) -> Any:
        site = Site(tmp_path, real=real, examples=examples_of(count=count), most_examples=3)
        return site.start()

    assert start(3) is not None
    with pytest.raises(
        PrivacyError, match="has 4 examples, but its answers are charged for 3; leave some"
    ):
        start(4)
    if real:  # in a simulation, the data determine the clients, so there is no such message
        with pytest.raises(
            PrivacyError, match=r"has 2 examples, but .* 3, no fewer; add public examples"
        ):
            start(2)
    else:
        assert start(2) is not None


# What training and the encoder get


def test_a_local_update_sees_examples_and_an_encoder_sees_none(tmp_path: Path) -> None:
    seen: list[Any] = []
    encoder = Watched(lambda update, broadcast, sender: seen.append(sender))
    site = Site(tmp_path, local_update=MeanStep(lambda *given: seen.extend(given)), encoder=encoder)
    site.ask(packed_request())
    tried_out, broadcast, client, sender = seen
    assert not hasattr(tried_out, "examples")
    assert isinstance(broadcast, Broadcast)
    assert client.examples is site.examples
    assert not hasattr(sender, "examples")
    assert isinstance(sender.num_examples, Sensitive)
    assert sender.num_examples.open() == len(site.examples)
    assert (
        SecretKeys(SECRET, RUN).kept("portions").bytes(8).tobytes()
        == sender.kept("portions").bytes(8).tobytes()
    )
    assert not sender.fresh("mechanism").simulated


def test_a_local_update_cannot_write_to_the_weights_of_a_broadcast(tmp_path: Path) -> None:
    """A request to many simulated clients is read only once for all of them."""

    def write(broadcast: Broadcast, client: Client) -> None:
        broadcast.weights[0] = 1

    with pytest.raises(ValueError, match="read-only"):
        Site(tmp_path, real=False, local_update=MeanStep(write)).ask(packed_request())


def test_a_request_is_read_under_the_clients_own_policy(tmp_path: Path) -> None:
    """Reading a request under another client's terms does not count for this client."""
    asked = RoundRequest(
        run=RUN, phase=0, broadcast=Broadcast(round=4, weights=np.zeros(40, np.float32))
    )
    message = pack_request(asked)
    short, long = Site(tmp_path, rounds=3), Site(tmp_path, rounds=4)
    assert refusal_of(short.ask(message)).reason is Reason.WRONG_ROUND
    assert isinstance(reply_of(long.ask(message)), Report)
    assert refusal_of(short.ask(message)).reason is Reason.WRONG_ROUND


# Requests that no encoder can answer


def test_requests_that_cannot_be_answered_are_refused_before_training(tmp_path: Path) -> None:
    trained: list[Any] = []

    def needs(update: Any, broadcast: Broadcast, sender: Sender) -> None:
        if "needed" not in broadcast.public:
            raise PrivacyError("needed: it is not there")

    step = MeanStep(lambda *given: trained.append(given))
    site = Site(tmp_path, local_update=step, encoder=Watched(needs), failed=lambda error: None)
    for _ in range(3):
        assert reply_of(site.ask(packed_request())) == Refusal(1, Reason.POLICY)
    assert not trained
    assert not site.entries()


def test_after_training_for_one_request_a_different_one_is_refused(tmp_path: Path) -> None:
    """If the first request's answer fails after training, the round allows no second attempt."""
    inner: list[bytes] = []
    other = packed_request(weights=np.ones(LAYOUT.size, np.float32))
    site = Site(tmp_path, local_update=MeanStep(lambda *_: inner.append(runtime.answer(other))))
    runtime = site.start()
    assert isinstance(reply_of(runtime.answer(packed_request())), Report)
    assert [reply_of(message) for message in inner] == [Refusal(1, Reason.ASKED_OTHERWISE)]
    assert site.local_update.calls == 1
