"""The table of docs/many_clients.md agrees with the committed results."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import many_clients
from fedldp.experiments.store import RunStore

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "2026-11-25-many-clients.jsonl"


@pytest.mark.slow
def test_the_table_agrees_with_the_committed_results() -> None:
    text = (ROOT / "docs/many_clients.md").read_text(encoding="utf-8")
    assert many_clients.updated(text, RunStore(RESULTS).rows) == text


def test_every_figure_is_proven_to_cost_at_most_its_epsilon() -> None:
    rows = [row for row in RunStore(RESULTS).rows.values() if row["purpose"] == "measured"]
    assert rows
    for row in rows:
        assert row["refused"] or row["proven"]["epsilon"] <= row["cell"]["epsilon"]
        assert row["refused"] or not row["proven"]["idealised"]
