"""Who takes part in a round."""

from __future__ import annotations

from fedldp.accounting.releases import DOWNLINK, Releases
from fedldp.randomness import SERVER, Stream
from fedldp.systems import Problem, SystemConfig


def participants(config: SystemConfig, round: int) -> list[int]:
    """Return the clients of ``round``, ascending: those whom the system chooses, where it does.

    Otherwise they are a uniform sample without replacement.
    """
    chosen = config.participants(round)
    if chosen is not None:
        return chosen
    if config.clients_per_round is None:
        return list(range(config.num_clients))
    stream = Stream.simulation(
        seed=config.seed, round=round, client=SERVER, purpose="participation"
    )
    drawn = stream.generator().choice(
        config.num_clients, size=config.clients_per_round, replace=False
    )
    return sorted(drawn.tolist())


def planned_releases(config: SystemConfig, size: int, problem: Problem) -> Releases:
    """Return what every client, and the server, will release, for a model of ``size`` weights."""
    events = [config.release(client, size, problem) for client in range(config.num_clients)]
    downlink = config.downlink(size, problem)
    servers = {} if downlink is None else {DOWNLINK: downlink}
    return {
        round: servers | {client: events[client] for client in participants(config, round)}
        for round in range(1, config.rounds + 1)
    }
