"""Which configurations real sites can run, and why others cannot be deployed."""

from __future__ import annotations

import itertools

from fedldp.accounting.accountants import real_arithmetic_only
from fedldp.accounting.events import within
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.settings import is_own
from fedldp.core.errors import ConfigError


def without_simulation(config: RunConfig) -> RunConfig:
    """Return ``config`` without the settings that only a simulation needs.

    A system that uses a shuffler by itself gets ``channel = named`` and no ``untrusted_clients``,
    because the agreement has its own settings of these names.
    """
    _check_values(config)
    # Per-client values are kept: all sites see these values, if each site consents. In their place,
    # all see the largest budget if the budgets stay at the sites.
    public = {n: getattr(config, n) for n in config.per_client}
    largest = config.composition.calibration.largest
    if largest is not None and is_own(public["epsilon"]):
        public["epsilon"] = largest
    without = config.for_client(0).changed(**public)
    if config.composition.channel.delays is None:
        return without
    return without.changed(channel="named", chunk=1, untrusted_clients=0)


def check_told(config: RunConfig) -> None:
    """Refuse a configuration that may not be shown to every site."""
    _check_values(config)
    for name in config.simulation_only:
        if getattr(config, name) != type(config).model_fields[name].default:
            raise ConfigError(f"{name} is for simulation only; leave it out of the agreement")
    if config.composition.channel.delays is not None:
        raise ConfigError(
            f"system = {config.name()}: it needs a shuffler, and a deployment has none; set "
            "channel = sum or channel = named"
        )


def _check_values(config: RunConfig) -> None:
    """Refuse sampling and shufflers, because nobody runs one in a deployment."""
    if config.composition.channel.shuffles_reports:
        raise ConfigError(
            f"channel = shuffle and mechanism = {config.composition.calibration.kind.name}: whole "
            "reports need a relay that a third party runs between sites and server, and a "
            "deployment has none; set channel = named"
        )
    if config.target is not None and config.target.adversary == "shuffled-server":
        raise ConfigError(
            "target.adversary = shuffled-server: a deployment has no shuffler; set "
            "target.adversary = summing-server and channel = sum"
        )
    if (rate := getattr(config, "sample_rate", 1)) < 1:
        raise ConfigError(
            f"sample_rate = {rate:g}: the duration of a step reveals how many people were "
            "sampled, and no budget kind covers sums over sampled people; sampling is for "
            "simulation only; set sample_rate = 1"
        )
    if getattr(config, "channel", None) == "shuffle":
        raise ConfigError(
            "channel = shuffle: a deployment has no shuffler; set channel = sum, which hides "
            "what a shuffler of single weights would hide"
        )


def check_system(config: RunConfig, problem: Problem) -> None:
    """Refuse a system whose privacy holds for real numbers only, and so only in a simulation."""
    encoder = config.algorithm(problem).encoder(0)
    firsts = [stage[0] for stage in config.composition.stages_of(config.rounds)]
    for round, phase in itertools.product(firsts, range(config.composition.channel.phases)):
        event = encoder.event(phase, round)
        if real_arithmetic_only(event):
            kind = [type(part).__name__ for part in within(event) if real_arithmetic_only(part)][-1]
            raise ConfigError(
                f"system = {config.name()}: its {kind} is private for real numbers only, not for "
                "the floats that would be sent; the system is for simulation only"
            )
    downlink = config.algorithm(problem).server().downlink
    if downlink is not None and any(real_arithmetic_only(downlink(round)) for round in firsts):
        raise ConfigError(
            f"system = {config.name()}: its server's noise is private for real numbers only; the "
            "system is for simulation only"
            + ("; set noise = discrete-gaussian and clip" if config.has("noise") else "")
        )
