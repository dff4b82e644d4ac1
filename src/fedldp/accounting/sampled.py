"""What Gaussian noise on sums over secret random samples guarantees: of examples, or of clients."""

from __future__ import annotations

import math
from collections import Counter

from fedldp.accounting.events import Event, SampledClientsGaussian, SampledGaussian
from fedldp.accounting.guarantees import FRESH, IDEALISED, Adversary, Guarantee, History, Unit
from fedldp.accounting.subsampled import (
    SampledRelease,
    fixed_size_sample,
    poisson_sample,
    sampled_epsilon,
)
from fedldp.errors import ConfigError

SECRET_RECORDS = "which examples a step samples is secret, and each is sampled on its own"
SECRET_CLIENTS = (
    "who takes part is secret, but for what those who collude know of themselves, and all sets of "
    "as many clients are equally likely"
)

_OF_CLIENTS = ("client-round", "client-run")
_METHOD = "dominating pairs composed numerically, an upper bound (Zhu, Dong, Wang 2022)"


def is_sampled(history: History) -> bool:
    """Return whether ``history`` is one for ``sampled_guarantee``."""
    return any(isinstance(event, SampledGaussian | SampledClientsGaussian) for event in history)


def sampled_guarantee(
    history: History, unit: Unit, adversary: Adversary, delta: float
) -> Guarantee:
    """Return what a history of ``SampledGaussian``, or of ``SampledClientsGaussian``, guarantees.

    Args:
        history: how often each was released.
        unit: "record" for the former; for the latter "client-round" or "client-run".
        adversary: "server" or "downlink" for the former, who learns no more; "downlink" for the
            latter.
        delta: from 0 to below 1; there is no guarantee at 0.

    Raises:
        ConfigError: for such a history, nothing is known of this unit and adversary.
    """
    releases: Counter[SampledRelease] = Counter()
    for event, times in history.items():
        release, each = _release(event, unit, adversary)
        releases[release] += times * each
    epsilon = sampled_epsilon(releases, delta)
    proven = math.isfinite(epsilon)
    sums, secret = ("steps", SECRET_RECORDS) if unit == "record" else ("rounds", SECRET_CLIENTS)
    return Guarantee(
        unit=unit,
        adversary=adversary,
        neighbours="replace-record" if unit == "record" else "replace-client",
        kind="approximate" if proven else "none",
        epsilon=epsilon if proven else None,
        delta=delta if proven else 0.0,
        assumptions=[FRESH, IDEALISED, secret] if proven else [],
        method=f"{releases.total():,} {sums}: {_METHOD}"
        if proven
        else "none: Gaussian noise gives no pure guarantee",
    )


def _release(event: Event, unit: Unit, adversary: Adversary) -> tuple[SampledRelease, int]:
    """Return what accountants know an event as, and how many such releases it is."""
    match event:
        case SampledGaussian() if unit == "record" and adversary in ("server", "downlink"):
            return poisson_sample(event.noise_multiplier, event.sampling_rate), event.steps
        case SampledClientsGaussian() if unit in _OF_CLIENTS and adversary == "downlink":
            size, population = event.sample_size, event.population
            return fixed_size_sample(event.noise_multiplier, size, population), 1
    raise ConfigError(
        f"event {type(event).__name__}: among sampled sums, no accountant knows what it costs a "
        f"{unit} against {adversary}; charge a PerRecord event, or the server's release"
    )
