"""Budgets of LDPFL's clients hold over many rounds, restarts and losses."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedldp.core.errors import PrivacyError
from fedldp.data import Examples
from fedldp.ledgers.budget import Budget
from fedldp.ledgers.sqlite import SqliteLedger
from fedldp.papers.ldpfl import training as randomised_sgd
from fedldp.protocol.client_runtime import ClientRuntime
from fedldp.protocol.keys import SecretKeys
from fedldp.protocol.wire import (
    Reason,
    Refusal,
    Report,
)
from fedldp.testing.cases import RUN, Case, asking, secret_keys
from fedldp.testing.runtimes import reply_of
from fedldp.training.tensors import one_thread

PURE = Budget("pure", 1e9)
"""The kind of budget for everything that has a finite zCDP."""

EPSILON = 1.0
"""The epsilon of one example's randomised gradient."""


@pytest.fixture(autouse=True)
def as_in_a_run() -> Iterator[None]:
    """Train as every process of a run does: torch's sums depend on the number of threads."""
    with one_thread():
        yield


def start(
    case: Case,
    folder: Path,
    *,
    examples: Examples | None = None,
    budget: Budget = PURE,
    keys: SecretKeys | None = None,
    client: int = 0,
    step: Any = None,
) -> ClientRuntime:
    """Return a real client's runtime over a folder, as after a restart."""
    return case.start(
        client,
        secret_keys(client) if keys is None else keys,
        folder,
        ledger=SqliteLedger(folder / "ledger", budget),
        role=None if step is None else replace(case.role(client), local_update=step),
        examples=examples,
        failed=lambda error: None,
    )


def test_a_lost_draw_is_not_repeated_for_free(tmp_path: Path) -> None:
    """The first draw paid for all rounds, so a second one would be free."""
    case = Case.of_recipe("ldpfl-digits-public")
    told = case.first_broadcast
    public = {n: -each if each.dtype == np.float32 else each for n, each in told.public.items()}
    assert isinstance(reply_of(start(case, tmp_path).answer(asking(told, 1))), Report)
    shutil.rmtree(tmp_path / "store")
    again = start(case, tmp_path).answer(asking(replace(told, public=public), 2))
    assert reply_of(again) == Refusal(2, Reason.NOT_KEPT)
    assert len(SqliteLedger(tmp_path / "ledger").releases()) == 1


# Examples that are randomised once in a run


def sound(**changes: Any) -> Case:
    """Return the sound LDPFL with reports that cost ``EPSILON`` for each example."""
    return Case.of_recipe(
        "ldpfl-sound-digits", mechanism="nearest_direction", epsilon=EPSILON, **changes
    )


def examples_like_digits(count: int) -> Examples:
    features = np.random.default_rng(0).random((count, 1, 8, 8), dtype=np.float32)
    return Examples(features, np.arange(count) % 10)


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """Return how often each example has been randomised."""
    found: Counter[int] = Counter()
    original = randomised_sgd.indices_of_round

    def indices(order: NDArray[np.int64], round: int, rounds: int) -> NDArray[np.int64]:
        chosen = original(order, round, rounds)
        found.update(chosen.tolist())
        return chosen

    monkeypatch.setattr(randomised_sgd, "indices_of_round", indices)
    return found


def test_no_more_examples_are_randomised_than_charged(tmp_path: Path, used: Counter[int]) -> None:
    case = sound()
    most = case.config.algorithm(case.problem).most_examples()
    for round in range(1, case.config.rounds + 1):
        runtime = start(case, tmp_path, examples=examples_like_digits(most))
        runtime.answer(asking(case.first_broadcast, round))
    assert 0 < len(used) <= SqliteLedger(tmp_path / "ledger").spent() / EPSILON


def test_an_example_is_used_once_in_a_run_of_any_length(tmp_path: Path, used: Counter[int]) -> None:
    own, case = examples_like_digits(12), sound()
    start(case, tmp_path, examples=own).answer(asking(case.first_broadcast, 1))
    case = sound(rounds=12)
    for round in (2, 3):
        start(case, tmp_path, examples=own).answer(asking(case.first_broadcast, round))
    assert max(used.values()) == 1


# Refused at the start


def refused_at_the_start(case: Case, folder: Path, line: str, **given: Any) -> None:
    with pytest.raises(PrivacyError, match=line) as refused:
        start(case, folder, **given)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("label", [-1, 10])
def test_a_client_with_a_label_outside_the_classes_is_refused_at_the_start(
    label: int, tmp_path: Path
) -> None:
    """Training would fail because of that example, and an answer without training would show it."""
    own = sound().own(0)
    labels = own.labels.copy()
    labels[0] = label
    line = "^examples: a label is not one of 0 to 9; remove that example$"
    refused_at_the_start(sound(), tmp_path, line, examples=Examples(own.features, labels))


def test_keys_of_another_run_are_refused_at_the_start(tmp_path: Path) -> None:
    """What the client draws once for a run would be what it drew for the other run."""
    keys = replace(secret_keys(0), run="another")
    refused_at_the_start(
        sound(),
        tmp_path,
        f"^keys: they belong to another run; give the keys for run {RUN}$",
        keys=keys,
    )
