"""Measures bytes and CPU seconds of a round through the secure sum, by phase.

    python benchmarks/secure_sum_bytes.py [N,D ...]

For each number of clients N and weights D, one round runs in this process. Every request and
answer is packed as it would be sent, with a deployment's envelope, and keys are certified. Reports
are one random bit for each weight. The transport (TLS, HTTP or Flower) adds further bytes. The
script prints a row of a Markdown table for each round, with the bytes of the client that has the
most.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedldp.accounting.events import Event, InClear
from fedldp.core.randomness import Stream
from fedldp.deployment.messages import DIGEST_BYTES, ENVELOPE
from fedldp.mechanisms.summing import counts_of_bits
from fedldp.protocol.client_store import MemoryStore
from fedldp.protocol.keys import draws_of_seed
from fedldp.protocol.roles import ClientRole, Metrics, Sender, Senders, ServerRole, State, Update
from fedldp.protocol.server_loop import Delivery, Loop
from fedldp.protocol.updates import alone, each_alone
from fedldp.protocol.wire import (
    Broadcast,
    Incoming,
    Report,
    Reports,
    RoundRequest,
    Sensitive,
    pack_reply,
    pack_request,
    read_request,
)
from fedldp.secure_sum.client import Phase, summed_client
from fedldp.secure_sum.identities import Identity, Roster
from fedldp.secure_sum.messages import SecureSum
from fedldp.secure_sum.server import summed_server

RUN = "0" * 32
"""A name as long as that of a deployed run."""
USUAL = [(n, d) for d in (1_000, 100_000, 10_000_000) for n in (3, 10, 25, 100)]


@dataclass(frozen=True)
class Bits:
    """An encoder of random bits."""

    def event(self, phase: int = 0, round: int = 1) -> Event:
        return InClear(what="random bits")

    def __call__(
        self, update: Sensitive[Update], broadcast: Broadcast, senders: Senders
    ) -> Reports:
        return each_alone(self._bits, update, broadcast, senders)

    def _bits(self, update: Sensitive[Update], broadcast: Broadcast, sender: Sender) -> Report:
        size = broadcast.weights.size
        payload = np.packbits(np.unpackbits(sender.fresh("bits").bytes(-(-size // 8)), count=size))
        return Report(round=broadcast.round, size=size, payload=payload.tobytes(), chunk=size)


@dataclass
class Counting:
    """A transport to clients in this process that counts bytes.

    Attributes:
        encoders: by client.
        down: the most bytes that a client received, by phase.
        up: the most bytes that a client sent, by phase.
        seconds: of all clients.
    """

    encoders: dict[int, ClientRole]
    down: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    up: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    seconds: float = 0.0
    stores: dict[int, MemoryStore] = field(default_factory=dict)

    def exchange(self, request: RoundRequest, clients: Sequence[int]) -> Iterator[Delivery]:
        phase = request.phase
        for client in clients:
            asked = pack_request(request.to(client))
            self.down[phase] = max(self.down[phase], ENVELOPE + len(asked))
            started = time.process_time()
            sender = Sender(
                index=client,
                num_examples=Sensitive(1),
                fresh=lambda purpose: Stream.fresh(),
                kept=lambda purpose: Stream.fresh(),
                store=self.stores.setdefault(client, MemoryStore()),
                phase=phase,
            )
            told = read_request(asked).broadcast
            report = alone(self.encoders[client].encoder, Sensitive(None), told, sender)
            self.seconds += time.process_time() - started
            answer = pack_reply(report, run=request.run, phase=phase)
            size = (
                ENVELOPE - DIGEST_BYTES + len(answer)
            )  # an answer has a receipt in its envelope, and no digest
            self.up[phase] = max(self.up[phase], size)
            yield client, report


def first(draw: object) -> State:
    """Return no state, because the loop gets one."""
    raise NotImplementedError


def kept(state: State, reports: Incoming, draw: object) -> tuple[State, Metrics]:
    """Check that the total exists, and return the next state."""
    (total,) = reports
    return state.next(state.weights), {"reports": float(getattr(total, "reports", 0))}


def measure(clients: int, size: int) -> str:
    """Run one round, and return a row of the table."""
    summing = counts_of_bits(size, clients)
    setup = SecureSum.of(summing, clients, None)
    private = {u: Ed25519PrivateKey.generate() for u in range(clients)}
    public = {u: key.public_key().public_bytes_raw() for u, key in private.items()}
    roster = Roster(run=RUN, keys=public)
    roles = {}
    for u, key in private.items():
        identity = Identity(roster=roster, index=u, private=key.private_bytes_raw())
        plain = ClientRole(local_update=None, encoder=Bits())  # type: ignore[arg-type]
        roles[u] = summed_client(plain, summing, setup, identity)
    transport = Counting(roles)
    server = summed_server(ServerRole(initial=first, aggregate=kept), summing, setup, roster=roster)
    loop = Loop(
        run=RUN,
        server=server,
        rounds=1,
        participants=lambda round: range(clients),
        transport=transport,
        draws=draws_of_seed(0),
        evaluate=lambda broadcast: None,
    )
    figures: list[Metrics] = []
    started = time.process_time()
    loop.go(
        State(weights=np.zeros(size, np.float32)),
        lambda state, record: figures.append(record.metrics),
    )
    seconds = time.process_time() - started
    assert figures == [{"reports": float(clients), "clients_in_sum": float(clients)}]
    down = [transport.down[phase] for phase in Phase]
    up = [transport.up[phase] for phase in Phase]
    cells = [*down, sum(down), *up, sum(up)]
    client = transport.seconds / clients
    row = [f"{clients}", f"{size:,}", *(f"{cell:,}" for cell in cells), f"{client:.3f}"]
    return " | ".join(["", *row, f"{seconds - transport.seconds:.3f}", ""]).strip()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", nargs="*", metavar="N,D")
    given = [tuple(map(int, pair.split(","))) for pair in parser.parse_args().pairs]
    names = [phase.name for phase in Phase]
    heads = ["n", "d", *(f"down {name}" for name in names), "down", *(f"up {n}" for n in names)]
    heads += ["up", "client s", "server s"]
    print("| " + " | ".join(heads) + " |")
    print("|" + "---|" * len(heads))
    for clients, size in given or USUAL:
        print(measure(clients, size), flush=True)


if __name__ == "__main__":
    main()
