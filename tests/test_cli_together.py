"""Commands that start at the same moment: in folders of their own, or one after another."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from together import together

SMALL = ("--set", "num_clients=6", "--set", "local_epochs=1", "--set", "rounds=1")
RUN = ("run", "quickstart", *SMALL, "--workers", "1")
SWEEP = ("sweep", "quickstart", *SMALL, "--grid", "epsilon=1,2", "--workers", "1")
AUDIT = ("audit", "--mechanism", "two_point", "--brief", "--trials", "20", "--workers", "1")
COMMANDS = {
    "run": (RUN, "--out"),
    "sweep": (SWEEP, "--out"),
    "audit": (AUDIT, "--page"),
}
END = {"run": "summary.json", "sweep": "results.csv", "audit": ""}


def command(*arguments: str) -> None:
    from fedldp.cli import main

    sys.argv = ["fedldp", *arguments]
    main()


def _imports() -> None:
    import sklearn.datasets  # noqa: F401

    import fedldp.cli.audit
    import fedldp.cli.run
    import fedldp.cli.sweep
    import fedldp.simulation.engine  # noqa: F401


command.imports = _imports  # type: ignore[attr-defined]


@pytest.mark.slow
def test_commands_that_start_together_have_folders_of_their_own(tmp_path: Path) -> None:
    ended = together(command, [RUN] * 3, tmp_path)
    assert [status for status, _ in ended] == [0, 0, 0], ended
    folders = list((tmp_path / "runs").iterdir())
    assert len(folders) == 3
    for folder in folders:
        assert re.fullmatch(r"(?!.*/).*\d{8}-\d{6}(-\d)?", folder.name)
        assert (folder / END["run"]).exists()
        assert not (folder / "lock").exists()
        assert any(str(folder.relative_to(tmp_path)) in said for _, said in ended)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_of_commands_that_start_together_in_one_folder_one_works(tmp_path: Path, name: str) -> None:
    arguments, option = COMMANDS[name]
    ended = together(command, [[*arguments, option, "here"]] * 3, tmp_path)
    statuses = [status for status, _ in ended]
    # One that was held up until another had ended continues the finished work, but for a run.
    assert statuses.count(0) == 1 if name == "run" else 0 in statuses, ended
    for status, said in ended:
        if status:
            (line,) = (each for each in said.splitlines() if each.startswith("error: "))
            assert status == 2
            assert "here" in line
            assert "process " in line or "exists already" in line
            assert "Traceback" not in said
    assert (tmp_path / "here" / END[name]).exists()
    assert not (tmp_path / "here" / "lock").exists()
    assert not (tmp_path / "here.lock").exists()
