"""Model shuffling is LDP-FL with one message for each report: the same model, less protection."""

from __future__ import annotations

import numpy as np

import fedldp


def test_model_shuffling_trains_the_same_model_and_sends_no_labels() -> None:
    short = {"rounds": 2, "num_clients": 10, "local_epochs": 1}
    whole = fedldp.run(fedldp.recipe("ldp-fl-digits-model-shuffling", **short))
    parts = fedldp.run(fedldp.recipe("quickstart", **short))
    for name, weights in parts.weights.items():
        np.testing.assert_array_equal(weights, whole.weights[name])
    # When bits are sent separately, each has a label of ten bits.
    assert [r.uplink_bits_per_client for r in whole.rounds] == [650, 650]
    assert [r.uplink_bits_per_client for r in parts.rounds] == [650 * 11, 650 * 11]
