"""Privacy losses of one mechanism: finite pairs of laws P and Q, listed outcome by outcome.

The exact answers here are for one release; ``pld_fft`` composes many.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.numerics.binomial import log_pmf, window

Floats = NDArray[np.float64]

# Losses are computed to within a few units in the last place; this margin rounds each of them up.
_LOSS_ROUNDING = 2.0**-50


@dataclass(frozen=True, eq=False)
class Losses:
    """The outcomes of a mechanism under two neighbouring inputs with laws P and Q.

    Attributes:
        values: privacy losses ln(P/Q), shape (k,).
        log_masses: ln P, shape (k,).
        errors: bounds on the errors of ``log_masses``, shape (k,).
        missing: a bound on the P-mass of the unlisted outcomes.
    """

    values: Floats
    log_masses: Floats
    errors: Floats
    missing: float = 0.0

    def delta(self, at_epsilon: float) -> float:
        """Return an upper bound, tight up to rounding, on the sum of (P - e^e Q)+.

        Every mass, loss and sum is rounded up, and the unlisted mass is added.
        """
        gaps = self.values - at_epsilon + _LOSS_ROUNDING * np.abs(self.values)
        above = gaps > 0
        masses = np.exp(self.log_masses[above] + self.errors[above])
        total = float(np.sum(masses * -np.expm1(-gaps[above])))
        return min(1.0, total * (1 + 1e-14) + self.missing)

    def epsilon(self, delta: float) -> float:
        """Return an upper bound on the smallest e >= 0 with delta(e) <= delta.

        By the Neyman-Pearson lemma, that smallest e is the largest ln((P(S) - delta)/Q(S)) over the
        sets S of all outcomes with losses above a threshold. All computations round up.
        """
        left = delta - self.missing
        largest = float(self.values.max())
        limit = largest + _LOSS_ROUNDING * abs(largest)
        if left <= 0:
            return max(limit, 0.0) if self.missing == 0 else math.inf
        order = np.argsort(-self.values, kind="stable")
        values = self.values[order]
        masses = np.exp(self.log_masses[order] + self.errors[order])
        rounding = 1 + len(values) * 2.0**-51  # error of a running sum of positive terms
        p_sets = np.cumsum(masses) * rounding
        # Relative to the largest loss, so that e^-loss neither overflows nor underflows.
        shrink = np.exp(np.maximum(values - largest, -700.0))
        q_sets = np.cumsum(masses / shrink)
        exceeding = p_sets > left
        ratios = np.log((p_sets[exceeding] - left) / q_sets[exceeding] * rounding) + largest
        if not len(ratios):
            return 0.0
        return min(max(float(ratios.max()) + _LOSS_ROUNDING * abs(largest), 0.0), limit)


def two_valued_losses(epsilon: float, count: int) -> Losses:
    """Return the losses of ``count`` two-valued ``epsilon``-mechanisms.

    If j of them are truthful, the loss is (2j - count) epsilon. Under P, j ~ Bin(count, p) with
    p = e^epsilon/(1 + e^epsilon). Values of j with probability below 2e-321 are left out.
    """
    p, q = 1 / (1 + math.exp(-epsilon)), 1 / (1 + math.exp(epsilon))
    low, high = window(count, p, exponent=740.0)
    truthful = np.arange(low, high + 1)
    log_masses, errors = log_pmf(count, p, q, truthful)
    missing = 0.0 if (low, high) == (0, count) else 1e-320
    values = np.asarray((2.0 * truthful - count) * epsilon, np.float64)
    return Losses(values, log_masses, errors, missing)


def revealing_losses(epsilon: float, revealing: float) -> Losses:
    """Return the losses of one two-valued ``epsilon``-mechanism that may withhold its answer.

    It answers with probability ``revealing``, below 1; otherwise nothing is seen, with a loss of 0.
    """
    values = np.array([epsilon, 0.0, -epsilon])
    of_truth = -math.log1p(math.exp(-epsilon))
    log_masses = math.log(revealing) + np.array([of_truth, 0.0, of_truth - epsilon])
    log_masses[1] = math.log1p(-revealing)
    return Losses(values, log_masses, 1e-15 * (1 + np.abs(log_masses)))


def product(parts: Sequence[Losses]) -> Losses:
    """Return the losses of all ``parts`` together, outcome by outcome."""
    values, log_masses, errors, missing = np.zeros(1), np.zeros(1), np.zeros(1), 0.0
    for part in parts:
        values = np.add.outer(values, part.values).reshape(-1)
        log_masses = np.add.outer(log_masses, part.log_masses).reshape(-1)
        errors = np.add.outer(errors, part.errors).reshape(-1)
        missing += part.missing
    return Losses(values, log_masses, errors + 1e-15 * len(parts), missing)
