"""Why some of our numbers are not the paper's: by recipe, or by target and row of a gain.

A cell that differs without an entry here fails ``fedldp reproduce --check``.
"""

from __future__ import annotations

_PRINTED = "the range printed for Fashion-MNIST is taken for a misprint: it shrinks every layer"
_FIG3 = "sigma is 98 to 1,896 by the paper's formula and drowns weights clipped to 2"
_PARTITION = "a partition by labels decides more than the aggregation: single runs scatter"

KNOWN = {
    "ldp-fl-fmnist": _PRINTED,
    "ldp-fl-fmnist-fig5b-eps4": _PRINTED,
    "ldp-fl-fmnist-table1-fixed-eps5": _PRINTED,
    "ldp-fl-fmnist-table1-fixed-eps10": _PRINTED,
    "ldp-fl-text52: Fashion-MNIST, LDP-FL against FedAvg": _PRINTED,
    "central-dp-mnist": "the quoted source has a larger budget, and another model and local work",
    "cldp-fed-fmnist-table1": "at alpha 1 its noise is some steps of 1e-10, and costs nothing",
    "dp-sgd-fmnist-table1": "the paper states neither noise multiplier nor learning rate",
    "personalized-covertype-fig7-none": "a 16 % subset; concentration and U are not stated",
    "personalized-fig2: mean gain of (C) over (A)": "three clients: gains scatter by 5 points",
    "personalized-fig3: mean gain of (B) over (A)": _FIG3,
    "personalized-fig3: mean gain of (C) over (A)": _FIG3,
    "personalized-fig5: mean gain of (C) over (A)": _PARTITION,
    "personalized-fig6: mean gain of (C) over (A)": _PARTITION,
    "personalized-fig7: mean gain of (C) over (A)": _PARTITION,
}
