"""Runs a site's agent or a server as a process: its log, its lock, and how it ends."""

from __future__ import annotations

import logging
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

from fedldp.core.errors import ConfigError, EndedForGood, FedldpError, LedgerLost, RunError
from fedldp.core.locks import alone
from fedldp.core.registry import import_extra
from fedldp.data import Examples, is_own_file, load_dataset, load_examples
from fedldp.deployment.agreement import Agreement
from fedldp.deployment.certificates import ServerTls
from fedldp.deployment.initial import beside
from fedldp.deployment.key_changes import KnownKeys
from fedldp.deployment.policy import ServerTable, SitePolicy, read_policy
from fedldp.deployment.runs import Queue, QueuedRun, asked_to_finish
from fedldp.deployment.server import Server
from fedldp.deployment.site import Agent, largest_message
from fedldp.deployment.sites import Stopped
from fedldp.deployment.watch import FILE as STATUS
from fedldp.deployment.watch import SiteWatch, beating
from fedldp.protocol.server_loop import Round
from fedldp.reporting.progress import RunProgress
from fedldp.reporting.text import Terminal

if TYPE_CHECKING:
    from fedldp.deployment.https.pipe import RunPipe
    from fedldp.deployment.https.server import Listener

log = logging.getLogger("fedldp.server")

_Served = tuple[bytes, ServerTable]  # the digest of an agreement, and the server of its run
_LOOK_SECONDS = 2.0
"""Seconds between two looks of an agent at what was accepted."""
_WAITING, _TURN_SECONDS = 8, 60.0
"""For how many runs that no server serves yet an agent asks at once, and for how many seconds."""
_AGAIN_SECONDS = 60.0
"""Seconds after which a run that failed is tried again, if its server has others."""
_ASIDE_SECONDS = 10.0
"""Seconds that a run waits for its sites before it makes room for one whose sites are there."""
_STOP_SECONDS = 10.0
"""How long to wait for a run that is told to stop, in seconds."""


def run_site(file: Path, *, test_keys: bool, metrics: str | None = None) -> None:
    """Run a site's agent until SIGTERM or Ctrl-C stops it.

    If its policy changes, as ``join`` changes it for another study, the agent starts anew.

    Args:
        file: the policy of the site.
        test_keys: see ``Agent``.
        metrics: see ``metrics.serving``.

    Raises:
        EndedForGood: the ledger is gone; the operator must first charge what may have
            been released.
        FedldpError: the agent cannot start.
    """
    _begin()
    from fedldp.deployment.metrics import of_agent, page_of_site, serving

    policy = read_policy(file)
    with alone(policy.state / "lock", "agent"):
        watch = SiteWatch(policy.state)
        with beating(watch):
            try:
                agent = Agent(policy, test_keys=test_keys, watch=watch)
                watched = serving(metrics, lambda: of_agent(agent), lambda: page_of_site(agent))
                with watched, _until_told() as stop, agent.ledger.database.held():
                    serve_links(agent, stop, partial(_follow, file, policy))
            except LedgerLost as error:
                raise EndedForGood(str(error)) from error


def _follow(file: Path, policy: SitePolicy) -> None:
    """Start this process anew if its policy changed."""
    with suppress(ConfigError):  # it is being written
        if read_policy(file) != policy:
            _start_anew("the policy changed: the agent")


def _start_anew(what: str) -> None:
    """Start this process anew; the others notice as much as if it had been killed."""
    log.info("%s starts anew", what)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _follow_keys(folder: Path, listener: Listener) -> None:
    """Start this process anew if another change of a site's key was admitted.

    If the file of the keys is gone or damaged, this process goes on to refuse what it refused.
    """
    with suppress(RunError):
        if KnownKeys.of(folder).sites not in ((), listener.known_keys.sites):
            _start_anew("a site has another key: the server")


def serve_links(
    agent: Agent, stop: threading.Event, look: Callable[[], None] = lambda: None
) -> None:
    """Keep links for the agreements that an agent serves, until ``stop`` is set: ``_in_turn``.

    Each time it looks at these agreements, it calls ``look``.
    """
    from fedldp.deployment.https.hello import NO_DIGEST
    from fedldp.deployment.https.site import HttpsLink

    links = dict[_Served, HttpsLink]()
    while not stop.is_set():
        look()
        served = _in_turn(agent.served(), {each for each, link in links.items() if link.in_session})
        asked = {server.url for _, server in served}
        # The other servers see that the site is there.
        served += [(NO_DIGEST, each) for each in agent.policy.server if each.url not in asked]
        for other in links.keys() - set(served):
            links.pop(other).end()
        for digest, server in served:
            if (digest, server) not in links:
                links[digest, server] = HttpsLink(agent, digest, server)
                links[digest, server].start()
        stop.wait(_LOOK_SECONDS)
    for link in links.values():
        link.end()


