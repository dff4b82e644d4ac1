"""Personalised LDP: clients choose their budgets, and the server weights clients by their noise.

    Broadcast: weights W(r-1)
        |
        v
    local_update  a portion of the client's examples, each kept with probability q; SGD -> G_i
        |         Sensitive weights
        v
    encoder       every coordinate clipped to [-c_i, c_i]
        |         gaussian: + N(0, sigma_i^2)             32 bits per coordinate
        |         sign: ldpsign, +1 with probability Phi(p/sigma_i), else -1        1 bit
        |         Report with its sender
        v
    server_step   mean (A), weighted by rho_i = 1/sigma_i (B), or of a selection (C)
                  sign: the sign of this result, so that weights are -1, 0 or 1 -> next Broadcast

Clients tell the server (epsilon_i, delta_i, c_i), and so sigma_i, before training; these values are
public. The paper sets delta_i = 1/|D_i|, which then reveals the number of examples that the client
has.

The paper claims stronger guarantees than those that hold. The Gaussian's sigma_i assumes that
reports differ by at most 1 in L2 norm, while the clip proves 2 c_i sqrt(d). The sign's sigma_i
comes from a formula for epsilon up to 1, with Delta_2 = 2 c_i, the range of one coordinate. In (C)
all clients have sent their reports before the server selects some, so all pay in every round.

Source: X. Wu, L. Xu, L. Zhu, "Local Differential Privacy-Based Federated Learning under
Personalized Settings", Appl. Sci. 2023, 13(7), 4168. The paper does not state the number U of local
steps, the concentration of the Dirichlet partition, or what (C) does if it selects nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Literal

from fedldp.accounting.statement import Claim
from fedldp.algorithms.bounds import InBox, Unbounded
from fedldp.algorithms.calibration import Fixed
from fedldp.algorithms.composition import Composition
from fedldp.algorithms.features import Features
from fedldp.algorithms.preset import Settings, preset
from fedldp.algorithms.server_update import Estimate, OwnMean
from fedldp.algorithms.settings import Mark, Offers, is_own, of_client
from fedldp.core.errors import ConfigError
from fedldp.mechanisms.none import Plain
from fedldp.papers.personalized.parts import (
    MEANING,
    ClientDelta,
    Clip,
    Epsilon,
    MeanByNoise,
    PersonalSettings,
    Portions,
    PublishedNoise,
    by_power,
    check_each,
    selection,
    symbolised,
    weighted,
)


class Personalized(Offers):
    """The settings of the published system alone."""

    epsilon: Annotated[Epsilon | None, Mark.PER_CLIENT] = None
    """the budget epsilon_i that the paper claims, required with noise; a list gives each client its
    own budget"""
    client_delta: ClientDelta = None
    """the paper's delta_i: one number for all clients, or a list; if not set, delta is used"""
    clip: Clip
    """c_i, the largest magnitude of each coordinate: one number for all clients or a list"""
    perturbation: Literal["gaussian", "sign", "none", "bare-sign"] = "gaussian"
    """how clients perturb their weights: gaussian (clip and add noise), sign (clip and send
    randomised signs), none (clip only) or bare-sign (send signs, without clipping or noise)"""
    aggregation: Literal["mean", "weighted", "selection"] = "mean"
    """how the server combines reports: mean (A), weighted by 1/sigma_i (B), or the mean of a
    selection by 1/sigma_i (C)"""
    empty_selection: Literal["redraw", "keep"] = "redraw"
    """what happens if (C) selects nobody: redraw (draw again), or keep (the last weights remain)"""


