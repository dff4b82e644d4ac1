"""Measurements quoted in the README and the pages agree with the committed results.

Tables are generated and have their own tests; these tests check the sentences around them.
"""

from __future__ import annotations

import functools
import json
import re
import statistics
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import cifar_trials, site
from fedldp.accounting.numerics.gaussian import zcdp_epsilon
from fedldp.experiments.reproduction.results import published

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
README = "README.md"
PRIORITY = "benchmarks/pages/claims_priority.md"
PERSONALISED = "benchmarks/pages/claims_personalised.md"
SOUND = "src/fedldp/papers/personalized/targets.toml"


@functools.cache
def text(page: str) -> str:
    return " ".join((ROOT / page).read_text(encoding="utf-8").split())


def of(recipe: str) -> float:
    """Return a percentage from a committed result of the reproduction."""
    return 100 * published()[recipe].mean


def after(recipe: str, rounds: int) -> float:
    mean, _ = published()[recipe].after[rounds]
    return 100 * mean


def digits_gain(letter: str) -> float:
    """Return the mean gain over (A) of another aggregation on the digits, in points."""
    mixes = [f"personalized-digits-fig2-{mix}" for mix in ("llh", "lmh", "lhh")]
    return statistics.mean(of(f"{mix}-{letter}") - of(f"{mix}-a") for mix in mixes)


SAID: list[tuple[str, str, Callable[[], list[float]]]] = [
    (
        SOUND,
        "with 3,000, one round has {:.0f} %, and five rounds have {:.0f} %",
        lambda: [of("personalized-sound-mnist"), of("personalized-sound-mnist-rounds5")],
    ),
    (
        "docs/agreements.md",
        "at δ $10^{{-5}}$, rho 0.1, 0.5 and 1 are ε {:.1f}, {:.1f} and {:.1f}",
        lambda: [zcdp_epsilon(rho, 1e-5) for rho in (0.1, 0.5, 1.0)],
    ),
    (
        PRIORITY,
        "as the paper says: {:.1f} and {:.1f} points after round 5",
        lambda: [
            after(f"priority-mnist-{share}", 5) - after(f"priority-mnist-{other}", 5)
            for share, other in (("fig6-least20", "fig6-most20"), ("fig7-least50", "fig7-most50"))
        ],
    ),
    (
        PERSONALISED,
        "with U = 3, (B) gains {:.1f} points and (C) {:.1f}.",
        lambda: [digits_gain("b"), digits_gain("c")],
    ),
]


@pytest.mark.parametrize(
    ("page", "template", "values"), SAID, ids=[template[:40] for _, template, _ in SAID]
)
def test_a_sentence_has_the_numbers_of_the_results(
    page: str, template: str, values: Callable[[], list[float]]
) -> None:
    assert template.format(*values()) in text(page)


@pytest.mark.parametrize(
    ("peer", "clients", "cores", "said"),
    [
        ("plain", 10_000, 1, r"10,000 clients takes \*\*([\d.]+) times\*\* less CPU time"),
        ("pfl", 10_000, 1, r"and ([\d.]+) times less than pfl-research"),
        ("flower", 1_000, 2, r"1,000 clients takes \*\*([\d.]+) times\*\* less than Flower's"),
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
    found = re.search(said, text(README))
    assert found is not None
    assert found[1] == (f"{ratio:.1f}" if ratio < 10 else f"{ratio:.0f}")


def test_the_memory_of_a_million_clients() -> None:
    speed = (RESULTS / "2026-11-22-speed.md").read_text(encoding="utf-8")
    measured = re.search(r"^\| 1,000,000 \| (\d+) \|", speed, re.M)
    assert measured is not None
    assert f"A million clients fit into {measured[1]} MiB" in text(README)


def test_the_trials_on_cifar_10_are_those_of_the_script() -> None:
    rows = cifar_trials.rows_of(site.TRIALS)
    assert rows
    assert all(row["name"] in cifar_trials.TRIALS for row in rows)
