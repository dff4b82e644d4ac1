"""Commands that start at the same moment: in folders of their own, or one after another."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from together import together

SMALL = ("--set", "num_clients=6", "--set", "local_epochs=1", "--set", "rounds=1")
RUN = ("run", "quickstart", *SMALL, "--workers", "1")
SWEEP = ("sweep", "quickstart", *SMALL, "--grid", "epsilon=1,2", "--workers", "1")
COMPARE = ("compare", "privunit-fl-digits", "nbafl-digits", "--set", "num_clients=12", *SMALL[2:],
           "--guarantee", "client-run:server", "--epsilon", "16", "--tries", "2", "--seeds", "0",
           "--workers", "1")  # fmt: skip
ADVISE = ("advise", "people.csv", "--client", "site", "--budget", "1s", "--workers", "1",
          "--set", "scale_columns.age=[0, 120]")  # fmt: skip
AUDIT = ("audit", "--mechanism", "two_point", "--quick", "--trials", "20", "--workers", "1")
COMMANDS = {
    "run": (RUN, "--out"),
    "sweep": (SWEEP, "--out"),
    "compare": (COMPARE, "--out"),
    "advise": (ADVISE, "--out"),
    "audit": (AUDIT, "--page"),
}
END = {
    "run": "summary.json",
    "sweep": "results.csv",
    "compare": "table.csv",
    "advise": "advice.html",
    "audit": "",
}


def command(*arguments: str) -> None:
    from fedldp.cli import main

    sys.argv = ["fedldp", *arguments]
    main()


def _imports() -> None:
    import sklearn.datasets
    import sklearn.model_selection  # noqa: F401

    import fedldp.cli.advise
    import fedldp.cli.audit
    import fedldp.cli.compare
    import fedldp.cli.run
    import fedldp.cli.sweep
    import fedldp.simulation.engine  # noqa: F401


command.imports = _imports  # type: ignore[attr-defined]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    rows = [f"s{n % 3},{18 + n % 70},{n % 2}" for n in range(300)]
    (tmp_path / "people.csv").write_text("\n".join(["site,age,label", *rows]))
    return tmp_path


@pytest.mark.parametrize("name", ["run", "sweep", "compare", "advise"])
def test_commands_that_start_together_have_folders_of_their_own(place: Path, name: str) -> None:
    arguments, _ = COMMANDS[name]
    calls = [[*arguments, "--set", f"seed={seed}"] if name == "run" else arguments
             for seed in (0, 0, 0)]  # fmt: skip
    ended = together(command, calls, place)
    assert [status for status, _ in ended] == [0, 0, 0], ended
    folders = list((place / "runs").iterdir())
    assert len(folders) == 3
    for folder in folders:
        assert re.fullmatch(r"(?!.*/).*\d{8}-\d{6}(-\d)?", folder.name)
        assert (folder / END[name]).exists()
        assert not (folder / "lock").exists()
        assert any(str(folder.relative_to(place)) in said for _, said in ended)


@pytest.mark.parametrize("name", COMMANDS)
def test_of_commands_that_start_together_in_one_folder_one_works(place: Path, name: str) -> None:
    arguments, option = COMMANDS[name]
    ended = together(command, [[*arguments, option, "here"]] * 3, place)
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
    assert (place / "here" / END[name]).exists()
    assert not (place / "here" / "lock").exists()
    assert not (place / "here.lock").exists()


def test_a_run_that_is_refused_leaves_no_folder(
    fedldp_command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for more in ([], ["--out", "deep/here"]):
        fedldp_command("run", "--set", "clients_per_round=101", *more).assert_refused()
        assert list(tmp_path.iterdir()) == []
