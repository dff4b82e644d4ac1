"""Closed forms of randomised bits against known answers and 40-digit evaluation.

Known answers: independent computations of the published formulas named next to them.
"""

from __future__ import annotations

import mpmath as mp
import pytest

from fedldp.papers.ldpfl.numerics import ldpfl_epsilon


def slow_losses(p: float, q: float) -> tuple[mp.mpf, mp.mpf]:
    p, q = mp.mpf(p), mp.mpf(q)
    forth = mp.log(p / q), mp.log((1 - p) / (1 - q))
    return max(forth), max(-forth[0], -forth[1])


def ldpfl_probabilities(
    alpha: float, epsilon: float, bits: int, alternating: bool
) -> tuple[list[mp.mpf], list[mp.mpf]]:
    alpha, x = mp.mpf(alpha), 2 * mp.mpf(epsilon) / bits
    q = 1 / (1 + alpha * mp.exp(x))
    if alternating:
        ends = [alpha / (1 + alpha), 1 / (1 + alpha**3)]
        return [ends[i % 2] for i in range(bits)], [q] * bits
    return [1 / (1 + alpha)] * bits, [q] * bits


@pytest.mark.parametrize(
    ("alternating", "known"), [(True, 34884.836349495786), (False, 0.90909494436566567)]
)
def test_known_answers_of_ldpfl(alternating: bool, known: float) -> None:
    # LDPFL, Theorems 2 and 1: alpha 10, epsilon 0.5, 10,240 bits
    found = ldpfl_epsilon(10.0, 0.5, 10_240, alternating=alternating)
    assert found == pytest.approx(known, rel=1e-14)
    ps, qs = ldpfl_probabilities(10.0, 0.5, 10_240, alternating)
    slow = mp.fsum(max(slow_losses(p, q)) for p, q in zip(ps, qs, strict=True))
    assert slow <= found <= slow * (1 + mp.mpf("1e-14"))