def _in_turn(served: Mapping[bytes, ServerTable], begun: Collection[_Served]) -> list[_Served]:
    """Return the runs for which an agent has links: those with a session, and some that wait.

    Runs that no server serves yet take turns, so that many of them burden no server and none waits
    for ever. Turns follow the clock and the digests: all sites ask for the same runs at a time.
    """
    found = [each for each in served.items() if each in begun]
    waiting = sorted(served.items() - found, key=lambda each: each[0])
    first = int(time.time() // _TURN_SECONDS) * _WAITING % max(1, len(waiting))
    return found + (waiting[first:] + waiting[:first])[:_WAITING]


class OverHttps(NamedTuple):
    """Where a server listens: an address, HOST:PORT, and files for TLS."""

    listen: str
    certificate: Path
    key: Path

    def listener(self, folder: Path) -> Listener:
        """Return the listener for runs, whose folders are in one."""
        from fedldp.deployment.https.server import Listener, listen

        _allow_files()
        tls = ServerTls(self.certificate, self.key)
        return Listener(listen(self.listen), tls, KnownKeys.of(folder))


def pipe_of(agreement: Agreement, known: KnownKeys) -> RunPipe:
    """Return the pipe of an agreement's run, in which a site has its first key."""
    from fedldp.deployment.https.pipe import RunPipe

    sites = [(site.name, known.first(site.key)) for site in agreement.sites]
    return RunPipe(agreement.digest, agreement.to_bytes(), sites, largest_message(agreement))


def _allow_files() -> None:
    """Let this process open as many files as its user may: connections count as open files."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError):  # a system may allow fewer than it says
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def run_server(
    folder: Path,
    agreement: Path,
    reached: OverHttps,
    test: str | None,
    data_dir: Path | None,
    console: Terminal,
    metrics: str | None = None,
) -> Server:
    """Run a server's rounds; return the server once its run is over; see ``Server.serve``."""
    _begin()
    from fedldp.deployment.metrics import of_server, page_of_servers, serving

    found = Agreement.read(agreement, own=None)
    with alone(folder.with_name(f"{folder.name}.lock"), "server"):
        # reports errors before anything is created
        listener = reached.listener(folder.parent)
        server = _server(folder, agreement, test, data_dir, listener)
        # Of the whole run, also after a restart: what was released so far has smaller figures.
        whole = server.agreement.planned
        console.print_statement(whole, found.epsilon_in_words())
        progress = RunProgress(found.config.rounds, console)

        def stopped() -> bool:
            _follow_keys(folder.parent, listener)
            return stop.is_set()

        with (
            _until_told() as stop,
            beating(server.watch),
            serving(metrics, lambda: of_server([server]), lambda: page_of_servers([server])),
            listener.opened(),
            listener.serving(pipe_of(server.agreement, listener.known_keys)) as pipe,
            progress,
        ):
            try:
                server.serve(pipe, progress.show, stopped)
            except Stopped as error:
                raise SystemExit from error  # with status 0
        return server


def run_servers(
    home: Path,
    reached: OverHttps,
    most: int,
    data_dir: Path | None,
    metrics: str | None = None,
) -> None:
    """Serve the runs that are queued in a server's home until SIGTERM or Ctrl-C.

    Each run has a thread, so a slow one holds up no other.

    Args:
        home: see ``runs``.
        reached: where the server listens, for all runs.
        most: how many runs are served at once; the others wait.
        data_dir: the data folder.
        metrics: see ``metrics.serving``.

    Raises:
        FedldpError: the server cannot start.
    """
    _begin()
    from fedldp.deployment.metrics import of_server, page_of_servers, serving

    servers: dict[str, Server] = {}
    shown = serving(
        metrics,
        lambda: of_server(list(servers.values())),
        lambda: page_of_servers(list(servers.values())),
    )
    logging.getLogger().handlers[-1].addFilter(_name_run)
    with alone(home / "lock", "server"):
        listener = reached.listener(home)
        with beating(None), shown, _until_told() as stop:
            _serve_queue(Queue(home), listener, servers, most, data_dir, stop)


def _name_run(record: logging.LogRecord) -> bool:
    """Let a line of the log begin with the run whose thread writes it."""
    if (record.threadName or "").startswith("run "):
        record.msg = f"{record.threadName}: {record.msg}"
    return True


def _serve_queue(
    queue: Queue,
    listener: Listener,
    servers: dict[str, Server],
    most: int,
    data_dir: Path | None,
    stop: threading.Event,
) -> None:
    """Serve a queue's runs, each in a thread, until ``stop`` is set; keep their servers."""
    threads: dict[str, threading.Thread] = {}
    again: dict[str, float] = {}
    """When to try each run again that failed."""
    aside = set[str]()  # runs that wait for their sites, and make room for others

    def serve(each: QueuedRun) -> None:
        def stopped() -> bool:
            return stop.is_set() or each.run in aside or queue.is_stopped(each.run)

        pipe: RunPipe | None = None
        try:
            with alone(each.folder.with_name(f"{each.run}.lock"), "server"):
                server = _server(each.folder, each.agreement, each.test, data_dir, listener)
                servers[each.run], found = server, server.agreement
                of, pipe = found.config.rounds, pipe_of(found, listener.known_keys)
                with beating(server.watch), listener.serving(pipe):
                    server.serve(pipe, lambda record: _log_round(record, of), stopped)
                finished = asked_to_finish(each.folder) is not None
                why = "finished by its operator" if finished else "complete"
                queue.end(each.run, why)
                log.info("is over (%s): see %s", why, each.folder / "report.html")
        except Stopped:
            log.info("waits for its sites in the queue" if each.run in aside else "stopped")
        except EndedForGood as error:
            if pipe is not None and pipe.rounds is not None:  # the sites are told that it is over
                queue.end(each.run, str(error))
            else:  # its operator decides whether to mend the cause, or to end it here
                queue.stop(each.run, str(error))
            log.error("ended: %s", error)
        except Exception as error:  # the other runs go on
            again[each.run] = time.monotonic() + _AGAIN_SECONDS
            why = str(error) if isinstance(error, FedldpError) else type(error).__name__
            log.error("tried again in %g s: %s", _AGAIN_SECONDS, why)
        finally:
            servers.pop(each.run, None)

    known: dict[str, tuple[bytes, int]] = {}

    def runs() -> list[QueuedRun]:
        """Return the queue's runs, whose sites the listener knows before it serves any."""
        found = queue.all()
        for each in found:
            if each.run not in known:
                known[each.run] = _remember(listener, each)
        return found

    def ready(each: QueuedRun) -> bool:
        """Return whether enough sites ask for a run that is not served."""
        return listener.is_asked_for(*known[each.run])

    runs()
    with listener.opened():
        while not stop.is_set():
            _follow_keys(queue.home, listener)
            threads = {run: thread for run, thread in threads.items() if thread.is_alive()}
            aside.intersection_update(threads)
            now, free = time.monotonic(), most - len(threads)
            due = [
                each
                for each in runs()
                if each.is_due and each.run not in threads and again.get(each.run, now) <= now
            ]
            due.sort(key=lambda each: not ready(each))  # otherwise, the oldest come first
            for each in due[:free]:
                name = f"run {each.run[:8]}"
                thread = threading.Thread(target=serve, args=(each,), name=name, daemon=True)
                threads[each.run] = thread
                thread.start()
            late = sum(map(ready, due[free:])) - len(aside)
            since = {run: each.watch.waits_since for run, each in [*servers.items()]}
            idle = [run for run in since.keys() - aside if since[run] < now - _ASIDE_SECONDS]
            aside.update(sorted(idle, key=lambda run: since[run])[: max(0, late)])
            stop.wait(_LOOK_SECONDS)
        for thread in threads.values():
            thread.join(_STOP_SECONDS)


def _remember(listener: Listener, each: QueuedRun) -> tuple[bytes, int]:
    """Let a listener know the sites of a run; return the run's digest and quorum."""
    try:
        found = Agreement.read(each.agreement, own=None)
    except FedldpError as error:  # the other runs go on
        log.error("run %s: its sites are not known: %s", each.run[:8], error)
        return b"", 1
    names = {listener.known_keys.first(site.key): site.name for site in found.sites}
    listener.remember(found.digest, names, each.over)
    return found.digest, found.quorum


def _log_round(record: Round, rounds: int) -> None:
    tested = "" if record.accuracy is None else f", accuracy {record.accuracy:.4f}"
    tested += f", R2 {record.metrics['r2']:.4f}" if "r2" in record.metrics else ""
    log.info(
        "round %d of %d: %d sites%s, %.1f s after %.1f s of waiting for enough sites",
        *(record.round, rounds, record.clients, tested, record.seconds, record.waited),
    )


def _server(
    folder: Path, file: Path, test: str | None, data_dir: Path | None, listener: Listener
) -> Server:
    """Return the server of the agreement in a file, in its run's folder."""
    content = file.read_bytes()
    with suppress(OSError):  # an earlier server's says nothing about this one
        (folder / STATUS).unlink()
    examples = None
    if test is not None:
        examples = _test(test, Agreement.parse(content, own=None), data_dir)
    server = Server(folder, content, examples, beside(file))
    server.watch.certified_by(listener.certificate)
    return server


def _test(name: str, agreement: Agreement, data_dir: Path | None) -> Examples:
    if is_own_file(name):
        columns, features = agreement.config.columns, agreement.problem.features
        return load_examples(Path(name), columns=columns, names=features)
    return load_dataset(name, data_dir=data_dir).test


def _begin() -> None:
    """Prepare this process: its log goes to stderr, and only its user can read what it creates."""
    import_extra("starlette", extra="deploy")
    os.umask(0o077)
    # By force: some libraries configure logging in their own format when they are imported.
    form = "%(asctime)s %(name)s %(message)s"
    logging.basicConfig(format=form, level=logging.INFO, force=True)
    logging.getLogger("fedldp").setLevel(logging.INFO)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs a line for every request


@contextmanager
def _until_told() -> Iterator[threading.Event]:
    """Yield an event that SIGTERM and Ctrl-C set, so that what is under way can be finished."""
    stop = threading.Event()

    def told(number: int, frame: FrameType | None) -> None:
        stop.set()

    before = {each: signal.signal(each, told) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        if stop.is_set():
            logging.getLogger("fedldp").info("told to stop; started again, it goes on where it was")
