"""Files and folders that only one process uses at a time, and temporary folders.

A process holds a lock file until it releases it or ends: the kernel frees the lock however the
process ends, so nothing that was killed keeps anybody out. While the file is held, it says which
process holds it; a released file is removed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fedldp.core.errors import RunError, os_errors

LOCK = "lock"
"""The lock file in a folder that a process owns."""

_SCRATCH = "fedldp-scratch-"
_PATIENCE_SECONDS = 0.5
"""How long to try to take a lock that is held, because others hold it briefly to look at it."""


class Held(RunError):
    """Another process (or another thread of this process) holds the file or the folder."""


@dataclass(frozen=True)
class OwnedFolder(os.PathLike[str]):
    """A folder that the caller owns, see :func:`owned`; whoever is given it may write in it.

    Attributes:
        path: the folder's path.
    """

    path: Path

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return str(self.path)


def sync(path: Path) -> None:
    """Wait until a file, or a folder's list of files, is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def alone(file: Path, what: str) -> Iterator[None]:
    """Hold the lock ``file``, created if missing, so that no other process does the same.

    Raises:
        Held: another process holds the lock.
        RunError: the file cannot be created.
    """
    try:
        handle = _acquire(file, 0o700)
    except Held as holder:
        raise Held(f"{file}: another {what} is running there ({holder}); stop it first") from None
    except OSError as error:
        raise RunError(f"{file}: {error.strerror}; check the folder") from error
    try:
        yield
    finally:
        _release(handle, file)


def is_held(file: Path) -> bool | None:
    """Return whether a process holds the lock ``file``, without creating the file.

    Returns:
        None if the file exists but cannot be read.
    """
    try:
        handle = os.open(file, os.O_RDONLY)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


@contextmanager
def owned(
    place: Path | OwnedFolder | None,
    argument: str,
    what: str,
    check: Callable[[Path], object] = lambda path: None,
) -> Iterator[OwnedFolder]:
    """Own a folder, created if missing, so that no other process works in it.

    Folders that were created are removed at the end if nothing was written into them. Temporary
    folders of killed processes are removed first, see :func:`scratch`.

    Args:
        place: the folder; or one that the caller owns already; or None for a temporary folder.
        argument: the setting that names the folder, for error messages.
        what: what the folder holds, for error messages.
        check: called with the path, before anything is created and again once the folder is owned;
            raises an error if the folder holds something else.

    Raises:
        Held: another process owns the folder.
        RunError: the folder cannot be created or written.
    """
    if isinstance(place, OwnedFolder):
        check(place.path)
        yield place
        return
    if place is None:
        with scratch() as path:
            yield OwnedFolder(path)
        return
    try:
        _check_free(place / LOCK)
        try:
            check(place)
        except Exception:
            _check_free(place / LOCK)  # another process may just have begun to write there
            raise
        made = missing_folders(place)
        handle = _acquire(place / LOCK, 0o777)
    except Held as holder:
        raise Held(
            f"{argument} = {place}: another process is working on this {what} ({holder}); wait "
            "until it ends"
        ) from None
    except OSError as error:
        raise RunError(
            f"{argument} = {place}: {error.strerror}; choose a writable folder"
        ) from error
    with _owning(handle, place, made) as own:
        check(place)
        yield own


@contextmanager
def owned_new(path: Path, argument: str) -> Iterator[OwnedFolder]:
    """Create and own a folder that nobody named: ``path``, or else the next free ``path-2``, ...

    The folder is removed at the end if nothing was written into it.

    Args:
        path: the folder's path.
        argument: the setting that would name another folder, for error messages.

    Raises:
        RunError: the folder cannot be created.
    """
    made, place, number = missing_folders(path.parent), path, 1
    while True:
        try:
            place.mkdir(parents=True)
            handle = _acquire(place / LOCK, 0o777)
            break
        except (FileExistsError, Held) as error:
            if not os.path.lexists(place):  # a folder above it is a broken link
                raise RunError(f"{argument} = {place}: choose a folder that can be made") from error
            number += 1
            place = path.with_name(f"{path.name}-{number}")
        except OSError as error:
            raise RunError(
                f"{argument} = {place}: {error.strerror}; choose a writable folder"
            ) from error
    with _owning(handle, place, [place, *made]) as own:
        yield own


