"""Agents and a server of two releases go on together, one party updated after another.

The later release is a copy of the package that rewords all warnings, has a further setting, and a
further caveat in every statement, which does not bind.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from environments import HOST, bits, make_environment
from real_processes import PATIENCE, Party, eventually
from safetensors.numpy import load_file

import fedldp
from fedldp.deployment.parties import free_ports
from fedldp.simulation.engine import simulate

ROUNDS, BINDS = 60, 7
SETTING = """    average: Annotated[float, Field(ge=0, le=1)] = Field("""
CAVEATS = """    warnings += [*systems.notes(config, problem), timed]
"""


def write_later(folder: Path) -> Path:
    """Write the package as release 0.1.1 changes it; return the folder to import it from."""
    (package,) = fedldp.__path__
    later = folder / "later"
    shutil.copytree(package, later / "fedldp")
    about = later / "fedldp-0.1.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: fedldp\nVersion: 0.1.1\n")

    def change(file: str, before: str, after: str) -> None:
        text = (later / "fedldp" / file).read_text()
        assert before in text
        (later / "fedldp" / file).write_text(text.replace(before, after))

    words, kinds = "reporting/words.toml", "core/kinds.py"
    change(words, '\nline = "', '\nline = "in other words, ')
    change(words, "\n[fewer-than-planned]", '\n[later]\nline = "later"\n\n[fewer-than-planned]')
    change(words, "\n[later]", '\n[binding]\nline = "binding"\n\n[later]')
    more = (
        'LATER = Kind("later", Caveat, {}, binds=False)()\nBINDING = Kind("binding", Caveat, {})()'
    )
    change(kinds, "FEWER_THAN_PLANNED =", f"{more}\nFEWER_THAN_PLANNED =")
    change(
        "algorithms/run_settings.py",
        SETTING,
        f'    courtesy: int = Field(1, description="what 0.1.0 lacks")\n{SETTING}',
    )
    change(
        "deployment/statement.py",
        CAVEATS,
        f"    from fedldp.core.kinds import BINDING, LATER\n{CAVEATS}"
        f"    warnings += [LATER, *([BINDING] if config.rounds == {BINDS} else [])]\n",
    )
    return later


class Later:
    """A command of the later release, with the methods of ``Party``."""

    def __init__(self, release: Path, log: Path, *arguments: object) -> None:
        self._log = log
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-c", "from fedldp.cli import main; main()", *map(str, arguments)],
                stdout=out,
                stderr=out,
                env={**os.environ, "PYTHONPATH": str(release), "NO_PROXY": HOST, "no_proxy": HOST},
            )

    def wait(self) -> int:
        return self._process.wait(PATIENCE)

    def end(self) -> None:
        self._process.terminate()
        assert self.wait() == 0, self._log.read_text()[-2000:]

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.mark.slow
def test_two_releases_go_on_together_and_the_earlier_names_what_it_lacks(
    tmp_path: Path, fedldp_command: Any
) -> None:
    release = write_later(tmp_path)
    (port,) = free_ports(1)
    table = {"url": f"https://{HOST}:{port}", "ca": "../tls/ca.pem"}
    env = make_environment(tmp_path, f"rounds={ROUNDS}", policy={"server": [table]}, deadline=300.0)
    run, agreement, tls = tmp_path / "run", tmp_path / "run.agreement", tmp_path / "tls"
    agreement.write_bytes(env.agreement.to_bytes())
    places = [policy.key.parent / "site.toml" for policy in env.policies]
    parties = list[Party | Later]()

    def started(name: str, *arguments: object, later: bool) -> Party | Later:
        found: Party | Later
        if later:
            found = Later(release, tmp_path / name, *arguments)
        else:
            found = Party(tmp_path / name, *arguments)
            found.start()
        parties.append(found)
        return found

    def agent(index: int, *, later: bool) -> Party | Later:
        arguments = ("deploy", "site", places[index], "--test-keys")
        return started(f"agent-{index}.log", *arguments, later=later)

    def server(*, later: bool) -> Party | Later:
        keys = ("--certificate", tls / "server.pem", "--key", tls / "server.key")
        arguments = ("deploy", "server", run, agreement, "--listen", f"{HOST}:{port}", *keys)
        return started("server.log", *arguments, later=later)

    def goes_on() -> None:
        """Wait for two more rounds, which are not the last."""
        done = rounds_in(run)
        eventually(lambda: rounds_in(run) >= done + 2)
        assert rounds_in(run) < ROUNDS

    try:
        serving = server(later=False)
        agents = [agent(0, later=False), agent(1, later=False), agent(2, later=True)]
        goes_on()
        agents[0].stop()
        agents[0] = agent(0, later=True)
        goes_on()
        serving.end()
        serving = server(later=True)
        goes_on()
        agents[2].stop()
        agents[2] = agent(2, later=False)  # also back to the earlier release
        assert serving.wait() == 0
        for each in agents:
            each.end()
    finally:
        for each in parties:
            each.stop()
    assert "Traceback" not in "".join(log.read_text() for log in tmp_path.glob("*.log"))
    found = load_file(run / "model.safetensors")
    assert {name: each.tobytes() for name, each in found.items()} == bits(simulate(env.config))
    for index in range(3):
        assert [round for round, _ in env.releases(index)] == list(range(1, ROUNDS + 1))
    stated = json.loads((run / "privacy.json").read_text())
    assert "later" in [each["kind"] for each in stated["warnings"]]

    new, site = tmp_path / "new.agreement", places[0].parent / "site.pub"
    given = ("--set", "num_examples=50", "--set", f"rounds={BINDS}", "--set", "courtesy=2")
    made = ("deploy", "agree", "quickstart", "-o", new, "--channel", "named", *given)
    made = (*made, "--site", f"site-0={site}", "--ca", tls / "ca.pem")
    assert Later(release, tmp_path / "agree.log", *made).wait() == 0
    accept = ("deploy", "accept", new, "--policy", places[0], "--yes")
    assert "courtesy is not a setting" in fedldp_command(*accept).assert_refused()
    document = json.loads(new.read_text())
    del document["config"]["courtesy"]
    new.write_text(json.dumps(document))
    assert "its statement differs in binding" in fedldp_command(*accept).assert_refused()


def rounds_in(run: Path) -> int:
    metrics = run / "metrics.jsonl"
    return len(metrics.read_text().splitlines()) if metrics.exists() else 0
