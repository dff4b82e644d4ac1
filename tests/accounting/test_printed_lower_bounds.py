"""Lower bounds in a plan, each against a valid upper bound; see ``test_lower_bounds``."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from plans import SIZE, event_of, line, planned
from scipy.signal import fftconvolve
from scipy.stats import binom
from tables import table_of

from fedldp.accounting.numerics.pld_fft import compose_upper
from fedldp.accounting.numerics.shuffle import clone_losses, exponent_for
from fedldp.mechanisms.two_point import TwoPoint
from fedldp.mechanisms.two_point_l1 import TwoPointL1


@pytest.fixture(autouse=True)
def fifty_digits() -> Iterator[None]:
    with mp.workdps(50):
        yield


@pytest.mark.slow
def test_lower_bound_of_one_report_in_a_large_crowd() -> None:
    n, epsilon, delta = 10_000, 1.0, 1e-5

    def lower(clients: int) -> float | None:
        crowd = {"dataset": "mnist", "num_clients": 20_000, "clients_per_round": clients}
        made = planned(**crowd, rounds=1, epsilon=epsilon)
        found: float | None = line(made, "weight", "shuffled-server", "approximate")["lower"]
        return found

    printed, larger = lower(n), lower(n + 1)
    assert printed is not None
    assert larger is not None
    assert (
        printed * 0.999 < larger < printed
    )  # above 10,000 clients, the inputs are only close to the worst
    p = 1 / (1 + math.exp(-epsilon))
    edges = np.linspace(0, n, 17).astype(int)

    def delta_of(high: int, low: int, at: float) -> float:
        others = fftconvolve(
            binom.pmf(np.arange(high + 1), high, p), binom.pmf(np.arange(low + 1), low, 1 - p)
        )
        one, zero = (np.convolve(others, [1 - a, a]) for a in (p, 1 - p))
        return float(np.maximum(one - math.exp(at) * zero, 0).sum())

    # By data processing, leaving out the others whose end differs within a block bounds it above.
    at = printed * (1 - 1e-6)
    blocks = itertools.pairwise(edges)
    assert max(delta_of(a, n - 1 - (b - 1), at) for a, b in blocks) >= delta * (1 - 1e-3)


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize(("bits", "epsilon"), [(64, 1.0), (64, 32.0), (32, 1e-6), (32, 10.0)])
def test_lower_bound_of_one_weight_is_that_of_the_integers(bits: Any, epsilon: float) -> None:
    made = planned(rounds=1, epsilon=epsilon, integer_bits=bits)
    least = TwoPoint(epsilon, bits).threshold_min
    realised = mp.log(mp.mpf(2**bits - least) / least)
    lower = mp.mpf(line(made, "weight", "server", "pure")["lower"] or 0)
    assert lower <= realised * (1 + mp.mpf(10) ** -12)  # far more precise than a reader needs


def test_lower_bound_of_one_weight_under_an_l1_clip() -> None:
    made = planned(rounds=1, mechanism="two_point_l1", clip=0.5, epsilon=1.0)
    mechanism = made.config.algorithm(made.problem).release(0).mechanism
    assert isinstance(mechanism, TwoPointL1)
    corner = np.zeros(SIZE)
    corner[0] = 1
    high, low = (mechanism.bits.thresholds(mechanism.bound(s * corner))[0] for s in (1, -1))
    reached = max(mp.log(mp.mpf(high) / low), mp.log(mp.mpf(2**64 - low) / (2**64 - high)))
    assert mp.mpf(line(made, "weight", "server", "pure")["lower"] or 0) <= reached


def test_lower_bound_of_a_report_under_an_l1_clip() -> None:
    clip = 620.0  # below d, but d eps0 is below the bound for the whole report
    made = planned(rounds=1, mechanism="two_point_l1", clip=clip, epsilon=600.0)
    eps0 = event_of(made).epsilon
    a = mp.tanh(mp.mpf(eps0) / 2)
    # sum ln(1 + a u) - sum ln(1 - a v): the first concave, the second convex, sum u, sum v <= S.
    true = SIZE * mp.log1p(a * clip / SIZE) - clip * mp.log1p(-a)
    assert mp.mpf(line(made, "client-round", "server", "pure")["lower"] or 0) <= true


@pytest.mark.slow
def test_lower_bound_of_a_run_whose_crowds_differ() -> None:
    settings: dict[str, Any] = {"epsilon": [0.5] * 90 + [1.0] * 10, "clients_per_round": 20}
    made = planned(rounds=6, seed=13, **settings)
    crowds: dict[int, list[tuple[float, int]]] = {}
    for events in table_of(made.releases).values():
        sizes = Counter(events.values())
        for client, event in events.items():
            crowds.setdefault(client, []).append((event.epsilon, sizes[event]))  # type: ignore[attr-defined]
    upper = max(
        compose_upper(
            [
                (clone_losses(epsilon, crowd, exponent_for(1e-5, 6 * SIZE)), SIZE * rounds)
                for (epsilon, crowd), rounds in Counter(own).items()
            ],
            1e-5,
        )
        for own in {tuple(sorted(own)) for own in crowds.values()}
        if own[0][0] == 1.0 or len(own) == max(map(len, crowds.values()))
    )
    printed = line(made, "client-run", "shuffled-server", "approximate")["lower"]
    assert printed is None or printed <= upper
