"""Runs a fleet on this machine: one real server process, and very many sites in a few processes.

    python -m benchmarks.fleet [--sites 1000] [--hosts 2] [--recipe R] [--channel C] [--work S]
        [KEY=VALUE]...

The server is `fedldp deploy server` over HTTPS on the loopback interface. For each of its sites, a
process holds what a site's own process would: the agent with its key, policy, accepted agreement,
data, state and synced ledger, and a link with its own TLS connection, hello and session, in a
thread. The sites share only the imports, because a thousand times 215 MB is too much for one
machine.

Without ``--seeded`` the sites draw fresh noise. With it, all randomness comes from the seed, and
the final weights are compared with the simulation's.

With ``--work S`` every site takes S more seconds to answer, like a real site while it trains.

After the run, the script reads the ledgers of all sites and compares them with the server's data:
the number of reports in each round, and each site's last receipt, which only the site's own key
opens.

It prints a line of JSON. The seconds of a round run from the first request that a site gets to the
last answer that is accepted; the time in which all sites connect and identify themselves is not
included. The kernel's TCP counts the bytes, with TLS, HTTP and the hello, for the average site.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedldp.data import load_examples
from fedldp.deployment.agreement import Agreement, Channel
from fedldp.deployment.demo import HOST, DemoEnvironment
from fedldp.deployment.https.site import HttpsLink
from fedldp.deployment.identity import read_private
from fedldp.deployment.messages import Ask, Receipts, read_message
from fedldp.deployment.policy import read_policy
from fedldp.deployment.site import Agent
from fedldp.ledgers.sqlite import SqliteLedger
from fedldp.simulation.engine import simulate
from fedldp.simulation.settings import resolve

_TICKS = os.sysconf("SC_CLK_TCK")
_LONGEST = 1800.0
_SENT, _RECEIVED = 120, 128
"""Where Linux's tcp_info has the bytes that the other end confirmed, and the bytes received."""


# A process that hosts sites


def host(folder: Path, sites: Sequence[int], work: float) -> None:
    """Run these sites until standard input is closed, and then print what they saw."""
    requests, answers = list[float](), list[float]()
    given: defaultdict[tuple[Path, bytes], list[bytes]] = defaultdict(list)
    """The answers of each site to each request."""

    class Hosted(Agent):
        def answer(self, body: bytes, digest: bytes | None = None) -> bytes:
            if not isinstance(read_message(body), Ask):
                return super().answer(body, digest)  # the end of the run
            requests.append(time.monotonic())
            answer = super().answer(body, digest)
            time.sleep(work)
            answers.append(time.monotonic())
            given[self.policy.key, sha256(body).digest()].append(sha256(answer).digest())
            return answer

    # A process computes public features once here, so that its threads need not.
    agreement = Agreement.read(folder / "run.agreement")
    path = folder / f"site-{sites[0]}" / "data.npz"
    first = load_examples(path, columns=agreement.config.columns)
    agreement.config.algorithm(agreement.problem).prepared()(first)
    links = []
    for site in sites:
        policy = read_policy(folder / f"site-{site}" / "site.toml")
        (server,) = policy.server
        agent = Hosted(policy, test_keys=True)
        links.append(HttpsLink(agent, agreement.digest, server))
    print("ready", flush=True)
    sys.stdin.readline()
    for link in links:
        link.start()
    counted: dict[int, tuple[int, int]] = {}
    over = threading.Thread(target=sys.stdin.read, daemon=True)
    over.start()
    while over.is_alive():
        over.join(0.5)
        counted |= _tcp_bytes()
    for link in links:
        link.end()
    sums = [sum(each) for each in zip(*counted.values(), strict=True)]
    seen = {
        "requests": requests,
        "answers": answers,
        "bytes": sums,
        "asked_again": sum(len(each) - 1 for each in given.values()),
        "other_bytes_again": sum(len(set(each)) > 1 for each in given.values()),
    }
    print(json.dumps(seen), flush=True)
    os._exit(0)  # do not wait for threads that wait for a server


