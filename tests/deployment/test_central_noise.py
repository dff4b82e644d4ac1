"""A trusted server's own noise in a deployment is exact, against an adversary who sees
broadcasts."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from environments import Environment, bits, make_environment

from fedldp.core.kinds import SIMULATED
from fedldp.mechanisms import gaussian
from fedldp.mechanisms.discrete import discrete_gaussian
from fedldp.simulation.engine import simulate

IN_CLEAR = {"allow_in_clear": True, "budget": {"kind": "zcdp", "limit": math.inf}}


def central(folder: Path, channel: str, **given: Any) -> Environment:
    return make_environment(
        folder, "batch_size=1000000", recipe="central-dp-digits-discrete", channel=channel,
        policy=IN_CLEAR, **given,
    )  # fmt: skip


@pytest.mark.parametrize("channel", ["named", "sum"])
def test_a_run_gives_the_weights_of_the_simulation(channel: str, tmp_path: Path) -> None:
    env = central(tmp_path, channel)
    served = env.serve()
    assert bits(served) == bits(simulate(env.config))
    lines = {(line.unit, line.adversary): line.kind for line in served.privacy.guarantees}
    assert lines == {
        ("client-round", "server"): "none",
        ("client-run", "server"): "none",
        ("client-run", "downlink"): "approximate",
    }


def test_real_keys_draw_the_discrete_gaussian(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[int] = []

    def sampled(count: int, scale_bits: int, stream: Any) -> np.ndarray:
        assert not stream.simulated
        drawn.append(count)
        return discrete_gaussian(count, scale_bits, stream)

    monkeypatch.setattr(gaussian, "discrete_gaussian", sampled)
    env = central(tmp_path, "sum", seeded=False)
    served = env.serve()
    assert drawn.count(env.agreement.layout.size) >= len(served.rounds) == 2
    assert SIMULATED not in served.privacy.warnings
