"""Sites that solve in closed form send what the clients of a simulation send."""

from __future__ import annotations

from pathlib import Path

import pytest
from environments import bits, make_environment

from fedldp.simulation.engine import simulate


@pytest.mark.parametrize(
    ("recipe", "channel"),
    [("composed-digits-solution", "named"), ("composed-digits-statistics", "sum")],
)
def test_the_sites_model_is_that_of_the_simulation(
    tmp_path: Path, recipe: str, channel: str
) -> None:
    env = make_environment(tmp_path, "rounds=1", recipe=recipe, channel=channel, deadline=60.0)
    served = env.serve(env.pipe())
    assert bits(served) == bits(simulate(env.config))
    adversary = "summing-server" if channel == "sum" else "server"
    lines = [line for line in served.privacy["guarantees"] if line["adversary"] == adversary]
    assert {line["unit"] for line in lines} == {"client-round", "client-run"}
    assert max(line["epsilon"] for line in lines) <= 8
