"""Composition of many privacy losses by Fourier transforms, as rigorous upper and lower bounds.

Everything known about delta comes from sums of independent losses L_1 + ... + L_m, whose law is a
convolution power. It is computed on a grid, in a tilted measure: masses are multiplied by
e^(theta L) and normalised, with theta such that the sum lies about the wanted epsilon. So the
transform's rounding, which is absolute, is relative to the masses that decide; the tilt makes
delta = 1e-100, or losses of 1e6, no harder than others (plain transforms lose them).

- Upper bound: an outcome with loss L between two grid points is split between them, so that both
  its P- and its Q-mass are kept. Its likelihood ratio under Q then has the same mean and more
  spread, and delta is the Q-mean of a convex function of it. The excess is of second order in the
  step. (Doroshenko et al., "Connect the Dots", PoPETs 2022, show that this is the tightest way.)
- Lower bound: each outcome is replaced by the grid point next to its loss. The sum of those is
  computed from the outcomes, so by post-processing it reveals no more; its laws under P and
  under Q are computed apart, exactly. The deficit, too, is of second order.

Both bounds account, in the safe direction, for rounding of masses and losses, for the errors of
the transforms and of complex powers, and for sums beyond the window (Chernoff bounds).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import fft
from scipy.linalg.lapack import dtbtrs
from scipy.special import logsumexp

from fedldp.accounting.losses import Floats, Losses

Part = tuple[Losses, int]
"""The losses of a mechanism, and how often it is used."""

Step = tuple[NDArray[np.int64], Floats]
"""The law of one loss on the grid: grid points, and logarithms of tilted weights."""

_CUT = 44.0  # sums beyond the window have tilted probability below e^-44
_POINTS_PER_DEVIATION = 2000  # enough: the error falls with the square of this
_MOST_POINTS = 1 << 20
_MOST_POINTS_HUGE = 1 << 22
_HUGE = 1_000_000  # compositions
_ROUNDING = 2.0**-50


@dataclass(frozen=True)
class _Plan:
    """The tilt, and the window of the grid: points (start + i) step for i from 0 to size - 1."""

    theta: float
    step: float
    start: int
    size: int
    rates: tuple[float, float]  # of the Chernoff bounds below and above the window


@dataclass(frozen=True)
class _Sum:
    """The law of the summed losses on the window, in a tilted measure.

    ``weights`` of shape (size,) times exp(log_scale - tilt * loss) are the true masses, up to
    ``noise`` in each weight, and ``misplaced`` in all of them together.
    """

    weights: Floats
    tilt: float
    log_scale: float
    noise: float
    misplaced: float


def compose_upper(parts: Sequence[Part], delta: float) -> float:
    """Return an upper bound of the epsilon at ``delta`` of all parts composed.

    Args:
        parts: losses and how often each occurs, from 1; adaptive composition is covered.
        delta: from 1e-300 to below 1.

    Returns:
        An epsilon of at least 0, infinite if the unlisted mass of the parts is all of delta.
    """
    left = delta - sum(count * part.missing for part, count in parts)
    if left <= 0:
        return math.inf
    parts = [
        (Losses(part.values, part.log_masses + part.errors, part.errors), count)
        for part, count in parts
    ]
    plan = _plan(parts, left)
    law = _power([_split(part, plan) for part, _ in parts], parts, plan, plan.theta)
    ratio = _Sum(law.weights, plan.theta + 1, law.log_scale, law.noise, law.misplaced)
    return max(
        _epsilon_from_above(plan, law, ratio, math.log(left)) + _slack(parts, plan.theta), 0.0
    )


def compose_lower(parts: Sequence[Part], delta: float) -> float:
    """Return a lower bound of the epsilon at ``delta`` of all parts composed.

    Args:
        parts: losses and how often each occurs, from 1; their unlisted outcomes are ignored.
        delta: from 1e-300 to below 1.
    """
    plan = _plan(parts, delta)
    points = [np.rint(part.values / plan.step).astype(np.int64) for part, _ in parts]
    rounded = [
        (replace(part, values=point * np.float64(plan.step)), count)
        for (part, count), point in zip(parts, points, strict=True)
    ]
    # The roundings of many equal losses add up, and the window goes with them.
    drift = _moments(rounded, plan.theta)[0] - _moments(parts, plan.theta)[0]
    plan = replace(plan, start=plan.start + round(drift / plan.step))
    laws = {}
    for tilt, sign in ((plan.theta, -1), (plan.theta + 1, 1)):
        steps = []
        for (part, _), point in zip(parts, points, strict=True):
            log_masses = part.log_masses + sign * part.errors
            if sign > 0:
                log_masses = log_masses - part.values  # Q
            steps.append((point, log_masses + tilt * (point * plan.step)))
        laws[sign] = _power(steps, parts, plan, tilt)
    return max(
        _epsilon_from_below(plan, laws[-1], laws[1], math.log(delta)) - _slack(parts, plan.theta),
        0.0,
    )


def _cumulant(parts: Sequence[Part], tilt: float) -> float:
    """Return ln E_P e^(tilt L) of the summed losses."""
    return sum(
        count * float(logsumexp(part.log_masses + tilt * part.values)) for part, count in parts
    )


def _moments(parts: Sequence[Part], tilt: float) -> tuple[float, float]:
    """Return the mean and the variance of the summed losses in the tilted measure."""
    mean = variance = 0.0
    for part, count in parts:
        masses = np.exp(part.log_masses + tilt * part.values - _cumulant([(part, 1)], tilt))
        center = float(np.dot(masses, part.values))
        mean += count * center
        variance += count * float(np.dot(masses, (part.values - center) ** 2))
    return mean, variance


def _deviation(parts: Sequence[Part], tilt: float) -> float:
    """Return the standard deviation in the tilted measure, as a scale: never quite zero."""
    return max(math.sqrt(_moments(parts, tilt)[1]), 1e-6 * _spread(parts))


def _spread(parts: Sequence[Part]) -> float:
    return max(float(np.ptp(part.values)) for part, _ in parts)


def _minimise(function: Callable[[float], float], low: float, high: float) -> float:
    """Return about the argument of the least value; any argument would be valid."""
    from scipy.optimize import minimize_scalar  # slow to import

    best = minimize_scalar(
        lambda log_x: function(math.exp(log_x)),
        bounds=(math.log(low), math.log(high)),
        method="bounded",
        options={"xatol": 1e-2},
    )
    return math.exp(float(best.x))


def _plan(parts: Sequence[Part], delta: float) -> _Plan:
    """Choose the tilt of the best Renyi bound, and a window that holds the tilted sum."""
    deviation = _deviation(parts, 0.0)
    # A Gaussian sum wants sqrt(2 ln(1/delta)) deviations; far more tilt would drown in rounding
    # the outcomes that decide, where the sum is at its largest with probability above delta.
    most_tilt = (2 + 3 * math.sqrt(-2 * math.log(delta))) / deviation

    def renyi_epsilon(tilt: float) -> float:
        # The conversion of Canonne, Kamath, Steinke 2020, section 2.3, at order tilt + 1
        gain = tilt * math.log1p(1 / tilt) + math.log1p(tilt)
        return (_cumulant(parts, tilt) - math.log(delta) - gain) / tilt

    # Where large losses are rare, the deviation is far below them, and so is the best tilt.
    least_tilt = min(1e-3 * most_tilt, 1e-2 / _spread(parts))
    theta = _minimise(renyi_epsilon, least_tilt, most_tilt)
    base = _cumulant(parts, theta)
    deviation = _deviation(parts, theta)

    def beyond(rate: float) -> float:
        return (_cumulant(parts, theta + rate) - base + _CUT) / abs(rate)

    # Where single losses are larger than the deviation, they are rare, and decide the window.
    slowest = 1e-2 / (deviation + _spread(parts))
    above = _minimise(beyond, slowest, 1e2 / deviation)
    below = _minimise(lambda rate: beyond(-rate), slowest, 1e2 / deviation)
    top = min(beyond(above), sum(count * float(part.values.max()) for part, count in parts))
    bottom = max(-beyond(-below), sum(count * float(part.values.min()) for part, count in parts))
    uses = sum(count for _, count in parts)
    most = _MOST_POINTS if uses <= _HUGE else _MOST_POINTS_HUGE
    wanted = deviation / math.sqrt(uses) / _POINTS_PER_DEVIATION
    margin = 2 * len(parts) + 2  # splitting moves each part's losses by less than a step
    step = max(wanted, (top - bottom) / (most - 2 * margin))
    size = int(fft.next_fast_len(int((top - bottom) / step) + 2 * margin, real=True))
    return _Plan(theta, step, math.floor(bottom / step) - margin, size, (below, above))


def _split(part: Losses, plan: _Plan) -> Step:
    """Return grid points and log tilted masses: each outcome on both sides of its loss."""
    lower = np.floor(part.values / plan.step)
    rest = part.values - lower * plan.step
    share = np.clip(np.expm1(-rest) / math.expm1(-plan.step), 1e-300, 1.0)
    tilted = part.log_masses + plan.theta * (lower * plan.step)
    down = tilted + np.log(np.maximum(1 - share, 1e-300))
    up = tilted + np.log(share) + plan.theta * plan.step
    point = lower.astype(np.int64)
    return np.concatenate([point, point + 1]), np.concatenate([down, up])


def _power(
    steps: Sequence[Step],
    parts: Sequence[Part],
    plan: _Plan,
    tilt: float,
) -> _Sum:
    """Return the law of the sum: the inverse transform of the product of powers.

    The circular convolution is exact for the sum modulo the window, so all that it can misplace
    is the mass outside, which Chernoff's bound limits. Its rounding errors are bounded in each
    cell by the mean error over the frequencies: a power m multiplies the relative error of a
    transform by m, but only where it is not negligible.
    """
    rounding = _ROUNDING * math.log2(plan.size)
    log_transform = np.zeros(plan.size // 2 + 1, np.complex128)
    sensitivity = np.zeros(plan.size // 2 + 1)
    log_scale, offset = 0.0, 0
    for (point, log_weights), (_, count) in zip(steps, parts, strict=True):
        log_total = float(logsumexp(log_weights))
        weights = np.exp(log_weights - log_total)
        log_scale += count * log_total
        # About its mean, the law has small phases where its power is not negligible.
        center = round(float(np.dot(weights, point)))
        cells = np.bincount((point - center) % plan.size, weights, plan.size)
        transform = fft.rfft(cells)
        size = np.maximum(np.abs(transform), 1e-300)
        log_transform += count * np.log(np.where(transform == 0, 1e-300, transform))
        sensitivity += count * (rounding / size + _ROUNDING * (1 + np.abs(np.log(size))))
        offset += count * center
    transform = np.exp(log_transform)
    # |transform| * sensitivity in logarithms: near a zero the one is tiny and the other huge.
    errors = np.exp(np.minimum(log_transform.real + np.log(sensitivity), 0.0))
    noise = 2 * float(np.mean(errors))
    noise += rounding * math.sqrt(2 * float(np.mean(np.abs(transform) ** 2)))
    weights = np.roll(fft.irfft(transform, plan.size), (offset - plan.start) % plan.size)
    outside = _outside(steps, parts, plan, log_scale)
    return _Sum(weights, tilt, log_scale, noise, outside)


def _outside(steps: Sequence[Step], parts: Sequence[Part], plan: _Plan, log_scale: float) -> float:
    """Bound the tilted probability of sums outside the window, by Chernoff on either side."""
    total = 0.0
    sides = ((-1, -plan.start, plan.rates[0]), (1, plan.start + plan.size - 1, plan.rates[1]))
    for side, limit, rate in sides:
        extreme = sum(
            count * int((side * point).max())
            for (point, _), (_, count) in zip(steps, parts, strict=True)
        )
        if extreme <= limit:
            continue
        exponent = -log_scale - rate * limit * plan.step
        for (point, log_weights), (_, count) in zip(steps, parts, strict=True):
            exponent += count * float(logsumexp(log_weights + rate * side * point * plan.step))
        total += math.exp(min(exponent, 0.0))
    return total


def _epsilon_from_above(plan: _Plan, law: _Sum, q_law: _Sum, log_delta: float) -> float:
    """Return an epsilon that meets delta, as small as the bounds allow.

    Of the sums {S >= a grid point g}, those with g > e make up delta(e). So the first g at which
    P(S > g) - e^g Q(S > g), rounded up, meets delta is a valid epsilon, and ln((P - delta)/Q) of
    its set is one too, down to the grid point before.
    """
    losses, left = _beyond_delta(plan, law, log_delta, sign=1)
    q_sets = np.maximum(_sums_above(q_law, plan.step, -1), 0.0)
    valid = left <= q_sets
    if not valid.any():
        return math.inf
    first = int(np.argmax(valid))
    if left[first] <= 0:
        return float(losses[first] - plan.step)
    shift = math.log(left[first] / q_sets[first])
    return float(losses[first] + max(shift, -plan.step))


def _epsilon_from_below(plan: _Plan, p_law: _Sum, q_law: _Sum, log_delta: float) -> float:
    """Return the largest ln((P(S) - delta)/Q(S)): any set S of sums gives a lower bound."""
    losses, left = _beyond_delta(plan, p_law, log_delta, sign=-1)
    q_sets = _sums_above(q_law, plan.step, 1)
    useful = left > 0
    if not useful.any():
        return 0.0
    epsilons = losses[useful] + np.log(left[useful] / q_sets[useful])
    return float(epsilons.max()) + p_law.log_scale - q_law.log_scale


def _beyond_delta(plan: _Plan, law: _Sum, log_delta: float, sign: int) -> tuple[Floats, Floats]:
    """Return the grid's losses g, and (P(S >= g) - delta) e^(tilt g - log_scale), rounded by sign.

    The factor makes the masses about a point relative to those at the point, so nothing over- or
    underflows.
    """
    losses = (plan.start + np.arange(plan.size)) * np.float64(plan.step)
    exponent = log_delta - law.log_scale + law.tilt * losses
    return losses, _sums_above(law, plan.step, sign) - np.exp(np.minimum(exponent, 700.0))


def _sums_above(law: _Sum, step: float, sign: int) -> Floats:
    """Return sum over s >= i of weights_s e^(-tilt (s - i) step), rounded by ``sign``."""
    decay = math.exp(-law.tilt * step)
    # The sums solve sums_i - decay sums_(i+1) = weights_i; the solver is one pass from the end.
    bands = np.ones((2, law.weights.size), order="F")
    bands[0] = -decay
    sums = dtbtrs(bands, law.weights, uplo="U")[0]
    reach = min(law.weights.size, 1 / -math.expm1(-law.tilt * step))
    return np.asarray(sums * (1 + sign * 1e-9) + sign * (law.noise * reach + law.misplaced))


def _slack(parts: Sequence[Part], theta: float) -> float:
    """Bound what rounding does to the sum of losses, and to the scales that are added up.

    An error in a logarithm of a mass moves epsilon by as much (below), or by that over theta.
    """
    return sum(
        count * _ROUNDING * (float(np.abs(part.values).max()) * (2 + 4 * theta) + 2 + 2 / theta)
        for part, count in parts
    )
