"""Who released what in which round: what a statement is computed from.

Before a run this follows from the configuration, whose seed decides who takes part; after it, from
the ledgers. The two must agree. What the server itself releases, where it adds the noise, stands
among them under an index of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Literal

from fedldp.accounting.events import Event, PerRecord

Releases = Mapping[int, Mapping[int, Event]]
"""The event of every report, by round and then by client."""

DOWNLINK = -1
"""The index under which the server's own releases stand, where others stand under their client."""


def of_clients(releases: Releases, neighbours: Literal["client", "record"]) -> Releases:
    """Return what clients release, as it is for neighbours that differ in a client or a record."""
    return _kept(
        releases,
        lambda client: client != DOWNLINK,
        lambda event: getattr(event, neighbours) if isinstance(event, PerRecord) else event,
    )


def of_server(releases: Releases) -> Releases:
    """Return what the server's broadcasts release of the clients, where it says so."""
    return _kept(releases, lambda client: client == DOWNLINK, lambda event: event)


def _kept(
    releases: Releases, who: Callable[[int], bool], seen: Callable[[Event], Event]
) -> Releases:
    kept = {
        round: {client: seen(event) for client, event in one.items() if who(client)}
        for round, one in releases.items()
    }
    return {round: one for round, one in kept.items() if one}


def histories(releases: Releases) -> list[Counter[Event]]:
    """Return the histories that clients have: how often each released which event.

    Equal histories are given once, and of clients with one kind of event only those who released
    it most often: they bear the greatest cost.
    """
    by_client: dict[int, Counter[Event]] = {}
    for round_releases in releases.values():
        for client, event in round_releases.items():
            by_client.setdefault(client, Counter())[event] += 1
    single: Counter[Event] = Counter()
    mixed: set[frozenset[tuple[Event, int]]] = set()
    for history in by_client.values():
        if len(history) == 1:
            ((event, count),) = history.items()
            single[event] = max(single[event], count)
        else:
            mixed.add(frozenset(history.items()))
    return [Counter({event: n}) for event, n in single.items()] + [Counter(dict(m)) for m in mixed]


def crowds(releases: Releases) -> dict[Event, set[int]]:
    """Return for each event how many participants released it, in the rounds where some did."""
    found: dict[Event, set[int]] = {}
    for round_releases in releases.values():
        for event, size in Counter(round_releases.values()).items():
            found.setdefault(event, set()).add(size)
    return found
