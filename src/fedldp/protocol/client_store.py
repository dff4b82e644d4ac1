"""What a client keeps from round to round."""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from fedldp.core.errors import LedgerUnusable, StoreUnusable, first_line
from fedldp.ledgers.sqlite import SqliteLedger
from fedldp.protocol.roles import Arrays, Store


class FolderStore(Store):
    """A simulated client's folder for one run.

    Guarantee: once ``arrays`` has returned arrays for a run and name, it always returns the same
    ones, even after the process was killed. After a power cut they may be gone.

    Args:
        folder: the client's folder, created when something is first stored.
        run: the run's name; what is kept for one run is invisible to every other run.

    All methods raise ``StoreUnusable`` for a damaged file, and where the disk fails or is full.
    """

    def __init__(self, folder: Path, run: str) -> None:
        # A server chooses the name of a run, so it must not be used as a path.
        self.folder = folder / hashlib.sha256(run.encode()).hexdigest()[:32]

    def known(self, name: str, round: int | None = None) -> Arrays | None:
        """Return the arrays kept as ``name``, if there are any."""
        path = self._path(name, round)
        with self._using("read", "restore the folder from a copy, or start the run again"):
            return load(path.read_bytes()) if path.exists() else None

    def _keep(self, name: str, made: Arrays, round: int | None) -> Arrays:
        path = self._path(name, round)
        self.add({path.relative_to(self.folder).as_posix(): save(_laid_out(made))})
        kept = self.known(name, round)
        assert kept is not None
        return kept

    def _path(self, name: str, round: int | None) -> Path:
        folder = self.folder if round is None else self.folder / f"round-{round}"
        return folder / f"{name}.safetensors"

    def files(self) -> dict[str, bytes]:
        """Return all files kept for the run, by path below ``folder``, to carry them elsewhere."""
        with self._using("read", "restore the folder from a copy, or start the run again"):
            paths = sorted(self.folder.rglob("*.safetensors"))
            return {path.relative_to(self.folder).as_posix(): path.read_bytes() for path in paths}

    def add(self, files: Mapping[str, bytes]) -> None:
        """Store what ``files`` returned for the same client; existing files are not replaced."""
        with self._using("written", "free space on its disk, or check who may write there"):
            for name, content in files.items():
                path = self.folder / name
                if not path.exists():
                    self._place(path, content)
                if path.parent != self.folder:
                    self._forget_before(_round_of(path.parent))

    @contextmanager
    def _using(self, how: str, remedy: str) -> Iterator[None]:
        try:
            yield
        except (OSError, SafetensorError) as error:
            reason = getattr(error, "strerror", None) or first_line(error)
            raise StoreUnusable(
                f"state {self.folder}: what the client keeps for its run cannot be {how}: "
                f"{reason}; {remedy}"
            ) from error

    def _place(self, path: Path, content: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        partial = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}.partial")
        try:
            partial.write_bytes(content)
            with suppress(FileExistsError):
                os.link(partial, path)  # a link never replaces an existing file
        finally:  # a full disk must not fill further with what could not be completed
            partial.unlink(missing_ok=True)

    def _forget_before(self, round: int) -> None:
        for old in self.folder.glob("round-*"):
            if _round_of(old) < round:
                shutil.rmtree(old, ignore_errors=True)


class LedgerStore(Store):
    """What a real client keeps for one run, in the file of its ledger.

    Guarantee: once ``arrays`` has returned arrays for a run and name, it always returns the same
    ones, even after a crash or a power cut; but arrays that it returned while an answer was made
    are kept exactly if the answer was charged. So no answer leaves without what it was made from.

    Args:
        ledger: the client's ledger.
        run: the run's name; what is kept for one run is invisible to every other run.

    All methods raise ``StoreUnusable`` if the file is damaged, or the disk fails or is full.
    """

    def __init__(self, ledger: SqliteLedger, run: str) -> None:
        self._ledger, self._run = ledger, run

    def known(self, name: str, round: int | None = None) -> Arrays | None:
        """Return the arrays kept as ``name``, if there are any."""
        with self._using():
            found = self._ledger.kept(self._run, round or 0, name)
            return None if found is None else load(found)

    def _keep(self, name: str, made: Arrays, round: int | None) -> Arrays:
        content = save(_laid_out(made))
        with self._using():
            return load(self._ledger.keep(self._run, round or 0, name, content))

    def forget(self) -> None:
        """Remove everything kept for the run."""
        with self._using():
            self._ledger.forget(self._run)

    @contextmanager
    def _using(self) -> Iterator[None]:
        try:
            yield
        except (LedgerUnusable, SafetensorError) as error:
            raise StoreUnusable(
                f"run {self._run}: what the client keeps for it cannot be used: {first_line(error)}"
            ) from error


class MemoryStore(Store):
    """A client's store in memory, for the clients of an audit and for trials of encoders.

    Args:
        kept: a store, such as the client's own, from which arrays that were not made here are read.
            It is never changed.
    """

    def __init__(self, kept: Store | None = None) -> None:
        self._kept = kept
        self.made: dict[tuple[str, int | None], Arrays] = {}

    def known(self, name: str, round: int | None = None) -> Arrays | None:
        """Return the arrays kept as ``name``, if there are any."""
        found = self.made.get((name, round))
        if found is None and self._kept is not None:
            return self._kept.known(name, round)
        return found

    def _keep(self, name: str, made: Arrays, round: int | None) -> Arrays:
        self.made[name, round] = made
        if round is not None:
            self.made = {
                at: arrays for at, arrays in self.made.items() if at[1] is None or at[1] >= round
            }
        return made


def _laid_out(made: Arrays) -> dict[str, NDArray[Any]]:
    """Return arrays without strides, which safetensors would scramble."""
    return {name: np.require(array, requirements="C") for name, array in made.items()}


def _round_of(folder: Path) -> int:
    return int(folder.name.removeprefix("round-"))
