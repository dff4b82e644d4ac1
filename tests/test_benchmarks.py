"""Benchmarks of real sites and secure sums run, at their smallest sizes, and make their page."""

from __future__ import annotations

import json

import numpy as np
import pytest
from guides import ROOT

from benchmarks import committees, https_rounds, secure_sum_bytes
from benchmarks.https_rounds import Cell, measured, updated
from fedldp.deployment.agreement import Channel


def counts(row: str) -> list[int]:
    """Return the whole numbers of a row, which come before its seconds."""
    found = [cell.strip().replace(",", "") for cell in row.strip("| ").split("|")]
    return [int(cell) for cell in found if "." not in cell]


@pytest.mark.slow
@pytest.mark.parametrize("channel", https_rounds.CHANNELS)
def test_bytes_over_https_are_counted_in_one_process(channel: Channel) -> None:
    """One bit for each weight goes up if reports are named, and one byte in a sum of three."""
    sizes = 1_000, 81_000  # far more bytes than the signs of life, which come by the clock
    few, many = (measured(Cell(3, size, channel, one_process=True), 2) for size in sizes)
    weights = many["weights"] - few["weights"]
    assert weights == sizes[1] - sizes[0]
    assert many["down"] - few["down"] == pytest.approx(4 * weights, rel=0.01)
    bits = 1 if channel == "named" else 8
    assert many["up"] - few["up"] == pytest.approx(bits * weights / 8, rel=0.05)


@pytest.mark.slow
def test_time_and_memory_are_measured_of_processes() -> None:
    found = measured(Cell(1, 100, "named", one_process=False), 2)
    assert 0 < found["fastest"] <= found["median"] <= found["slowest"] < found["cold_start"]
    assert min(found["server_mb"], found["agent_mb"]) > 50


def test_the_page_of_costs_has_the_recorded_measurements() -> None:
    results = ROOT / "benchmarks" / "results" / "2026-11-26-https-costs.jsonl"
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    page = (ROOT / "benchmarks" / "pages" / "https_rounds.md").read_text(encoding="utf-8")
    assert page == updated(page, rows), "run: python -m benchmarks.https_rounds --page"


def test_a_client_of_a_committee_sends_a_byte_for_each_weight() -> None:
    small, large = (counts(committees.measure(3, size)) for size in (100, 900))
    assert small[:2] == [3, 100]
    clients, weights, down, up = np.subtract(large, small).tolist()
    assert (clients, weights, down, up) == (0, 800, 0, 800)


def test_a_round_of_a_secure_sum_is_counted_by_phase() -> None:
    """The weights come, four bytes each, with the phase in which the report goes up."""
    small, large = (counts(secure_sum_bytes.measure(3, size)) for size in (100, 900))
    more = np.subtract(large, small).tolist()
    assert more[:2] == [0, 800]
    assert more[2:7] == [0, 0, 3200, 0, 3200]
    assert more[7:] == [0, 0, 800, 0, 800]
