"""The self-test of the accounting: known answers, checked before a guarantee is printed.

A broken special function or transform in a dependency would make guarantees silently wrong. The
known answers were computed independently of this package. The unit tests contain many more.
"""

from __future__ import annotations

import math
from functools import cache

from fedldp.accounting.numerics.blanket import Subset, blanket_losses
from fedldp.accounting.numerics.compose import two_valued_epsilon
from fedldp.accounting.numerics.gaussian import gaussian_epsilon, gaussian_sigma, zcdp_epsilon
from fedldp.accounting.numerics.known import check
from fedldp.accounting.numerics.losses import two_valued_losses
from fedldp.accounting.numerics.shuffle import clones_epsilon
from fedldp.accounting.numerics.shuffle_one import shuffled_one_epsilon


@cache
def selftest() -> None:
    """Compare a few results with known answers; only the first call computes them, in about 0.1 s.

    Slow parts test themselves before their first result; see ``known.Test``.

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
