"""The self-test of the accounting: known answers, checked before what they test is relied on.

A broken special function or transform in a dependency would make guarantees silently wrong. The
known answers were computed independently of this package. The unit tests contain many more.
"""

from __future__ import annotations

import math
import threading
from functools import cache

from fedldp.accounting.numerics.blanket import Subset, blanket_losses
from fedldp.accounting.numerics.compose import two_valued_epsilon
from fedldp.accounting.numerics.gaussian import gaussian_epsilon, gaussian_sigma, zcdp_epsilon
from fedldp.accounting.numerics.losses import two_valued_losses
from fedldp.accounting.numerics.pld_fft import compose_lower, compose_upper
from fedldp.accounting.numerics.shuffle import clones_epsilon
from fedldp.accounting.numerics.shuffle_one import shuffled_one_epsilon
from fedldp.accounting.numerics.subsampled import (
    fixed_size_sample,
    poisson_sample,
    sampled_epsilon,
)
from fedldp.core.errors import FedldpError


@cache
def selftest() -> None:
    """Compare a few results with known answers; only the first call computes them, in about 0.1 s.

    Slow parts have tests of their own; see ``before``.

    Raises:
        FedldpError: a result differs, so no guarantee can be trusted.
    """
    ten = two_valued_losses(1.0, 10)
    seven_to_one = Subset(high=7, low=1, closest=1, categories=4)
    check("two_valued_epsilon", two_valued_epsilon(1.0, 100, 1e-5), 79.8413223649645, 1e-10)
    check("two_valued_losses", ten.delta(5.0), 0.36359118271451957, 1e-10)
    check("gaussian_epsilon", gaussian_epsilon(1.0, 1e-5), 4.37717809568122, 1e-10)
    check("gaussian_sigma", gaussian_sigma(1.0, 1e-5), 3.73063163481594, 1e-10)
    check("zcdp_epsilon", zcdp_epsilon(0.5, 1e-5), 4.728386984943314, 1e-10)
    check("clones_epsilon", clones_epsilon(1.0, 100, 1e-5), 0.5531898110598348, 1e-9)
    check("shuffled_one_epsilon", shuffled_one_epsilon(1.0, 100, 1e-5), 0.407817894709581, 1e-9)
    blanket = blanket_losses(seven_to_one, 22, 92.0).delta(math.log(4))
    check("blanket_losses", blanket, 0.0033386771412942575, 1e-4)


_lock = threading.RLock()
_begun: set[str] = set()


def before(part: str) -> None:
    """Compare results of a slow part with known answers, before its first result is told.

    The part calls it itself, so a run that does not need the part saves up to a second.

    Args:
        part: "transform" for ``pld_fft``, "sample" for ``subsampled``.

    Raises:
        FedldpError: a result differs, so no guarantee can be trusted.
    """
    with _lock:
        if part in _begun:
            return
        _begun.add(part)  # because what follows uses the part, too
        try:
            _PARTS[part]()
        except BaseException:
            _begun.remove(part)
            raise


def _transform() -> None:
    single = [(two_valued_losses(1.0, 1), 100)]
    check("compose_upper", compose_upper(single, 1e-5), 79.8413223649645, 1e-5)
    check("compose_lower", compose_lower(single, 1e-5), 79.8413223649645, 1e-5)


def _sample() -> None:
    poisson = sampled_epsilon({poisson_sample(1.0, 0.5): 1}, 1e-5)
    check("poisson_sample", poisson, 4.222607563000935, 1e-6)
    fixed = sampled_epsilon({fixed_size_sample(1.0, 1, 4): 1}, 1e-5)
    check("fixed_size_sample", fixed, 7.953870384179362, 1e-6)


_PARTS = {"transform": _transform, "sample": _sample}


def check(name: str, computed: float, known: float, tolerance: float) -> None:
    """Compare one result with a known answer; a paper's numerics call it when they are imported.

    Raises:
        FedldpError: the result differs, so no guarantee can be trusted.
    """
    if not abs(computed - known) <= tolerance * known:
        raise FedldpError(
            f"the accounting self-test failed: {name} gave {computed!r} instead of {known!r}; "
            "no guarantee can be trusted: reinstall numpy and scipy"
        )
