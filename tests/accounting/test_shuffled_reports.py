"""Statements about reports of one category each, shuffled as whole reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from fedldp.accounting.accountants import shuffled_loss
from fedldp.accounting.events import PureReport, SubsetResponse
from fedldp.accounting.guarantees import Guarantee
from fedldp.accounting.numerics.blanket import Subset, blanket_epsilon
from fedldp.accounting.prices import cost
from fedldp.accounting.releases import ClientIndices, ReleaseHistory
from fedldp.accounting.statement import ShufflerInPath, statement
from fedldp.core.errors import ConfigError
from fedldp.core.kinds import HONEST_CATEGORIES, SHUFFLED_CATEGORIES

EVENT = SubsetResponse(high=7, low=1, closest=1, categories=4)
SUBSET = Subset(high=7, low=1, closest=1, categories=4)


def made(
    participants: Mapping[int, ClientIndices | None],
    *,
    clients: int = 100,
    untrusted: int = 0,
    delta: float = 1e-5,
) -> tuple[Guarantee, ...]:
    """Return the lines of a run whose clients release ``EVENT`` in each of their rounds."""
    released = ReleaseHistory.planned({EVENT: range(clients)}, participants)
    path = ShufflerInPath(chunk=1, untrusted_clients=untrusted, prediction_error=0.0)
    return statement(released, claim=None, shuffler=path, delta=delta).guarantees


def shuffled(lines: Iterable[Guarantee]) -> dict[str, Guarantee]:
    return {line.unit: line for line in lines if line.adversary == "shuffled-server"}


def test_a_round_and_a_run_have_the_figures_of_the_blanket() -> None:
    found = shuffled(made({1: None, 2: None, 3: None}))
    assert list(found) == ["client-round", "client-run"]
    assert found["client-round"].epsilon == blanket_epsilon(SUBSET, 100, 1e-5)
    assert found["client-run"].epsilon == blanket_epsilon(SUBSET, 100, 1e-5, 3)
    for line, rounds in zip(found.values(), (1, 3), strict=True):
        assert (line.kind, line.delta, line.lower) == ("approximate", 1e-5, None)
        assert line.method == SHUFFLED_CATEGORIES(reports=rounds)
        assert line.stated_by == "fedldp"


def test_a_client_that_answers_once_is_hidden_by_its_own_round_alone() -> None:
    once = {1: range(40), 2: range(40, 70), 3: range(70, 100)}
    found = shuffled(made(once))
    assert found["client-run"].epsilon == blanket_epsilon(SUBSET, 30, 1e-5)
    assert found["client-run"].epsilon == found["client-round"].epsilon
    (honest,) = HONEST_CATEGORIES.among(found["client-run"].assumptions)
    assert honest.values["reports"] == 30


def test_without_other_clients_nothing_is_hidden() -> None:
    alone = shuffled(made({1: None}, clients=1))["client-round"]
    assert alone.epsilon is not None
    assert alone.epsilon <= SUBSET.epsilon
    assert alone.epsilon == pytest.approx(SUBSET.epsilon, rel=1e-4)
    colluding = shuffled(made({1: None}, untrusted=100))["client-round"]
    assert colluding.epsilon == alone.epsilon


def test_the_lines_without_the_shuffler_are_those_of_a_pure_report() -> None:
    pure = PureReport(epsilon=SUBSET.epsilon)
    released = ReleaseHistory.planned({pure: range(100)}, {1: None, 2: None})
    known = statement(released, claim=None, shuffler=None, delta=1e-5).guarantees
    found = made({1: None, 2: None})
    assert tuple(line for line in found if line.adversary == "server") == known
    for kind in ("pure", "zcdp", "gdp"):
        assert cost(EVENT, kind) == cost(pure, kind)


def test_a_report_with_only_an_epsilon_is_not_hidden() -> None:
    assert shuffled_loss(PureReport(epsilon=1.0)) is None
    mixed = ReleaseHistory.planned(
        {EVENT: range(5), PureReport(epsilon=1.0): range(5, 9)}, {1: None}
    )
    path = ShufflerInPath(chunk=1, untrusted_clients=0, prediction_error=0.0)
    with pytest.raises(ConfigError, match="sends one kind of bits, or of categories"):
        statement(mixed, claim=None, shuffler=path, delta=1e-5)
