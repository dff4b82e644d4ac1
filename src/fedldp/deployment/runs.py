"""What an operator asks of a server's runs, in files that the server looks for.

A server of several runs has a folder of its own, its home:

queue/RUN.agreement    a run's agreement, with its initial weights beside it; the oldest comes first
queue/RUN.json         on what the run's model is tested; whether the run is queued, stopped (it may
                       continue) or over (its sites are told so), and why
RUN/                   the run's folder, which may have ``finish``: its operator ends it where it is
receipts/              the last receipt of each site in any run
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from fedldp.core.errors import ConfigError, RunError
from fedldp.core.locks import is_held
from fedldp.deployment.agreement import Agreement
from fedldp.deployment.certificates import fingerprints
from fedldp.deployment.identity import new_file
from fedldp.deployment.initial import beside
from fedldp.deployment.watch import read_status
from fedldp.reporting.record import read_as, replace_file
from fedldp.simulation.result import FINISH, is_finished


def ask_to_finish(folder: Path, *, now: bool) -> None:
    """Note in a run's folder that its operator ends the run where it is.

    The server ends it after the round under way; the rounds that are paid and come after training
    (intercept, look, question) are still made. A run that is stopped in a queue is queued again.

    Args:
        folder: the run's folder.
        now: whether to wait for nothing and leave out all rounds.

    Raises:
        ConfigError: the folder is not that of a server's run, or the run is complete.
    """
    if not (folder / "agreement").exists():
        raise ConfigError(f"{folder}: this is not the folder of a server's run; check the path")
    if is_finished(folder):
        raise ConfigError(f"{folder}: its run has ended already")
    replace_file(folder / FINISH, json.dumps({"now": now}).encode())
    home, run = folder.absolute().parent, folder.absolute().name
    Queue(home).resume(run)


def asked_to_finish(folder: Path) -> bool | None:
    """Return whether a run is to end at once; None if its operator does not end it.

    Raises:
        RunError: the note is damaged.
    """
    try:
        return bool(json.loads((folder / FINISH).read_text())["now"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{folder / FINISH} is damaged: run fedldp deploy finish again") from error


State = Literal["queued", "running", "stopped", "ended"]


@dataclass(frozen=True)
class QueuedRun:
    """A run of a server of several runs.

    Attributes:
        run: the run's name.
        agreement: the file of its agreement.
        folder: the run's folder, which the server makes.
        state: ``queued``: it waits until a server begins it.
        test: on what its model is tested: a file, or the name of a data set.
        why: why it was stopped or has ended; None if its operator stopped it.
    """

    run: str
    agreement: Path
    folder: Path
    state: State
    test: str | None = None
    why: str | None = None

    @property
    def is_due(self) -> bool:
        """Whether the run is neither stopped nor has ended."""
        return self.state in ("queued", "running")

    @property
    def over(self) -> int | None:
        """After how many rounds the run is over; its sites are told so. None if it may go on."""
        done, _ = self.rounds() or (0, 0)
        return done if self.state == "ended" else None

    def rounds(self) -> tuple[int, int] | None:
        """Return how many rounds are complete, and of how many; None before it began."""
        known = read_status(self.folder)
        return None if known is None else (known["rounds"]["done"], known["rounds"]["of"])


@dataclass(frozen=True)
class _Noted:
    """What a queue's file says about a run."""

    test: str | None
    state: Literal["queued", "stopped", "ended"]
    why: str | None


