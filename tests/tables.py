"""Releases written as a table by round and client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fedldp.accounting.events import Event
from fedldp.accounting.guarantees import Adversary, Guarantee
from fedldp.accounting.releases import Cohort, ReleaseHistory, rounds_of
from fedldp.accounting.statement import SumInPath, statement

Table = Mapping[int, Mapping[int, Event]]

DOWNLINK = -1
"""The index of the server's broadcasts in a table."""


def released(table: Table) -> ReleaseHistory:
    """Return the releases of ``table``: the event of each client in each round."""
    rounds: dict[Event, dict[int, int]] = {}
    server: dict[Event, int] = {}
    for round, by_client in table.items():
        for client, event in by_client.items():
            if client == DOWNLINK:
                server[event] = server.get(event, 0) | 1 << round
            else:
                each = rounds.setdefault(event, {})
                each[client] = each.get(client, 0) | 1 << round
    blocks = {
        event: [Cohort(np.array([client], np.int32), bits) for client, bits in each.items()]
        for event, each in rounds.items()
    }
    return ReleaseHistory(blocks, server)


def table_of(releases: ReleaseHistory) -> dict[int, dict[int, Event]]:
    """Return releases as a table, with rounds and clients in ascending order."""
    found: dict[int, dict[int, Event]] = {}
    for event, blocks in releases._blocks.items():
        for clients, bits in blocks:
            for round in rounds_of(bits):
                for client in clients.tolist():
                    assert client not in found.setdefault(round, {})
                    found[round][client] = event
    for event, bits in releases._server.items():
        for round in rounds_of(bits):
            found.setdefault(round, {})[DOWNLINK] = event
    return {round: dict(sorted(found[round].items())) for round in sorted(found)}


def stated(table: Table | ReleaseHistory, delta: float = 1e-5, **given: Any) -> list[Guarantee]:
    """Return the lines about releases, without a claim and a shuffler unless these are given."""
    releases = table if isinstance(table, ReleaseHistory) else released(table)
    given = {"claim": None, "shuffler": None, **given}
    return list(statement(releases, delta=delta, **given).guarantees)


def of_unit(found: Iterable[Guarantee], unit: str, adversary: str = "server") -> list[Guarantee]:
    """Return those of some lines that are about a unit, against an adversary."""
    return [line for line in found if (line.unit, line.adversary) == (unit, adversary)]


def lines_against(
    adversary: Adversary,
    event: Event,
    clients: int,
    rounds: int,
    **given: Any,
) -> list[Guarantee]:
    """Return the lines against an adversary, at delta 1e-5, if all clients, or the server alone,
    release the same in each round."""
    who = [DOWNLINK] if adversary == "downlink" else range(clients)
    if adversary == "summing-server":
        given["summed"] = SumInPath(untrusted_clients=1)
    table = {round: dict.fromkeys(who, event) for round in range(1, rounds + 1)}
    return [line for line in stated(table, **given) if line.adversary == adversary]
