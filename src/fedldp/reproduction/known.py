"""Why our numbers differ from the papers' numbers, by recipe, or, for gains, by target and row.

Every committed cell that differs by more than a point from the paper's number has an entry. An
entry is either a cause, with the run that tested it, or a string that begins with "not known". A
cell outside its tolerance that has no entry makes ``fedldp reproduce --check`` fail.
"""

from __future__ import annotations

NOT_KNOWN = "not known"
"""The prefix of an entry that gives a possible cause, and the command that would test it."""

_PRINTED = (
    "the range printed for Fashion-MNIST is probably a misprint, because it shrinks every layer: "
    "with radius 0.15 accuracy is 83.0 (ldp-fl-fmnist-fig5b-eps4); for the remaining 3 points see "
    "ldp-fl-fmnist-gap"
)
_TWIN = (
    "not known in full: the noise-free twin, fedavg-mnist with the same settings, has 98.05, and "
    "the paper's twin 97.21 (the paper's accuracy plus its stated loss); the noise costs 0.3 or "
    "0.5 points here, and 1.1 in the paper"
)
_NOISE_FREE = (
    "local epochs and model width, which the paper does not state, explain it: 10 local epochs "
    "with 16 and 32 channels reach 86.6; 10 local epochs with momentum 0.5 instead of the larger "
    "width reach 86.5 (ldp-fl-fmnist-gap)"
)
_TWIN_AND_NOISE = (
    "not known in full: local epochs and width explain 2.5 points (ldp-fl-fmnist-gap), but the "
    "noise costs another 1 to 2 points in every row, at epsilon 10 as well as at 5; in the paper "
    "it costs 0 to 1.6; the range is not too wide, because half the range gives 78.7 "
    "(ldp-fl-fmnist-gap)"
)
_HALF = (
    "not known in full: 4.2 points are due to clipping more weights: with twice the range accuracy "
    "is 82.9 (ldp-fl-fmnist-table1-fixed-eps5)"
)
_CIFAR_TWIN = (
    "not known in full: in trials with 20 to 40 clients per round (benchmarks/cifar_trials.py), "
    "batch norm adds 6 points and augmentation 4 more, but the paper mentions neither; more local "
    "epochs, larger steps and group norm do not close the gap"
)
_CIFAR_OF = (
    "not known in full: the noise-free twin, fedavg-cifar10 with the same settings, has 44.6, and "
    "the paper's twin 62.6, given its loss of 1.09 (most of this may be due to batch norm and "
    "augmentation, see benchmarks/cifar_trials.py); the noise costs 7 points here, and {} in the "
    "paper"
)
_CIFAR, _CIFAR_TABLE1 = _CIFAR_OF.format("1"), _CIFAR_OF.format("2")
_LDPFL_MNIST = (
    "not known: the length of training does not explain it, because accuracy is 95.6 with the "
    "paper's and 96.0 with a shorter one; nor do the encoders, because the clients' own networks "
    "reach 98.9 and 98.7 (ldpfl-fig2)"
)
_CENTRAL = (
    "not known: the number of clients per round, the model and the learning rate are our choices, "
    "as in central-dp-mnist"
)
_DATA = (
    "the data set or U makes the difference: on the 8x8 digits with U = 3 and 20 seeds, {} "
    "(personalized-fig2-digits)"
)
_FIG3 = (
    "not known: sigma is 98 to 1,896 by the paper's formula, which drowns weights clipped to 2, in "
    "the paper as well as here; gains over a result near chance say little: {}"
)
_SCATTER = (
    "not known; it may be chance if the paper shows a single run, which it does not say: our runs "
    "scatter by {} points (personalized-fig{})"
)

