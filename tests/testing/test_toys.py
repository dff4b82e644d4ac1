"""Toys work, and nobody can take them for real ones."""

from __future__ import annotations

import pytest

from fedldp.algorithms.recipes import recipes
from fedldp.algorithms.systems import find_system, systems
from fedldp.core.errors import ConfigError
from fedldp.core.kinds import OWN_CODE, RESTS_ON
from fedldp.mechanisms import find_mechanism, mechanisms
from fedldp.simulation.engine import simulate
from fedldp.testing.data import SMALL
from fedldp.testing.toys import TOY, TOY_BITS


def test_no_list_has_a_toy() -> None:
    assert not any("toy" in name for name in (*systems(), *mechanisms(), *recipes()))
    with pytest.raises(ConfigError, match="mechanism = toy_bits: choose"):
        find_mechanism("toy_bits")


def test_a_statement_says_that_a_toy_states_it() -> None:
    own = find_system(TOY).model_validate(SMALL)
    borrowed = find_system("composed").model_validate(
        {**SMALL, "mechanism": TOY_BITS, "epsilon": 1.0, "channel": "shuffle"}
    )
    for config, name in ((own, TOY), (borrowed, TOY_BITS)):
        stated = simulate(config).privacy
        assert {line.stated_by for line in stated.guarantees} == {name}
        assert RESTS_ON(assumption=OWN_CODE(of=(name,)), of="code") in stated.warnings
