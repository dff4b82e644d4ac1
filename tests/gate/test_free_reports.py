"""No encoder lets a user's own mechanism set the price of a report.

This must hold for every encoder, so the test uses configurations of runs only.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import fedldp
from fedldp.core.errors import ConfigError

FILE = """
from dataclasses import dataclass

from fedldp.accounting.events import *
from fedldp.mechanisms.laplace import Laplace
from fedldp.mechanisms.two_point import TwoPoint


@dataclass(frozen=True)
class Bits(TwoPoint):
    name = "own_bits"

    def event(self, size):
        return {event}


@dataclass(frozen=True)
class Report(Laplace):
    name = "own_report"

    def event(self, size):
        return {event}
"""
UNFIT = (
    'NoRelease(what="nothing")',
    'Memoized(drawn=PureReport(epsilon=1.0), identity="all")',
    "PerRecord(record=PureReport(epsilon=1.0), client=PureReport(epsilon=1.0))",
    "PureReport(epsilon=0.0)",
    "BinaryRandomizedResponse(epsilon=1.0, coordinates=1)",
)


@pytest.fixture(params=UNFIT)
def module(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"free_reports_{UNFIT.index(request.param)}"
    (tmp_path / f"{name}.py").write_text(FILE.format(event=request.param))
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


@pytest.mark.parametrize("own", ["Bits", "Report"])
def test_no_plan_and_no_run_accepts_a_report_that_states_its_own_price(
    module: str, own: str
) -> None:
    settings = {"mechanism": f"{module}:{own}", "num_clients": 4, "rounds": 1, "channel": "named"}
    with pytest.raises(ConfigError, match="mechanism = "):
        fedldp.account("quickstart", **settings)
    with pytest.raises(ConfigError, match="mechanism = "):
        fedldp.run("quickstart", client_budget={"limit": 1e-6}, **settings)
