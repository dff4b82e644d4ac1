"""Composition of many privacy losses by Fourier transforms, with rigorous upper and lower bounds.

Delta follows from the law of a sum of independent losses L_1 + ... + L_m, a convolution power. This
law is computed on a grid, in a tilted measure: the mass of a loss L is multiplied by e^(theta L),
all masses are normalised, and theta is chosen to centre the sum near the epsilon that is sought.
The transform's rounding error is absolute; the tilt makes it small relative to the masses that
determine epsilon. So cases with delta = 1e-100 or losses of 1e6 are no harder than others, although
a transform without a tilt would fail for them.

- Upper bound: an outcome with loss L between two grid points is split between them, preserving both
  its P-mass and its Q-mass. Its likelihood ratio under Q then has the same mean and more spread.
  Delta is the Q-mean of a convex function of that ratio, so delta can only grow; the excess is of
  second order in the step. (Doroshenko et al., "Connect the Dots", PoPETs 2022, show that this is
  the tightest way.)
- Lower bound: each outcome is replaced by the grid point nearest its loss. The sum of these points
  is computed from the outcomes, so by post-processing it reveals no more than the outcomes. Its
  laws under P and under Q are computed separately and exactly. The deficit is also of second order.

A high power is computed in stages: sums of 28 losses, say, then sums of 28 of those sums, and so
on. Each stage has its own grid, with a step that grows with the deviation of the summands. The sums
of one stage are moved to the next grid in the same way as outcomes, so each stage bounds the one
before. A single grid as fine as the first and as wide as the last would need far more points than
any of these grids.

Both bounds account, in the safe direction, for rounding of masses and losses, for the errors of
the transforms and of their powers, and for sums beyond the window (Chernoff bounds).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.numerics.known import Test, check
from fedldp.accounting.numerics.losses import Floats, Losses, two_valued_losses
from fedldp.accounting.numerics.solve import minimise
from fedldp.core.deferred import fft, lapack

RepeatedLosses = tuple[Losses, int]
"""The losses of a mechanism and the number of times it is used."""

_NOTHING = 1e-300  # tilted masses below this are left out
_BINS = 1 << 16  # the number of losses in an outline


@dataclass(frozen=True)
class TiltedLaw:
    """The law of a loss, or of a sum of losses, under tilted measures: e^(tilt L), normalised.

    There is one row, or one for P and one for Q. The true mass of losses[i] is
    weights[row, i] e^(log_scales[row] - tilts[row] losses[i]). The weights of a row sum to about 1.
    In total they miss at most errors[row] of the tilted measure.
    """

    losses: Floats  # (k,)
    weights: Floats  # (rows, k)
    tilts: Floats  # (rows,)
    log_scales: Floats  # (rows,)
    errors: Floats  # (rows,)


Term = tuple[TiltedLaw, int]
"""A law and the number of independent draws from it that are added."""


def tilted(losses: Floats, log_masses: Mapping[float, Floats]) -> TiltedLaw:
    """Return the law of one loss, given the logarithms of its masses for each tilt."""
    tilts = np.array(list(log_masses))
    log_weights = np.stack(list(log_masses.values())) + np.outer(tilts, losses)
    largest = log_weights.max(axis=1)
    log_scales = largest + np.log(np.exp(log_weights - largest[:, None]).sum(axis=1))
    weights = np.exp(log_weights - log_scales[:, None])
    weights[weights < _NOTHING] = 0.0
    errors = np.full(len(tilts), len(losses) * _NOTHING)
    return TiltedLaw(losses, weights, tilts, log_scales, errors)


def outline(law: TiltedLaw) -> TiltedLaw:
    """Return a coarser law with fewer losses, to choose a tilt or window from it (any is valid)."""
    if len(law.losses) <= _BINS:
        return law
    low, width = float(law.losses.min()), float(np.ptp(law.losses)) / (_BINS - 1)
    bins = np.rint((law.losses - low) / width).astype(np.int64)
    weights = np.array([np.bincount(bins, row, _BINS) for row in law.weights], np.float64)
    return replace(law, losses=low + np.float64(width) * np.arange(_BINS), weights=weights)


def log_mean(weights: Floats, exponents: Floats) -> float:
    """Return ln sum_i weights_i e^(exponents_i)."""
    # If no weight is zero, a plain maximum takes a fraction of the time of a masked one.
    if weights.min() > 0:
        largest = float(exponents.max())
    else:
        largest = float(np.max(exponents, where=weights > 0, initial=-math.inf))
    relative = np.minimum(exponents - largest, 0.0)
    return largest + math.log(np.dot(weights, np.exp(relative, out=relative)))


def cumulant(terms: Sequence[Term], rate: float) -> float:
    """Return ln E e^(rate S) of the sum S of all draws, in the first tilted measure."""
    return sum(count * log_mean(law.weights[0], rate * law.losses) for law, count in terms)


def mean_and_deviation(terms: Sequence[Term]) -> tuple[float, float]:
    """Return the mean and the deviation of the sum, in the first tilted measure.

    The deviation serves as a scale, and is never exactly zero.
    """
    mean = variance = 0.0
    for law, count in terms:
        center = float(np.dot(law.weights[0], law.losses))
        mean += count * center
        variance += count * float(np.dot(law.weights[0], (law.losses - center) ** 2))
        variance += count * (1e-6 * float(np.ptp(law.losses))) ** 2
    return mean, math.sqrt(variance)


def spread(terms: Sequence[Term]) -> float:
    """Return the largest difference between two losses of one draw."""
    return max(float(np.ptp(law.losses)) for law, _ in terms)


def best_rate(function: Callable[[float], float], low: float, high: float) -> float:
    """Return roughly the rate in [low, high] with the least value; any rate gives a valid bound."""
    found = minimise(lambda x: function(math.exp(x)), math.log(low), math.log(high), 1e-2)
    return math.exp(found)


def best_tilt(parts: Sequence[RepeatedLosses], delta: float) -> float:
    """Return the tilt of the best Renyi bound."""
    laws = [outline(tilted(part.values, {0.0: part.log_masses})) for part, _ in parts]
    terms = [(law, count) for law, (_, count) in zip(laws, parts, strict=True)]
    # A Gaussian sum needs a tilt that moves its mean by sqrt(2 ln(1/delta)) deviations. If the sum
    # attains its maximum with probability above delta, a much larger tilt would lose the
    # outcomes that determine epsilon in rounding errors.
    most = (2 + 3 * math.sqrt(-2 * math.log(delta))) / mean_and_deviation(terms)[1]

    def renyi_epsilon(tilt: float) -> float:
        # The conversion of Canonne, Kamath, Steinke 2020, section 2.3, at order tilt + 1
        gain = tilt * math.log1p(1 / tilt) + math.log1p(tilt)
        return (cumulant(terms, tilt) - math.log(delta) - gain) / tilt

    # If large losses are rare, they are far above the deviation, and the best tilt is far below
    # ``most``.
    least = min(1e-3 * most, 1e-2 / spread(terms))
    return best_rate(renyi_epsilon, least, most)


Points = NDArray[np.int64]

_CUT = 36.0  # sums beyond the window have a tilted probability below about e^-36
_POINTS_PER_DEVIATION = 2000  # enough, since the error falls with the square of this
_MOST_POINTS = 1 << 19
_MOST_USES = 32  # the largest number of summands in one stage
_MARGIN = 40  # additional grid points on either side of a window
_NEGLIGIBLE = 60.0  # frequencies whose power is below e^-60 are left out
_ROUNDING = 2.0**-50

ToGrid = Callable[[TiltedLaw, float], tuple[Points, Floats]]
"""A function that moves a law to the grid with a given step. It returns the grid points and their
weights, shape (rows, k)."""


@dataclass(frozen=True)
class _Window:
    """The grid of a tilted sum, around its mean.

    Attributes:
        step: the grid step.
        below: the number of grid points below the mean.
        size: the number of grid points.
        rates: the rates of the Chernoff bounds, below and above.
    """

    step: float
    below: int
    size: int
    rates: tuple[float, float]


def compose_upper(parts: Sequence[RepeatedLosses], delta: float) -> float:
    """Return an upper bound on the epsilon at ``delta`` of the composition of all parts.

    Args:
        parts: losses, each with its number of uses, at least 1; adaptive composition is covered.
        delta: at least 1e-300 and below 1.

    Returns:
        An epsilon of at least 0. It is infinite if the unlisted mass of the parts uses up delta, or
        if delta is so small that only the largest sum matters.
    """
    left = delta - sum(count * part.missing for part, count in parts)
    if left <= 0:
        return math.inf
    theta = best_tilt(parts, left)
    laws = [tilted(part.values, {theta: part.log_masses + part.errors}) for part, _ in parts]
    law, step = _compose([(law, n) for law, (_, n) in zip(laws, parts, strict=True)], _split)
    found = _epsilon_from_above(law, step, math.log(left))
    return max(found + _slack(parts, theta), 0.0)


def compose_lower(parts: Sequence[RepeatedLosses], delta: float) -> float:
    """Return a lower bound on the epsilon at ``delta`` of the composition of all parts.

    Args:
        parts: losses, each with its number of uses, at least 1; unlisted outcomes are ignored.
        delta: at least 1e-300 and below 1.
    """
    theta = best_tilt(parts, delta)
    terms = []
    for part, count in parts:
        log_p = part.log_masses - part.errors
        log_q = part.log_masses + part.errors - part.values
        terms.append((tilted(part.values, {theta: log_p, theta + 1: log_q}), count))
    law, step = _compose(terms, _round)
    return max(_epsilon_from_below(law, step, math.log(delta)) - _slack(parts, theta), 0.0)


def _compose(terms: Sequence[Term], to_grid: ToGrid) -> tuple[TiltedLaw, float]:
    """Return the law of the sum of all draws on a grid, and the grid's step."""
    _test()
    outlines = [(outline(law), count) for law, count in terms]
    last: list[Term] = []
    for (law, count), (shape, _) in zip(terms, outlines, strict=True):
        sums, uses, left = law, 1, count
        for fold in _folds(count):
            left, rest = divmod(left, fold)
            if rest:
                last.append((sums, rest))
            uses *= fold
            sums = _sum([(sums, fold)], _window([(shape, uses)], fold), to_grid)
        last.append((sums, left))
    window = _window(outlines, sum(count for _, count in last))
    return _sum(last, window, to_grid), window.step


