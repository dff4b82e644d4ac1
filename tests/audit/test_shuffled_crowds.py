"""An overstated crowd of shuffled reports is found, and a correct one passes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from planted import small_games

from fedldp.accounting import guarantees
from fedldp.accounting.numerics.blanket import Subset, blanket_epsilon
from fedldp.algorithms.systems import find_system
from fedldp.audit.bounds import epsilon_lower
from fedldp.audit.observations import AuditKeys
from fedldp.audit.playing import play
from fedldp.mechanisms.k_rr import KRR

CONFIDENCE = 0.999


def law_of(mechanism: KRR) -> Subset:
    window = mechanism.window
    return Subset(high=window.high, low=window.low, closest=window.width, categories=window.cells)


def shown(mechanism: KRR, crowd: int, *, delta: float, trials: int) -> float:
    """Return a lower bound on the epsilon of one client among others that all have a third
    category.

    The bound counts how often the likelihood ratio of the shuffler's output exceeds a threshold
    that was chosen on separate trials.
    """
    ratio = mechanism.window.high / mechanism.window.low

    def ratios(own: int, name: str) -> np.ndarray:
        stream = AuditKeys(0).draws(1, name, own, simulated=True).streams(0, 1)[0]
        inputs = np.full((trials, crowd), 2)
        inputs[:, 0] = own
        seen = mechanism.randomise(inputs.ravel(), stream).reshape(trials, crowd)
        a, b = (np.count_nonzero(seen == each, axis=1) for each in (0, 1))
        others = np.count_nonzero(seen == 2, axis=1)
        neutral = crowd - a - b - others + others / ratio
        return np.log((ratio * a + b + neutral) / (a + ratio * b + neutral))

    def bound(first: np.ndarray, second: np.ndarray, threshold: float) -> float:
        hits = (int(np.count_nonzero(each >= threshold)) for each in (first, second))
        return epsilon_lower(
            next(hits), trials, next(hits), trials, delta=delta, confidence=CONFIDENCE
        )

    explored = [ratios(own, "explore") for own in (0, 1)]
    thresholds = np.quantile(explored[0], np.linspace(0.05, 0.95, 19))
    best = max(thresholds, key=lambda threshold: bound(*explored, threshold))
    return bound(*(ratios(own, "count") for own in (0, 1)), best)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "categories", "crowd", "counted"), [(2.0, 4, 10, 60), (4.0, 18, 20, 200)]
)
def test_a_blanket_of_too_many_reports_is_found(
    epsilon: float, categories: int, crowd: int, counted: int
) -> None:
    mechanism = KRR(epsilon, categories)
    lower = shown(mechanism, crowd, delta=1e-2, trials=100_000)
    right = blanket_epsilon(law_of(mechanism), crowd, 1e-2)
    assert 0.5 * right < lower < right
    assert lower > blanket_epsilon(law_of(mechanism), counted, 1e-2)


def played(trials: int) -> Any:
    """Return the audit of a system's guarantee for one round against the shuffled server."""
    settings: dict[str, Any] = {
        "system": "composed", "dataset": "digits", "model": "linear", "num_clients": 4,
        "rounds": 1, "learning_rate": 0.1, "mechanism": "k_closest", "bound": "norm",
        "epsilon": 2.0, "channel": "shuffle",
    }  # fmt: skip
    config = find_system("composed").model_validate(settings)
    guarantees.shuffled_guarantees.cache_clear()
    games = small_games(config, "client-round", adversary="shuffled-server", how=None)
    assert games
    return play("", games, confidence=CONFIDENCE, trials=trials, seed=0)


@pytest.mark.slow
def test_a_system_that_counts_too_many_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert played(trials=300).verdict == "ok"

    def crowded(subset: Subset, num_reports: int, delta: float, count: int = 1) -> float:
        return blanket_epsilon(subset, 500 * num_reports, delta, count)

    monkeypatch.setattr(guarantees.blanket, "blanket_epsilon", crowded)
    wrong = played(trials=300)
    guarantees.shuffled_guarantees.cache_clear()
    assert wrong.verdict == "bug"
