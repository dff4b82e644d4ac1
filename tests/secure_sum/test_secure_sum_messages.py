"""Parameters of the secure sum."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from secure_sums import make_client, make_setup

from fedldp.core.errors import ConfigError
from fedldp.mechanisms.summing import signed

N, T, D = 5, 3, 2

# Parameters


@pytest.mark.parametrize(
    "change",
    [{"num_clients": 1, "threshold": 1}, {"threshold": 2}, {"threshold": 6}, {"size": 0},
     {"bits": 0}, {"bits": 65}, {"untrusted": -1}, {"untrusted": 4, "threshold": 5},
     {"untrusted": 1}],
)  # fmt: skip
def test_parameters_out_of_range_are_refused_in_one_line(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refusal:
        replace(make_setup(N, T, D), **change)
    assert re.search("num_clients|threshold|size|bits|untrusted", str(refusal.value))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("index", [-1, 2**32 - 1])
def test_numbers_that_do_not_fit_are_refused(index: int) -> None:
    with pytest.raises(ConfigError, match=f"index = {index}"):
        make_client(make_setup(N, T, D), index)


def test_a_threshold_of_half_is_refused() -> None:
    # A server could then name different survivors to two halves of the clients.
    with pytest.raises(ConfigError, match="more than half"):
        make_setup(4, 2)


@given(n=st.integers(2, 60), u=st.integers(0, 58), t=st.integers(1, 60))
def test_no_threshold_lets_untrusted_clients_reveal_both_kinds_of_shares(
    n: int, u: int, t: int
) -> None:
    """Untrusted clients reveal both kinds, and the others one kind: fewer than 2 t shares."""
    fits = u <= n - 2 and t <= n and 2 * t > n + u
    try:
        make_setup(n, t, untrusted=u)
    except ConfigError:
        assert not fits
    else:
        assert fits
        assert not any(a >= t and b >= t for a in range(u, n + 1) for b in [n - a + u])


@given(bits=st.integers(1, 64), number=st.integers(-(2**63), 2**63 - 1))
def test_words_and_their_values(bits: int, number: int) -> None:
    words = make_setup(N, T, 1, bits).words(np.array([number]))
    assert int(words[0]) == number % 2**bits
    (found,) = signed(words, bits).tolist()
    assert (found - number) % 2**bits == 0
    assert -(2 ** (bits - 1)) <= found < 2 ** (bits - 1)