@Test
def _test() -> None:
    single = [(two_valued_losses(1.0, 1), 100)]
    check("compose_upper", compose_upper(single, 1e-5), 79.8413223649645, 1e-5)
    check("compose_lower", compose_lower(single, 1e-5), 79.8413223649645, 1e-5)


def _folds(count: int) -> list[int]:
    """Return how many draws each stage except the last adds, chosen so that few are left over."""
    folds = []
    while count > _MOST_USES:
        even = count ** (1 / math.ceil(math.log(count) / math.log(_MOST_USES)))
        choices = range(math.ceil(0.8 * even), math.ceil(1.25 * even))
        folds.append(min(choices, key=lambda fold: count % fold))
        count //= folds[-1]
    return folds


def _window(terms: Sequence[Term], moved: int) -> _Window:
    """Choose the grid of a sum.

    Args:
        terms: single losses, each with its number of draws in the sum.
        moved: how many draws, of single losses or of earlier sums, are moved to this grid.
    """
    mean, deviation = mean_and_deviation(terms)
    # Individual losses larger than the deviation are rare, but they determine the size of the
    # window.
    slowest = 1e-2 / (deviation + spread(terms))
    # Each stage moves each loss by up to a step, which moves the sum by about this many steps.
    moves = math.sqrt(sum(count for _, count in terms)) / 2
    reach, margin, rates, steep = [0.0, 0.0], [_MARGIN, _MARGIN], [0.0, 0.0], [False, False]
    for i, side in enumerate((-1, 1)):

        def beyond(rate: float, side: int = side) -> float:
            return (cumulant(terms, side * rate) + _CUT) / rate - side * mean

        rates[i] = best_rate(beyond, slowest, 1e2 / deviation)
        reach[i] = beyond(rates[i])
        end = sum(count * float((side * law.losses).max()) for law, count in terms) - side * mean
        if end < reach[i]:  # only moved losses lie further out, and a steep bound holds there
            reach[i], steep[i] = end, True
            margin[i] += math.ceil(9 * moves)
    wanted = deviation / math.sqrt(moved) / _POINTS_PER_DEVIATION
    step = max(wanted, sum(reach) / (_MOST_POINTS - sum(margin)))
    size = int(fft.next_fast_len(int(sum(reach) / step) + sum(margin), real=True))
    low, high = (
        min(1.0, 8.5 / moves) / step if near else rate
        for near, rate in zip(steep, rates, strict=True)
    )
    return _Window(step, math.ceil(reach[0] / step) + margin[0], size, (low, high))