def _tcp_bytes() -> dict[int, tuple[int, int]]:
    """Return by local port the bytes that each TCP connection here sent and received."""
    found = {}
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError, ValueError):
            if not os.readlink(f"/proc/self/fd/{number}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(number))) as each:
                told = each.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                sent, received = (
                    struct.unpack_from("<Q", told, at)[0] for at in (_SENT, _RECEIVED)
                )
                found[each.getsockname()[1]] = sent, received
    return found


# The server, and what it costs


class Watched:
    """A process whose CPU seconds are recorded over time."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._seen: list[tuple[float, float]] = []
        self.mebibytes = 0.0
        self.files = 0

    def look(self) -> None:
        with suppress(OSError, IndexError):  # the process may have ended meanwhile
            place = Path(f"/proc/{self.process.pid}")
            fields = (place / "stat").read_text().rpartition(")")[2].split()
            self._seen.append((time.monotonic(), (int(fields[11]) + int(fields[12])) / _TICKS))
            status = (place / "status").read_text()
            self.mebibytes = int(status.partition("VmHWM:")[2].split()[0]) / 1024
            self.files = max(self.files, len(os.listdir(place / "fd")))

    def seconds_by(self, when: float) -> float:
        """Return the CPU seconds up to a given time."""
        return max((seconds for at, seconds in self._seen if at <= when), default=0.0)


def _launched(*arguments: str, log: Path, **given: Any) -> subprocess.Popen[bytes]:
    own = {"OMP_NUM_THREADS": "1", "NO_PROXY": HOST, "no_proxy": HOST}
    with log.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, *arguments], stderr=file, env={**os.environ, **own}, **given
        )


def measured(
    recipe: str,
    settings: Sequence[str],
    channel: Channel,
    hosts: int,
    seeded: bool,
    work: float = 0.0,
) -> dict[str, Any]:
    """Run a fleet to its end, and return what was measured."""
    config = resolve(recipe, list(settings))
    sites = config.num_clients
    with tempfile.TemporaryDirectory(prefix="fedldp-fleet-") as place:
        world = DemoEnvironment.made(Path(place), config, channel, None, seeded=seeded)
        parts = [range(each, sites, hosts) for each in range(hosts)]
        processes: list[subprocess.Popen[bytes]] = []
        try:
            for number, part in enumerate(parts):
                given = (str(part.start), str(part.stop), str(part.step))
                arguments = ("-m", "benchmarks.fleet", "--work", str(work))
                arguments += ("--host", str(world.folder), *given)
                log = world.folder / f"host-{number}.log"
                pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
                processes.append(_launched(*arguments, log=log, **pipes))
            for process in processes:
                assert process.stdout is not None
                if process.stdout.readline() != b"ready\n":
                    raise RuntimeError(f"a process of sites did not begin: {_ends_of(world)}")
            server = Watched(_server(world))
            processes.append(server.process)
            while not _listens(world.port):
                server.look()
                _check_goes_on(server.process, world)
                time.sleep(0.05)
            began = time.monotonic()
            for process in processes[:-1]:
                assert process.stdin is not None
                process.stdin.write(b"\n")
                process.stdin.flush()
            while server.process.poll() is None and time.monotonic() - began < _LONGEST:
                server.look()
                time.sleep(0.05)
            ended = time.monotonic()
            _check_goes_on(server.process, world, over=True)
            told = [
                json.loads(process.communicate()[0].splitlines()[-1]) for process in processes[:-1]
            ]
        finally:
            for process in processes:
                if process.poll() is None:
                    process.send_signal(signal.SIGKILL)
                process.wait()
        requests = sorted(when for each in told for when in each["requests"])
        answers = sorted(when for each in told for when in each["answers"])
        records = [json.loads(x) for x in (world.run / "metrics.jsonl").read_text().splitlines()]
        privacy = json.loads((world.run / "privacy.json").read_text())
        result = {
            "recipe": recipe,
            "settings": list(settings),
            "sites": sites,
            "channel": channel,
            "rounds": len(records),
            "took_part": [record["clients"] for record in records],
            "parameters": world.agreement.layout.size,
            "report_bytes": records[-1]["uplink_bits_per_client"] / 8,
            "accuracy": records[-1]["accuracy"],
            "all_connected_seconds": round(requests[0] - began, 2),
            "rounds_seconds": round(answers[-1] - requests[0], 2),
            "median_round_seconds": round(statistics.median(r["seconds"] for r in records), 2),
            "after_last_answer_seconds": round(ended - answers[-1], 2),
            "server_cpu_to_listen": round(server.seconds_by(began), 2),
            "server_cpu_to_connect": round(
                server.seconds_by(requests[0]) - server.seconds_by(began), 2
            ),
            "server_cpu_of_rounds": round(
                server.seconds_by(answers[-1]) - server.seconds_by(requests[0]), 2
            ),
            "server_cpu": round(server.seconds_by(ended), 2),
            "server_mebibytes": round(server.mebibytes),
            "server_files": server.files,
            "sent_bytes_per_site": round(sum(each["bytes"][0] for each in told) / sites),
            "received_bytes_per_site": round(sum(each["bytes"][1] for each in told) / sites),
            "work_seconds": work,
            "answers": len(answers),
            "asked_again": sum(each["asked_again"] for each in told),
            "other_bytes_again": sum(each["other_bytes_again"] for each in told),
            "ledgers": ledgers_of(world, {r["round"]: r["clients"] for r in records}),
            "amiss_at_sites": _amiss(world),
            "log_lines": len((world.folder / "server.log").read_text().splitlines()),
            "epsilon": {
                f"{line['unit']}, {line['adversary']}, {line['kind']}": line["epsilon"]
                for line in privacy["guarantees"]
            },
            "cores": len(os.sched_getaffinity(0)),
            "load": round(os.getloadavg()[0], 1),
            "fedldp": version("fedldp"),
            "python": sys.version.split()[0],
        }
        if seeded:
            from safetensors.numpy import load_file

            found = load_file(world.run / "model.safetensors")
            expected = simulate(config).weights
            result["equals_simulation"] = all((found[n] == w).all() for n, w in expected.items())
    return result


def ledgers_of(world: DemoEnvironment, reported: dict[int, int]) -> dict[str, Any]:
    """Read all ledgers, and compare them with the server's data.

    Args:
        world: the finished run.
        reported: how many sites sent a report in each round, by the server's record.
    """
    run, receipts = world.agreement.run, world.run.parent / "receipts"
    releases, rounds = Counter[int](), Counter[int]()
    same = 0
    for policy in world.sites:
        entries = SqliteLedger(policy.ledger).verify()
        assert all(entry.run == run for entry in entries)
        releases[len(entries)] += 1
        rounds.update({entry.round for entry in entries})
        key = read_private(policy.key)
        kept = receipts / key.public_key().public_bytes_raw().hex()
        if entries and kept.exists():
            found = Receipts(key).read(bytes.fromhex(kept.read_text()))
            last = entries[-1]
            same += found is not None and (found.number, last.hash[: len(found.hash)]) == (
                last.number,
                found.hash,
            )
    return {
        "sites_by_releases": {str(count): sites for count, sites in sorted(releases.items())},
        "rounds_are_the_server_s": rounds == Counter(reported),
        "last_release_is_the_server_s": same,
    }


def _server(world: DemoEnvironment) -> subprocess.Popen[bytes]:
    return _launched(
        *("-c", "from fedldp.cli import main; main()"),
        *("deploy", "server", str(world.run), str(world.folder / "run.agreement")),
        *(*world.test, "--listen", f"{HOST}:{world.port}"),
        *("--certificate", str(world.folder / "server.pem")),
        *("--key", str(world.folder / "server.key"), "--json"),
        log=world.folder / "server.log",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection((HOST, port), timeout=1):
        return True
    return False


def _check_goes_on(
    process: subprocess.Popen[bytes], world: DemoEnvironment, *, over: bool = False
) -> None:
    if process.poll() not in ((0,) if over else (None,)):
        raise RuntimeError(f"the server ended early, or not at all: {_ends_of(world)}")


def _amiss(world: DemoEnvironment) -> dict[str, int]:
    """Return the reasons that sites gave for a missing connection, and how often each occurred."""
    told = Counter(
        line.partition("no connection to ")[2].partition(": ")[2].partition(";")[0]
        for log in world.folder.glob("host-*.log")
        for line in log.read_text().splitlines()
        if "no connection to " in line
    )
    return dict(told.most_common(5))


def _ends_of(world: DemoEnvironment) -> str:
    return " / ".join(
        line for log in world.folder.glob("*.log") for line in log.read_text().splitlines()[-3:]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("settings", nargs="*")
    parser.add_argument("--recipe", default="composed-digits-solution")
    parser.add_argument("--sites", type=int, default=1000)
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--channel", choices=["named", "sum"], default="named")
    parser.add_argument("--seeded", action="store_true")
    parser.add_argument("--work", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--host", nargs=4, metavar=("FOLDER", "START", "STOP", "STEP"))
    given = parser.parse_args()
    if given.host:
        start, stop, step = map(int, given.host[1:])
        host(Path(given.host[0]), range(start, stop, step), given.work)
        return
    settings = [*given.settings, f"num_clients={given.sites}"]
    found = measured(given.recipe, settings, given.channel, given.hosts, given.seeded, given.work)
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