@contextmanager
def scratch() -> Iterator[Path]:
    """Own a new temporary folder, which only this user can read, and which is removed at the end.

    First removes the temporary folders of this user's processes that were killed.

    Raises:
        RunError: the folder cannot be created.
    """
    with os_errors("TMPDIR: no temporary folder can be made", "name a writable folder", RunError):
        _remove_abandoned()
        place, handle = _new_scratch()
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        os.close(handle)


def missing_folders(path: Path) -> list[Path]:
    """Return the folders that have to be created so that ``path`` exists, innermost first."""
    return [place for place in (path, *path.parents) if not place.exists()]


def remove_empty(made: Sequence[Path]) -> None:
    """Remove folders that were created, innermost first, up to the first one that is not empty."""
    for place in made:
        try:
            place.rmdir()
        except OSError:
            return


def _check_free(file: Path) -> None:
    """Refuse a lock that another process holds for longer than a look at it takes."""
    end = time.monotonic() + _PATIENCE_SECONDS
    while is_held(file):
        if time.monotonic() > end:
            raise Held(_holder(file))
        time.sleep(0.02)


def _acquire(file: Path, mode: int) -> int:
    """Return a handle that holds the lock ``file``; create it, and a missing folder with ``mode``.

    Raises:
        Held: another process holds the lock; the text says which.
        OSError: the file cannot be created or locked.
    """
    end = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            file.parent.mkdir(mode=mode, parents=True, exist_ok=True)
            handle = _try(file, mode & 0o666)
        except (FileNotFoundError, FileExistsError):  # the folder has just been removed
            if time.monotonic() > end:
                raise
            continue
        if handle is not None:
            return handle
        if time.monotonic() > end:
            raise Held(_holder(file))
        time.sleep(0.02)


def _try(file: Path, mode: int) -> int | None:
    """Return a handle that holds the lock ``file``, or None if it is not to be had now."""
    # Whoever may write into the folder could lay a link to another file of this user there.
    handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, mode)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(handle, file):  # otherwise its holder removed it after it was opened here
            os.ftruncate(handle, os.pwrite(handle, _this_process().encode(), 0))
            return handle
    except BlockingIOError:
        pass
    except BaseException:
        os.close(handle)
        raise
    os.close(handle)
    return None


def _release(handle: int, file: Path) -> None:
    """Remove a lock file and release it; another file of the same name is left alone."""
    with suppress(OSError):
        if _is_at(handle, file):
            file.unlink()
    os.close(handle)


@contextmanager
def _owning(handle: int, place: Path, made: Sequence[Path]) -> Iterator[OwnedFolder]:
    try:
        _remove_abandoned()
        yield OwnedFolder(place)
    finally:
        _release(handle, place / LOCK)
        remove_empty(made)


def _is_at(handle: int, file: Path) -> bool:
    """Return whether an open file is the one at this path."""
    try:
        return os.path.samestat(os.fstat(handle), file.stat())
    except FileNotFoundError:
        return False


def _this_process() -> str:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return f"process {os.getpid()} on {socket.gethostname()} since {now}"


def _holder(file: Path) -> str:
    """Return which process holds a lock, as far as its file says so."""
    try:
        with file.open(encoding="utf-8", errors="replace") as opened:
            text = opened.readline(200)
    except OSError:
        text = ""
    return text if text.isprintable() and text else "process unknown"


def _new_scratch() -> tuple[Path, int]:
    while True:
        place = Path(tempfile.mkdtemp(prefix=_SCRATCH))
        with suppress(FileNotFoundError):
            # Before it is locked, another process of this user may take it for an abandoned one and
            # remove it. Then another user may make a folder of this name.
            made = place.lstat()
            handle = _try(place / LOCK, 0o600)
            if handle is not None:
                found = place.lstat()
                if (made.st_uid, made.st_mode) == (found.st_uid, found.st_mode):
                    return place, handle
                os.close(handle)


def _remove_abandoned() -> None:
    """Remove the temporary folders that no process holds any more, if they are this user's."""
    found = list[Path]()
    with suppress(OSError):  # there may be no temporary folder that can be read
        found += Path(tempfile.gettempdir()).glob(f"{_SCRATCH}*")
    for place in found:
        with suppress(OSError):
            about = place.lstat()
            if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid():
                continue
            handle = _try(place / LOCK, 0o600)
            if handle is not None:
                shutil.rmtree(place, ignore_errors=True)
                os.close(handle)