def _split(law: TiltedLaw, step: float) -> tuple[Points, Floats]:
    """Divide each loss between the grid points on both sides of it, for an upper bound."""
    lower = np.floor(law.losses / step)
    rest = law.losses - lower * step
    share = np.clip(np.expm1(-rest) / math.expm1(-step), 0.0, 1.0)
    tilts = law.tilts[:, None]
    down = law.weights * (np.exp(-tilts * rest) * (1 - share))
    up = law.weights * (np.exp(tilts * (step - rest)) * share)
    points, down = _gathered(lower, down)
    _, up = _gathered(lower, up)
    return np.concatenate([points, points + 1]), np.concatenate([down, up], axis=1)


def _round(law: TiltedLaw, step: float) -> tuple[Points, Floats]:
    """Move each loss to the nearest grid point, for a lower bound."""
    nearest = np.rint(law.losses / step)
    moved = np.exp(np.outer(law.tilts, nearest * step - law.losses))
    return _gathered(nearest, law.weights * moved)


def _gathered(points: Floats, weights: Floats) -> tuple[Points, Floats]:
    """Add up the weights of equal neighbouring points."""
    starts = np.flatnonzero(np.diff(points, prepend=np.nan))
    return points[starts].astype(np.int64), np.add.reduceat(weights, starts, axis=1)


