"""The README's numbers are those of the committed results; its tables have tests of their own."""

from __future__ import annotations

import json
import math
import re
import statistics
from pathlib import Path

import pytest

from fedldp.recipes import find_recipe
from fedldp.reproduction.comparison import proven
from fedldp.reproduction.results import published

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
README = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())


def test_what_ldp_fl_has_on_mnist_and_what_is_proven(tmp_path: Path) -> None:
    epsilon, *_ = proven(find_recipe("ldp-fl-mnist").config, tmp_path)
    assert epsilon is not None
    assert f"{100 * published()['ldp-fl-mnist'].mean:.0f} % accuracy" in README
    assert README.count(f"{math.ceil(epsilon):,}") == 2


@pytest.mark.parametrize(
    ("peer", "clients", "cores", "said"),
    [
        ("plain", 10_000, 1, r"10,000 clients takes \*\*([\d.]+) times\*\* less CPU time"),
        ("pfl", 10_000, 1, r"and ([\d.]+) times less than pfl-research"),
        ("flower", 1_000, 2, r"1,000 clients \*\*([\d.]+) times\*\* less than Flower's"),
    ],
)
def test_how_many_times_faster_a_round_is(peer: str, clients: int, cores: int, said: str) -> None:
    rows = [
        json.loads(line)
        for line in (RESULTS / "peers-2026-11-22.jsonl").read_text(encoding="utf-8").splitlines()
    ]

    def seconds(framework: str, cores: int) -> float:
        wanted = (framework, f"many-{clients}", cores)
        return statistics.median(
            row["cpu_seconds_per_round"]
            for row in rows
            if (row["framework"], row["workload"], row["cores"]) == wanted
        )

    ratio = seconds(peer, cores) / seconds("fedldp", 1)
    found = re.search(said, README)
    assert found is not None
    assert found[1] == (f"{ratio:.1f}" if ratio < 10 else f"{ratio:.0f}")


def test_the_memory_of_a_million_clients() -> None:
    speed = (RESULTS / "2026-11-22-speed.md").read_text(encoding="utf-8")
    measured = re.search(r"^\| 1,000,000 \| (\d+) \|", speed, re.M)
    assert measured is not None
    assert f"A million clients fit into {measured[1]} MiB" in README
