"""Events whose author proves a curve of Renyi differential privacy, or a privacy profile."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import norm
from tables import of_unit, stated

from fedldp.accounting.accountants import loss_of
from fedldp.accounting.events import (
    GaussianReport,
    PerPerson,
    ProfileReport,
    PureReport,
    RenyiReport,
)
from fedldp.accounting.guarantees import guarantees_of, proven_epsilon
from fedldp.accounting.numerics.gaussian import gaussian_epsilon, renyi_epsilon, zcdp_epsilon
from fedldp.accounting.prices import cost
from fedldp.core.kinds import PROFILE_OF_ONE, RENYI_NOT_PURE, RENYI_OF_ONE
from fedldp.mechanisms import mechanisms
from fedldp.simulation.engine import simulate
from fedldp.simulation.settings import from_mapping

ORDERS = [1 + each / 20 for each in range(1, 2000)]


def gaussian_curve(rho, orders=ORDERS):
    return RenyiReport(curve=tuple((order, rho * order) for order in orders[:1000]))


def gaussian_profile(mu, largest, points=1000, **more):
    """Return the profile of Balle, Wang 2018, as scipy computes it, rounded up."""
    found = []
    for epsilon in np.linspace(0, largest, points):
        a, b = norm.cdf(mu / 2 - epsilon / mu), norm.cdf(-mu / 2 - epsilon / mu)
        found.append((float(epsilon), float(a - math.exp(epsilon) * b) * (1 + 1e-9) + 1e-17))
    least = np.minimum.accumulate([delta for _, delta in found])
    pairs = zip((epsilon for epsilon, _ in found), map(float, least), strict=True)
    return ProfileReport(points=tuple(pairs), **more)


def epsilon_of(history, delta=1e-5, **how):
    (line,) = guarantees_of(Counter(history), "client-run", delta, **how)
    return line.epsilon


@pytest.mark.parametrize(("rho", "times"), [(0.01, 1), (0.05, 20), (0.5, 3)])
def test_a_curve_that_is_linear_gives_what_its_rho_gives(rho, times):
    found = epsilon_of({gaussian_curve(rho): times})
    exact = zcdp_epsilon(rho * times, 1e-5)  # the least over all orders
    assert exact <= found * (1 + 1e-12)
    assert found < 1.001 * exact
    # It is an upper bound on the true epsilon of such Gaussian noise.
    assert found > gaussian_epsilon(math.sqrt(2 * rho * times), 1e-5)


def test_the_conversion_is_that_of_the_source_in_exact_numbers():
    order, divergence, delta = 7.0, 0.3, 1e-6
    expected = divergence + (
        math.log(1 / delta) + order * math.log(1 - 1 / order) - math.log(order - 1)
    ) / (order - 1)
    found, used = renyi_epsilon([(order, divergence), (2.0, 50.0)], delta)
    assert found == pytest.approx(expected, rel=1e-12)
    assert found >= expected
    assert used == order


def test_an_order_between_two_takes_the_divergence_of_the_next():
    one = RenyiReport(curve=((2.0, 0.1), (8.0, 0.4)))
    other = RenyiReport(curve=((4.0, 0.2), (16.0, 1.0)))
    # At order 2: 0.1 + 0.2; at 4: 0.4 + 0.2; at 8: 0.4 + 1; at 16 the first curve says nothing.
    expected, _ = renyi_epsilon([(2.0, 0.3), (4.0, 0.6), (8.0, 1.4)], 1e-5)
    assert epsilon_of({one: 1, other: 1}) == pytest.approx(expected, rel=1e-12)
    assert loss_of(one).at(8.1) is None


def test_a_curve_composes_with_pure_and_gaussian_reports():
    curve, pure = gaussian_curve(0.02), PureReport(epsilon=0.2)
    noisy = GaussianReport(mu=0.2, rho=0.02)
    found = epsilon_of({curve: 5, pure: 2, noisy: 3})
    assert found == pytest.approx(zcdp_epsilon(0.1 + 2 * 0.02 + 0.06, 1e-5), rel=1e-3)
    assert found >= zcdp_epsilon(0.1 + 2 * 0.02 + 0.06, 1e-5)
    assert found > epsilon_of({curve: 5, noisy: 3})


def test_sums_of_divergences_are_rounded_up():
    event = RenyiReport(curve=((2.0, 0.1),))
    exact = 10**6 * Fraction(0.1)
    (line,) = guarantees_of(Counter({event: 10**6}), "client-run", 0.5)
    gain = line.epsilon - float(exact)
    assert line.epsilon > float(exact) + math.log(2) - 2 * math.log(2) - 1e-6
    assert gain == pytest.approx(math.log(2) - 2 * math.log(2), abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mu", "times", "largest"), [(1.0, 1, 12), (1.0, 20, 12), (0.1, 100, 2), (3.0, 1, 30)]
)
def test_a_gaussians_profile_gives_the_gaussians_epsilon_from_above(mu, times, largest):
    found = epsilon_of({gaussian_profile(mu, largest): times})
    exact = gaussian_epsilon(mu * math.sqrt(times), 1e-5)
    assert exact < found < 1.0001 * exact  # docs/privacy/composition.md


def largest_epsilon(pairs, delta):
    """Return the epsilon of independent releases with laws (p, q), outcome by outcome."""
    p, q = (
        np.array([*map(math.prod, itertools.product(*laws))]) for laws in zip(*pairs, strict=True)
    )
    low, high = 0.0, 60.0
    for _ in range(60):
        middle = (low + high) / 2
        above = np.maximum(p - math.exp(middle) * q, 0).sum() > delta
        low, high = (middle, high) if above else (low, middle)
    return low


@pytest.mark.parametrize("seed", range(4))
def test_no_order_of_any_two_inputs_costs_more_than_their_profile(seed):
    generator = np.random.default_rng(seed)
    laws = [tuple(generator.dirichlet(np.full(4, 0.7)).tolist()) for _ in range(2)]
    points = [
        (float(e), max(sum(max(a - math.exp(e) * b, 0) for a, b in zip(p, q, strict=True))
                       for p, q in (laws, laws[::-1])))
        for e in np.linspace(0, 8, 60)
    ]  # fmt: skip
    event = ProfileReport(points=tuple(points), error=1e-15)
    for delta in (0.3, 0.02):
        found = epsilon_of({event: 3}, delta)
        worst = [
            largest_epsilon([laws[::order] for order in orders], delta)
            for orders in itertools.product((1, -1), repeat=3)
        ]
        assert max(worst) <= found < max(worst) + 3


def test_a_profile_of_two_points_is_randomised_response():
    """The hull of delta at 0 and at epsilon is attained, and composes as pure reports do."""
    event = ProfileReport(points=((0.0, math.tanh(0.25) + 1e-16), (0.5, 0.0)))
    of_pure = Counter({PureReport(epsilon=0.5): 30})
    pure, least = guarantees_of(of_pure, "client-run", 1e-5)
    assert epsilon_of({event: 30}) == pytest.approx(least.epsilon, rel=1e-4)
    assert least.epsilon <= epsilon_of({event: 30}) < pure.epsilon
    both = epsilon_of({event: 10, PureReport(epsilon=0.5): 20})
    assert both == pytest.approx(least.epsilon, rel=1e-4)


@pytest.mark.slow
def test_an_error_is_added_and_points_above_the_hull_change_nothing():
    exact, with_error = (
        epsilon_of({gaussian_profile(0.5, 6, 200, error=error): 10}) for error in (0.0, 1e-7)
    )
    assert exact < with_error < exact + 0.2
    history = Counter({gaussian_profile(0.5, 6, 200, error=1e-6): 10})
    (line,) = guarantees_of(history, "client-run", 1e-5)
    assert (line.epsilon, line.reason) == (None, PROFILE_OF_ONE)
    few = ProfileReport(points=((0.0, 0.4), (1.0, 0.1), (2.0, 0.0)))
    more = ProfileReport(points=((0.0, 0.4), (0.5, 0.39), (1.0, 0.1), (1.5, 0.09), (2.0, 0.0)))
    assert epsilon_of({few: 3}) == epsilon_of({more: 3})


@pytest.mark.parametrize(
    ("points", "error"), [(((0.0, 0.5),), 0.7), (((1.0, 0.99),), 0.02), (((0.0, 0.5),), 1.0)]
)
def test_errors_that_leave_nothing_of_a_profile_leave_no_guarantee(points, error):
    event = ProfileReport(points=points, error=error)
    (line,) = guarantees_of(Counter({event: 2}), "client-run", 1e-5)
    assert (line.epsilon, line.reason) == (None, PROFILE_OF_ONE)


def test_epsilons_that_are_all_but_equal_are_one():
    near = ProfileReport(points=((0.0, 0.4), (5e-324, 0.3), (1.0, 0.0)))
    one = ProfileReport(points=((0.0, 0.3), (1.0, 0.0)))
    assert epsilon_of({near: 3}) == pytest.approx(epsilon_of({one: 3}), rel=1e-12)


CURVE = gaussian_curve(0.1)
PROFILE = gaussian_profile(0.5, 6, 200)


@pytest.mark.parametrize(("event", "reason"), [(CURVE, RENYI_OF_ONE), (PROFILE, PROFILE_OF_ONE)])
def test_nothing_is_proven_that_does_not_follow_from_what_is_stated(event, reason):
    (pure,) = guarantees_of(Counter({event: 1}), "client-run", 0.0)
    assert (pure.epsilon, pure.reason) == (None, RENYI_NOT_PURE)
    (further,) = guarantees_of(Counter({event: 1}), "client-run", 1e-5, shift=2)
    assert (further.epsilon, further.reason) == (None, reason)
    assert proven_epsilon(event, "weight", 1e-5) is None
    assert {cost(event, kind) for kind in ("pure", "zcdp", "gdp")} == {math.inf}
    person = PerPerson(person=event, client=PureReport(epsilon=1.0))
    assert cost(person, "zcdp", "person") == math.inf


def test_a_profile_does_not_compose_with_what_has_no_dominating_pair_here():
    for other in (CURVE, GaussianReport(mu=0.2, rho=0.02)):
        (line,) = guarantees_of(Counter({PROFILE: 1, other: 1}), "client-run", 1e-5)
        assert (line.epsilon, line.reason) == (None, PROFILE_OF_ONE)


@pytest.mark.parametrize("event", [CURVE, PROFILE], ids=["curve", "profile"])
def test_a_statement_names_its_author_and_has_no_lower_bound(event):
    found = stated({1: dict.fromkeys(range(4), event)}, own_code=("mine:Skellam",))
    lines = [line for line in found if line.epsilon is not None]
    assert {line.unit for line in lines} >= {"client-round", "client-run"}
    assert {(line.stated_by, line.lower) for line in lines} == {("mine:Skellam", None)}


def test_no_mechanism_of_fedldp_states_either():
    stated = {type(each.event(8)) for kind in mechanisms().values() for each in kind.examples()}
    assert stated
    assert not stated & {RenyiReport, ProfileReport}


OWN = """
from dataclasses import dataclass
from fedldp.accounting.events import RenyiReport
from fedldp.mechanisms.gaussian import Gaussian

@dataclass(frozen=True)
class Curved(Gaussian):
    def event(self, size):
        rho = super().event(size).rho
        return RenyiReport(curve=tuple((order, rho * order) for order in (1.5, 2, 4, 8, 16, 32)))
"""


@pytest.mark.usefixtures("folder_of_its_own")
def test_ones_own_mechanism_states_a_curve_and_meets_a_target(tmp_path, monkeypatch):
    (tmp_path / "mine_of_renyi.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    target = {"unit": "client-run", "adversary": "server", "epsilon": 8.0, "delta": 1e-5}
    run = from_mapping(
        {"system": "composed", "dataset": "digits", "model": "logistic", "num_clients": 20,
         "rounds": 3, "learning_rate": 0.1, "mechanism": "mine_of_renyi:Curved", "bound": "norm",
         "target": target}
    )  # fmt: skip
    lines = of_unit(simulate(run).privacy.guarantees, "client-run")
    (line,) = (each for each in lines if each.delta)
    assert 7.9 < line.epsilon <= 8
    assert line.method.kind == "renyi"
    assert (line.stated_by, line.lower) == ("mine_of_renyi:Curved", None)