def _sum(terms: Sequence[Term], window: _Window, to_grid: ToGrid) -> TiltedLaw:
    """Return the law of the sum of all draws, on the window.

    The circular convolution is exact for the sum modulo the window, so it can misplace only the
    mass outside the window; Chernoff bounds limit that mass.
    """
    step, size, tilts = window.step, window.size, terms[0][0].tilts
    log_scales, errors = np.zeros(len(tilts)), np.zeros(len(tilts))
    grids: list[tuple[Points, Floats, int]] = []
    mean, offset, low, high = 0.0, 0, 0, 0
    for law, count in terms:
        points, weights = to_grid(law, step)
        totals = weights.sum(axis=1)
        weights /= totals[:, None]
        log_scales += count * (law.log_scales + np.log(totals))
        errors += count * law.errors * np.exp(tilts * step) / totals
        center = float(np.dot(weights[0], points))
        mean += count * center
        # A law that is centred at its mean has small phases wherever its power is not negligible.
        offset += count * round(center)
        low, high = low + count * int(points.min()), high + count * int(points.max())
        grids.append((points - round(center), weights, count))
    start = math.floor(mean) - window.below
    # Beyond the extreme sums, the result of the transform is nothing but rounding errors.
    there = slice(max(low - start, 0), min(high + 1 - start, size))
    sums = np.empty((len(tilts), there.stop - there.start))
    errors = np.where(errors < 1, np.expm1(np.minimum(errors, 1.0)), math.inf)
    for row in range(len(tilts)):
        laws = [(points, weights[row], count) for points, weights, count in grids]
        cells, rounding = _power(laws, size)
        sums[row] = np.roll(cells, (offset - start) % size)[there]
        errors[row] += rounding + 2 * _outside(laws, window, start - offset)
    losses = (start + np.arange(there.start, there.stop)) * np.float64(step)
    return TiltedLaw(losses, sums, tilts, log_scales, errors)


