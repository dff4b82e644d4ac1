"""Planted mistakes of foreign clients are found, and a correct client passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedldp.audit.efforts import QUICK
from fedldp.audit.foreign import RepeatedAnswers, planned_foreign_games
from fedldp.audit.playing import play
from fedldp.audit.results import Audit, GameResult

EFFORT = replace(QUICK, mechanism_explore=40, mechanism_least=400, mechanism_most=400)
CLIP, DELTA = 1.0, 1e-5
SIGMA = 2 * CLIP * 3.73063163481594  # for epsilon 1 at delta 1e-5, replacing the whole input
MANY = [(1,)] * 64
Arrays = list[np.ndarray]
_rng = np.random.default_rng(5)


def clipped(arrays: Arrays) -> Arrays:
    finite = [np.nan_to_num(each.astype(np.float64)) for each in arrays]
    norm = np.sqrt(sum(float((each**2).sum()) for each in finite))
    return [each * min(1.0, CLIP / max(norm, 1e-30)) for each in finite]


def noisy(arrays: Arrays, sigma: float = SIGMA) -> Arrays:
    return [each + _rng.normal(0, sigma, each.shape) for each in arrays]


def right(arrays: Arrays) -> Arrays:
    return noisy(clipped(arrays))


def discards_noise(arrays: Arrays) -> Arrays:
    found = clipped(arrays)
    noisy(found)
    return found


def scales_noise_wrong(arrays: Arrays) -> Arrays:
    return noisy(clipped(arrays), SIGMA / 10)


def clips_each_array(arrays: Arrays) -> Arrays:
    """Clips a single number to between -CLIP and CLIP."""
    numbers = np.nan_to_num(np.concatenate(arrays).astype(np.float64)).clip(-CLIP, CLIP)
    return list((numbers + _rng.normal(0, SIGMA, numbers.shape)).reshape(-1, 1))


def seeds_each_array_alike(arrays: Arrays) -> Arrays:
    seed = int(_rng.integers(1 << 40))
    return [
        each + np.random.default_rng(seed).normal(0, SIGMA, each.shape) for each in clipped(arrays)
    ]


def seeds_by_the_clock(arrays: Arrays, _calls: list[int] = [0]) -> Arrays:  # noqa: B006
    """The clock ticks every 50 answers."""
    _calls[0] += 1
    generator = np.random.default_rng(_calls[0] // 50)
    return [each + generator.normal(0, SIGMA, each.shape) for each in clipped(arrays)]


def leaks_scores(arrays: Arrays) -> dict[str, Any]:
    return {"arrays": right(arrays), "loss": float(np.nan_to_num(arrays[0]).mean()), "n": 3}


def leaks_its_form(arrays: Arrays) -> Arrays:
    return right(arrays) if arrays[0].flat[0] > 0 else [*right(arrays), np.zeros(1)]


def refuses_some(arrays: Arrays) -> Arrays:
    if not all(np.isfinite(each).all() for each in arrays):
        raise ValueError("not finite")
    return right(arrays)


def constant(arrays: Arrays) -> Arrays:
    return [np.ones(each.shape) for each in arrays]


def audited(client: Callable[[Arrays], Any], **changes: Any) -> Audit[GameResult]:
    given: dict[str, Any] = {"unit": "client-round", "epsilon": 1.0, "delta": DELTA, **changes}
    games = planned_foreign_games(f"{__name__}:{client.__name__}", effort=EFFORT, **given)
    if "shapes" in given:  # with many arrays the other games take a long time
        games = games[:1]
    return play("a client", games, confidence=0.999, trials=None, seed=0)


WRONG = [
    (scales_noise_wrong, {}),
    (clips_each_array, {"shapes": MANY}),
    (seeds_each_array_alike, {}),
    (seeds_by_the_clock, {}),
    (leaks_scores, {}),
    (leaks_its_form, {}),
    (refuses_some, {}),
]


@pytest.mark.parametrize(
    ("client", "changes"),
    [pytest.param(*each, id=each[0].__name__) for each in WRONG],
)
@pytest.mark.slow
def test_a_mistake_is_found(client: Callable[[Arrays], Any], changes: dict[str, Any]) -> None:
    found = audited(client, **changes)
    assert found.verdict == "bug"
    assert all(row.stated_by.endswith(f":{client.__name__}") for row in found.rows)


@pytest.mark.slow
@pytest.mark.parametrize("client", [right, constant])
def test_a_correct_client_passes(client: Callable[[Arrays], Any]) -> None:
    assert audited(client).verdict == "ok"


def test_repeated_answers_show_epsilon_by_their_number() -> None:
    """By hand: n inputs that all give the same answer twice show ln n, up to the confidence."""
    (_, repeats, *_) = planned_foreign_games(
        f"{__name__}:discards_noise", unit="client-round", epsilon=9.0, delta=0.0, effort=EFFORT
    )
    assert isinstance(repeats, RepeatedAnswers)
    lower, attack = repeats.found(np.random.default_rng(0), 400, 0.999)
    assert attack == "400 of 400 inputs are answered twice with the same bytes"
    assert lower == pytest.approx(np.log(400 * 0.001 ** (1 / 400)), rel=1e-6)


def test_a_mistake_ends_with_status_1(
    fedldp_command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "their_client.py").write_text("def send(arrays):\n    return arrays\n")
    claim = ("--client", "their_client:send", "--epsilon", "2", "--unit", "client-round")
    found = fedldp_command(
        "audit", *claim, "--quick", "--trials", "100", "--workers", "1", "--json"
    )
    assert found.status == 1
    assert '"verdict": "bug"' in found.out
    assert '"stated_by": "their_client:send"' in found.out
