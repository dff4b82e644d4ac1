"""Why our numbers are not the paper's: by recipe, or by target and row of a gain.

Every committed cell that is more than a point from the paper's number has an entry: a cause that a
run has tested, which the entry names, or one that begins with "not known". A cell outside its
tolerance without an entry fails ``fedldp reproduce --check``.
"""

from __future__ import annotations

NOT_KNOWN = "not known"
"""With this begins what is no cause, but what might be one, and the command that would tell."""

_PRINTED = (
    "the range printed for Fashion-MNIST is taken for a misprint, as it shrinks every layer: with "
    "radius 0.15 it is 81.8, adaptive 82.7; of the 4 points left see ldp-fl-fmnist-gap"
)
_TWIN = (
    "the noise-free twin: fedavg-mnist with the same settings has 98.05, where the paper's has "
    "97.21; so local training is what differs, and not the noise"
)
_NOISE_FREE = (
    "not known in full, and no matter of noise: there is none here; local work, in part: 10 local "
    "epochs give 1.5 points more, 16 and 32 channels 0.8 (ldp-fl-fmnist-gap)"
)
_TWIN_AND_NOISE = (
    "not known in full: 3.3 points are its noise-free twin's, and the noise costs 2.3 more, where "
    "the paper has 0.04; 16 and 32 channels give 1.7 (ldp-fl-fmnist-gap)"
)
_DATA = "the data: on the 8x8 digits, with 20 seeds, {} (personalized-fig2-digits)"
_FIG3 = (
    "not known: sigma is 98 to 1,896 by the paper's formula, and drowns weights clipped to 2 in "
    "theirs as in ours; gains over what is near chance say little, {}"
)
_SCATTER = "chance: single runs scatter by {} points, and the paper does not say how many it has"

KNOWN = {
    "ldp-fl-mnist-table1-adaptive-eps5": _TWIN,
    "ldp-fl-mnist-table1-adaptive-eps10": _TWIN,
    "fedavg-fmnist": _NOISE_FREE,
    "fedavg-fmnist-gap-base": _NOISE_FREE,
    "fedavg-fmnist-gap-epochs10": _NOISE_FREE,
    "fedavg-fmnist-gap-channels32": _NOISE_FREE,
    "ldp-fl-fmnist-gap-base": _TWIN_AND_NOISE,
    "ldp-fl-fmnist-gap-channels32": _TWIN_AND_NOISE,
    "ldp-fl-fmnist-table1-adaptive-eps5": _TWIN_AND_NOISE,
    "ldp-fl-fmnist": _PRINTED,
    "ldp-fl-text52: Fashion-MNIST, LDP-FL against FedAvg": _PRINTED,
    "ldp-fl-text52: MNIST, LDP-FL against FedAvg": (
        "not known: batch size and local epochs are not stated; not fewer epochs, which cost more: "
        "with --set local_epochs=2 the noise-free run has 97.5, and LDP-FL 94.7 (seed 0)"
    ),
    "central-dp-mnist": (
        "not known: the quoted source has another model, learning rate and accountant; not larger "
        "rates: with --set learning_rate=0.1 it is 55.7, with 0.3 it diverges (seed 0)"
    ),
    "ldpfl-mnist-short": (
        "not known: it trains less, by design; the paper's length is fedldp run ldpfl-mnist"
    ),
    "cldp-fed-fmnist-table1": (
        "at alpha 1 its noise is some steps of 1e-10, and costs nothing: fedavg-fmnist-table1 "
        "with the same settings has the same 89.8; why the paper's costs 3 points is not known"
    ),
    "dp-sgd-fmnist-table1": (
        "not known: neither noise multiplier nor learning rate is stated; try "
        "fedldp run dp-sgd-fmnist-table1 --set noise_multiplier=2"
    ),
    "personalized-mnist-fig2-none": _DATA.format("it is 90.1"),
    "personalized-fig2: mean gain of (B) over (A)": _SCATTER.format("3"),
    "personalized-fig2: mean gain of (C) over (A)": _DATA.format("it is +11.3"),
    "personalized-digits-fig2-none": (
        "chance, or U, which is not stated: single runs scatter by 3 points, and with "
        "--set local_epochs=2 it is 86.4 (seeds 0 to 5)"
    ),
    "personalized-fig2-digits: mean gain of (B) over (A)": (
        "the size of the steps against the noise, which is not stated: with "
        "--set learning_rate=0.3 it is +24.6, with 3 +0.1 (seeds 0 to 7)"
    ),
    "personalized-fmnist-fig3-none": _SCATTER.format("4"),
    "personalized-fig3: mean gain of (B) over (A)": _FIG3.format("+0.03 with a scatter of 1.4"),
    "personalized-fig3: mean gain of (C) over (A)": _FIG3.format("-1.6 with a scatter of 3"),
    "personalized-covertype-fig4-none": (
        "not known: a 16 % subset with batches of 148; run it on the whole data set "
        "(fedldp data fetch covertype)"
    ),
    "personalized-fig4: mean gain of (B) over (A)": _SCATTER.format("10"),
    "personalized-fig5: mean gain of (C) over (A)": _SCATTER.format("10"),
    "personalized-fig6: mean gain of (C) over (A)": (
        "not known: single runs scatter by 4 points here, which is not enough; the concentration "
        "is not stated; try --set partition=dirichlet:0.1 with its recipes"
    ),
    "personalized-covertype-fig7-none": (
        "not known: concentration 0.1 (49.4) or 1 (54.2) and U = 20 (52.8) do not close it; a "
        "16 % subset: run it on the whole data set (fedldp data fetch covertype)"
    ),
    "personalized-fig7: mean gain of (C) over (A)": _SCATTER.format("17"),
}
