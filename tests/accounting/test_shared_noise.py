"""Sums of shares of discrete Gaussian noise, against exact convolutions of small ones."""

from __future__ import annotations

import math
from collections import Counter

import mpmath as mp
import numpy as np
import pytest
from numpy.typing import NDArray
from tables import of_unit, stated

from fedldp.accounting.events import (
    GaussianShare,
)
from fedldp.accounting.guarantees import guarantees_of, summing_guarantees
from fedldp.accounting.numerics.gaussian import gaussian_delta, gaussian_epsilon, shares_mu
from fedldp.accounting.prices import cost
from fedldp.accounting.releases import ReleaseHistory
from fedldp.accounting.statement import SumInPath
from fedldp.core.kinds import AT_MOST_UNTRUSTED, DISCRETE, HONEST_SUMMANDS

SHARE = GaussianShare(squared_distance=4 * 900, variance=64)
Law = NDArray[np.float64]


def one_share(variance: float, reach: int) -> Law:
    y = np.arange(-reach, reach + 1)
    weights = np.exp(-(y**2) / (2 * variance))
    return weights / weights.sum()


def convolved(variance: float, shares: int) -> Law:
    """Return the law of a sum of shares, as a sum of products."""
    single = one_share(variance, math.ceil(14 * math.sqrt(variance)))
    found = single
    for _ in range(shares - 1):
        found = np.convolve(found, single)
    return found


def hockey_stick(law: Law, shift: int, epsilon: float) -> float:
    p, q = np.pad(law, (0, shift)), np.pad(law, (shift, 0))
    return max(
        float(np.maximum(one - math.exp(epsilon) * other, 0).sum())
        for one, other in ((p, q), (q, p))
    )


@pytest.mark.parametrize(("shift", "shares"), [(1, 1), (12, 2), (40, 5), (1, 40)])
def test_the_closed_form_bounds_the_exact_delta_of_sums(shares: int, shift: int) -> None:
    law = convolved(64.0, shares)
    mu = shares_mu(shift**2, 64, shares)
    for epsilon in (0.0, 0.1, 0.5, 2.0):
        exact = hockey_stick(law, shift, epsilon)
        stated = gaussian_delta(mu, epsilon)
        assert exact <= stated * (1 + 1e-9) + 1e-13
        if shares == 40 and exact > 1e-8:
            assert stated < 1.25 * exact


def test_the_mu_of_shares_is_rounded_up_and_falls_with_their_number() -> None:
    found = [shares_mu(3600, 64, shares) for shares in (1, 2, 10, 1000)]
    assert found == sorted(found, reverse=True)
    for mu, shares in zip(found, (1, 2, 10, 1000), strict=True):
        assert mp.mpf(mu) ** 2 >= mp.mpf(3600) / (64 * shares - 16)
        assert mu == pytest.approx(60 / math.sqrt(64 * shares - 16), rel=1e-15)


# Lines of statements


def test_a_single_share_is_a_report_with_its_own_noise() -> None:
    (line,) = guarantees_of(Counter({SHARE: 9}), "client-run", 1e-5)
    mu = 3 * 60 / math.sqrt(48)
    assert line.epsilon is not None
    assert line.adversary == "server"
    assert DISCRETE in line.assumptions
    assert line.epsilon <= gaussian_epsilon(mu * (1 + 1e-12), 1e-5 * (1 - 1e-12)) * (1 + 1e-12)
    # The zCDP of discrete noise with variance 64 instead of 48 may be smaller.
    assert line.epsilon > gaussian_epsilon(3 * 60 / 8, 1e-5)


def test_a_ledger_charges_each_share_separately() -> None:
    assert cost(SHARE, "zcdp") == 3600 / 128
    assert cost(SHARE, "pure") == cost(SHARE, "gdp") == math.inf


def test_a_sum_is_protected_by_all_honest_shares() -> None:
    for summands in (1, 50, 1000):
        lines = summing_guarantees({SHARE: 4}, summands=summands, untrusted=3, delta=1e-5)
        assert [line.unit for line in lines] == ["client-round", "client-run"]
        for line, rounds in zip(lines, (1, 4), strict=True):
            mu = math.sqrt(rounds * 3600 / (64 * summands - 16))
            assert line.epsilon == pytest.approx(gaussian_epsilon(mu, 1e-5), rel=1e-12)
            assert line.epsilon is not None
            assert line.epsilon >= gaussian_epsilon(mu * (1 - 1e-15), 1e-5)
            assert {
                HONEST_SUMMANDS(clients=summands, among="round"),
                AT_MOST_UNTRUSTED(clients=3, among="round"),
            } <= line.assumptions


@pytest.mark.parametrize("delta", [0.0, 1e-101])
def test_there_is_no_line_without_a_proof(delta: float) -> None:
    assert summing_guarantees({SHARE: 1}, summands=5, untrusted=0, delta=delta) == []


def epsilon_of_sums(releases: ReleaseHistory, summed: SumInPath) -> float:
    (line,) = of_unit(stated(releases, summed=summed), "client-run", "summing-server")
    assert line.epsilon is not None
    return line.epsilon


def test_a_statement_counts_the_honest_clients_of_the_smallest_sum() -> None:
    everyone = ReleaseHistory.planned({SHARE: range(100)}, {1: None, 2: None})
    fewer = ReleaseHistory.planned({SHARE: range(100)}, {1: None, 2: range(60)})
    found = {
        (name, untrusted): epsilon_of_sums(releases, SumInPath(untrusted_clients=untrusted))
        for name, releases in (("all", everyone), ("fewer", fewer))
        for untrusted in (0, 10, 59, 80)
    }

    def run(summands: int) -> float:
        return gaussian_epsilon(math.sqrt(2 * 3600 / (64 * summands - 16)), 1e-5)

    for (name, untrusted), epsilon in found.items():
        there = {"all": 100, "fewer": 60}[name]
        assert epsilon == pytest.approx(run(max(1, there - untrusted)), rel=1e-12)
    one_less = SumInPath(untrusted_clients=0, clients_in_sum={1: 100, 2: 99})
    assert epsilon_of_sums(everyone, one_less) == pytest.approx(run(99), rel=1e-12)
