"""Units for systemd, as ``fedldp deploy enable`` prints them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from environments import Environment, make_environment, write_tls

from fedldp.deployment import units
from fedldp.deployment.policy import read_policy

ANALYZE = shutil.which("systemd-analyze")
NO_ONE = 47_011


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    monkeypatch.setattr(units, "_passing", lambda place: None)  # tests are in /tmp
    server = {"url": "https://127.0.0.1:8443", "ca": "../tls/ca.pem"}
    found = make_environment(tmp_path, policy={"server": [server]})
    (tmp_path / "run.agreement").write_bytes(found.agreement.to_bytes())
    if os.geteuid() == 0:
        for path in (tmp_path, tmp_path / "site-0", *(tmp_path / "site-0").iterdir()):
            os.chown(path, NO_ONE, -1)
    return found


def test_units_restrict_what_they_may_do(
    env: Environment, fedldp_command: Callable[..., Any]
) -> None:
    policy, agreement = env.folder / "site-0" / "site.toml", env.folder / "run.agreement"
    outcome = fedldp_command("deploy", "enable", policy)
    assert outcome.status == 0
    assert "sudo systemctl enable --now fedldp-site" in outcome.err
    lines = outcome.out.splitlines()
    for line in (
        "Restart=always",
        "RestartPreventExitStatus=78",
        "Type=notify",
        "WatchdogSec=60",
        f"RequiresMountsFor={policy.parent}",
        "LimitCORE=0",
        "SystemCallFilter=@system-service",
        f"ReadWritePaths={policy.parent}",
        "PrivateDevices=yes",
    ):
        assert line in lines
    assert "User=root" not in lines
    (command,) = [line for line in lines if line.startswith("ExecStart=")]
    assert command.endswith(f"/fedldp deploy site {policy}")
    outcome = fedldp_command("deploy", "enable", agreement, "--listen", "0.0.0.0:9000")
    assert outcome.status == 0
    (command,) = [line for line in outcome.out.splitlines() if line.startswith("ExecStart=")]
    folder = env.folder / "run"
    assert command.endswith(f"/fedldp deploy server {folder} {agreement} --listen 0.0.0.0:9000")
    for line in ("Restart=on-failure", "RestartPreventExitStatus=78"):
        assert line in outcome.out.splitlines()
    home = env.folder / "home"
    write_tls(home)
    if os.geteuid() == 0:
        os.chown(home, NO_ONE, -1)
    outcome = fedldp_command("deploy", "enable", home, "--listen", "0.0.0.0:9000")
    lines = outcome.out.splitlines()
    for line in ("Restart=always", f"ReadWritePaths={home}"):
        assert line in lines
    (command,) = [line for line in lines if line.startswith("ExecStart=")]
    assert command.endswith(f"/fedldp deploy server {home} --listen 0.0.0.0:9000")
    line = fedldp_command("deploy", "enable", home, "--test", "digits").assert_refused()
    assert "fedldp deploy queue" in line
    line = fedldp_command("deploy", "enable", env.folder / "site-0").assert_refused()
    assert "it has no server.pem" in line


def test_units_that_cannot_work_are_refused(
    env: Environment, fedldp_command: Callable[..., Any]
) -> None:
    policy = env.folder / "site-0" / "site.toml"
    line = fedldp_command("deploy", "enable", policy, "--test", "digits").assert_refused()
    assert "these options are for a server" in line
    spaced = env.folder / "two words"
    shutil.copytree(policy.parent, spaced)
    if os.geteuid() == 0:
        for path in (spaced, *spaced.iterdir()):
            os.chown(path, NO_ONE, -1)
    line = fedldp_command("deploy", "enable", spaced / "site.toml").assert_refused()
    assert "rename it" in line
    if os.geteuid() == 0:
        data = read_policy(policy).data
        data.chmod(0o600)
        os.chown(data, 0, 0)
        line = fedldp_command("deploy", "enable", policy).assert_refused()
        assert f"data {data}: the agent will run as {NO_ONE}, who may not read this file" in line
        os.chown(policy.parent, 0, 0)
        line = fedldp_command("deploy", "enable", policy).assert_refused()
        assert "this would run as root" in line


def test_folders_that_a_reboot_empties_are_refused(
    env: Environment, fedldp_command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(units, "_passing", lambda place: "it is a dream")
    for file in (env.folder / "site-0" / "site.toml", env.folder / "run.agreement"):
        line = fedldp_command("deploy", "enable", file).assert_refused()
        assert "it is a dream; move it to a folder that survives" in line
    monkeypatch.undo()
    memory = Path("/dev/shm")
    assert "does not see the machine's /tmp" in str(units._passing(Path("/tmp/site")))
    assert units._passing(Path("/usr")) is None
    if memory.exists():
        assert units._passing(memory / "site") == f"{memory} is in memory and empty after a reboot"


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")
def test_systemd_finds_nothing_wrong_with_units(env: Environment) -> None:
    assert ANALYZE is not None
    policy = env.folder / "site-0" / "site.toml"
    witness = f'witness = "{env.folder}/witness"\n'
    policy.write_text(witness + policy.read_text())
    assert read_policy(policy).witness is not None
    found = [
        units.unit_of_site(policy),
        units.unit_of_server(env.folder / "run.agreement", ["--test", "a % $b"]),
    ]
    for name, text in found:
        unit = env.folder / name
        unit.write_text(text)
        done = subprocess.run(
            [ANALYZE, "verify", "--man=no", unit], capture_output=True, text=True, check=False
        )
        assert done.stdout + done.stderr == ""
        assert done.returncode == 0
