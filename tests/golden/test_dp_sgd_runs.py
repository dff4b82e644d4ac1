"""A short run of DP-SGD with recorded numbers, which no refactoring may change."""

from __future__ import annotations

import fedldp
from fedldp.algorithms.presets.dp_sgd import NoisySteps, dp_sgd
from fedldp.data import load_dataset
from fedldp.simulation.plan import problem_of
from fedldp.testing.clients import client_of


def test_the_samples_of_a_client() -> None:
    config = fedldp.recipe("dp-sgd-digits")
    assert isinstance(config, dp_sgd)
    client = client_of(load_dataset("digits").train)
    stream, count = client.fresh("batches"), len(client.examples)
    samples = list(
        NoisySteps(settings=config).sums(problem_of(config, None)).samples(stream, count)
    )
    assert [len(places) for places in samples] == [250, 254, 235, 250, 240, 223]
    assert samples[0][:8].tolist() == [2, 3, 4, 15, 22, 23, 42, 55]
