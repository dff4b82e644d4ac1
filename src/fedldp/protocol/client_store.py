"""What a client keeps from round to round, on its own disk."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from operator import methodcaller
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, load_file, save, save_file

from fedldp.core.errors import LedgerUnusable, StoreUnusable, first_line
from fedldp.core.locks import sync
from fedldp.ledgers.sqlite import SqliteLedger
from fedldp.protocol.roles import Arrays, Store

_synced: set[Path] = set()
"""The paths that this process has synced, so that it does not sync them again at every use."""


class FolderStore:
    """A client's own folder for one run; nothing in it leaves the client unless it is encoded.

    Guarantee: once ``arrays`` has returned arrays for a run and name, it always returns the same
    ones, even after a crash or a power cut. Before the arrays are used, the file is complete, and
    the file and its folder are synced.

    Args:
        folder: the client's folder, created when something is first stored.
        run: the run's name; what is kept for one run is invisible to every other run.
        lasting: whether files are synced; false if the folder is removed when the process ends.

    All methods raise ``StoreUnusable`` for a damaged file, and where the disk fails or is full.
    """

    def __init__(self, folder: Path, run: str, *, lasting: bool = True) -> None:
        # A server chooses the name of a run, so it must not be used as a path.
        self.folder = folder / hashlib.sha256(run.encode()).hexdigest()[:32]
        self._lasting = lasting

    def holds(self, name: str) -> bool:
        """Return whether arrays are kept as ``name`` for the run."""
        with self._reading():
            return (self.folder / f"{name}.safetensors").exists()

    def known(self, name: str, round: int | None = None) -> Arrays | None:
        """Return the arrays kept as ``name``, if there are any."""
        path = self._path(name, round)
        with self._reading():
            return load_file(path) if path.exists() else None

    def arrays(self, name: str, make: Callable[[], Arrays], *, round: int | None = None) -> Arrays:
        """Return the arrays kept as ``name``; if there are none, keep what ``make`` returns.

        Arrays kept for a ``round`` are removed once something is kept for a later one. If two
        processes make the same arrays at once, both get those that were kept first.
        """
        path = self._path(name, round)
        with self._reading():
            there = path.exists()
        if not there:
            made = make()
            with self._writing():
                self._keep(made, path)
                if round is not None:
                    self._forget_before(round)
        elif self._lasting and path not in _synced:
            with self._writing():
                self._sync(path)  # the process that wrote it may have been killed before the sync
        with self._reading():
            return load_file(path)

    def _path(self, name: str, round: int | None) -> Path:
        folder = self.folder if round is None else self.folder / f"round-{round}"
        return folder / f"{name}.safetensors"

    def files(self) -> dict[str, bytes]:
        """Return all files kept for the run, by path below ``folder``, to carry them elsewhere."""
        with self._reading():
            paths = sorted(self.folder.rglob("*.safetensors"))
            return {path.relative_to(self.folder).as_posix(): path.read_bytes() for path in paths}

    def add(self, files: Mapping[str, bytes]) -> None:
        """Store what ``files`` returned for the same client; existing files are not replaced."""
        with self._writing():
            for name, content in files.items():
                path = self.folder / name
                if not path.exists():
                    self._place(path, methodcaller("write_bytes", content))
                if path.parent != self.folder:
                    self._forget_before(_round_of(path.parent))

    def forget(self) -> None:
        """Remove everything kept for the run, in one step, so that no part of it is used again."""
        with self._writing():
            if self.folder.exists():
                gone = Path(tempfile.mkdtemp(dir=self.folder.parent, suffix=".gone"))
                self.folder.rename(gone / self.folder.name)
                shutil.rmtree(gone)
        _synced.difference_update({path for path in _synced if path.is_relative_to(self.folder)})

    def forget_rounds(self) -> None:
        """Remove everything that is kept for one round only."""
        with self._writing():
            for folder in self.folder.glob("round-*"):
                shutil.rmtree(folder)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (OSError, SafetensorError) as error:
            raise StoreUnusable(
                f"state {self.folder}: what the client keeps for its run cannot be read: "
                f"{_reason(error)}; restore the folder from a copy, or take part in new runs only"
            ) from error

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except (OSError, SafetensorError) as error:
            raise StoreUnusable(
                f"state {self.folder}: what the client keeps for its run cannot be written: "
                f"{_reason(error)}; free space on its disk, or check who may write there"
            ) from error

    def _keep(self, made: Arrays, path: Path) -> None:
        arrays = _laid_out(made)
        self._place(path, lambda partial: save_file(arrays, partial))

    def _place(self, path: Path, write: Callable[[Path], object]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        partial = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}.partial")
        try:
            write(partial)
            if self._lasting:
                sync(partial)
            with suppress(FileExistsError):
                os.link(partial, path)  # a link never replaces an existing file
        finally:  # a full disk must not fill further with what could not be completed
            partial.unlink(missing_ok=True)
        if self._lasting:
            self._sync(path)

    def _sync(self, path: Path) -> None:
        """Sync a file and every folder above it that may be new."""
        above = self.folder.parents[2]
        for each in (path, *(p for p in path.parents if p.is_relative_to(above))):
            sync(each)
        _synced.add(path)

    def _forget_before(self, round: int) -> None:
        for old in self.folder.glob("round-*"):
            if _round_of(old) < round:
                shutil.rmtree(old, ignore_errors=True)


class LedgerStore:
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

    def holds(self, name: str) -> bool:
        """Return whether arrays are kept as ``name`` for the run."""
        with self._using():
            return self._ledger.kept(self._run, 0, name) is not None

    def known(self, name: str, round: int | None = None) -> Arrays | None:
        """Return the arrays kept as ``name``, if there are any."""
        with self._using():
            found = self._ledger.kept(self._run, round or 0, name)
            return None if found is None else load(found)

    def arrays(self, name: str, make: Callable[[], Arrays], *, round: int | None = None) -> Arrays:
        """Return the arrays kept as ``name``; if there are none, keep what ``make`` returns.

        Arrays kept for a ``round`` are removed once something is kept for a later one. If two
        processes make the same arrays at once, both get those that were kept first.
        """
        found = self.known(name, round)
        if found is not None:
            return found
        content = save(_laid_out(make()))
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


class MemoryStore:
    """A client's store in memory, for the clients of an audit and for trials of encoders.

    Args:
        kept: a store, such as the client's own, from which arrays that were not made here are read.
            It is never changed.
    """

    def __init__(self, kept: Store | None = None) -> None:
        self._kept = kept
        self.made: dict[tuple[str, int | None], Arrays] = {}

    def holds(self, name: str) -> bool:
        """Return whether arrays are kept as ``name`` for the run."""
        return (name, None) in self.made or (self._kept is not None and self._kept.holds(name))

    def known(self, name: str, round: int | None = None) -> Arrays | None:
        """Return the arrays kept as ``name``, if there are any."""
        found = self.made.get((name, round))
        if found is None and self._kept is not None:
            return self._kept.known(name, round)
        return found

    def arrays(self, name: str, make: Callable[[], Arrays], *, round: int | None = None) -> Arrays:
        """Return the arrays kept as ``name``; if there are none, keep what ``make`` returns.

        Arrays kept for a ``round`` are removed once something is kept for a later one.
        """
        found = self.known(name, round)
        if found is None:
            found = self.made[name, round] = make()
            if round is not None:
                self.made = {
                    at: arrays
                    for at, arrays in self.made.items()
                    if at[1] is None or at[1] >= round
                }
        return found


def _laid_out(made: Arrays) -> dict[str, NDArray[Any]]:
    """Return arrays without strides, which safetensors would scramble."""
    return {name: np.require(array, requirements="C") for name, array in made.items()}


def _round_of(folder: Path) -> int:
    return int(folder.name.removeprefix("round-"))


def _reason(error: Exception) -> str:
    """Return why a file could not be used; safetensors hides the reason in its own words."""
    return getattr(error, "strerror", None) or first_line(error)
