"""Helpers for the tests of run folders."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fedldp
from fedldp.algorithms.config import RunConfig
from fedldp.protocol.server_loop import Round
from fedldp.simulation.engine import Result, simulate

FILES = {"config.json", "environment.json", "metrics.jsonl", "privacy.json", "summary.json",
         "model.safetensors", "schema.json", "checkpoint", "report.html"}  # fmt: skip


def quick(name: str = "quickstart", **settings: Any) -> RunConfig:
    return fedldp.recipe(name, **{"num_clients": 6, "rounds": 4, "local_epochs": 1, **settings})


def metrics(folder: Path) -> list[dict[str, Any]]:
    """Return a run's metrics without the times, which vary."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]


def assert_same_run(folder: Path, whole: Path) -> None:
    """Check that two folders hold the same finished run, apart from times."""
    assert {path.name for path in folder.iterdir()} == FILES
    model = (folder / "model.safetensors").read_bytes()
    assert model == (whole / "model.safetensors").read_bytes()
    assert metrics(folder) == metrics(whole)
    for name in ("config.json", "privacy.json", "schema.json"):
        assert (folder / name).read_text() == (whole / name).read_text()
    found, expected = (json.loads((f / "summary.json").read_text()) for f in (folder, whole))
    assert found.keys() == expected.keys()
    for key in found.keys() - {"rounds", "seconds", "run_dir"}:
        assert found[key] == expected[key]


def assert_same(one: Result, other: Result) -> None:
    """Check that two results agree bit for bit, apart from times."""
    assert one.weights.keys() == other.weights.keys()
    for name, weights in one.weights.items():
        assert weights.tobytes() == other.weights[name].tobytes(), name
    rounds = [[replace(each, seconds=0.0) for each in found.rounds] for found in (one, other)]
    assert rounds[0] == rounds[1]
    assert one.privacy == other.privacy
    assert one.run == other.run
    assert one.ledger.releases(one.run) == other.ledger.releases(one.run)


def without_times(result: fedldp.Sweep) -> list[dict[str, Any]]:
    """Return the runs of a sweep without their times and folders, which vary."""
    return [{k: v for k, v in run.items() if k not in ("seconds", "run_dir")}
            for run in result.runs]  # fmt: skip


def rows_in(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of a set of runs."""
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]


def write_rows(folder: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Replace the rows of a set of runs."""
    (folder / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def cut(
    config: RunConfig, out: Path, after: int, recipe: str | None = "quickstart", **more: Any
) -> None:
    """Interrupt a run of ``config`` after some rounds."""

    def stop(record: Round) -> None:
        if record.round == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(config, recipe=recipe, out=out, after_round=stop, **more)
