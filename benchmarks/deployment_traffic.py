"""Searches all traffic between a site, Flower and the server for what it must not contain.

    unshare --net sh -c 'ip link set lo up; python benchmarks/deployment_traffic.py --out FILE'

Three sites run over the real Flower, in ``named`` and in ``sum``. The script searches every byte on
the loopback interface, on the agents' Unix sockets, in the SuperLink's database (also while it is
written), on the server's disk and in all logs. It looks for the sites' examples, for weights before
they are randomised and, in ``sum``, for single reports before they are masked. The same search also
looks for what must be there, because otherwise finding nothing would prove nothing.

It needs Linux, root, and a loopback interface that nothing else uses, as ``unshare`` provides.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import struct
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view as views
from numpy.typing import NDArray

from fedldp.deployment.frames import read_frame, write_frame
from fedldp.deployment.loopback import Loopback
from fedldp.deployment.messages import NO_RECEIPT, Answered, Ask, pack, read_by_server, read_by_site
from fedldp.deployment.parties import DemoEnvironment, Running
from fedldp.deployment.policy import write_accepted
from fedldp.deployment.site import Agent
from fedldp.deployment.sockets import listen
from fedldp.protocol.client_runtime import ClientRuntime
from fedldp.protocol.wire import Report, read_reply, read_request
from fedldp.secure_sum.client_role import SummedEncoder
from fedldp.simulation.settings import resolve

WINDOW = 16
"""The search finds this many consecutive bytes of a secret, anywhere."""
PLAIN = 4
"""A window with eight bytes of fewer distinct values is skipped: it occurs everywhere."""
PAGE, WAL_HEADER, FRAME_HEADER = 4096, 32, 24
PACKET_STATISTICS, OUTGOING, FORCE_BUFFER = 6, 4, 33

Bytes = NDArray[np.uint8]


# Where the search looks: captured traffic


class Loop:
    """All TCP payloads on the loopback interface, by direction of a connection."""

    def __init__(self) -> None:
        self.streams: defaultdict[bytes, bytearray] = defaultdict(bytearray)
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self._socket.setsockopt(socket.SOL_SOCKET, FORCE_BUFFER, 1 << 29)
        self._socket.bind(("lo", 0))
        self._socket.settimeout(0.2)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        while not self._over.is_set():
            try:
                packet, address = self._socket.recvfrom(1 << 18)
            except TimeoutError:
                continue
            if address[2] == OUTGOING and packet[12:14] == b"\x08\x00" and packet[23] == 6:
                tcp = 14 + 4 * (packet[14] & 15)
                (length,) = struct.unpack_from(">H", packet, 16)
                end = 14 + length if length else len(packet)
                body = packet[tcp + 4 * (packet[tcp + 12] >> 4) : end]
                self.streams[packet[26:34] + packet[tcp : tcp + 4]] += body

    def close(self) -> int:
        """Stop, and return how many packets the kernel dropped."""
        time.sleep(1)  # for packets still on their way
        self._over.set()
        self._thread.join()
        statistics = self._socket.getsockopt(263, PACKET_STATISTICS, 8)
        self._socket.close()
        return int(struct.unpack("II", statistics)[1])


class Tap:
    """Sits in front of an agent's socket, forwards all bytes and keeps them."""

    def __init__(self, path: Path, agent: Path) -> None:
        self.asked: list[bytes] = []
        self.answered: list[bytes] = []
        self._agent, self._socket = agent, listen(path)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            threading.Thread(target=self._one, args=(connection,), daemon=True).start()

    def _one(self, pipe: socket.socket) -> None:
        with pipe, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as agent:
            self.asked.append(read_frame(pipe, 1 << 30))
            agent.connect(str(self._agent))
            write_frame(agent, self.asked[-1])
            answer = read_frame(agent, 1 << 30)
            self.answered.append(answer)
            write_frame(pipe, answer)


class Database:
    """All pages ever seen in the SuperLink's database and its write-ahead log."""

    def __init__(self, folder: Path) -> None:
        self.pages: set[bytes] = set()
        self._folder, self._over = folder, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.2):
            self.look()

    def look(self) -> None:
        for path in self._folder.glob("superlink.db*"):
            with contextlib.suppress(OSError):
                content = path.read_bytes()
                wal = path.name.endswith("-wal")
                step = PAGE + FRAME_HEADER if wal else PAGE
                for start in range(WAL_HEADER if wal else 0, len(content), step):
                    self.pages.add(content[start : start + step])

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self.look()


# Search


