"""Agents and a server of two releases go on together, one party updated after another.

The later release is a copy of the package that rewords all warnings, has a further setting, and a
further caveat in every statement, which does not bind.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from environments import HOST, bits, bits_of, make_environment
from real_processes import PATIENCE, DiesAtCommit, Party, Sabotage

import fedldp
from fedldp.deployment.demo import free_ports
from fedldp.simulation.engine import simulate

ROUNDS, BINDS = 6, 7
SETTING = """    average: Annotated[float, Field(ge=0, le=1)] = """
CAVEATS = """    warnings += [*notes(config, problem), timed]
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
        "algorithms/config.py",
        SETTING,
        f'    courtesy: int = 1\n    """what 0.1.0 lacks"""\n{SETTING}',
    )
    change(
        "algorithms/systems.py",
        CAVEATS,
        f"    from fedldp.core.kinds import BINDING, LATER\n{CAVEATS}"
        f"    warnings += [LATER, *([BINDING] if config.rounds == {BINDS} else [])]\n",
    )
    return later


AGREES = """
import sys
from fedldp.algorithms.problem import Problem
from fedldp.deployment.agreeing import agree
from fedldp.deployment.certificates import fingerprints
from fedldp.deployment.identity import read_public
from fedldp.simulation.settings import resolve
from pathlib import Path
out, key, ca, *settings = sys.argv[1:]
config, sites = resolve("quickstart", settings), {"site-0": read_public(Path(key))}
found = agree(config, Problem((1, 8, 8), 10, 50), sites, channel="named",
              server_ca=fingerprints(Path(ca)))
Path(out).write_bytes(found.to_bytes())
"""
"""Writes an agreement of one site."""


class Later(Party):
    """A process of the later release: of its command line, or of a program."""

    def __init__(self, release: Path, log: Path, *arguments: object, program: str = "") -> None:
        super().__init__(log, *arguments)
        self._release, self._program = release, program

    def start(self, sabotage: Sabotage | None = None) -> None:
        acts = f"_act(sys.argv[1:], {str(self.log)!r}, {sabotage!r})"
        program = (
            self._program or f"import sys; from real_processes import DiesAtCommit, _act; {acts}"
        )
        path = os.pathsep.join([str(self._release), str(Path(__file__).parent)])
        self._started = subprocess.Popen(
            [sys.executable, "-c", program, *self._arguments],
            env={**os.environ, "PYTHONPATH": path, "NO_PROXY": HOST, "no_proxy": HOST},
        )

    @property
    def alive(self) -> bool:
        return self._started.poll() is None

    def wait(self, patience: float = PATIENCE) -> int:
        return self._started.wait(patience)

    def end(self) -> None:
        self._started.terminate()
        assert self.wait() == 0, self.text()[-2000:]

    def stop(self) -> None:
        self._started.kill()
        self._started.wait()


@pytest.mark.slow
def test_two_releases_go_on_together_and_the_earlier_names_what_it_lacks(
    tmp_path: Path, fedldp_command: Any
) -> None:
    """A party dies at an answer, without which no round goes on, and another release continues."""
    release = write_later(tmp_path)
    (port,) = free_ports(1)
    table = {"url": f"https://{HOST}:{port}", "ca": "../tls/ca.pem"}
    env = make_environment(tmp_path, f"rounds={ROUNDS}", policy={"server": [table]}, deadline=300.0)
    run, agreement, tls = tmp_path / "run", tmp_path / "run.agreement", tmp_path / "tls"
    agreement.write_bytes(env.agreement.to_bytes())
    places = [policy.key.parent / "site.toml" for policy in env.policies]
    parties = list[Party]()

    def started(
        log: str, *arguments: object, later: bool, dies: int | None = None, program: str = ""
    ) -> Party:
        found = Party(tmp_path / log, *arguments)
        if later:
            found = Later(release, tmp_path / log, *arguments, program=program)
        found.start(None if dies is None else DiesAtCommit(dies))
        parties.append(found)
        return found

    def agent(index: int, *, later: bool, dies: int | None = None) -> Party:
        arguments = ("deploy", "site", places[index], "--test-keys")
        return started(f"agent-{index}.log", *arguments, later=later, dies=dies)

    def server(*, later: bool) -> Party:
        keys = ("--certificate", tls / "server.pem", "--key", tls / "server.key")
        arguments = ("deploy", "server", run, agreement, "--listen", f"{HOST}:{port}", *keys)
        return started("server.log", *arguments, later=later)

    new, public = tmp_path / "new.agreement", places[0].parent / "site.pub"
    settings = ("num_clients=1", "num_examples=50", f"rounds={BINDS}", "courtesy=2")
    try:
        serving = server(later=False)
        updated, unchanged = agent(0, later=False, dies=2), agent(1, later=False)
        turned_back = agent(2, later=True, dies=4)
        assert updated.wait() == -signal.SIGKILL
        updated = agent(0, later=True)
        assert turned_back.wait() == -signal.SIGKILL
        serving.end()
        serving = server(later=True)
        turned_back = agent(2, later=False)
        assert serving.wait() == 0
        for each in (updated, unchanged, turned_back):
            each.end()
        made = started("agree.log", new, public, tls / "ca.pem", *settings, later=True,
                       program=AGREES)  # fmt: skip
        assert made.wait() == 0
    finally:
        for each in parties:
            each.stop()
    assert "Traceback" not in "".join(log.read_text() for log in tmp_path.glob("*.log"))
    assert bits_of(run / "model.safetensors") == bits(simulate(env.config))
    for index in range(3):
        assert [round for round, _ in env.releases(index)] == list(range(1, ROUNDS + 1))
    stated = json.loads((run / "privacy.json").read_text())
    assert "later" in [each["kind"] for each in stated["warnings"]]

    accept = ("deploy", "accept", new, "--policy", places[0], "--yes")
    assert "courtesy is not a setting" in fedldp_command(*accept).assert_refused()
    document = json.loads(new.read_text())
    del document["config"]["courtesy"]
    new.write_text(json.dumps(document))
    assert "its statement differs in binding" in fedldp_command(*accept).assert_refused()
