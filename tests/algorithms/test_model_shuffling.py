"""Model shuffling is LDP-FL with one message for each report: the same model, less protection."""

from __future__ import annotations

import numpy as np
import pytest

import fedldp
from fedldp.simulation.plan import plan, problem_of


def test_model_shuffling_trains_the_same_model_and_sends_no_labels() -> None:
    short = {"rounds": 2, "num_clients": 10, "local_epochs": 1}
    whole = fedldp.run(fedldp.recipe("ldp-fl-digits-model-shuffling", **short))
    parts = fedldp.run(fedldp.recipe("quickstart", **short))
    for name, weights in parts.weights.items():
        np.testing.assert_array_equal(weights, whole.weights[name])
    # When bits are sent separately, each has a label of ten bits.
    assert [r.uplink_bits_per_client for r in whole.rounds] == [650, 650]
    assert [r.uplink_bits_per_client for r in parts.rounds] == [650 * 11, 650 * 11]


@pytest.mark.parametrize("name", ["ldp-fl-digits-model-shuffling", "ldp-fl-mnist-model-shuffling"])
def test_a_shuffler_of_whole_reports_adds_no_protection_at_a_budget_of_one_per_weight(
    name: str,
) -> None:
    config = fedldp.recipe(name)
    lines = plan(config, problem_of(config, None)).privacy["guarantees"]
    for unit in ("client-round", "client-run"):
        known = {
            adversary: min(
                line["epsilon"]
                for line in lines
                if (line["unit"], line["adversary"]) == (unit, adversary)
            )
            for adversary in ("server", "shuffled-server")
        }
        assert known["shuffled-server"] == known["server"]
    assert not [g for g in lines if (g["unit"], g["adversary"]) == ("weight", "shuffled-server")]
