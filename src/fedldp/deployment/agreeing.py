"""Makes the agreement on a run with real sites from a configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version

from fedldp.accounting.numerics.selftest import selftest
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.systems import name_and_digest
from fedldp.deployment.agreement import Agreement, Channel, Site, agreed
from fedldp.deployment.deployable import without_simulation
from fedldp.deployment.own_budgets import Joining, has_own_budgets
from fedldp.simulation.plan import calibrated

_RUN_BYTES = 16


def agree(
    config: RunConfig,
    problem: Problem,
    sites: Mapping[str, str],
    *,
    channel: Channel,
    quorum: int | None = None,
    deadline_seconds: float = 600.0,
    test_seed: int | None = None,
    server_ca: Sequence[str] = (),
    initial: str | None = None,
    invite: str | None = None,
    answers: Sequence[Joining] = (),
) -> Agreement:
    """Return the agreement on a run of ``config``.

    Args:
        config: any configuration; settings that only a simulation needs are left out of the
            agreement, and a target is replaced by the settings that meet it.
        problem: public facts about the data across all sites.
        sites: the public key of each site in hexadecimal, by the site's name, in roster order.
        channel: see ``Channel``.
        quorum: how many sites must take part in a round. None: all sites if the noise is sized for
            a sum of all of them; otherwise the smallest permitted sum, which is more than half of
            the total number of sites and untrusted clients.
        deadline_seconds: how long the server waits in each phase.
        test_seed: the seed for all randomness; for the demo only.
        server_ca: SHA-256 digests of the certificates of the authorities that may sign the server's
            certificate; see ``certificates.fingerprints``.
        initial: digest of the weights that the run begins with; see ``initial.digest_of_file``.
        invite: the digest of the invite that the sites answered.
        answers: their answers, which the agreement has if ``epsilon`` has a value for each site.

    Raises:
        ConfigError: the run cannot be deployed; the message says why.
    """
    selftest()
    run = os.urandom(_RUN_BYTES).hex()  # noqa: TID251  # a run's name
    roster = tuple(Site(name=name, key=key) for name, key in sites.items())
    config = config.changed(num_clients=len(roster))
    untrusted = config.untrusted_clients
    target, config = config.target, _decided(without_simulation(config), channel)

    facts = replace(problem, data_dir=None, num_clients=None)
    frozen = config.algorithm(facts).frozen_digest()

    def on(candidate: RunConfig) -> Agreement:
        found = Agreement(
            run=run,
            config=candidate,
            problem=facts,
            channel=channel,
            sites=roster,
            quorum=quorum or 1,
            untrusted_clients=untrusted,
            deadline_seconds=deadline_seconds,
            test_seed=test_seed,
            server_ca=tuple(server_ca),
            version=version("fedldp"),
            initial=initial,
            invite=invite,
            answers=tuple(answers) if has_own_budgets(candidate) else (),
            frozen=frozen,
            features=name_and_digest(candidate, facts),
        )
        found = found.changed(config=candidate.with_schedule(found.selecting(None)))
        if quorum is not None:
            return found.changed(quorum=quorum)
        return found.changed(quorum=min(_fewest(candidate, untrusted), found.fewest_in_sum))

    on(config).check()
    if target is not None:
        # The target must be met for the smallest sum that the quorum allows, because the
        # agreement's statement is about that sum.
        config = calibrated(config, target, lambda one: on(one).computed_statement(target.delta))
    agreement = on(config)
    agreement.check()
    return agreement.changed(statement=agreed(agreement.planned))


def _decided(config: RunConfig, channel: Channel) -> RunConfig:
    """Return ``config``; if its participation is ``auto``, replace it with what fedldp chooses."""
    if getattr(config, "participation", None) != "auto":
        return config
    # Only if the channel is named: a sum is more accurate with all sites in every round.
    if channel == "named" and config.answers_once:
        return config.changed(participation="once")
    if type(config).model_fields["participation"].default is None:
        return config.changed(participation=None)
    otherwise = config.with_participation(None).composition.participation
    return config.changed(participation=type(otherwise).__name__.lower())


def _fewest(config: RunConfig, untrusted: int) -> int:
    meaning = config.composition.calibration.meaning
    if meaning is not None and meaning.adversary == "summing-server":
        return config.fewest_in_sum
    return min((config.committees.most + untrusted) // 2 + 1, config.fewest_in_sum)
