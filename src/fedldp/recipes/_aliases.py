"""Second names: recipes whose configuration is another's, since papers show some runs twice.

They have a source of their own, and may have another number: a paper's table and its text differ.
"""

from __future__ import annotations

ALIASES = {
    "ldp-fl-digits": "quickstart",
    "fedavg-digits": "fedavg-quickstart",
    "ldp-fl-mnist-fig3-n100": "ldp-fl-mnist",
    "ldp-fl-mnist-fig5a-eps1": "ldp-fl-mnist",
    "ldp-fl-fmnist-fig3-n200": "ldp-fl-fmnist-table1-fixed-eps5",
    "ldp-fl-fmnist-fig5b-eps10": "ldp-fl-fmnist-table1-fixed-eps10",
    "ldp-fl-fmnist-gap-base": "ldp-fl-fmnist-table1-adaptive-eps5",
    "fedavg-fmnist-gap-base": "fedavg-fmnist",
    "fedavg-mnist-fig3-n100": "fedavg-mnist",
    "ldp-fl-cifar10-fig3-n500": "ldp-fl-cifar10",
    "ldp-fl-cifar10-fig5c-eps10": "ldp-fl-cifar10",
    "ldp-fl-cifar10-table1-adaptive-eps10": "ldp-fl-cifar10",
    "ldp-fl-cifar10-fig5c-eps5": "ldp-fl-cifar10-table1-adaptive-eps5",
    "ldp-fl-cifar10-fig5d-r1": "ldp-fl-cifar10-table1-fixed-eps10",
    "ldpfl-mnist-fig3": "ldpfl-mnist",
    "ldpfl-mnist-fig12-alpha10": "ldpfl-mnist",
    "ldpfl-mnist-fig12-alpha10-short": "ldpfl-mnist-short",
    "ldpfl-cifar10-fig5": "ldpfl-cifar10",
    "ldpfl-fmnist-fig6": "ldpfl-fmnist",
    "ldpfl-fmnist-table1": "ldpfl-fmnist",
    # Figs. 9 to 11 are the loss and the accuracy of the same runs.
    "ldpfl-svhn-fig10-clients10": "ldpfl-svhn-fig9-clients10",
    "ldpfl-svhn-fig10-clients20": "ldpfl-svhn-fig9-clients20",
    "ldpfl-svhn-fig10-clients30": "ldpfl-svhn-fig9-clients30",
    "ldpfl-svhn-fig10-clients40": "ldpfl-svhn-fig9-clients40",
    "ldpfl-svhn-fig10-clients50": "ldpfl-svhn-fig9-clients50",
    "ldpfl-svhn-fig11-clients10": "ldpfl-svhn-fig9-clients10",
    "ldpfl-svhn-fig11-clients20": "ldpfl-svhn-fig9-clients20",
    "ldpfl-svhn-fig11-clients30": "ldpfl-svhn-fig9-clients30",
    "ldpfl-svhn-fig11-clients40": "ldpfl-svhn-fig9-clients40",
    "ldpfl-svhn-fig11-clients50": "ldpfl-svhn-fig9-clients50",
    "nbafl-mnist": "nbafl-mnist-fig5-eps10",
    "personalized-mnist-noniid": "personalized-mnist-fig5-lmh-c",
}
