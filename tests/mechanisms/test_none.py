"""No randomiser: the values arrive unchanged."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedldp.accounting.events import InClear
from fedldp.core.errors import ConfigError, PrivacyError, RunError
from fedldp.core.randomness import Stream
from fedldp.mechanisms import find_mechanism, mechanisms
from fedldp.mechanisms.none import Plain

STREAM = Stream(bytes(32), simulated=True)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("mechanism", Plain.examples())
def test_reports_contain_the_values_or_their_signs(mechanism: Plain, dtype: type) -> None:
    rows = np.array([[0.5, -2.0, 0.0], [1e9, 3.0, -1e-9]], dtype)
    sent = mechanism.encode_many(rows, [STREAM] * 2)
    assert [row.tobytes() for row in sent] == [mechanism.encode(row, STREAM) for row in rows]
    aggregate = mechanism.aggregate(3)
    for row in sent:
        aggregate.add(row.tobytes())
    expected = np.mean([mechanism.bound(row) for row in rows], axis=0)
    np.testing.assert_allclose(aggregate.mean(), expected, rtol=1e-6)


def test_none_states_that_it_protects_nothing_and_no_setting_names_it() -> None:
    assert Plain("clipped weights").event(3) == InClear(what="clipped weights")
    assert not {"none", "codes", "gaussian_sign", "gaussian_share", "uneven_gaussian"} & set(
        mechanisms()
    )
    with pytest.raises(ConfigError, match="mechanism = none: choose"):
        find_mechanism("none")


def test_values_that_are_not_finite_and_malformed_reports_are_refused() -> None:
    with pytest.raises(PrivacyError):
        Plain().encode(np.array([math.nan]), STREAM)
    with pytest.raises(RunError, match="different models"):
        Plain().aggregate(3).add(bytes(4))
    with pytest.raises(RunError, match="no report"):
        Plain().aggregate(3).mean()
