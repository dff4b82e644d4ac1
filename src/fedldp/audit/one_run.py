"""Audits of a whole training that runs only once: it has many canaries, each with its own coin.

Theorem (Steinke, Nasr, Jagielski 2023, "Privacy Auditing with One (1) Training Run", Theorem 5.2).
Let S be uniform on {-1, 1}^m, let M be (epsilon, delta)-private under a change of one coordinate of
S, and let T in {-1, 0, 1}^m be any function of M's output: a guess of S, with 0 for no guess. If V
of r guesses are right, then for every v

    P[V >= v] <= f(v) + 2 m delta max over i of (f(v - i) - f(v))/i,
    f(v) = P[Binomial(r, e^epsilon/(1 + e^epsilon)) >= v].

So if v correct guesses were counted, all epsilon for which the right side is below alpha are
refuted, except with probability alpha. Here coordinate i of S says which of two inputs record i, or
client i, has. So a change of one coordinate is a replacement, as in the statement.

Proof idea at delta 0. Given T = t, by Bayes' rule each S_i equals t_i with odds of at most
e^epsilon to 1, whatever the other coordinates are. So V is at most a sum of independent coins with
that bias. One run thus gives m trials, and the bound holds although they share a run. Which guesses
are made may depend on the output, but their number must be fixed beforehand.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from fedldp.audit.bounds import check_confidence
from fedldp.core.errors import ConfigError

SHARES = (0.25, 0.5, 1.0)
"""Shares of the canaries that are guessed, surest first; each share is a separate test."""

_LARGEST = 50.0
_STEPS = 60


def p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Return the theorem's bound on the probability of at least ``right`` correct guesses.

    Args:
        canaries: m.
        guesses: r, at most m.
        right: v, at most r.
        epsilon: the tested epsilon.
        delta: the tested delta.
    """
    bias = 1 / (1 + math.exp(-epsilon))
    at_least = float(binom.sf(right - 1, guesses, bias))
    if delta == 0 or right == 0:
        return at_least
    steps = np.arange(1, right + 1)
    between = binom.cdf(right - 1, guesses, bias) - binom.cdf(right - steps - 1, guesses, bias)
    return min(1.0, at_least + 2 * canaries * delta * float((between / steps).max()))


def epsilon_lower(
    canaries: int, guesses: int, right: int, *, delta: float, confidence: float
) -> float:
    """Return a lower bound on epsilon at ``delta`` from the guesses of one run; 0 if there is none.

    Args:
        canaries: m, whose coins are independent and fair.
        guesses: r, a number fixed before the run.
        right: v, the number of correct guesses.
        delta: the delta at which epsilon is bounded, at least 0 and below 1.
        confidence: the confidence level of the bound.

    Raises:
        ConfigError: an argument is out of range.

    >>> round(epsilon_lower(100, 100, 100, delta=0.0, confidence=0.95), 4)
    3.493
    """
    check_confidence(confidence)
    if not 0 <= right <= guesses <= canaries or guesses < 1:
        raise ConfigError(
            f"{right} of {guesses} guesses right: give 0 <= right <= guesses <= {canaries}"
        )
    if not 0 <= delta < 1:
        raise ConfigError(f"delta = {delta}: give a number of at least 0 and below 1")
    alpha = 1 - confidence
    if p_value(canaries, guesses, right, 0.0, delta) >= alpha:
        return 0.0
    low, high = 0.0, _LARGEST
    for _ in range(_STEPS):  # bisect, because the p-value grows with epsilon
        middle = (low + high) / 2
        if p_value(canaries, guesses, right, middle, delta) < alpha:
            low = middle
        else:
            high = middle
    return low


def guessed(scores: NDArray[np.float64], coins: NDArray[np.bool_], share: float) -> tuple[int, int]:
    """Return the number of guesses, and the number of correct ones.

    Args:
        scores: the score of each canary: the larger it is, the likelier the canary's coin shows
            heads; 0 means no evidence.
        coins: the outcomes of the coin flips.
        share: the share of the canaries that are guessed: those whose scores have the largest
            absolute values.
    """
    guesses = max(1, int(share * len(scores)))
    surest = np.argsort(-np.abs(scores), kind="stable")[:guesses]
    return guesses, int(((scores[surest] > 0) == coins[surest]).sum())


def best_lower(
    scores: NDArray[np.float64], coins: NDArray[np.bool_], *, delta: float, confidence: float
) -> tuple[float, str]:
    """Return the largest bound over ``SHARES``, at a joint confidence, and its guesses."""
    each = 1 - (1 - confidence) / len(SHARES)
    found = []
    for share in SHARES:
        guesses, right = guessed(scores, coins, share)
        lower = epsilon_lower(len(scores), guesses, right, delta=delta, confidence=each)
        found.append((lower, f"{right} of {guesses} guesses correct"))
    return max(found, key=lambda one: one[0])
