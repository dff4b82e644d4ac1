"""What a dependency computes wrongly is refused before a guarantee relies on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fedldp.accounting.numerics import pld_fft, selftest, subsampled
from fedldp.accounting.numerics.losses import two_valued_losses
from fedldp.core.errors import FedldpError


@pytest.mark.parametrize(
    "relying",
    [
        lambda: pld_fft.compose_upper([(two_valued_losses(1.5, 1), 7)], 1e-6),
        lambda: pld_fft.compose_lower([(two_valued_losses(1.5, 1), 7)], 1e-6),
        lambda: subsampled.sampled_epsilon({subsampled.poisson_sample(1.7, 0.3): 3}, 1e-6),
    ],
)
def test_no_composition_by_a_wrong_transform_is_told(
    monkeypatch: pytest.MonkeyPatch, relying: Callable[[], float]
) -> None:
    right = pld_fft._power

    def slightly_wrong(*given: Any) -> Any:
        weights, error = right(*given)
        return weights * 1.01, error

    monkeypatch.setattr(pld_fft._test, "begun", False)
    monkeypatch.setattr(subsampled._test, "begun", False)
    subsampled._sampled_epsilon.cache_clear()
    with monkeypatch.context() as wrong:
        wrong.setattr(pld_fft, "_power", slightly_wrong)
        for _ in range(2):  # not only the first time
            with pytest.raises(FedldpError, match="self-test failed"):
                relying()
    assert relying() > 0


def test_a_wrong_function_is_found_before_a_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    selftest.selftest.cache_clear()
    with monkeypatch.context() as wrong:
        wrong.setattr(selftest, "two_valued_epsilon", lambda *given: 79.8)
        with pytest.raises(FedldpError, match=r"two_valued_epsilon gave 79\.8"):
            selftest.selftest()
    selftest.selftest()
