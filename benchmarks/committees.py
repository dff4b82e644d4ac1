"""Measures what a client of a secure sum computes and sends, in one sum and in a committee.

    python -m benchmarks.committees [--size 10000] [SUM...]

For each number of clients in a sum, one client goes through its four phases in this process. The
other clients exist only as far as it can see them: certified keys, and a box that each has sealed
for it. The work of a client in a committee of 100 does not depend on other committees, so its row
holds for 1,000 clients and for 10,000. Reports are one random bit for each weight. Two thirds of a
sum must stay to the end; here all do. Bytes are those of the secure sum's own messages.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedldp.core.randomness import KEY_BYTES, Stream
from fedldp.mechanisms.summing import counts_of_bits
from fedldp.secure_sum.client import SecureSumClient
from fedldp.secure_sum.crypto import agree, derive, public_key, seal
from fedldp.secure_sum.identities import Identity, Roster
from fedldp.secure_sum.messages import SHARES_BYTES, SecureSum, SumKind, pack, unpack

RUN, ROUND, OWN = "0" * 32, 1, 0


class Timed:
    """Adds up the CPU seconds of one client, and the bytes that it sends."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.up = 0

    def __call__(self, phase: Callable[[], bytes]) -> bytes:
        started = time.process_time()
        message = phase()
        self.seconds.append(time.process_time() - started)
        self.up += len(message)
        return message


def measure(clients: int, size: int) -> str:
    """Return a row of the table."""
    summing = counts_of_bits(size, clients)
    setup = SecureSum.of(summing, clients, None)
    private = [Ed25519PrivateKey.generate() for _ in range(clients)]
    keys = {u: key.public_key().public_bytes_raw() for u, key in enumerate(private)}
    roster = Roster(run=RUN, keys=keys)
    boxes = [os.urandom(KEY_BYTES) for _ in range(clients)]
    records = {}
    for u in range(1, clients):
        identity = Identity(roster=roster, index=u, private=private[u].private_bytes_raw())
        own = public_key(boxes[u]) + public_key(os.urandom(KEY_BYTES))
        records[u] = own + identity.signature(setup, ROUND, own)
    identity = Identity(roster=roster, index=OWN, private=private[OWN].private_bytes_raw())
    client = SecureSumClient(setup, ROUND, OWN, Stream.fresh(), identity=identity)
    timed = Timed()
    sent = timed(client.advertise)
    width = len(records[1])
    records[OWN] = unpack(SumKind.CLIENT_KEYS, ROUND, sent, width)[OWN]
    told = pack(SumKind.ALL_KEYS, ROUND, records)
    sealed = timed(lambda: client.share_keys(told))
    context = setup.context(b"", told)
    box_width = (len(sealed) - len(pack(SumKind.CLIENT_SHARES, ROUND, {OWN: b""}))) // clients
    row = unpack(SumKind.CLIENT_SHARES, ROUND, sealed, box_width * clients)[OWN]
    for_own = {OWN: row[:box_width]}
    for u in range(1, clients):
        secret = agree(boxes[u], records[OWN][:KEY_BYTES])
        key = derive(secret, "shares", context, u, OWN)
        for_own[u] = seal(key, os.urandom(SHARES_BYTES))
    shares = pack(SumKind.OWN_SHARES, ROUND, for_own)
    bits = np.random.default_rng(0).integers(0, 2, size, np.uint8)
    timed(lambda: client.masked_input(told, shares, lambda: bits))
    survivors = pack(SumKind.ALL_SURVIVORS, ROUND, dict.fromkeys(records, b""))
    timed(lambda: client.unmask(told, shares, survivors))
    down = len(told) + len(shares) + len(survivors)
    cells = [f"{clients:,}", f"{size:,}", f"{down:,}", f"{timed.up:,}"]
    cells += [f"{seconds:.3f}" for seconds in (*timed.seconds, sum(timed.seconds))]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sums", nargs="*", type=int, default=[100, 1_000, 10_000])
    parser.add_argument("--size", type=int, default=10_000)
    given = parser.parse_args()
    phases = ["advertise", "share", "mask", "unmask", "in all"]
    heads = ["clients of a sum", "d", "bytes down", "bytes up", *(f"{p}, CPU s" for p in phases)]
    print("| " + " | ".join(heads) + " |")
    print("|" + "---|" * len(heads))
    for clients in given.sums:
        print(measure(clients, given.size), flush=True)


if __name__ == "__main__":
    main()