def _power(laws: Sequence[tuple[Points, Floats, int]], size: int) -> tuple[Floats, float]:
    """Return the circular convolution of powers of laws, and a bound on its total error.

    A transform is known to within ``rounding`` at every frequency, so its power is known to within
    count * rounding times the next lower power. The errors of all cells add up to at most the root
    of the sum, over the frequencies, of the squared errors of the power.
    """
    rounding = _ROUNDING * (math.log2(size) + 1)
    kept = np.arange(size // 2 + 1)
    powers, largest = np.ones(kept.size, np.complex128), np.ones(kept.size)
    relative = np.zeros(kept.size)
    for points, weights, count in laws:
        transform = fft.rfft(np.bincount(points % size, weights, size))[kept]
        least = max(math.exp(-_NEGLIGIBLE / count) - rounding, 0.0)
        stays = np.flatnonzero(transform.real**2 + transform.imag**2 >= least**2)
        kept, transform = kept[stays], transform[stays]
        bound = np.abs(transform) + rounding
        powers = powers[stays] * transform**count
        largest = largest[stays] * bound**count
        relative = relative[stays] + count * rounding / bound
    spectrum = np.zeros(size // 2 + 1, np.complex128)
    spectrum[kept] = powers
    squares = np.sum((largest * relative) ** 2) + spectrum.size * math.exp(-2 * _NEGLIGIBLE)
    error = math.sqrt(2 * squares) + rounding * math.sqrt(2 * np.sum(largest**2))
    cells = fft.irfft(spectrum, size)
    # Cells that may be nothing but error would spoil the Chernoff bounds of the next stage.
    cells[cells < error / size] = 0.0
    return cells, 2 * error


def _outside(laws: Sequence[tuple[Points, Floats, int]], window: _Window, start: int) -> float:
    """Bound the tilted probability of sums outside the window, by Chernoff bounds on both sides."""
    total = 0.0
    sides = ((-1, -start, window.rates[0]), (1, start + window.size - 1, window.rates[1]))
    for side, limit, rate in sides:
        slope = np.float64(side * rate * window.step)
        cumulants = (count * log_mean(weights, slope * points) for points, weights, count in laws)
        total += math.exp(min(sum(cumulants) - rate * window.step * limit, 0.0))
    return total


def _epsilon_from_above(law: TiltedLaw, step: float, log_delta: float) -> float:
    """Return an epsilon that meets delta, as small as the bounds allow.

    Delta(e) comes from the sums S at grid points above e. So the first grid point g at which P(S >=
    g) - e^g Q(S >= g), rounded up, meets delta is a valid epsilon. The larger of two numbers is
    also valid: ln((P - delta)/Q) for this set of sums, and the previous grid point. A tilted mass
    at a loss g + x adds to delta(g) in proportion to e^(-theta x) (1 - e^-x), so the errors add at
    most what they would add at the maximum of that factor.
    """
    theta = float(law.tilts[0])
    most = math.exp(-theta * math.log1p(1 / theta) + theta * step) / (1 + theta)
    left = _beyond_delta(law, step, log_delta, 1, float(law.errors[0]) * most)
    q_sets = _sums_above(law.weights[0], theta + 1, step, -1, 0.0)
    valid = left <= q_sets
    if not valid.any():
        return math.inf
    first = int(np.argmax(valid))
    if left[first] <= 0:
        return float(law.losses[first] - step)
    shift = math.log(left[first] / q_sets[first])
    return float(law.losses[first] + max(shift, -step))


def _epsilon_from_below(law: TiltedLaw, step: float, log_delta: float) -> float:
    """Return the largest ln((P(S) - delta)/Q(S)): any set S of sums gives a lower bound."""
    left = _beyond_delta(law, step, log_delta, -1, float(law.errors[0]))
    q_sets = _sums_above(law.weights[1], float(law.tilts[1]), step, 1, float(law.errors[1]))
    useful = (left > 0) & (q_sets > 0)  # sets that underflow give no bound
    if not useful.any():
        return 0.0
    epsilons = law.losses[useful] + np.log(left[useful] / q_sets[useful])
    return float(epsilons.max() + law.log_scales[0] - law.log_scales[1])


def _beyond_delta(law: TiltedLaw, step: float, log_delta: float, sign: int, error: float) -> Floats:
    """Return (P(S >= g) - delta) e^(tilt g - log_scale) at the losses g, rounded as ``sign`` says.

    The factor makes the masses near a point relative to the mass at the point, so nothing overflows
    or underflows.
    """
    tilt = float(law.tilts[0])
    exponent = log_delta - float(law.log_scales[0]) + tilt * law.losses
    sums = _sums_above(law.weights[0], tilt, step, sign, error)
    return sums - np.exp(np.minimum(exponent, 700.0))


def _sums_above(weights: Floats, tilt: float, step: float, sign: int, error: float) -> Floats:
    """Return sum over s >= i of weights_s e^(-tilt (s - i) step), rounded as ``sign`` says."""
    # The sums satisfy sums_i - decay sums_(i+1) = weights_i; the solver makes one pass from the
    # end.
    bands = np.ones((2, weights.size), order="F")
    bands[0] = -math.exp(-tilt * step)
    sums = lapack.dtbtrs(bands, weights, uplo="U")[0]
    return np.asarray(sums * (1 + sign * 1e-9) + sign * error, np.float64)


def _slack(parts: Sequence[RepeatedLosses], theta: float) -> float:
    """Bound the effect of rounding on the sum of losses and on the scales that are added up.

    An error in the logarithm of a mass moves the lower bound by the same amount, and the upper
    bound by that amount divided by theta. Every stage rounds again.
    """
    return sum(
        (len(_folds(count)) + 1)
        * count
        * _ROUNDING
        * (float(np.abs(part.values).max()) * (2 + 4 * theta) + 2 + 2 / theta)
        for part, count in parts
    )
