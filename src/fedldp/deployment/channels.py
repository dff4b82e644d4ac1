"""A system's two roles as a channel uses them: unchanged, or wrapped in a secure sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedldp.protocol.roles import ClientRole, ServerRole
from fedldp.secure_sum.client_role import summed_client
from fedldp.secure_sum.identities import Identity, Roster
from fedldp.secure_sum.server_role import SumOfRound, summed_server

if TYPE_CHECKING:
    import torch

    from fedldp.deployment.agreement import Agreement


def client_role(
    agreement: Agreement, index: int, key: Ed25519PrivateKey, device: torch.device
) -> ClientRole:
    """Return the role that runs at one site; ``key`` is the site's identity."""
    config, problem = agreement.config, agreement.problem
    if agreement.summing is None:
        return config.algorithm(problem).client(index, device)
    committees, roster = agreement.config.committees, _roster(agreement)
    if committees.number > 1:  # a single sum needs the whole roster: participants may vary by round
        roster = roster.of(committees.members(committees.of(index)))
    identity = Identity(roster=roster, index=index, private=key.private_bytes_raw())
    inner = config.algorithm(problem).inside().client(index, device)
    return summed_client(inner, agreement.summing, agreement.setup, identity)


def server_role(agreement: Agreement, heard: Callable[[SumOfRound], None]) -> ServerRole:
    """Return the role that runs on the server; it calls ``heard`` with each round's sum."""
    config, problem = agreement.config, agreement.problem
    if agreement.summing is None:
        return config.algorithm(problem).server()
    return summed_server(
        config.algorithm(problem).inside().server(),
        agreement.summing,
        agreement.setup,
        committees=config.committees,
        roster=_roster(agreement),
        heard=heard,
    )


def _roster(agreement: Agreement) -> Roster:
    keys = {index: bytes.fromhex(site.key) for index, site in enumerate(agreement.sites)}
    return Roster(run=agreement.run, keys=keys)