def informative(secret: bytes) -> Bytes:
    """Return the windows of a secret to search for, shape (n, WINDOW)."""
    if len(secret) < WINDOW:
        return np.empty((0, WINDOW), np.uint8)
    raw = np.frombuffer(secret, np.uint8)
    different = 1 + (np.diff(np.sort(views(raw, 8), axis=1), axis=1) != 0).sum(axis=1)
    kept = (views(different, WINDOW - 7) >= PLAIN).all(axis=1)
    return np.unique(views(raw, WINDOW)[kept], axis=0)


def found(windows: Bytes, places: Mapping[str, list[bytes]]) -> dict[str, int]:
    """Return how many of the windows occur at each place, at any offset.

    Any sixteen bytes contain eight that begin at a multiple of eight; these are looked up first.
    """
    halves = np.concatenate([windows[:, i : i + 8] for i in range(WINDOW - 7)])
    keys = np.unique(np.ascontiguousarray(halves).view(np.uint64))
    wanted = {each.tobytes() for each in windows}
    counts = {}
    for place, parts in places.items():
        there: set[bytes] = set()
        for part in parts:
            blocks = np.frombuffer(part, np.uint64, len(part) // 8)
            near = np.minimum(np.searchsorted(keys, blocks), len(keys) - 1)
            for block in np.flatnonzero(keys[near] == blocks) * 8:
                for start in range(max(0, block - 8), block + 1):
                    window = part[start : start + WINDOW]
                    if window in wanted:
                        there.add(window)
        counts[place] = len(there)
    return counts


def of_bits(bits: Bytes, places: Mapping[str, list[bytes]]) -> dict[str, int]:
    """Return how often 64 successive bits of a report, as numbers, occur at each place."""
    counts = dict.fromkeys(places, 0)
    for kind in (np.uint8, np.uint16, np.uint32, np.int64, np.float32):
        for start in range(0, bits.size - 63, 64):
            piece = bits[start : start + 64].astype(kind).tobytes()
            for place, parts in places.items():
                counts[place] += sum(piece in part for part in parts)
    return counts


# The run, and its secrets


class Secrets:
    """What each site trained and would have sent unmasked, computed again from the requests."""

    def __init__(self) -> None:
        self.weights: list[bytes] = []
        self.bits: list[Bytes] = []
        self.same = True

    @contextmanager
    def listening(self) -> Iterator[None]:
        train, words = ClientRuntime._train, SummedEncoder._kept_words

        def trained(runtime: ClientRuntime, pending: Any) -> Any:
            update = train(runtime, pending)
            value = update.open()
            if value.size:
                self.weights.append(np.asarray(value, np.float32).tobytes())
            return update

        def masked(encoder: SummedEncoder, *given: Any) -> Any:
            found = words(encoder, *given)  # a word for each bit of the report
            self.bits.append(found.astype(np.uint8))
            return found

        ClientRuntime._train, SummedEncoder._kept_words = trained, masked  # type: ignore[method-assign]
        try:
            yield
        finally:
            ClientRuntime._train, SummedEncoder._kept_words = train, words  # type: ignore[method-assign]

    def compute(self, world: DemoEnvironment, taps: list[Tap], folder: Path) -> None:
        with self.listening():
            for site, tap in zip(world.sites, taps, strict=True):
                place = folder / site.key.parent.name
                place.mkdir()
                own = {"ledger": place / "ledger.sqlite", "state": place / "state"}
                policy = site.model_copy(update=own)
                write_accepted(policy, world.agreement)
                agent = Agent(policy, test_keys=True)
                for body in tap.asked:
                    if isinstance(message := read_by_site(body), Ask):
                        asked = pack(replace(message, receipt=NO_RECEIPT))
                        again = read_by_server(agent.answer(asked))
                        assert isinstance(again, Answered)
                        self.same &= any(again.answer in each for each in tap.answered)


def play(channel: Any, folder: Path) -> dict[str, Any]:
    """Run, listen and search; return what was found."""
    config = resolve("quickstart", ["num_clients=3", "rounds=2"])
    world = DemoEnvironment.made(folder, config, channel, "flower", None)
    examples = [fingerprinted(site.data) for site in world.sites]
    taps = [Tap(folder / f"tap-{i}" / "site.sock", s.socket) for i, s in enumerate(world.sites)]
    loop, database = Loop(), Database(folder / "flower")
    sockets = [folder / f"tap-{i}" / "site.sock" for i in range(3)]
    try:
        with Loopback(folder / "flower", sockets, world.run / "server.sock") as flower:
            running = Running(world, print, flower)
            try:
                running.start_own()
                running.start_flower()
                running.await_end()
                planted = examples[0][:WINDOW]
                plant(planted)
            finally:
                running.close()
    finally:
        database.close()
        dropped = loop.close()
    secrets = Secrets()
    secrets.compute(world, taps, Path(tempfile.mkdtemp(dir=folder)))
    if not secrets.same or len(secrets.weights) != 6:
        raise SystemExit("the trainings could not be computed again, so the search says nothing")
    files = [p for p in (*folder.glob("*.log"), *(folder / "flower").rglob("*")) if p.is_file()]
    files += [path for path in world.run.rglob("*") if path.is_file()]
    places = {
        "loopback interface": [bytes(each) for each in loop.streams.values()],
        "Unix sockets of the agents": [b for tap in taps for b in (*tap.asked, *tap.answered)],
        "database of the SuperLink": sorted(database.pages),
        "logs, server's and Flower's folders": [path.read_bytes() for path in files],
    }
    return searched(channel, places, examples, secrets, taps, dropped, planted)


def fingerprinted(data: Path) -> bytes:
    """Make a site's examples unmistakable, so that no two windows agree by chance; return them."""
    with np.load(data) as content:
        features, labels = content["features"], content["labels"]
    features = features + np.random.default_rng().uniform(0, 1e-3, features.shape)
    np.savez(data, features=features.astype(np.float32), labels=labels)
    return features.astype(np.float32).tobytes()


def plant(secret: bytes) -> None:
    """Send something over the loopback interface that the search must find."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        client.sendall(b"planted" + secret)
        server.accept()[0].close()


def searched(
    channel: str,
    places: Mapping[str, list[bytes]],
    examples: list[bytes],
    secrets: Secrets,
    taps: list[Tap],
    dropped: int,
    planted: bytes,
) -> dict[str, Any]:
    broadcasts, reports = [], []
    for tap in taps:
        for body in tap.asked:
            if isinstance(message := read_by_site(body), Ask):
                broadcasts.append(read_request(message.request).broadcast.weights.tobytes())
        for body in tap.answered:
            if isinstance(given := read_by_server(body), Answered):
                content = read_reply(given.answer)[2]
                if isinstance(content, Report):
                    reports.append(content.payload)
    public = {each.tobytes() for weights in set(broadcasts) for each in informative(weights)}

    def windows(parts: list[bytes]) -> Bytes:
        every = np.concatenate([informative(part) for part in parts])
        keep = [each.tobytes() not in public for each in every]
        return every[keep]

    double = [np.frombuffer(e, np.float32).astype(np.float64).tobytes() for e in examples]
    planted_windows = informative(planted)
    secret = {"examples, float32": windows(examples), "examples, float64": windows(double)}
    secret["weights before they are randomised"] = windows(secrets.weights)
    must = {"the broadcast weights": np.array([np.frombuffer(p, np.uint8) for p in public])}
    must["what the sites answered"] = windows(reports)
    result: dict[str, Any] = {"must not be there": {}, "must be there": {}}
    packed = [np.packbits(bits).tobytes() for bits in secrets.bits]
    if channel == "sum":
        secret["single reports, packed"] = windows(packed)
    for name, each in secret.items():
        counts = found(each, places)
        if name == "examples, float32":  # leave out the planted windows
            counts["loopback interface"] -= len(planted_windows)
        result["must not be there"][name] = {"windows": len(each), "found": counts}
    if channel == "sum":
        total = defaultdict[str, int](int)
        for bits in secrets.bits:
            for place, count in of_bits(bits, places).items():
                total[place] += count
        pieces = sum(5 * (bits.size // 64) for bits in secrets.bits)
        name = "single reports, a number for each bit (pieces of 64)"
        result["must not be there"][name] = {"windows": pieces, "found": dict(total)}
    for name, each in must.items():
        result["must be there"][name] = {"windows": len(each), "found": found(each, places)}
    only = {"loopback interface": places["loopback interface"]}
    result["must be there"]["an example that was planted"] = {
        "windows": len(planted_windows),
        "found": found(planted_windows, only),
    }
    return {
        "bytes": {place: sum(map(len, parts)) for place, parts in places.items()},
        "packets dropped": dropped,
        "trainings": len(secrets.weights),
        "computed again with the same answers": secrets.same,
        **result,
    }


def main() -> None:
    """Run over both channels, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    document: dict[str, Any] = {
        "versions": {name: version(name) for name in ("fedldp", "flwr", "torch")},
        "window": WINDOW,
        "channels": {},
    }
    for channel in ("named", "sum"):
        with tempfile.TemporaryDirectory(prefix="fedldp-") as folder:
            document["channels"][channel] = play(channel, Path(folder))
    text = json.dumps(document, indent=2) + "\n"
    print(text)
    if given.out is not None:
        given.out.write_text(text)
    leaks = [
        (channel, name)
        for channel, of in document["channels"].items()
        for name, each in of["must not be there"].items()
        if any(each["found"].values())
    ]
    if leaks:
        raise SystemExit(f"found what must not be there: {leaks}")


if __name__ == "__main__":
    main()
