"""The mean by sender, weighted by shares that the server assigns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedldp.algorithms.bounds import Unbounded
from fedldp.algorithms.release import Release
from fedldp.algorithms.server_update import Estimated
from fedldp.core.errors import RunError
from fedldp.mechanisms.none import Plain
from fedldp.papers.personalized.parts import MeanByNoise
from fedldp.protocol.keys import draws_of_seed
from fedldp.protocol.roles import State
from fedldp.protocol.wire import Report

SIZE = 5
START = np.linspace(-1, 1, SIZE).astype(np.float32)


def sent(values: Any, **fields: Any) -> Report:
    payload = np.asarray(values, "<f4").tobytes()
    return Report(round=1, size=SIZE, payload=payload, chunk=SIZE, **fields)


def of_senders(given: list[float], reports: list[Report]) -> Estimated:
    mean: Any = MeanByNoise(
        settings=None,  # type: ignore[arg-type]  # which only ``reading`` uses
        mechanism=lambda client, size: Plain(),
        sigma=None,
        shares=lambda sigmas, draw: (np.array(given), {"drawn": 1.0}),
        setting="aggregation = selection",
        release=Release(bound=Unbounded(), mechanism=Plain(), size=SIZE),
    )
    return mean(State(weights=START), reports, draws_of_seed(0)(1))


def test_a_mean_by_sender_needs_reports_of_its_size_and_their_senders() -> None:
    with pytest.raises(RunError, match="no report arrived"):
        of_senders([1.0] * 3, [])
    for client in (None, -1, 3):
        with pytest.raises(RunError, match="whose report"):
            of_senders([1.0] * 3, [sent(START, client=client)])
    short = Report(round=1, size=1, payload=b"\0" * 4, chunk=1, client=0)
    with pytest.raises(RunError, match=f"a report with 1 values for {SIZE} coordinates"):
        of_senders([1.0] * 3, [short])
