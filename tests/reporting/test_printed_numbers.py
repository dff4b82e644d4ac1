"""A printed epsilon is never below the true one."""

from __future__ import annotations

from fractions import Fraction

import pytest

from fedldp.algorithms.recipes import find_recipe
from fedldp.core.formatting import number


@pytest.mark.parametrize("epsilon", [5e-10, 1e-12, 218_400.0002, 0.12340000005, 1.0 + 5e-10])
def test_printed_epsilon_is_not_below_the_true_one(epsilon: float) -> None:
    printed = Fraction(number(epsilon).replace(",", ""))
    assert printed >= Fraction(epsilon) * (1 - Fraction(1, 10**12))


def test_a_budget_is_not_shown_below_its_setting() -> None:
    words = find_recipe("quickstart").config.changed(epsilon=1.0000049).epsilon_in_words()
    assert words == "epsilon 1.0001 per weight against a server (proven)"