KNOWN = {
    "ldp-fl-mnist-table1-adaptive-eps5": _TWIN,
    "ldp-fl-mnist-table1-adaptive-eps10": _TWIN,
    "fedavg-fmnist": _NOISE_FREE,
    "fedavg-fmnist-gap-base": _NOISE_FREE,
    "fedavg-fmnist-gap-epochs10": _NOISE_FREE,
    "fedavg-fmnist-gap-channels32": _NOISE_FREE,
    "fedavg-fmnist-gap-momentum-epochs10": _NOISE_FREE,
    "ldp-fl-fmnist-gap-base": _TWIN_AND_NOISE,
    "ldp-fl-fmnist-gap-channels32": _TWIN_AND_NOISE,
    "ldp-fl-fmnist-gap-epochs10": _TWIN_AND_NOISE,
    "ldp-fl-fmnist-gap-momentum-epochs10": _TWIN_AND_NOISE,
    "ldp-fl-fmnist-gap-channels32-epochs10": _TWIN_AND_NOISE,
    "ldp-fl-fmnist-gap-half-range": _HALF,
    "ldp-fl-fmnist-table1-adaptive-eps5": _TWIN_AND_NOISE,
    "ldp-fl-fmnist-table1-adaptive-eps10": _TWIN_AND_NOISE,
    "ldp-fl-fmnist-table1-fixed-eps5": _TWIN_AND_NOISE,
    "ldp-fl-fmnist-table1-fixed-eps10": _TWIN_AND_NOISE,
    "ldp-fl-fmnist-fig5b-eps4": _TWIN_AND_NOISE,
    "ldp-fl-fmnist": _PRINTED,
    "fedavg-cifar10": _CIFAR_TWIN,
    "ldp-fl-cifar10": _CIFAR,
    "ldp-fl-cifar10-fig5c-eps10": _CIFAR,
    "ldp-fl-cifar10-table1-adaptive-eps10": _CIFAR_TABLE1,
    "ldp-fl-text52: Fashion-MNIST, LDP-FL against FedAvg": _PRINTED,
    "ldp-fl-text52: CIFAR-10, LDP-FL against FedAvg": (
        "not known: LDP-FL stays between 36 and 39 from round 8 on, while the noise-free twin "
        "gains 3.4 points"
    ),
    "ldp-fl-text52: MNIST, LDP-FL against FedAvg": (
        "not known: the paper states neither batch size nor local epochs; fewer epochs do not "
        "explain it, because they increase the loss: with --set local_epochs=2 the noise-free run "
        "has 97.5, and LDP-FL 94.7 (seed 0)"
    ),
    "central-dp-mnist": (
        "not known: the quoted paper has a different model, learning rate and accountant; larger "
        "learning rates do not explain it: with --set learning_rate=0.1 accuracy is 55.7, and with "
        "0.3 training diverges (seed 0)"
    ),
    "central-dp-mnist-clients1000": _CENTRAL,
    "central-dp-mnist-clients10000": _CENTRAL,
    "ldpfl-mnist": _LDPFL_MNIST,
    "ldpfl-mnist-short": _LDPFL_MNIST,
    "cldp-fed-fmnist": (
        "the numbers of clients and rounds, which are LDP-FL's here, explain it: the noise-free "
        "twin, fedavg-fmnist, has 84.9, and with 10 clients and 80 rounds CLDP-Fed has 89.8 "
        "(ldpfl-table1)"
    ),
    "cldp-fed-fmnist-table1": (
        "not known: we cannot say why the noise costs the paper 3 points: at alpha 1 the noise is "
        "only a few steps of 1e-10, and fedavg-fmnist-table1 with the same settings has the same "
        "89.8"
    ),
    "dp-sgd-fmnist-table1": (
        "not known: the paper states neither the noise multiplier nor the learning rate, only that "
        "(ε, δ) match α = 1; try fedldp run dp-sgd-fmnist-table1 --set noise_multiplier=2"
    ),
    "personalized-mnist-fig2-none": _DATA.format("accuracy is 90.1"),
    "personalized-fig2: mean gain of (B) over (A)": _SCATTER.format("3", "2"),
    "personalized-fig2: mean gain of (C) over (A)": "not known in full: "
    + _DATA.format("the gain is +11.3, but (B)'s is +12.4, not the paper's 5.57"),
    "personalized-digits-fig2-none": (
        "not known; it may be chance, or U, which the paper does not state: single runs scatter by "
        "3 points, and with --set local_epochs=2 accuracy is 86.4 (seeds 0 to 5)"
    ),
    "personalized-fig2-digits: mean gain of (B) over (A)": (
        "the size of the steps relative to the noise, which the paper does not state, explains it: "
        "for LMH the gain is +24.0 with alpha 0.3, and -2.2 with alpha 3 (personalized-tried)"
    ),
    "personalized-fmnist-fig3-none": _SCATTER.format("4", "3"),
    "personalized-fig3: mean gain of (B) over (A)": _FIG3.format("+0.03 with a scatter of 1.4"),
    "personalized-fig3: mean gain of (C) over (A)": _FIG3.format("-1.6 with a scatter of 3"),
    "personalized-covertype-fig4-none": (
        "not known: the data are a 16 % subset, with batches of 148; run the recipe on the whole "
        "data set (fedldp data fetch covertype)"
    ),
    "personalized-fig4: mean gain of (B) over (A)": _SCATTER.format("10", "4"),
    "personalized-fig5: mean gain of (C) over (A)": _SCATTER.format("10", "5"),
    "personalized-fig6: mean gain of (C) over (A)": (
        "not known: single runs scatter by only 4 points, which does not explain the difference; "
        "the paper does not state the concentration; try the figure's recipes with --set "
        "partition=dirichlet:0.1"
    ),
    "personalized-covertype-fig7-none": (
        "not known: concentration 0.2 (49.5) or 1 (54.2) and U = 20 (52.8) do not close the gap "
        "(personalized-tried); the data are a 16 % subset: run the recipe on the whole data set "
        "(fedldp data fetch covertype)"
    ),
}
