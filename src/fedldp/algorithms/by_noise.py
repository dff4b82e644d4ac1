"""The mean of reports, weighted by shares that are computed from their senders' noise.

Source: X. Wu, L. Xu, L. Zhu, "Local Differential Privacy-Based Federated Learning under
Personalized Settings", Appl. Sci. 2023, 13(7), 4168, Sections 3.2 and 4; weights by the inverse
variance are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedldp.algorithms.choices import check_whole
from fedldp.algorithms.participation import draw_selection
from fedldp.algorithms.release import Release
from fedldp.algorithms.run_settings import RunSettings
from fedldp.algorithms.server_update import BySender, Needs, Values, read_plain, read_report
from fedldp.mechanisms import Mechanism
from fedldp.mechanisms.none import Plain
from fedldp.protocol.roles import Draw, State
from fedldp.protocol.wire import Report

_TIE = 1e-12
"""Tolerance for ties, where rounding can leave the weighted mean of signs slightly off zero."""

Shares = Callable[[Sequence[float], Draw], tuple[NDArray[np.float64], Mapping[str, float]]]
"""Computes all clients' shares of a round's mean, shape (n,), and metrics from their sigmas."""


@dataclass(frozen=True, kw_only=True)
class MeanByNoise:
    """A weighted mean: each report is read with its sender's mechanism, and weighted by its noise.

    Attributes:
        settings: the run's settings, with the choices of all clients.
        mechanism: returns a client's mechanism for reports of a given size.
        sigma: returns the standard deviation of a client's noise; None if no client adds noise.
        shares: computes the shares from the noise of all clients.
        setting: the user's setting that selects this estimate.
        signs: whether only the signs of a report's values are used.
    """

    needs: ClassVar[Needs] = "sender"

    settings: RunSettings
    mechanism: Callable[[int, int], Mechanism]
    sigma: Callable[[int], float] | None
    shares: Shares
    setting: str
    signs: bool = False

    def __call__(self, release: Release) -> BySender:
        """Return the estimate.

        Raises:
            ConfigError: the settings contain only one client's own values; or a client's mechanism
                cannot be built for its budget.
        """
        check_whole(self.settings)
        for group in self.settings.encoder_groups():
            self.mechanism(int(group[0]), release.size).event(release.size)
        clients = range(self.settings.num_clients)
        sigmas = [1.0 if self.sigma is None else self.sigma(client) for client in clients]
        return BySender(
            shares=lambda draw: self.shares(sigmas, draw), read=self.read, gives=release.bound.send
        )

    def read(self, report: Report, client: int) -> Values:
        """Return the values in a client's report, shape (d,)."""
        mechanism = self.mechanism(client, report.size)
        if isinstance(mechanism, Plain):
            return read_plain(report.payload, report.size)
        values = read_report(mechanism, report.payload, report.size)
        return np.sign(values) if self.signs else values


def by_power(power: int) -> Shares:
    """Return shares proportional to 1/sigma^power; 2 gives the least variance, 0 the plain mean."""
    return lambda sigmas, _: (np.array([sigma**-power for sigma in sigmas]), {})


def weighted(
    sigmas: Sequence[float], draw: Draw
) -> tuple[NDArray[np.float64], Mapping[str, float]]:
    """Return the shares of method (B): rho_i = 1/sigma_i, divided by the sum over all clients."""
    rho = inverse(sigmas)
    return rho / rho.sum(), {}


def selection(*, redraw: bool) -> Shares:
    """Return the shares of method (C): 1 for clients that the round's draw selects, else 0.

    Args:
        redraw: whether to draw again if nobody is selected.
    """

    def shares(
        sigmas: Sequence[float], draw: Draw
    ) -> tuple[NDArray[np.float64], Mapping[str, float]]:
        chosen, redrawn = draw_selection(inverse(sigmas), draw("selection"), redraw=redraw)
        metrics = {"selected": float(chosen.sum()), "redrawn": float(redrawn)}
        return chosen.astype(np.float64), metrics

    return shares


def inverse(sigmas: Sequence[float]) -> NDArray[np.float64]:
    """Return rho, the inverse of each client's noise, shape (n,)."""
    return np.array([1 / sigma for sigma in sigmas])


def symbolised(weights: Values, state: State) -> Values:
    """Return the signs of the mean of signs (Section 3.2), shape (d,)."""
    return np.sign(np.where(np.abs(weights) < _TIE, 0.0, weights))
