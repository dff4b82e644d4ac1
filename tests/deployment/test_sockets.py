"""Where a socket may be, and what is refused."""

from __future__ import annotations

import grp
import os
import socket
import stat
from pathlib import Path

import pytest

from fedldp.core.errors import ConfigError
from fedldp.deployment.sockets import listen


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_socket_is_accessible_to_its_owner_only_and_can_be_reached(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.sock"
    with listen(path), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        assert mode(path) == 0o600
        assert mode(path.parent) == 0o700
        other.connect(str(path))


def test_the_socket_of_a_dead_process_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "run" / "a.sock"
    listen(path).close()
    assert path.exists()
    with listen(path):
        assert mode(path) == 0o600


def test_the_socket_of_a_living_process_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "run" / "a.sock"
    with listen(path), pytest.raises(ConfigError, match="another process already listens on"):
        listen(path)


def test_a_file_is_not_replaced_by_a_socket(tmp_path: Path) -> None:
    path = tmp_path / "run" / "a.sock"
    path.parent.mkdir(mode=0o700)
    path.write_text("precious")
    with pytest.raises(ConfigError, match="exists and is not a socket: remove it"):
        listen(path)
    assert path.read_text() == "precious"


@pytest.mark.parametrize("open_to", [0o770, 0o750, 0o711, 0o701, 0o777])
def test_a_folder_open_to_others_is_refused(tmp_path: Path, open_to: int) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    folder.chmod(open_to)
    with pytest.raises(
        ConfigError, match=f"open to others .mode {open_to:04o}.: run chmod 0700 on it"
    ):
        listen(folder / "a.sock")


def test_a_folder_that_others_could_replace_is_refused(tmp_path: Path) -> None:
    above = tmp_path / "above"
    above.mkdir()
    above.chmod(0o777)
    (above / "run").mkdir(mode=0o700)
    with pytest.raises(ConfigError, match="others could replace the socket's folder"):
        listen(above / "run" / "a.sock")
    above.chmod(0o1777)  # like /tmp, where nobody can replace another user's files
    listen(above / "run" / "a.sock").close()


def test_a_link_into_an_open_folder_is_refused_too(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    real.chmod(0o777)
    (tmp_path / "link").symlink_to(real)
    with pytest.raises(ConfigError, match="open to others"):
        listen(tmp_path / "link" / "a.sock")


def test_a_group_may_be_let_in(tmp_path: Path) -> None:
    group = grp.getgrgid(os.getegid()).gr_name
    folder = tmp_path / "run"
    folder.mkdir()
    folder.chmod(0o710)
    os.chown(folder, -1, os.getegid())
    with listen(folder / "a.sock", group=group):
        assert mode(folder / "a.sock") == 0o660
    for open_to in (0o730, 0o711):
        folder.chmod(open_to)
        with pytest.raises(ConfigError, match="run chmod 0710 on it, and chgrp to"):
            listen(folder / "b.sock", group=group)
    with pytest.raises(ConfigError, match=r"the group 'nobody-has-this' of .* does not exist"):
        listen(folder / "b.sock", group="nobody-has-this")


def test_too_long_a_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="more than 107 bytes: choose a shorter path"):
        listen(tmp_path / ("x" * 100) / "a.sock")
