"""Calibration keeps to its budget, and wastes none of it; the solver and the self-test."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from accounting_oracles import one_line, two_valued
from hypothesis import given, settings
from hypothesis import strategies as st

from fedldp.accounting import selftest as selftest_module
from fedldp.accounting.bits import one_bit_l1_epsilon
from fedldp.accounting.calibrate import (
    gaussian_sigma_for_rounds,
    one_bit_l1_share,
    pure_share,
    shuffled_share,
    two_valued_share,
    zcdp_rho,
)
from fedldp.accounting.compose import pure_epsilon, two_valued_epsilon
from fedldp.accounting.gaussian import compose_mu, gaussian_epsilon, zcdp_epsilon
from fedldp.accounting.shuffle import shuffled_composed_upper
from fedldp.accounting.shuffle_one import shuffled_one_epsilon
from fedldp.accounting.solve import solve_largest, solve_smallest
from fedldp.errors import ConfigError, FedldpError

TARGETS = st.floats(-3, 3).map(lambda exponent: 10.0**exponent)


@settings(max_examples=60)
@given(st.floats(1e-3, 1e3))
def test_the_solver_returns_the_safe_side(target: float) -> None:
    root = solve_largest(lambda x: x**3, target, 0.0, 100.0)
    assert root**3 <= target
    assert (root * (1 + 1e-14)) ** 3 > target
    root = solve_smallest(lambda x: -(x**3), -target, 0.0, 100.0)
    assert -(root**3) <= -target
    assert -((root * (1 - 1e-14)) ** 3) > -target


def test_the_solver_on_steps() -> None:
    assert solve_largest(math.floor, 2.5, 0.0, 9.0) == pytest.approx(3.0)
    assert solve_largest(math.floor, 2.5, 0.0, 9.0) < 3.0
    assert solve_smallest(lambda x: -math.floor(x), -2.5, 0.0, 9.0) == 3.0


def test_the_solver_at_its_ends() -> None:
    assert solve_largest(lambda x: x, 5.0, 0.0, 2.0) == 2.0
    assert solve_smallest(lambda x: -x, 5.0, 1.0, 2.0) == 1.0
    with pytest.raises(ConfigError) as error:
        solve_largest(lambda x: x, 0.5, 1.0, 2.0)
    one_line(error, "target = 0.5", "larger target")


def test_a_coarse_precision_is_still_safe() -> None:
    calls = []

    def cube(x: float) -> float:
        calls.append(x)
        return x**3

    root = solve_largest(cube, 2.0, 0.0, 100.0, precision=1e-3)
    assert root**3 <= 2.0 < (root * 1.001) ** 3
    assert len(calls) < 25


@settings(max_examples=60)
@given(TARGETS, st.integers(1, 10**9))
def test_pure_shares(target: float, count: int) -> None:
    share = pure_share(target, count)
    assert pure_epsilon({share: count}) <= target
    assert share == pytest.approx(target / count, rel=1e-15)


@settings(max_examples=15, deadline=None)
@given(TARGETS, st.integers(1, 3000), st.floats(1e-12, 0.1))
def test_two_valued_shares(target: float, count: int, delta: float) -> None:
    share = two_valued_share(target, count, delta)
    if pure_share(target, count) > 700:
        assert share == pure_share(target, count)
        return
    assert two_valued_epsilon(share, count, delta) <= target * (1 + 1e-15)
    assert share >= pure_share(target, count)
    if share < 700:
        assert two_valued_epsilon(share * (1 + 1e-9), count, delta) > target


def test_a_two_valued_share_in_the_slow_sum() -> None:
    share = two_valued_share(5.0, 300, 1e-5)
    assert two_valued(share, 300, 5.0) <= 1e-5 < two_valued(share * (1 + 1e-10), 300, 5.0)
    assert two_valued_share(5.0, 300, 0.0) == pure_share(5.0, 300)


def test_shuffled_shares() -> None:
    share = shuffled_share(0.1, 300, 1, 1e-5)
    assert shuffled_one_epsilon(share, 300, 1e-5) <= 0.1
    assert shuffled_one_epsilon(share * (1 + 1e-6), 300, 1e-5) > 0.1
    share = shuffled_share(2.0, 30, 50, 1e-5)
    assert shuffled_composed_upper(share, 30, 50, 1e-5) <= 2.0
    assert shuffled_composed_upper(share * (1 + 1e-5), 30, 50, 1e-5) > 2.0
    assert share > two_valued_share(2.0, 50, 1e-5)
    assert shuffled_share(1e4, 30, 2, 1e-5) == 30.0


def test_gaussian_rounds() -> None:
    sigma = gaussian_sigma_for_rounds(1.0, 1e-5, 40)
    assert sigma == pytest.approx(3.73063163481594 * math.sqrt(40), rel=1e-13)
    mu = compose_mu([1 / sigma] * 40)
    assert gaussian_epsilon(mu, 1e-5) == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 100.0])
def test_rho_of_an_epsilon(epsilon: float) -> None:
    rho = zcdp_rho(epsilon, 1e-5)
    assert zcdp_epsilon(rho, 1e-5) <= epsilon
    assert zcdp_epsilon(rho * (1 + 1e-6), 1e-5) > epsilon


@pytest.mark.parametrize(
    ("target", "size", "norm"), [(1.0, 100, 2.0), (5.0, 4, 3.0), (2.0, 9, 0.0)]
)
def test_one_bit_shares(target: float, size: int, norm: float) -> None:
    share = one_bit_l1_share(target, size, norm)
    assert one_bit_l1_epsilon(share, size, norm) <= target
    if norm > 0:
        assert one_bit_l1_epsilon(share * (1 + 1e-9), size, norm) > target
    else:
        assert share == 700.0


@pytest.mark.parametrize(
    "call",
    [
        lambda: pure_share(0.0, 1),
        lambda: two_valued_share(math.inf, 1, 1e-5),
        lambda: two_valued_share(1.0, 0, 1e-5),
        lambda: two_valued_share(1.0, 1, 1.0),
        lambda: shuffled_share(1.0, 0, 1, 1e-5),
        lambda: zcdp_rho(1.0, 0.0),
        lambda: gaussian_sigma_for_rounds(1.0, 1e-5, 0),
        lambda: one_bit_l1_share(1.0, 4, -1.0),
    ],
)
def test_bad_arguments_are_refused(call: Callable[[], float]) -> None:
    with pytest.raises(ConfigError) as error:
        call()
    one_line(error, " = ", "give")


def test_the_self_test_passes() -> None:
    selftest_module.selftest.cache_clear()
    selftest_module.selftest()


@pytest.mark.parametrize("broken", ["two_valued_epsilon", "compose_upper", "gaussian_sigma"])
def test_the_self_test_notices_a_wrong_answer(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    selftest_module.selftest.cache_clear()
    monkeypatch.setattr(selftest_module, broken, lambda *_: 1.0)
    with pytest.raises(FedldpError) as error:
        selftest_module.selftest()
    one_line(error, broken, "no guarantee can be trusted")


def test_dp_accounting_agrees() -> None:
    accounting = pytest.importorskip("dp_accounting")
    sigma = accounting.get_sigma_gaussian(1.0, 1e-5)
    assert sigma == pytest.approx(3.73063163481594, rel=1e-9)
    pld = accounting.pld.privacy_loss_distribution.from_randomized_response(
        2 / (math.e + 1), 2, value_discretization_interval=1e-4
    ).self_compose(100)
    assert pld.get_epsilon_for_delta(1e-5) == pytest.approx(
        two_valued_epsilon(1.0, 100, 1e-5), rel=1e-3
    )
