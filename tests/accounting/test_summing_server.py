"""Statements about reports that a server sees only in sums."""

from __future__ import annotations

from typing import Any

import pytest
from tables import of_unit, stated

from fedldp.accounting.events import (
    BinaryRandomizedResponse,
    Event,
    GaussianReport,
    GaussianShare,
    InClear,
    PerPerson,
    PureReport,
    SampledShare,
)
from fedldp.accounting.guarantees import Guarantee, shuffled_guarantees, summing_guarantees
from fedldp.accounting.releases import ReleaseHistory
from fedldp.accounting.statement import SumInPath, spent_by_unit
from fedldp.core.errors import ConfigError
from fedldp.core.kinds import (
    AS_DRAWN,
    AT_MOST_UNTRUSTED,
    CERTIFIED_ROSTER,
    FOLLOWS_SUM,
    FRESH,
    HONEST_SUMMANDS,
    SENDING_INDEPENDENT,
    TAKES_PART,
)

BITS = BinaryRandomizedResponse(epsilon=1.0, coordinates=1000)


def lines(
    event: Event = BITS, rounds: int = 1, clients: int = 100, delta: float = 1e-5, **settings: Any
) -> dict[str, Guarantee]:
    """Return the lines against a summing server, by unit."""
    released = ReleaseHistory.planned({event: range(clients)}, dict.fromkeys(range(1, rounds + 1)))
    path = SumInPath(**{"untrusted_clients": 0, **settings})
    made = stated(released, delta, summed=path)
    return {g.unit: g for g in made if g.adversary == "summing-server"}


def test_the_figures_of_the_specification() -> None:
    # An ideal shuffler of single bits, n = 100, delta = 1e-5.
    assert lines()["weight"].epsilon == pytest.approx(0.407817894709581, abs=1e-9)
    whole = lines(BinaryRandomizedResponse(epsilon=1.0, coordinates=21_840))
    assert whole["client-round"].epsilon == pytest.approx(252.80219, rel=1e-4)
    assert whole["client-round"].lower == pytest.approx(185.09765, rel=1e-4)


@pytest.mark.parametrize(
    ("rounds", "untrusted", "event"),
    [
        (1, 0, BinaryRandomizedResponse(epsilon=2.0, coordinates=9)),
        (3, 20, BinaryRandomizedResponse(epsilon=1.0, coordinates=300, whole=4.0)),
    ],
)
def test_the_figures_are_those_of_shuffled_bits(
    event: BinaryRandomizedResponse, rounds: int, untrusted: int
) -> None:
    shuffled = shuffled_guarantees(
        event, rounds, anonymity_set=100 - untrusted, chunk=1, delta=1e-5
    )
    found = lines(event, rounds, untrusted_clients=untrusted)
    for line in shuffled:
        for key in ("kind", "epsilon", "delta", "lower", "neighbours"):
            assert getattr(found[line.unit], key) == getattr(line, key)


def test_the_assumptions_name_the_protocol_and_no_shuffler() -> None:
    for line in lines(untrusted_clients=7).values():
        assert line.assumptions - {AS_DRAWN, TAKES_PART(rounds=1)} == {
            FRESH,
            FOLLOWS_SUM,
            CERTIFIED_ROSTER,
            AT_MOST_UNTRUSTED(clients=7, among="round"),
            HONEST_SUMMANDS(clients=93, among="round"),
            SENDING_INDEPENDENT(of="messages"),
        }


@pytest.mark.slow
def test_the_number_of_summed_reports_counts_not_that_of_released_ones() -> None:
    fewer = lines(rounds=2, clients_in_sum={1: 60, 2: 60})
    sixty = lines(rounds=2, clients=60)
    for unit, line in fewer.items():
        assert line.epsilon == sixty[unit].epsilon
    uneven = lines(rounds=2, clients_in_sum={1: 100, 2: 60})
    for unit, line in uneven.items():
        assert line.epsilon == sixty[unit].epsilon
        assert line.lower is None
    more = lines(rounds=2, clients_in_sum={1: 100, 2: 500})
    assert more == lines(rounds=2)  # never more reports than were released


def test_an_unseen_sum_makes_no_line_worse_but_its_round_counts() -> None:
    seen, all_of_it = lines(rounds=2, clients_in_sum={1: 100, 2: 0}), lines(rounds=2)
    assert {unit: line.epsilon for unit, line in seen.items()} == {
        unit: line.epsilon for unit, line in all_of_it.items()
    }
    assert all(line.lower is None for line in seen.values())  # the server saw nothing of one round
    assert lines(clients_in_sum={1: 0}) == {}


def test_an_unknown_round_is_refused() -> None:
    with pytest.raises(ConfigError, match="clients_in_sum lacks round 2"):
        lines(rounds=2, clients_in_sum={1: 100})


def test_with_no_trusted_client_the_lines_are_those_of_each_report() -> None:
    alone = lines(clients=3, untrusted_clients=3)
    _, known = of_unit(stated({1: dict.fromkeys(range(3), BITS)}), "client-round")
    assert known.kind == "approximate"
    assert alone["client-round"].epsilon == known.epsilon


@pytest.mark.parametrize(
    "event", [InClear(what="weights"), PureReport(epsilon=1.0), GaussianReport(rho=0.5, mu=1.0)]
)
def test_events_that_a_sum_does_not_protect_have_no_line(event: Event) -> None:
    assert lines(event) == {}
    assert summing_guarantees({event: 2}, summands=9, untrusted=0, delta=1e-5) == []


def test_clients_with_different_events_are_kept_apart() -> None:
    other = BinaryRandomizedResponse(epsilon=2.0, coordinates=1000)
    released = ReleaseHistory.planned({BITS: range(50), other: range(50, 100)}, {1: None})
    with pytest.raises(ConfigError, match="one kind of report"):
        stated(released, summed=SumInPath(untrusted_clients=0))


SHARE = GaussianShare(squared_distance=900, variance=6400)
SAMPLED = SampledShare(squared_distance=900, variance=6400, sampling_rate=0.1, steps=2)


@pytest.mark.parametrize(
    "event",
    [
        BITS,
        PureReport(epsilon=1.0),
        SHARE,
        PerPerson(person=SHARE, client=InClear(what="weights")),
        PerPerson(person=SAMPLED, client=InClear(what="weights")),
    ],
)
@pytest.mark.parametrize("clients", [1, 9])
def test_the_statement_of_a_search_has_the_same_costs_of_a_run(event: Event, clients: int) -> None:
    """A server records these costs after each round, without lower bounds and lines of a round."""
    released = ReleaseHistory.planned({event: range(clients)}, dict.fromkeys((1, 2, 3)))
    path = SumInPath(untrusted_clients=0, clients_in_sum=dict.fromkeys((1, 2, 3), clients))

    def spent(**searched: Any) -> list[dict[str, Any]]:
        return spent_by_unit(stated(released, summed=path, **searched), ())

    assert spent(searched="client-run") == spent()
    assert spent()
