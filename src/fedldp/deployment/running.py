"""A site agent and a server as processes: their logs, their locks, and how they end."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from rich.console import Console

from fedldp.data import SUFFIXES, Examples, load_dataset, load_examples
from fedldp.deployment.agreement import Agreement, read_agreement
from fedldp.deployment.listening import Listening, alone
from fedldp.deployment.pipe import FlowerPipe
from fedldp.deployment.policy import SitePolicy
from fedldp.deployment.server import Served, Server
from fedldp.deployment.site import Agent
from fedldp.reporting import text
from fedldp.reporting.progress import RunProgress


def run_site(policy: SitePolicy, *, test_keys: bool) -> None:
    """Run a site's agent until it is told to stop, by SIGTERM or Ctrl-C."""
    _log_to_stderr()
    os.umask(0o077)  # whatever the agent makes is its owner's only
    with alone(policy.state / "lock", "agent"):
        agent = Agent(policy, test_keys=test_keys)
        listening = Listening(
            policy.socket, policy.socket_group, agent.answer, lambda: agent.largest_message
        )
        logging.getLogger("fedldp.site").info("listens at %s", policy.socket)
        with _until_told() as stop:
            listening.serve(stop)


def run_server(
    folder: Path,
    agreement: Path,
    socket: Path,
    group: str | None,
    test: str | None,
    data_dir: Path | None,
    console: Console,
) -> Served:
    """Run a server's rounds, and return what they gave."""
    _log_to_stderr()
    os.umask(0o077)
    found = read_agreement(agreement, own=None)
    examples = None if test is None else _test(test, found, data_dir)
    with alone(folder.with_name(f"{folder.name}.lock"), "server"):
        server = Server(folder, agreement.read_bytes(), examples)
        text.print_statement(console, server.privacy, found.epsilon_in_words())
        progress = RunProgress(found.config.rounds, console)
        with FlowerPipe(socket, group=group) as pipe, progress:
            try:
                return server.serve(pipe, progress.show)
            finally:
                pipe.end()


def _test(name: str, agreement: Agreement, data_dir: Path | None) -> Examples:
    if name.lower().endswith(SUFFIXES):
        columns, features = agreement.config.columns, agreement.problem.features
        return load_examples(Path(name), columns=columns, names=features)
    return load_dataset(name, data_dir=data_dir).test


def _log_to_stderr() -> None:
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(name)s %(message)s"
    )
    # Some libraries set logging up as they are imported: the line above then does nothing.
    logging.getLogger("fedldp").setLevel(logging.INFO)


@contextmanager
def _until_told() -> Iterator[threading.Event]:
    """Give an event that SIGTERM and Ctrl-C set, so that an answer under way is finished."""
    stop = threading.Event()

    def told(number: int, frame: FrameType | None) -> None:
        stop.set()

    before = {each: signal.signal(each, told) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
