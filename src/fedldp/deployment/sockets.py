"""Unix sockets that only their owner, and one group if requested, can reach."""

from __future__ import annotations

import errno
import grp
import os
import socket
import stat
from pathlib import Path

from fedldp.core.errors import ConfigError

LONGEST_PATH = 107
"""The longest path of a Unix socket on Linux, in bytes."""


def listen(path: Path, group: str | None = None) -> socket.socket:
    """Return a listening Unix socket at ``path``; the caller must remove the file after closing it.

    The socket's file has mode 0600. Its folder (created with mode 0700 if missing) must be
    accessible to its owner only, and nobody else may be able to replace a folder above it. A socket
    file that a dead process left behind is replaced.

    Args:
        path: at most 107 bytes.
        group: a group whose members may connect too, such as the group of the SuperNode; the file
            then has mode 0660 and this group, and the folder may let the group enter (0710) but not
            write.

    Raises:
        ConfigError: the path is too long, others could write there, the path is in use, the group
            does not exist, or the system refuses.
    """
    path = Path(os.path.abspath(path))
    if len(os.fsencode(path)) > LONGEST_PATH:
        raise ConfigError(
            f"the socket's path {path} has more than {LONGEST_PATH} bytes: choose a shorter path"
        )
    try:
        group_id = None if group is None else grp.getgrnam(group).gr_gid
    except KeyError:
        raise ConfigError(
            f"the group {group!r} of the socket {path} does not exist: create it"
        ) from None
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_folders(path.parent, group_id)
        _remove_what_is_dead(path)
        return _bind(path, group_id)
    except OSError as error:
        raise ConfigError(f"cannot listen at {path}: {error.strerror}") from error


def _bind(path: Path, group_id: int | None) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        # Set permissions before listen(), so that nobody can connect while the umask's permissions
        # apply.
        if group_id is not None:
            os.chown(path, -1, group_id)
        path.chmod(0o600 if group_id is None else 0o660)
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener


def _check_folders(folder: Path, group_id: int | None) -> None:
    found = folder.resolve().stat()
    others = stat.S_IMODE(found.st_mode) & 0o077
    if found.st_uid != os.geteuid():
        raise ConfigError(
            f"the socket's folder {folder} belongs to another user: use a folder of this user"
        )
    lets_in = group_id is not None and found.st_gid == group_id and not others & ~0o050
    if others and not lets_in:
        raise ConfigError(
            f"the socket's folder {folder} is open to others (mode "
            f"{stat.S_IMODE(found.st_mode):04o}): run chmod "
            + ("0700 on it" if group_id is None else "0710 on it, and chgrp to the socket's group")
        )
    for above in folder.resolve().parents:
        found = above.stat()
        writable = stat.S_IMODE(found.st_mode) & 0o022 and not found.st_mode & stat.S_ISVTX
        if writable or found.st_uid not in (0, os.geteuid()):
            raise ConfigError(
                f"others could replace the socket's folder {folder}: they can write in {above}"
            )


def _remove_what_is_dead(path: Path) -> None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise ConfigError(f"{path} exists and is not a socket: remove it, or choose another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        refused = probe.connect_ex(str(path))
    if refused != errno.ECONNREFUSED:
        raise ConfigError(
            f"another process already listens on {path}: end it, or choose another path"
        )
    path.unlink(missing_ok=True)