@preset(Personalized, PersonalSettings)
def personalized(settings: Settings) -> Composition:
    """Personalised LDP as published; ``aggregation`` is its method (A), (B) or (C)."""
    check(settings)
    signs, redraw = sends_signs(settings), settings.empty_selection == "redraw"
    noise = PublishedNoise(settings=settings) if has_noise(settings) else None
    plain = Plain("signs-of-weights", signs=True) if signs else Plain("clipped-weights")
    rules = {"mean": by_power(0), "weighted": weighted, "selection": selection(redraw=redraw)}
    by_noise: Estimate = MeanByNoise(
        settings=settings,
        mechanism=noise.of_size if noise else lambda client, size: plain,
        sigma=noise.sigma if noise else None,
        shares=rules[settings.aggregation],
        setting=f"aggregation = {settings.aggregation}",
        signs=signs,
    )
    return Composition(
        local=Portions.of(settings),
        features=Features(scale=settings.feature_scale),
        bound=Unbounded()
        if noise is None and signs
        else lambda client: InBox(most=of_client(settings.clip, client)),
        calibration=noise or Fixed(every=plain, meaning=MEANING),
        estimate=OwnMean() if nameless(settings) else by_noise,
        finish=symbolised if signs else None,
        claim=partial(claim, noise) if noise else None,
        unused=unused(settings),
    )


def nameless(settings: Settings) -> bool:
    """Return whether reports for a plain mean of equal clients use a channel that hides names."""
    alike = not any(is_own(getattr(settings, name)) for name in settings.per_client)
    hidden = settings.channel in ("shuffle", "sum")
    return hidden and alike and settings.aggregation == "mean"


def claim(noise: PublishedNoise) -> Claim:
    """Return the claim for the client with the largest epsilon; it covers two records."""
    epsilon, delta = noise.largest_budget()
    return Claim(
        epsilon=epsilon,
        delta=delta,
        unit="record",
        source="Wu, Xu, Zhu 2023, Definition 1 and Section 3.1, Model perturbation",
    )


def has_noise(settings: Settings) -> bool:
    """Return whether clients randomise anything."""
    return settings.perturbation in ("gaussian", "sign")


def sends_signs(settings: Settings) -> bool:
    """Return whether clients and server reduce weights to their signs."""
    return settings.perturbation in ("sign", "bare-sign")


def check(settings: Settings) -> None:
    """Refuse settings that are incompatible with each other.

    Raises:
        ConfigError: some settings are incompatible with each other.
    """
    check_each(settings)
    named = f"perturbation = {settings.perturbation}"
    if not has_noise(settings) and settings.aggregation != "mean":
        raise ConfigError(
            f"aggregation = {settings.aggregation}: it weights clients by their noise, but "
            f"{named} has none; set aggregation = mean"
        )
    if has_noise(settings) and settings.epsilon is None:
        raise ConfigError(
            f"epsilon is not set, but {named} needs it; give one number for all clients, or one "
            "per client"
        )
    step = (settings.server_optimizer, settings.server_rate)
    if sends_signs(settings) and step != ("none", 1):
        raise ConfigError(
            f"server_optimizer = {step[0]}, server_rate = {step[1]:g} and {named}: the server uses "
            "the signs of the mean as the next weights, without a step; set server_optimizer = "
            "none and server_rate = 1, or perturbation = gaussian"
        )
    if settings.perturbation == "gaussian" and settings.sampling_probability == 1:
        raise ConfigError(
            "sampling_probability = 1: the paper's sigma divides by 1 - q; give less than 1 with "
            "perturbation = gaussian"
        )
    drawn = settings.clients_per_round
    if settings.aggregation == "selection" and drawn not in (None, settings.num_clients):
        raise ConfigError(
            f"clients_per_round = {drawn}: with aggregation = selection the server selects among "
            "the reports of all clients; leave it out"
        )
    if settings.aggregation == "selection" and settings.participation == "once":
        raise ConfigError(
            "participation = once and aggregation = selection: the server selects among the "
            "reports of all clients; set participation = all"
        )


def unused(settings: Settings) -> Mapping[str, str]:
    """Return the settings that have no effect with the others, with reasons."""
    found = {}
    if not has_noise(settings):
        reason = f"perturbation = {settings.perturbation} has no noise"
        found = {"epsilon": reason, "client_delta": reason}
    if settings.aggregation != "selection":
        found["empty_selection"] = f"aggregation = {settings.aggregation} selects nobody"
    return found
