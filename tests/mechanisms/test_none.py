"""The mechanisms that no setting names, such as that without a randomiser."""

from __future__ import annotations

import numpy as np
import pytest

from fedldp.accounting.events import InClear
from fedldp.core.errors import ConfigError
from fedldp.core.randomness import Stream
from fedldp.core.registry import modules, paper_modules, scan
from fedldp.mechanisms import Mechanism, find_mechanism, mechanisms
from fedldp.mechanisms.codes import BoundedSteps, ClippedCodes
from fedldp.mechanisms.gaussian_share import SharedGaussian
from fedldp.mechanisms.gaussian_summand import GaussianSummand
from fedldp.mechanisms.integer_gaussian import IntegerGaussian
from fedldp.mechanisms.none import Plain
from fedldp.testing.mechanisms import Instance, aggregate, batch, refusals

UNNAMED = [
    each
    for kind in (
        Plain, ClippedCodes, BoundedSteps, SharedGaussian, GaussianSummand, IntegerGaussian
    )
    for each in kind.examples()
]  # fmt: skip


@pytest.mark.parametrize("mechanism", UNNAMED, ids=repr)
def test_a_mechanism_without_a_name_keeps_what_applies_of_the_contract(
    mechanism: Mechanism,
) -> None:
    for check in (refusals, batch, aggregate):
        assert list(check(Instance(mechanism, 8))) == []


def test_a_report_contains_the_values_or_their_signs() -> None:
    values = np.array([1e9, 3.0, -1e-9], np.float32)
    sent = Plain().encode(values, Stream(bytes(32), simulated=True))
    np.testing.assert_array_equal(np.frombuffer(sent, "<f4"), values)
    signs = Plain(signs=True).encode(values, Stream(bytes(32), simulated=True))
    assert np.frombuffer(signs, "<f4").tolist() == [1, 1, -1]


def test_none_states_that_it_protects_nothing_and_no_setting_names_it() -> None:
    assert Plain("clipped weights").event(3) == InClear(what="clipped weights")
    assert not {"none", "codes", "gaussian_sign", "gaussian_share", "uneven_gaussian"} & set(
        mechanisms()
    )
    with pytest.raises(ConfigError, match="mechanism = none: choose"):
        find_mechanism("none")


def test_no_address_names_what_only_systems_make() -> None:
    """Such a mechanism's event holds for vectors that its system has bounded, and for no others."""
    every = scan(Mechanism, (*modules("fedldp.mechanisms"), *paper_modules("mechanism")))  # type: ignore[type-abstract]
    parts = [each for each in every if not each.is_setting]
    assert len(parts) > 5
    for each in parts:
        with pytest.raises(ConfigError, match="it is a part of systems"):
            find_mechanism(f"{each.__module__}:{each.__qualname__}")
