"""Units with which systemd runs, and restarts, an agent or a server.

Each runs as the user who owns its folder, and can write only where it stores its files.
"""

from __future__ import annotations

import os
import pwd
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from fedldp.core.errors import ConfigError, EndedForGood
from fedldp.deployment.agreement import Agreement
from fedldp.deployment.identity import read_private
from fedldp.deployment.policy import read_policy

_UNIT = Path(__file__).with_name("systemd.service").read_text(encoding="utf-8")

_IN_MEMORY = ("tmpfs", "ramfs")


def unit_of_site(policy: Path) -> tuple[str, str]:
    """Return the name and the content of the unit file for a site's agent.

    Args:
        policy: the path of the site's policy.

    Raises:
        FedldpError: the policy is invalid, root owns its folder, the folder's owner may not read
            the data, or a reboot would empty a folder that the site needs.
    """
    terms, place = read_policy(policy), policy.absolute()
    read_private(terms.key)  # refuses a key that others may read
    user = _owner(place.parent)
    if _closed_to(place.parent, terms.data):
        raise ConfigError(
            f"data {terms.data}: the agent will run as {user}, who may not read this file; run "
            f"chown {user} on it"
        )
    writable = {terms.state.parent, terms.key.parent}
    _check_lasts({terms.data, place.parent, *writable})
    # The agent itself refuses a witness that is not mounted, with an explanation.
    optional = set() if terms.witness is None else {terms.witness}
    text = _UNIT.format(
        description=f"fedldp agent of site {_plain(terms.key.stem)}",
        user=user,
        folder=_path(place.parent),
        folders=" ".join(map(_path, sorted({place.parent, *writable}))),
        command=_command("site", str(place)),
        restart="always",
        pause=10,
        ended_for_good=EndedForGood.exit_status,
        writable=_writable(writable, optional),
        private_devices="yes" if terms.device == "cpu" else "no",
    )
    return f"fedldp-{_plain(terms.key.stem)}.service", text


def unit_of_server(place: Path, options: Iterable[str]) -> tuple[str, str]:
    """Return the name and the content of the unit file for a server.

    Args:
        place: the path of a run's agreement, whose server ends with the run, and whose folder will
            be beside it, with the same name; or the home of a server of several runs.
        options: more options of ``fedldp deploy server``.

    Raises:
        FedldpError: the agreement is invalid, root owns its folder, or a reboot empties that
            folder.
    """
    place = place.absolute()
    if place.is_dir():
        if not (place / "server.pem").exists():
            raise ConfigError(
                f"folder {place}: it has no server.pem; give a site's policy, an agreement, or the "
                "folder of a server of several runs"
            )
        of, folder, named, restart = f"in {_plain(place.name)}", place, [str(place)], "always"
    else:
        of, folder = f"of run {Agreement.read(place, own=None).run[:8]}", place.parent
        named, restart = [str(place.with_suffix("")), str(place)], "on-failure"
    _check_lasts({folder})
    text = _UNIT.format(
        description=f"fedldp server {of}",
        user=_owner(folder),
        folder=_path(folder),
        folders=_path(folder),
        command=_command("server", *named, *options),
        restart=restart,
        pause=30,
        ended_for_good=EndedForGood.exit_status,
        writable=_writable({folder}, set()),
        private_devices="yes",
    )
    return f"fedldp-server-{_plain(place.stem)}.service", text


def _check_lasts(places: set[Path]) -> None:
    """Refuse paths that a reboot empties: without its ledger, a site could overspend its budget."""
    for place in sorted(places):
        if (why := _passing(place.resolve())) is not None:
            raise ConfigError(
                f"path {place}: {why}; move it to a folder that survives a reboot, such as one in "
                "/var/lib (docs/site_backups.md says how to move a site that has a ledger)"
            )


def _passing(place: Path) -> str | None:
    """Return why a unit's files would not survive at a path; None if they would."""
    for folder in (Path("/tmp"), Path("/var/tmp")):
        if place.is_relative_to(folder.resolve()):
            return (
                f"a unit does not see the machine's {folder}, and its content is deleted from "
                "time to time"
            )
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    except OSError:
        return None
    around = [(Path(each[1]), each[2]) for each in mounts if place.is_relative_to(each[1])]
    mount, kind = max(around, key=lambda each: len(each[0].parts), default=(place, ""))
    return f"{mount} is in memory and empty after a reboot" if kind in _IN_MEMORY else None


def _owner(folder: Path) -> str:
    """Return the user who owns a folder."""
    uid = folder.stat().st_uid
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = str(uid)
    if uid == 0:
        raise ConfigError(
            f"folder {folder}: root owns it, so this would run as root; give it to a separate "
            "user with chown -R"
        )
    return name


def _closed_to(folder: Path, data: Path) -> bool:
    """Return whether only a file's owner may read it, and the folder has a different owner."""
    found = data.stat()
    return found.st_uid != folder.stat().st_uid and not found.st_mode & 0o044


def _command(*words: str) -> str:
    program = Path(sysconfig.get_path("scripts")) / "fedldp"
    if not os.access(program, os.X_OK):
        raise ConfigError(
            f"{program}: it does not exist; run this command from an installed fedldp"
        )
    return " ".join(map(_quoted, [str(program), "deploy", *words]))


def _quoted(word: str) -> str:
    """Return a word quoted so that systemd reads it back unchanged."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return escaped if escaped.isprintable() and " " not in escaped else f'"{escaped}"'


def _writable(folders: set[Path], optional: set[Path]) -> str:
    paths = [_path(each) for each in sorted(folders)]
    paths += [f"-{_path(each)}" for each in sorted(optional)]
    return "\n".join(f"ReadWritePaths={each}" for each in paths)


def _path(path: Path) -> str:
    """Return a path for a unit's setting that takes only paths."""
    text = str(path)
    if not text.isprintable() or any(each in text for each in " \\\"'%:"):
        raise ConfigError(
            f"path {text!r}: it has characters with a special meaning in a unit; rename it"
        )
    return text


def _plain(name: str) -> str:
    """Return a name without the characters that have a special meaning in a unit."""
    return "".join(each if each.isalnum() or each in "-_." else "-" for each in name)
