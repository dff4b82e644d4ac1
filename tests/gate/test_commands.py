"""Commands answer what is recorded; see "The gate" in contributing.md."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gate import commands, golden

SCORES = "model-index: "


def differences(name: str, recorded: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """Return what differs; numbers of another arithmetic are compared nearly.

    Scores are of float32 weights. The gate of statements compares statements more closely.
    """
    now = {"arithmetic": golden.training(), **found}
    return list(golden.changes(recorded, now, nearly=read, tolerance=1e-6, tolerances={}))


def read(document: Any) -> Any:
    """Return a document with the scores that a card keeps as text as numbers."""
    if isinstance(document, dict):
        return {key: read(value) for key, value in document.items()}
    if isinstance(document, list):
        return [read(value) for value in document]
    if isinstance(document, str) and document.startswith(SCORES):
        return json.loads(document.removeprefix(SCORES))
    return document


def test_every_command_is_recorded_and_nothing_else() -> None:
    assert {path.stem for path in commands.COMMANDS.glob("*.json")} == set(commands.ALL)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in commands.ALL if name not in commands.SETS])
def test_a_command_answers_as_recorded(name: str) -> None:
    recorded = golden.read(commands.path_of(name))
    assert differences(name, recorded, commands.of_command(name)) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", commands.SETS)
def test_recorded_rows_with_some_that_are_run_anew_give_the_recorded_answer(name: str) -> None:
    recorded = golden.read(commands.path_of(name))
    rows = recorded["rows"]
    same = recorded["arithmetic"] == golden.training()
    # With another arithmetic another try may be the best.
    found = commands.of_rows(name, rows, max(8, len(rows) // 8) if same else len(rows) + 1)
    assert differences(name, recorded, found) == []