class Queue:
    """The runs of a server of several runs.

    Args:
        home: the server's folder, which has its ca.pem, server.pem and server.key.
    """

    def __init__(self, home: Path) -> None:
        self.home, self._place = home, home / "queue"

    def add(self, agreement: Path, test: str | None = None) -> str:
        """Queue a run, or continue a stopped one; return the run's name.

        Args:
            agreement: the agreement's file, with the initial weights beside it, if it has any.
            test: on what the model is tested: a file, or the name of a data set. None: on nothing,
                or on the same as before if it was stopped.

        Raises:
            FedldpError: the agreement is not valid, names another authority than the home's, or its
                run is known already.
        """
        found = Agreement.read(agreement, own=None)
        found.check()
        own = self._place / f"{found.run}.agreement"
        if test is not None and Path(test).exists():
            test = str(Path(test).absolute())
        if own.exists():
            known = self._of(own)
            if Agreement.read(own, own=None).digest != found.digest:
                raise ConfigError(
                    f"agreement {agreement}: its run {found.run} is in the queue with another "
                    "agreement; sites answer only one: ask for an agreement for a new run"
                )
            if known.state == "ended":
                raise ConfigError(
                    f"agreement {agreement}: its run {found.run} has ended; another run needs "
                    "another invite, and may begin with this one's weights (--initial)"
                )
            if known.state != "stopped":
                raise ConfigError(f"agreement {agreement}: its run {found.run} is queued already")
            self._note(replace(known, test=test or known.test), "queued")
            return found.run
        if found.server_ca and not {*found.server_ca} & {*fingerprints(self.home / "ca.pem")}:
            raise ConfigError(
                f"agreement {agreement}: it names another authority than {self.home / 'ca.pem'}, "
                "so no site would accept this server"
            )
        self._place.mkdir(exist_ok=True, parents=True)
        if found.initial is not None:
            shutil.copy(beside(agreement), beside(own))
        self._note(QueuedRun(found.run, own, self.home / found.run, "queued", test), "queued")
        new_file(own, found.to_bytes(), 0o600)
        return found.run

    def stop(self, run: str, why: str | None = None) -> None:
        """Stop a run; it continues when it is queued again.

        Args:
            run: the run.
            why: why it cannot go on. None: its operator stops it.

        Raises:
            ConfigError: there is no such run, or it has ended.
        """
        found = self.run(run)
        if found.state == "ended":
            raise ConfigError(f"run {found.run}: it has ended already")
        self._note(found, "stopped", why)

    def resume(self, run: str) -> None:
        """Queue a run again if it is stopped."""
        if self.is_stopped(run):
            self._note(self.run(run), "queued")

    def end(self, run: str, why: str) -> None:
        """Note that a run is over; its sites are told so."""
        self._note(self.run(run), "ended", why)

    def is_stopped(self, run: str) -> bool:
        """Return whether a run is stopped; no if it is not in the queue."""
        agreement = self._place / f"{run}.agreement"
        return agreement.exists() and self._of(agreement).state == "stopped"

    def _note(self, run: QueuedRun, state: str, why: str | None = None) -> None:
        noted = {"test": run.test, "state": state, "why": why}
        replace_file(run.agreement.with_suffix(".json"), json.dumps(noted).encode())

    def run(self, name: str) -> QueuedRun:
        """Return the run whose name begins with ``name``.

        Raises:
            ConfigError: there is none, or there are several.
        """
        found = [each for each in self.all() if name and each.run.startswith(name)]
        if len(found) != 1:
            raise ConfigError(
                f"run {name}: {len(found)} runs in {self.home} have a name that begins like this; "
                "fedldp deploy list names all"
            )
        return found[0]

    def all(self) -> list[QueuedRun]:
        """Return all runs, in the order in which they were queued."""
        files = self._place.glob("*.agreement")
        return [self._of(file) for file in sorted(files, key=lambda file: file.stat().st_mtime_ns)]

    def _of(self, agreement: Path) -> QueuedRun:
        run, folder = agreement.stem, self.home / agreement.stem
        try:
            noted = read_as(agreement.with_suffix(".json"), _Noted)
        except RunError as error:  # the other runs go on; and no site is told that this one is over
            noted = _Noted(None, "stopped", str(error))
        begun = noted.state == "queued" and is_held(folder.with_name(f"{run}.lock"))
        state: State = "running" if begun else noted.state
        return QueuedRun(run, agreement, folder, state, noted.test, noted.why)
