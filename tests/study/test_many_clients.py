"""The figures on docs/many_clients.md agree with the committed results."""

from __future__ import annotations

from pathlib import Path

from benchmarks import many_clients
from benchmarks.many_clients import RESULTS
from fedldp.experiments.store import RunStore

ROOT = Path(__file__).parents[2]
ONCE, SUM = "SGD, k_closest, once", "SGD behind a sum"


def test_the_figures_of_the_page_are_those_of_the_results() -> None:
    text = (ROOT / "docs" / "many_clients.md").read_text(encoding="utf-8")
    found = many_clients.figures(RunStore(RESULTS).rows)

    def mean(clients: int, epsilon: float, name: str, features: str = "pose") -> str:
        return many_clients.shown(found["mnist", features, clients, epsilon, name])

    assert f"| 1,000 clients, ε 4 | {mean(1000, 4, ONCE)} | |" in text
    for clients, epsilon in ((1000, 1), (100, 4)):
        once, summed = (mean(clients, epsilon, name) for name in (ONCE, SUM))
        assert f"| {clients:,} clients, ε {epsilon} | {once} | {summed} |" in text
    assert f"On pixels the first cell has {mean(1000, 4, ONCE, 'pixels')}." in text


def test_every_figure_is_proven_to_cost_at_most_its_epsilon() -> None:
    rows = [row for row in RunStore(RESULTS).rows.values() if row["purpose"] == "measured"]
    assert rows
    for row in rows:
        assert row["refused"] or row["proven"]["epsilon"] <= row["cell"]["epsilon"]
        assert row["refused"] or not row["proven"]["idealised"]
