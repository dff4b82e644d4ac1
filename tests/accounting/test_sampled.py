"""Sampled releases: as events, in the lines of a statement, and under a budget."""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Any, get_args

import pytest
from tables import DOWNLINK, stated

from fedldp.accounting.events import (
    Event,
    InClear,
    Memoized,
    PerRecord,
    PureReport,
    SampledClientsGaussian,
    SampledGaussian,
)
from fedldp.accounting.guarantees import guarantees_of, sampled_guarantee
from fedldp.accounting.numerics.subsampled import (
    fixed_size_sample,
    poisson_sample,
    sampled_epsilon,
)
from fedldp.accounting.prices import cost
from fedldp.core.errors import ConfigError, PrivacyError
from fedldp.core.kinds import IDEALISED, SAMPLED, SECRET_SAMPLE, SERVER_TRUSTED
from fedldp.ledgers.budget import Budget, BudgetKind

SGD = SampledGaussian(noise_multiplier=1.1, sampling_rate=0.02, steps=50)
ROUND = SampledClientsGaussian(noise_multiplier=2.0, sample_size=10, population=100)
CLEAR = InClear(what="weights")


def test_a_record_in_clients_that_sample_their_examples() -> None:
    event = PerRecord(record=SGD, client=CLEAR)
    lines = stated({1: {0: event, 1: event}, 2: {0: event}, 3: {0: event}})
    (record,) = [line for line in lines if line.unit == "record"]
    assert record.epsilon == sampled_epsilon({poisson_sample(1.1, 0.02): 150}, 1e-5)
    assert (record.kind, record.delta) == ("approximate", 1e-5)
    assert (record.adversary, record.neighbours) == ("server", "replace-record")
    assert {IDEALISED, SECRET_SAMPLE(of="record")} <= record.assumptions
    assert record.method == SAMPLED(releases=150, of="part")
    others = [line for line in lines if line.unit != "record"]
    assert {line.kind for line in others} == {"none"}


def test_clients_in_samples_of_a_trusted_server() -> None:
    lines = stated({r: {DOWNLINK: ROUND, 0: CLEAR} for r in range(1, 21)})
    (below,) = [line for line in lines if line.adversary == "downlink"]
    assert below.epsilon == sampled_epsilon({fixed_size_sample(2.0, 10, 100): 20}, 1e-5)
    assert (below.unit, below.neighbours) == ("client-run", "replace-client")
    assert below.assumptions == {IDEALISED, SECRET_SAMPLE(of="client"), SERVER_TRUSTED}
    assert below.method == SAMPLED(releases=20, of="client")
    above = [line for line in lines if line.adversary == "server"]
    assert {line.kind for line in above} == {"none"}


def test_the_statement_covers_the_worst_client() -> None:
    often = PerRecord(
        record=SampledGaussian(noise_multiplier=1.1, sampling_rate=0.05, steps=20), client=CLEAR
    )
    seldom = PerRecord(record=SGD, client=CLEAR)
    (record,) = [g for g in stated({1: {0: often, 1: seldom}}) if g.unit == "record"]
    each = (
        sampled_epsilon({poisson_sample(1.1, 0.05): 20}, 1e-5),
        sampled_epsilon({poisson_sample(1.1, 0.02): 50}, 1e-5),
    )
    assert record.epsilon == max(each)


def test_releases_of_several_kinds_are_composed() -> None:
    other = SampledGaussian(noise_multiplier=0.9, sampling_rate=0.01, steps=30)
    line = sampled_guarantee(Counter({SGD: 2, other: 3}), "record", "downlink", 1e-5)
    counts = {poisson_sample(1.1, 0.02): 100, poisson_sample(0.9, 0.01): 90}
    assert line.epsilon == sampled_epsilon(counts, 1e-5)
    assert line.adversary == "downlink"


def test_no_pure_guarantee_is_proven() -> None:
    for history, unit in ((Counter({SGD: 2}), "record"), (Counter({ROUND: 2}), "client-round")):
        line = sampled_guarantee(history, unit, "downlink", 0.0)  # type: ignore[arg-type]
        assert (line.kind, line.epsilon, line.delta) == ("none", None, 0.0)


@pytest.mark.parametrize(
    ("events", "unit", "adversary"),
    [
        ([SGD], "client-run", "server"),
        ([SGD], "client-round", "downlink"),
        ([SGD], "record", "shuffled-server"),
        ([ROUND], "client-run", "server"),
        ([ROUND], "record", "downlink"),
        ([ROUND], "weight", "downlink"),
        ([SGD, PureReport(epsilon=0.1)], "record", "server"),
        ([SGD, ROUND], "record", "downlink"),
        ([SGD, CLEAR], "record", "server"),
        ([Memoized(drawn=SGD, identity="all"), SGD], "record", "server"),
    ],
)
def test_samples_that_no_accountant_covers_are_refused(
    events: list[Event], unit: Any, adversary: Any
) -> None:
    with pytest.raises(ConfigError, match="no accountant knows") as refused:
        sampled_guarantee(Counter(events), unit, adversary, 1e-5)
    (line,) = str(refused.value).splitlines()
    assert {unit, adversary} <= set(re.findall(r"[\w-]+", line))


def test_statements_refuse_them_out_of_place() -> None:
    for releases in ({1: {0: SGD}}, {1: {0: ROUND}}, {1: {DOWNLINK: SGD, 0: CLEAR}}):
        with pytest.raises(ConfigError, match="no accountant knows"):
            stated(releases)
    for event in (SGD, ROUND):
        with pytest.raises(ConfigError, match="no accountant knows"):
            guarantees_of(Counter([event]), "client-run", 1e-5)


@pytest.mark.parametrize("event", [SGD, ROUND])
@pytest.mark.parametrize("kind", get_args(BudgetKind))
def test_no_budget_of_a_client_covers_them(event: Event, kind: BudgetKind) -> None:
    assert cost(event, kind) == math.inf
    with pytest.raises(PrivacyError, match="no finite cost"):
        Budget(kind, 1e9).admit(event, spent=0)  # type: ignore[arg-type]
