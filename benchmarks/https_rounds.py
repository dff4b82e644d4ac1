"""Measures what a round over HTTPS costs on this machine: seconds, bytes and memory.

    python -m benchmarks.https_rounds RESULTS.jsonl [--sites N] [--weights D] [--rounds R]
        [--channel named|sum]... [--one-process | --strangers]
    python -m benchmarks.https_rounds RESULTS.jsonl --page benchmarks/pages/https_rounds.md

A server and its sites run as separate processes, with TLS 1.3 on the loopback interface; ledgers
and the server's folder are synced as in any deployment. The seconds of a round run from the end of
the previous round. The first round, which begins before the sites are connected, is listed
separately as the cold start. Without --weights the recipe is quickstart; with it, a linear model of
D weights on four made-up examples a site, so that training takes no time.

With --one-process, all parties are threads of one process, and all traffic between them is counted:
bytes over TCP, with TLS and HTTP, for a site and a round, without round 1, in which sites connect.
All parties then share one interpreter, which the seconds show.

With --strangers, as many strangers as possible connect to the server's port in the second half of
the rounds, each time with an unknown key and over a new connection.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedldp.algorithms.config import RunConfig
from fedldp.data import load_examples
from fedldp.deployment.agreement import Channel
from fedldp.deployment.certificates import fingerprint, tls_of_server
from fedldp.deployment.demo import HOST, DemoEnvironment, Running, free_ports
from fedldp.deployment.https.hello import NO_DIGEST, Hello
from fedldp.deployment.https.site import tls_of_site
from fedldp.deployment.messages import NO_RECEIPT
from fedldp.deployment.policy import SitePolicy
from fedldp.deployment.running import OverHttps, pipe_of, serve_links
from fedldp.deployment.server import Server
from fedldp.deployment.site import Agent
from fedldp.protocol.server_loop import Round
from fedldp.simulation.settings import resolve

CLASSES, EXAMPLES_OF_SITE, TESTED = 10, 4, 10
CHANNELS: Sequence[Channel] = ("named", "sum")
KNOCKING = 16
MARK, END = "<!-- costs -->", "<!-- end of costs -->"


@dataclass(frozen=True)
class Cell:
    """One measurement.

    Attributes:
        sites: number of sites.
        weights: of the model; None for the recipe quickstart.
        channel: of the reports.
        one_process: whether all parties are threads of one process.
        strangers: whether strangers connect meanwhile.
    """

    sites: int
    weights: int | None
    channel: Channel
    one_process: bool
    strangers: bool = False


def config_of(cell: Cell, rounds: int, folder: Path) -> RunConfig:
    """Return the run's configuration, and write examples of a given size into ``folder``."""
    settings = [f"num_clients={cell.sites}", f"rounds={rounds}"]
    if cell.weights is not None:
        size = EXAMPLES_OF_SITE * cell.sites + TESTED
        features = np.random.default_rng(0).standard_normal((size, cell.weights // CLASSES))
        path = folder / "examples.npz"
        labels = np.arange(size) % CLASSES
        np.savez(path, features=features.astype(np.float32), labels=labels)
        settings += [f"dataset={path}", "standardise=false", "model=linear", "local_epochs=1"]
    return resolve("quickstart", settings)


# As processes


def in_processes(world: DemoEnvironment, cell: Cell) -> dict[str, Any]:
    """Return seconds and memory of a run whose parties are processes."""
    memory: dict[str, int] = {}
    ends: list[float] = []
    over = threading.Event()
    metrics = world.run / "metrics.jsonl"

    def watch() -> None:
        looks = 0
        while not over.wait(0.01):
            done = metrics.read_bytes().count(b"\n") if metrics.exists() else 0
            ends.extend([time.monotonic()] * (done - len(ends)))
            looks += 1
            if looks % 10 == 0:
                for name, peak in peaks().items():
                    memory[name] = max(peak, memory.get(name, 0))

    with closing(Running(world, lambda what: None)) as running:
        began = time.monotonic()
        running.start_own()
        watching = threading.Thread(target=watch)
        watching.start()
        try:
            quiet = world.agreement.config.rounds // 2 if cell.strangers else None
            knocked = None
            if quiet is not None:
                running.await_round(quiet)
                quiet, knocked = len(ends), knocking(world, over)
            running.await_round()
        finally:
            over.set()
            watching.join()
    agents = [peak for name, peak in memory.items() if name != "server"]
    found = {
        "cold_start": round(ends[0] - began, 2),
        "server_mb": memory["server"] // 10**6,
        "agent_mb": max(agents) // 10**6,
        **seconds(np.diff(ends[quiet:]).tolist()),
    }
    if knocked is not None:
        found["strangers_a_second"] = round(knocked() / (ends[-1] - ends[quiet]))
        found["quiet_median"] = seconds(np.diff(ends[:quiet]).tolist())["median"]
    return found


def knocking(world: DemoEnvironment, over: threading.Event) -> Callable[[], int]:
    """Let strangers connect until ``over``; return how many were turned away."""
    context = tls_of_site(world.folder / "ca.pem")
    url = f"https://{HOST}:{world.port}"
    certificate = tls_of_server(world.folder / "server.pem", world.folder / "server.key")[1]
    with httpx.Client(base_url=url, verify=context, trust_env=False) as client:
        nonce = client.get("/v1/nonce").text
    hello = Hello.signed(
        Ed25519PrivateKey.generate(), nonce=nonce, certificate=fingerprint(certificate),
        agreement=NO_DIGEST.hex(), receipt=NO_RECEIPT.hex(), version="0.1.0",
    ).to_bytes()  # fmt: skip
    head = f"POST /v1/hello HTTP/1.1\r\nhost: here\r\ncontent-length: {len(hello)}\r\n\r\n"
    counts = [0] * KNOCKING

    def knock(number: int) -> None:
        while not over.is_set():
            with (
                suppress(OSError),
                socket.create_connection((HOST, world.port)) as plain,
                context.wrap_socket(plain, server_hostname=HOST) as secured,
            ):
                secured.sendall(head.encode() + hello)
                counts[number] += secured.recv(1 << 12).startswith(b"HTTP/1.1 403")

    for number in range(KNOCKING):
        threading.Thread(target=knock, args=(number,), daemon=True).start()
    return lambda: sum(counts)


def peaks() -> dict[str, int]:
    """Return each party's peak memory so far in bytes, by the process's name."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes().split(b"\0")
            status = (place / "status").read_text()
        except OSError:
            continue  # the process ended meanwhile
        told = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        if int(told["PPid"]) == os.getpid() and b"deploy" in words and "VmHWM" in told:
            role = words[words.index(b"deploy") + 1].decode()
            name = role if role == "server" else place.name
            found[name] = int(told["VmHWM"].split()[0]) * 1024
    return found


def seconds(each: Sequence[float]) -> dict[str, Any]:
    later = sorted(each)
    return {
        "median": round(statistics.median(later), 3),
        "fastest": round(later[0], 3),
        "slowest": round(later[-1], 3),
    }


# In one process


class Counter:
    """Forwards connections to another port, and counts their bytes."""

    def __init__(self, port: int, target: int) -> None:
        self.port, self._target = port, target
        self.up = self.down = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Counter:
        self._thread.start()
        start = asyncio.start_server(self._one, HOST, self.port)
        self._server = asyncio.run_coroutine_threadsafe(start, self._loop).result()
        return self

    def __exit__(self, *given: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        """Close what is still open."""
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0)  # closes the connections that the tasks left

    async def _one(self, site: asyncio.StreamReader, to_site: asyncio.StreamWriter) -> None:
        try:
            server, to_server = await asyncio.open_connection(HOST, self._target)
        except OSError:
            to_site.close()
            return
        await asyncio.gather(
            self._pass(site, to_server, up=True), self._pass(server, to_site, up=False)
        )

    async def _pass(
        self, source: asyncio.StreamReader, to: asyncio.StreamWriter, *, up: bool
    ) -> None:
        try:
            while part := await source.read(1 << 18):
                self.up += len(part) * up
                self.down += len(part) * (not up)
                to.write(part)
                await to.drain()
        except OSError:
            pass
        finally:
            to.close()


def in_one_process(world: DemoEnvironment, cell: Cell) -> dict[str, Any]:
    """Return seconds and bytes of a run whose parties are threads."""
    (behind,) = free_ports(1)
    reached = OverHttps(
        f"{HOST}:{behind}", world.folder / "server.pem", world.folder / "server.key"
    )
    features = world.agreement.problem.features
    test = load_examples(
        Path(world.test[-1]), columns=world.agreement.config.columns, names=features
    )
    passed: list[tuple[float, int, int]] = []
    with ExitStack() as stack:
        counter = stack.enter_context(Counter(world.port, behind))
        server = Server(world.run, world.agreement.to_bytes(), test)
        listener = reached.listener(world.run.parent)
        stack.enter_context(listener.opened())
        pipe = stack.enter_context(listener.serving(pipe_of(world.agreement, listener.known_keys)))
        for policy in world.sites:
            stack.enter_context(linked(policy))

        def note(record: Round) -> None:
            passed.append((time.monotonic(), counter.down, counter.up))

        server.serve(pipe, note)
    ends, down, up = np.transpose(passed)
    of_one = (len(passed) - 1) * len(world.sites)
    return {
        "down": round((down[-1] - down[0]) / of_one),
        "up": round((up[-1] - up[0]) / of_one),
        **seconds(np.diff(ends).tolist()),
    }


@contextmanager
def linked(policy: SitePolicy) -> Iterator[None]:
    """Let a site's agent answer over HTTPS."""
    agent, stop = Agent(policy, test_keys=True), threading.Event()
    thread = threading.Thread(target=serve_links, args=(agent, stop))
    with agent.ledger.database.held():
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


# Results


def measured(cell: Cell, rounds: int) -> dict[str, Any]:
    """Return all measurements of a cell."""
    load = round(os.getloadavg()[0], 1)
    way = in_one_process if cell.one_process else in_processes
    with tempfile.TemporaryDirectory(prefix="fedldp-") as place:
        folder = Path(place)
        config = config_of(cell, rounds, folder)
        world = DemoEnvironment.made(folder, config, cell.channel, None)
        weights = world.agreement.layout.size
        found = way(world, cell)
    return {
        "sites": cell.sites,
        "weights": weights,
        "recipe": "quickstart" if cell.weights is None else None,
        "channel": cell.channel,
        "one_process": cell.one_process,
        "rounds": rounds,
        **found,
        "load_before": load,
        "cores": len(os.sched_getaffinity(0)),
    }


# The page


def tables(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the page's tables, with the latest measurement of each cell."""
    found = {(r["recipe"], r["sites"], r["weights"], r["channel"], _kind(r)): r for r in rows}

    def cells(recipe: str | None, channel: str) -> list[tuple[Any, Any]]:
        """Return each size's measurements: as processes, and in one process."""
        sizes = sorted({key[1:3] for key in found if key[0] == recipe and key[3] == channel})
        ways = ("processes", "one process")
        return [tuple(found.get((recipe, *at, channel, way)) for way in ways) for at in sizes]  # type: ignore[misc]

    lines = []
    for title, recipe, size in (
        ("quickstart, 650 weights", "quickstart", "sites"),
        ("Three sites, by the number of weights", None, "weights"),
    ):
        lines += [f"## {title}", ""]
        lines += [
            f"| {size} | channel | s a round | fastest to slowest | cold start, s | down | up | "
            "server, MB | a site, MB | load before |",
            "|" + "---|" * 10,
        ]
        for channel in CHANNELS:
            for apart, together in cells(recipe, channel):
                row = apart or together
                counted = together or {}
                lines.append(
                    f"| {row[size]:,} | `{channel}` | {row['median']:.2f}"
                    f"{'' if apart else ' (one process)'} | {row['fastest']:.2f} to "
                    f"{row['slowest']:.2f} | {row.get('cold_start', '')} | "
                    f"{_bytes(counted.get('down'))} | {_bytes(counted.get('up'))} | "
                    f"{row.get('server_mb', '')} | {row.get('agent_mb', '')} | "
                    f"{row['load_before']} |"
                )
        lines.append("")
    for row in (row for key, row in found.items() if key[-1] == "strangers"):
        lines += textwrap.wrap(
            f"In one run of quickstart with {row['sites']} sites in `{row['channel']}`, a round "
            f"took {row['quiet_median']:.2f} s. While {row['strangers_a_second']} clients per "
            "second with unknown keys tried to connect, the most that the same two cores could "
            f"send, it took {row['median']:.2f} s (load before: {row['load_before']}).",
            width=120,
        )
    return lines


def _kind(row: Mapping[str, Any]) -> str:
    if "strangers_a_second" in row:
        return "strangers"
    return "one process" if row["one_process"] else "processes"


def _bytes(count: int | None) -> str:
    return "" if count is None else f"{count:,}"


def updated(page: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a page with its tables written again."""
    before, _, rest = page.partition(MARK)
    after = rest.partition(END)[2]
    return before + MARK + "\n" + "\n".join(tables(rows)) + "\n" + END + after


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.https_rounds", description=__doc__)
    parser.add_argument("results", type=Path, help="the file of lines, which is added to")
    parser.add_argument("--sites", type=int, default=3)
    parser.add_argument("--weights", type=int)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--channel", choices=CHANNELS, action="append")
    parser.add_argument("--one-process", action="store_true")
    parser.add_argument("--strangers", action="store_true")
    parser.add_argument("--page", type=Path, help="a page whose tables are made anew")
    given = parser.parse_args()
    if given.page is not None:
        rows = [json.loads(line) for line in given.results.read_text().splitlines()]
        page = given.page.read_text(encoding="utf-8")
        given.page.write_text(updated(page, rows), encoding="utf-8")
        return
    for channel in given.channel or CHANNELS:
        cell = Cell(given.sites, given.weights, channel, given.one_process, given.strangers)
        line = json.dumps(measured(cell, given.rounds))
        print(line, flush=True)
        with given.results.open("a") as file:
            file.write(line + "\n")


if __name__ == "__main__":
    main()
