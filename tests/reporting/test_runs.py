"""The files that a report reads from a folder are checked, or refused in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import fedldp
from fedldp.accounting.proven import Proven
from fedldp.core.errors import RunError
from fedldp.data import standardised
from fedldp.data.datasets import load_dataset
from fedldp.simulation.engine import simulate
from fedldp.simulation.result import read_run


def edited(name: str, change: Callable[[Any], object]) -> Callable[[Path], object]:
    def act(folder: Path) -> None:
        document = json.loads((folder / name).read_text())
        change(document)
        (folder / name).write_text(json.dumps(document))

    return act


def first_line_of(document: Any) -> Any:
    return document["privacy"]["guarantees"][0]


DAMAGE: dict[str, tuple[str, Callable[[Path], object]]] = {
    "no configuration": ("config.json", lambda f: (f / "config.json").unlink()),
    "no round": ("--resume", lambda f: [
        (f / name).unlink() for name in ("summary.json", "checkpoint")]),
    "torn": ("not JSON", lambda f: (f / "summary.json").write_text('{"recipe": ')),
    "deep": ("not JSON", lambda f: (f / "summary.json").write_text("[" * 100_000)),
    "no text": ("UTF-8", lambda f: (f / "summary.json").write_bytes(b"\xff\xfe")),
    "not a number": ("NaN", lambda f: (f / "metrics.jsonl").write_text('{"metrics": {"a": NaN}}')),
    "accuracy": ("rounds.0.accuracy", edited("summary.json", lambda d: d["rounds"][0].update(
        accuracy=90.1))),
    "unit": ("unit = 'planet'", edited("summary.json", lambda d: first_line_of(d).update(
        unit="planet"))),
    "huge": ("epsilon", edited("summary.json", lambda d: first_line_of(d).update(epsilon=-1))),
    "no epsilon": ("has a method", edited("summary.json", lambda d: first_line_of(d).update(
        epsilon=None))),
    "not square": ("confusion", edited("summary.json", lambda d: d["confusion"].pop())),
}  # fmt: skip


@pytest.mark.parametrize(("word", "act"), DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_folder_is_refused_in_one_line(
    own_copy: Callable[..., Path], word: str, act: Callable[[Path], object]
) -> None:
    folder = own_copy()
    read_run(folder)
    act(folder)
    with pytest.raises(RunError, match=word) as error:
        read_run(folder)
    assert "\n" not in str(error.value)
    assert str(folder) in str(error.value)


def test_a_comparison_shows_the_line_of_a_clients_run(runs: dict[str, Path]) -> None:
    private, noiseless = (read_run(runs[name]) for name in ("quickstart", "fedavg-quickstart"))
    line = private.headline
    assert line is not None
    assert (line.unit, line.adversary, line.delta) == ("client-run", "server", 1e-05)
    assert line.epsilon == Proven.of(private.privacy, "client-run", "server").epsilon
    assert "delta 1e-05" in private.epsilon_in_words
    assert noiseless.epsilon_in_words == "no guarantee"


# By class


def test_the_confusion_matrix_is_that_of_the_final_model(runs: dict[str, Path]) -> None:
    """Compared with a slow oracle: the logistic model in numpy, example by example."""
    model = load_file(runs["quickstart"] / "model.safetensors")
    weight, bias = (next(v for k, v in model.items() if v.ndim == n) for n in (2, 1))
    test = standardised(load_dataset("digits").test, "digits")
    expected = np.zeros((10, 10), int)
    for features, label in zip(test.features, test.labels, strict=True):
        expected[label, np.argmax(weight @ features.ravel() + bias)] += 1
    found = read_run(runs["quickstart"])
    assert found.summary["confusion"] == expected.tolist()
    accuracy = found.summary["final"]["accuracy"]
    assert np.trace(expected) / expected.sum() == pytest.approx(accuracy)
    for k, one in enumerate(found.classes):
        assert one["examples"] == expected[k].sum()
        assert one["recall"] == pytest.approx(expected[k, k] / expected[k].sum())
        if expected[:, k].sum():
            assert one["precision"] == pytest.approx(expected[k, k] / expected[:, k].sum())
        else:
            assert one["precision"] is None


def test_if_clients_test_there_are_no_scores_by_class() -> None:
    result = simulate(fedldp.recipe("ldpfl-digits", rounds=1, encoder_epochs=1))
    assert result.confusion is None
    assert result.summary()["confusion"] is None
