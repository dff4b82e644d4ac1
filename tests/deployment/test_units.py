"""The units for systemd restrict what agents and servers may do, and start commands that exist."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest
from test_docs import check_command

from fedldp.core.errors import EndedForGood

UNITS = sorted((Path(__file__).parents[2] / "docs" / "systemd").iterdir())
ANALYZE = shutil.which("systemd-analyze")
KINDS = ("server", "site")


@pytest.mark.parametrize("unit", UNITS, ids=KINDS)
def test_a_unit_restricts_its_process_and_starts_it_again(unit: Path) -> None:
    lines = unit.read_text(encoding="utf-8").splitlines()
    for line in (
        "Type=notify",
        "WatchdogSec=60",
        "Restart=always",
        f"RestartPreventExitStatus={EndedForGood.exit_status}",
        "User=fedldp",
        "RequiresMountsFor=/var/lib/fedldp/%i",
        "ReadWritePaths=/var/lib/fedldp/%i",
        "LimitCORE=0",
        "SystemCallFilter=@system-service",
        "PrivateDevices=yes",
    ):
        assert line in lines
    (command,) = [line for line in lines if line.startswith("ExecStart=")]
    check_command(command.split()[1:], unit.name)


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=KINDS)
def test_systemd_finds_nothing_wrong_with_a_unit(unit: Path, tmp_path: Path) -> None:
    assert ANALYZE is not None
    program = Path(sysconfig.get_path("scripts")) / "fedldp"
    own = tmp_path / unit.name
    text = unit.read_text(encoding="utf-8").replace(
        "/var/lib/fedldp/venv/bin/fedldp", os.fspath(program)
    )
    own.write_text(text, encoding="utf-8")
    done = subprocess.run(
        [ANALYZE, "verify", "--man=no", own.with_name(own.name.replace("@", "@north"))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout + done.stderr, done.returncode) == ("", 0)
